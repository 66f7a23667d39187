"""Our own operators for CPUs, where `./run.sh setup-kernels` has built them from kernels.c; nothing needs them.

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

SWITCH = "RNN_SCALING_OPERATORS"  # of the environment; "off": none is taken
FOLDER = Path(__file__).parent
SOURCES = ("kernels.c", "dtype.h", "lstm.h", "product.h", "softmax.h", "vectors.h")


def library_file() -> Path:
    """Where the library of these sources and this TensorFlow is, once it was built."""
    sources = b"".join((Path(__file__).parent / name).read_bytes() for name in SOURCES)
    return FOLDER / f"kernels-{tf.__version__}-{hashlib.sha256(sources).hexdigest()[:8]}.so"


def usable(dtype: Any) -> bool:
    """Whether kernels of this process take the operators for products of this dtype.

    They were built and not switched off, the processor has what they need, TensorFlow has one thread an operator, no
    GPU computes, and no other process is sent parts of the step, since it may not have them.
    """
    dtype = tf.as_dtype(dtype)
    if os.environ.get(SWITCH) == "off":
        return False
    if dtype not in (tf.float32, tf.bfloat16) or tf.config.threading.get_intra_op_parallelism_threads() != 1:
        return False
    if tf.config.list_physical_devices("GPU") or context.context().get_server_def() is not None:
        return False
    file = library_file()
    return file.exists() and bool(_library(file).rnn_scaling_runs_here(int(dtype == tf.bfloat16)))


def load() -> Any:
    """The operators as functions, rnn_scaling_lstm and the others of kernels.c."""
    return _operators(library_file())


@functools.cache
def _operators(file: Path) -> Any:
    return tf.load_op_library(str(file))


@functools.cache
def _library(file: Path) -> ctypes.CDLL:
    _operators(file)
    return ctypes.CDLL(str(file))
