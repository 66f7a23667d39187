"""Compiles kernels.c for this Python's TensorFlow: `./run.sh setup-kernels`."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FLAGS = ("-std=gnu11", "-O3", "-Wall", "-fPIC", "-shared", "-fvisibility=hidden")


def build() -> Path:
    """The library's file, compiled unless it is there; others are removed. Raises RuntimeError without a compiler."""
    import tensorflow as tf

    from rnn_scaling.models.extension import operators

    file = operators.library_file()
    if file.exists():
        return file
    compiler = shutil.which(os.environ.get("CC", "gcc"))
    if compiler is None:
        raise RuntimeError("building kernels needs gcc; on Debian and Ubuntu: apt-get install gcc libc6-dev")
    source = Path(__file__).with_name("kernels.c")
    framework = Path(tf.sysconfig.get_lib(), "libtensorflow_framework.so.2")
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        made = Path(folder, file.name)
        command = [compiler, *FLAGS, f"-isystem{tf.sysconfig.get_include()}", str(source), "-o", str(made)]
        done = subprocess.run([*command, str(framework), "-lm"], capture_output=True, text=True)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "error" in line] or [f"exit status {done.returncode}"]
            raise RuntimeError(f"{compiler} does not compile {source}: {lines[0]}")
        for old in file.parent.glob("kernels-*.so"):
            old.unlink()
        made.replace(file)
    return file


def main() -> int:
    """Builds; says in one line what there is now, or on stderr why not (status 1)."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        file = build()
    except (RuntimeError, OSError) as e:
        print(f"error: {e}", file=sys.stderr)
        return 1
    import tensorflow as tf

    from rnn_scaling.models.extension import operators

    tf.config.threading.set_intra_op_parallelism_threads(1)
    dtypes = [dtype for dtype in ("float32", "bfloat16") if operators.usable(dtype)]
    here = f"taken for {' and '.join(dtypes)}" if dtypes else "not taken here: they are for CPUs with AVX-512"
    print(f"kernels of LSTM layers and their loss are built ({file}), {here}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
