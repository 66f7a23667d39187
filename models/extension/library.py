"""The compiled library as a file, and the results of its tests next to it.

A library that was cut short would end each process that loads it (SIGBUS), and one
with other bytes would compute anything. The build therefore writes the library's
name, size and digest behind its last byte, where the loader does not look, and
nothing is loaded that does not match them.
"""

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MAX_LIBRARY_BYTES = 16_000_000
_MAX_RESULT_BYTES = 64_000
REMEDY = "run ./run.sh setup, or install the package again"


class Identity(NamedTuple):
    """The bytes of one library file; another build has another identity."""

    size: int
    sha256: str


class DamageError(Exception):
    """A library that must not be loaded; the message has the reason and the remedy."""


class ResultError(Exception):
    """An unusable file of a test's result; the message contains the reason."""


def seal(content: bytes, name: str) -> bytes:
    """Return a library's bytes with their seal: its name, size and digest.

    Args:
      content: The library as the linker wrote it.
      name: Its file name, which contains the versions that it was built for.
    """
    digest = hashlib.sha256(content).hexdigest()
    return content + _find_seal(name) + f"{len(content)} {digest}\n".encode()


def identify(file: Path) -> Identity:
    """Return the identity of a library whose seal matches its bytes.

    Raises:
      DamageError: If it does not match, or the file cannot be read.
    """
    try:
        content = _read(file, _MAX_LIBRARY_BYTES)
    except OSError as e:
        raise DamageError(f"{file} cannot be read: {e.strerror}; {REMEDY}") from None
    linked, _, _ = content.rpartition(_find_seal(file.name))
    if content != seal(linked, file.name):
        reason = "its size and digest are not the ones that were built"
        raise DamageError(f"{file} is damaged: {reason}; {REMEDY}")
    return Identity(len(content), hashlib.sha256(content).hexdigest())


def find_result_file(file: Path, instruction_set: str) -> Path:
    """Return the file that keeps the test's result for one instruction set."""
    return file.with_name(f"{file.name}.{instruction_set}.tested")


def read_result(path: Path, identity: Identity) -> str | None:
    """Return what the test of this library found: "" if all operators agree.

    Returns:
      None if this library was not tested yet.

    Raises:
      ResultError: If there is something else at `path`.
    """
    try:
        content = json.loads(_read(path, _MAX_RESULT_BYTES))
    except FileNotFoundError:
        return None
    except OSError as e:
        raise ResultError(f"{path} cannot be read: {e.strerror}") from None
    except (ValueError, RecursionError):
        raise ResultError(f"{path} does not contain a test's result") from None
    if not isinstance(content, dict) or content.keys() != {"size", "sha256", "failure"}:
        raise ResultError(f"{path} does not contain a test's result")
    failure = content["failure"]
    if not isinstance(failure, str) or not failure.isprintable():
        raise ResultError(f"{path} does not contain a test's result")
    is_of_library = (content["size"], content["sha256"]) == identity
    return failure if is_of_library else None


def write_result(path: Path, identity: Identity, failure: str) -> None:
    """Keep what the test of this library found.

    Raises:
      OSError: If nothing can be written there.
    """
    content = {**identity._asdict(), "failure": failure}
    with open_replacement(path) as new:
        new.write_text(json.dumps(content) + "\n")


@contextlib.contextmanager
def open_replacement(path: Path) -> Iterator[Path]:
    """Yield the path of a new file, which replaces the one at `path` in one step.

    Raises:
      OSError: If nothing can be written there; `path` is then unchanged.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield new
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _read(path: Path, max_bytes: int) -> bytes:
    """Return the bytes of a regular file; never wait for the writer of a FIFO.

    Raises:
      OSError: If it cannot be read, is not a regular file, or is larger.
    """
    if path.is_dir():
        raise OSError(errno.EISDIR, "it is a folder; remove it")
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes")
    return content


def _find_seal(name: str) -> bytes:
    return f"\nrnn_scaling library {name} ".encode()
