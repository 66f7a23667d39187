"""A folder that one process works in: a lock that the kernel lets go of however that process ends."""

import contextlib
import dataclasses
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from rnn_scaling.system.files.output_files import open_own

SWEEP_LOCK = ".sweep.lock"  # of a folder in which a sweep runs
TRIES = 3
BETWEEN_TRIES_S = 0.02


class BusyError(RuntimeError):
    """Another process works in the folder."""


@dataclasses.dataclass(frozen=True)
class Hold:
    """A folder that this process holds alone: its lock, and that file, opened."""

    path: Path
    handle: int

    @property
    def folder(self) -> Path:
        return self.path.parent

    def is_whole(self) -> bool:
        """Whether the folder and its lock still are those that were taken."""
        try:
            return os.path.samestat(os.lstat(self.path), os.fstat(self.handle))
        except OSError:
            return False


@contextlib.contextmanager
def hold(folder: Path, name: str, user: str, remedy: str) -> Iterator[Hold]:
    """Holds a folder for this process alone; the kernel lets go of it however the process ends.

    flock instead of the filelock package: the same call, and the file can say who holds it. A BusyError names the
    folder and the process that holds it; an OSError says that the lock cannot be written.
    user: what holds such folders: "sweep"; remedy: "choose another --out".
    """
    path = folder / name
    handle = open_own(path, os.O_RDWR)
    try:
        if not _locks(handle):
            holder = _holder(handle) or "its process ID is not known yet"
            raise BusyError(
                f"{folder} is in use by another {user} ({holder}); wait for it, end it or {remedy}"
            )
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{_this_holder()}\n".encode(), 0)
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
        return _holder(handle) != _this_holder()
    except OSError:  # a file system without locks
        return False
    else:
        return False
    finally:
        os.close(handle)


def _locks(handle: int) -> bool:
    """Take the lock; whoever asks `is_held_by_another` has it for a moment."""
    for attempt in range(TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if attempt < TRIES - 1:
                time.sleep(BETWEEN_TRIES_S)
    return False


def _holder(handle: int) -> str:
    return os.pread(handle, 200, 0).decode("utf-8", "replace").strip()


def _this_holder() -> str:
    return f"pid {os.getpid()} on {socket.gethostname()}"
