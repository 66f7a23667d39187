"""Our own operators for x86-64 CPUs, compiled from C at set-up (build.py); without them TensorFlow's do the same.

Each runs on one thread, so that they take the place of TensorFlow's only where it has one thread an operator too.
"""

import ctypes
import functools
import hashlib
import os
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.eager import context

SWITCH = "RNN_SCALING_OPERATORS"
"""Environment variable: "off", or the instruction set to use: avx2, avx512 or avx512_bf16 (default: the best)."""
FOLDER = Path(__file__).parent
SOURCES = (
    "kernels.c",
    "variant.c",
    "layers.h",
    "attention.h",
    "dtype.h",
    "gru.h",
    "lstm.h",
    "product.h",
    "softmax.h",
    "vectors.h",
)


def library_file() -> Path:
    """Where the library of these sources and this TensorFlow is, once it was built."""
    sources = b"".join((Path(__file__).parent / name).read_bytes() for name in SOURCES)
    return FOLDER / f"kernels-{tf.__version__}-{hashlib.sha256(sources).hexdigest()[:8]}.so"


def usable(dtype: Any) -> bool:
    """Whether kernels of this process use the operators for products of this dtype.

    They were built and not switched off, the processor has the instructions, TensorFlow has one thread an operator, no
    GPU computes, and no other process is sent parts of the step, since it may not have them.
    """
    dtype = tf.as_dtype(dtype)
    if dtype not in (tf.float32, tf.bfloat16) or tf.config.threading.get_intra_op_parallelism_threads() != 1:
        return False
    if tf.config.list_physical_devices("GPU") or context.context().get_server_def() is not None:
        return False
    return instruction_set() is not None


def instruction_set() -> str | None:
    """What the operators of this process are compiled for: avx2, avx512 or avx512_bf16; None if there are none."""
    wanted, file = os.environ.get(SWITCH, ""), library_file()
    if wanted == "off" or not file.exists():
        return None
    chosen = _library(file).rnn_scaling_use(wanted.encode())
    return chosen.decode() if chosen else None


def load() -> Any:
    """The operators as functions, rnn_scaling_lstm and the others of kernels.c."""
    return _operators(library_file())


@functools.cache
def _operators(file: Path) -> Any:
    return tf.load_op_library(str(file))


@functools.cache
def _library(file: Path) -> ctypes.CDLL:
    _operators(file)
    library = ctypes.CDLL(str(file))
    library.rnn_scaling_use.restype = ctypes.c_char_p
    return library
