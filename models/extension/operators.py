"""This project's operators for x86-64 CPUs, compiled from C at set-up (build.py).

Without them, TensorFlow's operators compute the same. Each runs on one thread, so they
replace TensorFlow's only if TensorFlow has one thread per operator.
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

from rnn_scaling.models.extension import library, switch
from rnn_scaling.models.extension.switch import SWITCH

FOLDER = Path(__file__).parent
# Imported late, because it imports the kernels, which import this module.
CHECK = "rnn_scaling.models.operators_check"
STOCK = "stock"
"""Value in records: TensorFlow's own operators ran."""
# Modules that decide the library's bytes.
_BUILD_MODULES = ("build.py", "library.py")


def find_library_file() -> Path:
    """Return the path of the library that this process loads.

    Returns:
      The library for this processor. If it is missing, a library that was built on
      another processor (in a wheel or a shared folder), if one exists.
    """
    file = own_library_file()
    if file.exists():
        return file
    foreign = sorted(FOLDER.glob(f"{make_library_prefix()}*.so"))
    return foreign[0] if foreign else file


def own_library_file() -> Path:
    """Return the path of the library that set-up builds on this processor."""
    own_sets = switch.list_supported_sets(switch.read_processor_instructions())
    best = own_sets[-1] if own_sets else "none"
    return FOLDER / f"{make_library_prefix()}{best}.so"


def make_library_prefix() -> str:
    """Return the start of the names of all libraries for these sources and TensorFlow."""
    return f"kernels-{tf.__version__}-{_hash_sources()}-"


def _hash_sources() -> str:
    """Return eight digits that change with the C sources and with how they are built."""
    folder = Path(__file__).parent
    sources = [*folder.glob("*.[ch]"), *(folder / name for name in _BUILD_MODULES)]
    contents = [path.read_bytes() for path in sorted(sources)]
    return hashlib.sha256(b"".join(contents)).hexdigest()[:8]


def is_usable(dtype: Any) -> bool:
    """Return whether this process computes products of this dtype by the operators.

    It does if they were built, tested and not switched off, the processor has the
    instructions, TensorFlow has one thread per operator, no GPU computes, and no
    other process computes parts of the step, because it may not have them.
    """
    if tf.as_dtype(dtype) not in (tf.float32, tf.bfloat16):
        return False
    if tf.config.threading.get_intra_op_parallelism_threads() != 1:
        return False
    if tf.config.list_physical_devices("GPU"):
        return False
    if context.context().get_server_def() is not None:
        return False
    return find_instruction_set() is not None


def find_instruction_set() -> str | None:
    """Return the instruction set that the operators of this process use.

    Returns:
      avx2, avx512 or avx512_bf16; None if the process does not use the operators.
    """
    name, failure = choose(os.environ.get(SWITCH, ""))
    if failure:
        _warn_once(failure)
    return None if failure else name


def name_for(dtype: str) -> str:
    """Return the instruction set for a network of this dtype, or STOCK (for records)."""
    product_dtype = dtype if dtype == "bfloat16" else "float32"
    return (is_usable(product_dtype) and find_instruction_set()) or STOCK


def choose(setting: str) -> tuple[str | None, str]:
    """Return the instruction set for a value of SWITCH, and why it cannot be used.

    Operators that were never tested are tested.

    Returns:
      (None, "") if the operators were not built or the processor lacks AVX2. Otherwise
      the reason is "" if the operators can be used.
    """
    file = find_library_file()
    if not file.exists() or (sys.platform, platform.machine()) != ("linux", "x86_64"):
        if setting in ("", "off"):
            return None, ""
        return (
            None,
            f"{SWITCH}={setting} needs the CPU kernels; ./run.sh setup builds them",
        )
    if setting == "off":
        return None, ""
    identity, damage = _read_identity(file)
    if identity is None:
        return None, damage
    try:
        used_set = _load_library(file).rnn_scaling_use(setting.encode())
    # A wheel that was built with newer libraries does not load.
    except tf.errors.OpError as e:
        return "x86-64", e.message.splitlines()[0]
    if not used_set:
        return None, ""
    name: str = used_set.decode()
    return name, test(file, identity, name)


@functools.cache
def test(file: Path, identity: library.Identity, name: str) -> str:
    """Test an instruction set; return a failure, or "" if all operators agree.

    The result is stored in a file next to the library, if it can be written.
    """
    path = library.find_result_file(file, name)
    try:
        result = library.read_result(path, identity)
    except library.ResultError as e:
        _warn(f"faster CPU kernels are tested again: {e}")
        result = None
    if result is not None:
        return result
    check = importlib.import_module(CHECK)
    # A thread does not see the graph or the tape that may be open here.
    with ThreadPoolExecutor(1) as executor:
        try:
            failure: str = executor.submit(check.find_failure).result()
        except tf.errors.ResourceExhaustedError as e:
            return str(e.message)  # not stored: the next process may have more memory
    with contextlib.suppress(OSError):
        library.write_result(path, identity, failure)
    return failure


def load() -> Any:
    """Return the module of the operators: rnn_scaling_lstm and the others of kernels.c."""
    return _load_operators(find_library_file())


@functools.cache
def _warn_once(failure: str) -> None:
    _warn(f"faster CPU kernels are not used: {failure}")


def _warn(line: str) -> None:
    print(f"warning: {line}", file=sys.stderr)


@functools.cache
def _read_identity(file: Path) -> tuple[library.Identity | None, str]:
    """Return the library's identity, or None and why it must not be loaded."""
    try:
        return library.identify(file), ""
    except library.DamageError as e:
        return None, str(e)


@functools.cache
def _load_operators(file: Path) -> Any:
    return tf.load_op_library(str(file))


@functools.cache
def _load_library(file: Path) -> ctypes.CDLL:
    _load_operators(file)
    loaded = ctypes.CDLL(str(file))
    loaded.rnn_scaling_use.restype = ctypes.c_char_p
    return loaded
