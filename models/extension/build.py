"""Compiles the operators for this Python's TensorFlow and tests them; `./run.sh setup` calls it."""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FLAGS = ("-std=gnu11", "-O3", "-Wall", "-fPIC", "-fvisibility=hidden")
WIDE = ("-mfma", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq")
VARIANTS = {"avx2": ("-mfma", "-mavx2"), "avx512": WIDE, "avx512_bf16": (*WIDE, "-mavx512bf16")}


def build() -> Path:
    """The library's file, compiled unless it is there; others are removed. Raises RuntimeError without a compiler."""
    import tensorflow as tf

    from rnn_scaling.models.extension import operators

    file = operators.library_file()
    if file.exists():
        return file
    if platform.machine() != "x86_64":
        raise RuntimeError(f"the faster CPU kernels are for x86-64 only, not {platform.machine()}")
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise RuntimeError("there is no C compiler; on Debian and Ubuntu: apt-get install gcc libc6-dev")
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        includes = f"-isystem{tf.sysconfig.get_include()}"
        compiles = [
            [*FLAGS, *flags, f"-DVARIANT={name}", "-c", str(here / "variant.c"), "-o", f"{folder}/{name}.o"]
            for name, flags in VARIANTS.items()
        ]
        compiles.append([*FLAGS, includes, "-c", str(here / "kernels.c"), "-o", f"{folder}/kernels.o"])
        _run_all([[compiler, *words] for words in compiles])
        library, objects = Path(folder, file.name), [words[-1] for words in compiles]
        framework = Path(tf.sysconfig.get_lib(), "libtensorflow_framework.so.2")
        _run_all([[compiler, "-shared", "-o", str(library), *objects, str(framework), "-lm"]])
        for old in file.parent.glob("kernels-*.so*"):
            old.unlink()
        library.replace(file)
    return file


def _run_all(commands: list[list[str]]) -> None:
    """Runs all at the same time; RuntimeError with the first message of one that fails."""
    started = [subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for words in commands]
    for process, words in zip(started, commands, strict=True):
        errors = process.communicate()[1].splitlines()
        if process.returncode:
            lines = [line for line in errors if "error" in line] or [f"exit status {process.returncode}"]
            raise RuntimeError(f"{words[0]} does not compile the faster CPU kernels: {lines[0]}")
