"""Compiles the operators for this Python's TensorFlow and tests them; `./run.sh` calls it when it sets up."""

import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FLAGS = ("-std=gnu11", "-O3", "-Wall", "-fPIC", "-fvisibility=hidden")
WIDE = ("-mfma", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq")
VARIANTS = {
    "avx2": ("-mfma", "-mavx2"),
    "avx512": WIDE,
    "avx512_bf16": (*WIDE, "-mavx512bf16"),
}


def main() -> int:
    """Builds and tests; one line on stdout says what came of it."""
    begun = time.perf_counter()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    from rnn_scaling.models.extension import operators

    text = "not used, since this processor has no AVX2"
    try:
        build()
        name, failure = operators.choose("")
    except (RuntimeError, OSError) as e:
        name, text = None, f"not built, TensorFlow's are used: {e}"
    if name is not None:
        title = name.upper().replace("_", " with ").replace("AVX512", "AVX-512")
        passed = f"tested ({time.perf_counter() - begun:.0f} s)"
        text = f"built for {title} and {'not used: ' + failure if failure else passed}"
    print(f"faster CPU kernels: {text}")
    return 0


def build() -> Path:
    """The library's file, compiled unless it is there; others are removed.

    Raises:
      RuntimeError: if the compiler fails.
      OSError: if there is no compiler, or the folder cannot be written.
    """
    from rnn_scaling.models.extension import operators

    file = operators.library_file()
    if not file.exists():
        _compile(file)
    for old in file.parent.glob("kernels-*.so*"):
        if not old.name.startswith(file.name):
            old.unlink(missing_ok=True)  # another process may do the same
    return file


def _compile(file: Path) -> None:
    import tensorflow as tf

    here, compiler = Path(__file__).parent, shlex.split(os.environ.get("CC") or "cc")
    with tempfile.TemporaryDirectory(".so", dir=file.parent) as folder:
        includes = f"-isystem{tf.sysconfig.get_include()}"
        compiles = [
            [
                *FLAGS,
                *flags,
                f"-DVARIANT={name}",
                "-c",
                str(here / "variant.c"),
                "-o",
                f"{folder}/{name}.o",
            ]
            for name, flags in VARIANTS.items()
        ]
        compiles.append(
            [
                *FLAGS,
                includes,
                "-c",
                str(here / "kernels.c"),
                "-o",
                f"{folder}/kernels.o",
            ]
        )
        _run_all([[*compiler, *words] for words in compiles])
        library, objects = Path(folder, file.name), [words[-1] for words in compiles]
        framework = Path(tf.sysconfig.get_lib(), "libtensorflow_framework.so.2")
        _run_all(
            [
                [
                    *compiler,
                    "-shared",
                    "-o",
                    str(library),
                    *objects,
                    str(framework),
                    "-lm",
                ]
            ]
        )
        library.replace(file)


def _run_all(commands: list[list[str]]) -> None:
    """Runs all at the same time; RuntimeError with the first message of one that fails."""
    started = [
        subprocess.Popen(words, stderr=subprocess.PIPE, text=True) for words in commands
    ]
    messages = [
        process.communicate()[1] for process in started
    ]  # all have ended before their folder is removed
    for process, words, errors in zip(started, commands, messages, strict=True):
        if process.returncode:
            lines = [line for line in errors.splitlines() if "error" in line] or [
                f"exit status {process.returncode}"
            ]
            raise RuntimeError(f"{words[0]} does not compile them: {lines[0]}")


if __name__ == "__main__":
    sys.exit(main())
