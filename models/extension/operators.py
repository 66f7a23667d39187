"""Our own operators for x86-64 CPUs, compiled from C at set-up (build.py); without them TensorFlow's do the same.

Each runs on one thread, so that they take the place of TensorFlow's only where it has one thread an operator too.
"""

import contextlib
import ctypes
import functools
import hashlib
import importlib
import os
import platform
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

from rnn_scaling.models.extension.switch import SWITCH

FOLDER = Path(__file__).parent
CHECK = "rnn_scaling.models.operators_check"  # loaded late, because it imports kernels, which import this module
STOCK = "stock"
"""In a record: TensorFlow's own operators ran."""
AGREES = "agrees with the reference"
"""What the file with a test's result contains where nothing differed."""


def library_file() -> Path:
    """Where the library of these sources and this TensorFlow is, once it was built."""
    here = Path(__file__).parent
    sources = b"".join(
        path.read_bytes() for path in sorted([*here.glob("*.[ch]"), here / "build.py"])
    )
    return (
        FOLDER
        / f"kernels-{tf.__version__}-{hashlib.sha256(sources).hexdigest()[:8]}.so"
    )


def usable(dtype: Any) -> bool:
    """Whether kernels of this process use the operators for products of this dtype.

    They were built, tested and not switched off, the processor has the instructions, TensorFlow has one thread an
    operator, no GPU computes, and no other process is sent parts of the step, since it may not have them.
    """
    dtype = tf.as_dtype(dtype)
    if (
        dtype not in (tf.float32, tf.bfloat16)
        or tf.config.threading.get_intra_op_parallelism_threads() != 1
    ):
        return False
    if (
        tf.config.list_physical_devices("GPU")
        or context.context().get_server_def() is not None
    ):
        return False
    return instruction_set() is not None


def instruction_set() -> str | None:
    """What the operators of this process are compiled for: avx2, avx512 or avx512_bf16; None if there are none."""
    name, failure = choose(os.environ.get(SWITCH, ""))
    if failure:
        _warn_once(failure)
    return None if failure else name


def name_for(dtype: str) -> str:
    """For the record: the instruction set of the operators that compute a network of this dtype, or STOCK."""
    product_dtype = dtype if dtype == "bfloat16" else "float32"
    return (instruction_set() if usable(product_dtype) else None) or STOCK


def choose(wanted: str) -> tuple[str | None, str]:
    """(instruction set for this value of SWITCH, None if there is none; why it cannot be used, or "").

    Operators that were never tested are tested.
    """
    file = library_file()
    if not file.exists() or (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return None, "" if wanted in (
            "",
            "off",
        ) else f"{SWITCH}={wanted} needs them built; run ./run.sh setup"
    if wanted == "off":
        return None, ""
    try:
        found = _library(file).rnn_scaling_use(wanted.encode())
    except tf.errors.OpError as e:  # of a wheel from a system with newer libraries
        return "x86-64", e.message.splitlines()[0]
    name = found.decode() if found else None
    return name, test(file, name) if name else ""


@functools.cache
def test(file: Path, name: str) -> str:
    """What the test of this instruction set found, "" if nothing; kept in a file next to the library, if possible."""
    kept = file.with_name(f"{file.name}.{name}.tested")
    if kept.exists():
        return kept.read_text().removeprefix(AGREES)
    check = importlib.import_module(CHECK)
    with ThreadPoolExecutor(
        1
    ) as outside:  # of the graph and the tape that may be open here
        try:
            found: str = outside.submit(check.failure).result()
        except tf.errors.ResourceExhaustedError as e:
            return str(e.message)  # not kept: the next process may have more memory
    with contextlib.suppress(OSError):
        new = file.with_name(f"{kept.name}.{os.getpid()}")
        new.write_text(found or AGREES)
        new.replace(kept)
    return found


def load() -> Any:
    """The operators as functions, rnn_scaling_lstm and the others of kernels.c."""
    return _operators(library_file())


@functools.cache
def _warn_once(failure: str) -> None:
    print(f"warning: faster CPU kernels are not used: {failure}", file=sys.stderr)


@functools.cache
def _operators(file: Path) -> Any:
    return tf.load_op_library(str(file))


@functools.cache
def _library(file: Path) -> ctypes.CDLL:
    _operators(file)
    library = ctypes.CDLL(str(file))
    library.rnn_scaling_use.restype = ctypes.c_char_p
    return library
