"""Locks of folders; the kernel releases a lock when its process ends in any way.

A lock belongs to an open file, not to a process: a second `hold` of the same folder
fails even in one process. Child processes do not inherit it.
"""

import contextlib
import dataclasses
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from rnn_scaling.system.files.output_files import open_own

SWEEP_LOCK = ".sweep.lock"  # file in a folder in which a sweep runs
_MAX_TRIES = 3
_TRY_INTERVAL_S = 0.02


class BusyError(RuntimeError):
    """Another process holds the folder."""


@dataclasses.dataclass(frozen=True)
class Hold:
    """The lock of a folder that only this process holds."""

    path: Path
    handle: int  # descriptor of the lock file

    @property
    def folder(self) -> Path:
        """The folder that is locked."""
        return self.path.parent

    def is_valid(self) -> bool:
        """Return whether the lock file was neither removed nor replaced."""
        try:
            return os.path.samestat(os.lstat(self.path), os.fstat(self.handle))
        except OSError:
            return False


@contextlib.contextmanager
def hold(folder: Path, name: str, user: str, remedy: str) -> Iterator[Hold]:
    """Hold a folder exclusively.

    The package filelock also calls flock, but its file cannot name the holder.

    Args:
      folder: The folder.
      name: The name of the lock file.
      user: The program that holds such folders, such as "sweep"; part of the error.
      remedy: The remedy in the error, such as "choose another --out".

    Yields:
      The hold; it ends with the `with` statement. The lock file stays.

    Raises:
      BusyError: If another process holds the folder.
      OSError: If the lock file cannot be written.
    """
    path = folder / name
    handle = open_own(path, os.O_RDWR)
    try:
        if not _try_to_lock(handle):
            holder = _read_holder(handle) or "its process ID is not known yet"
            raise BusyError(
                f"{folder} is in use by another {user} ({holder}); "
                f"wait for it, end it or {remedy}"
            )
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{_format_holder()}\n".encode(), 0)
        yield Hold(path, handle)
    finally:
        os.close(handle)


def is_held_by_another(path: Path) -> bool:
    """Return whether another process holds a folder.

    Args:
      path: The lock file of the folder.

    Returns:
      False if no process holds it, if this process does, or if that cannot be known.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_holder(handle) != _format_holder()
    except OSError:  # a file system without locks
        return False
    else:
        return False
    finally:
        os.close(handle)


def _try_to_lock(handle: int) -> bool:
    """Lock a file and return whether that succeeded.

    It is tried again because `is_held_by_another` also locks the file for a moment.
    """
    for attempt in range(_MAX_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if attempt < _MAX_TRIES - 1:
                time.sleep(_TRY_INTERVAL_S)
    return False


def _read_holder(handle: int) -> str:
    """Return the line that the holder wrote; "" before it has."""
    return os.pread(handle, 200, 0).decode("utf-8", "replace").strip()


def _format_holder() -> str:
    return f"pid {os.getpid()} on {socket.gethostname()}"
