"""A folder that one process works in: a lock that the kernel lets go of however that process ends."""

import contextlib
import dataclasses
import fcntl
import os
import socket
from collections.abc import Iterator
from pathlib import Path

from rnn_scaling.files.output_files import open_own


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
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = (
                os.pread(handle, 200, 0).decode("utf-8", "replace").strip()
                or "its process ID is not known yet"
            )
            raise BusyError(
                f"{folder} is in use by another {user} ({holder}); wait for it, end it or {remedy}"
            ) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"pid {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        yield Hold(path, handle)
    finally:
        os.close(handle)
