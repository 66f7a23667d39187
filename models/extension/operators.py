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

from rnn_scaling.models.extension import library
from rnn_scaling.models.extension.switch import SWITCH

FOLDER = Path(__file__).parent
CHECK = "rnn_scaling.models.operators_check"  # loaded late, because it imports kernels, which import this module
STOCK = "stock"
"""In a record: TensorFlow's own operators ran."""
BUILD_MODULES = ("build.py", "library.py")  # which decide the library's bytes


def library_file() -> Path:
    """Return the path that the library of these sources and this TensorFlow has."""
    here = Path(__file__).parent
    modules = [here / name for name in BUILD_MODULES]
    sources = sorted([*here.glob("*.[ch]"), *modules])
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources))
    return FOLDER / f"kernels-{tf.__version__}-{digest.hexdigest()[:8]}.so"


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
    """Return the instruction set for a value of SWITCH, and why it cannot be used.

    Operators that were never tested are tested.

    Returns:
      (None, "") if the processor has none or they were not built; otherwise the
      reason is "" if the operators can be used.
    """
    file = library_file()
    if not file.exists() or (sys.platform, platform.machine()) != ("linux", "x86_64"):
        if wanted in ("", "off"):
            return None, ""
        return None, f"{SWITCH}={wanted} needs them built; run ./run.sh setup"
    if wanted == "off":
        return None, ""
    identity, damage = _identity(file)
    if identity is None:
        return None, damage
    try:
        found = _library(file).rnn_scaling_use(wanted.encode())
    except tf.errors.OpError as e:  # of a wheel from a system with newer libraries
        return "x86-64", e.message.splitlines()[0]
    if not found:
        return None, ""
    name: str = found.decode()
    return name, test(file, identity, name)


@functools.cache
def test(file: Path, identity: library.Identity, name: str) -> str:
    """Return what the test of an instruction set found, "" if all operators agree.

    The result is kept in a file next to the library, if that can be written.
    """
    path = library.result_file(file, name)
    try:
        kept = library.read_result(path, identity)
    except library.ResultError as e:
        _warn(f"faster CPU kernels are tested again: {e}")
        kept = None
    if kept is not None:
        return kept
    check = importlib.import_module(CHECK)
    # In a thread, which has neither the graph nor the tape that may be open here.
    with ThreadPoolExecutor(1) as outside:
        try:
            failure: str = outside.submit(check.failure).result()
        except tf.errors.ResourceExhaustedError as e:
            return str(e.message)  # not kept: the next process may have more memory
    with contextlib.suppress(OSError):
        library.write_result(path, identity, failure)
    return failure


def load() -> Any:
    """The operators as functions, rnn_scaling_lstm and the others of kernels.c."""
    return _operators(library_file())


@functools.cache
def _warn_once(failure: str) -> None:
    _warn(f"faster CPU kernels are not used: {failure}")


def _warn(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr)


@functools.cache
def _identity(file: Path) -> tuple[library.Identity | None, str]:
    """Return the library's identity, or None and why it must not be loaded."""
    try:
        return library.identify(file), ""
    except library.DamageError as e:
        return None, str(e)


@functools.cache
def _operators(file: Path) -> Any:
    return tf.load_op_library(str(file))


@functools.cache
def _library(file: Path) -> ctypes.CDLL:
    _operators(file)
    loaded = ctypes.CDLL(str(file))
    loaded.rnn_scaling_use.restype = ctypes.c_char_p
    return loaded
