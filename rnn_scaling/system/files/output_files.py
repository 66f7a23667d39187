"""Every file that is written where others may have files: whole or not at all, or line by line; and their names."""

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

RECORD_IN_LOG_DIR = (
    "run.json"  # the record that the trainer leaves next to TensorBoard's files
)


def write_text(text: str, path: str | os.PathLike[str]) -> None:
    """Replaces the file at `path` by `text` in one step."""
    write_bytes(text.encode("utf-8"), path)


def write_bytes(content: bytes, path: str | os.PathLike[str]) -> None:
    """Replaces the file at `path` by `content` in one step."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file next to `path`, which replaces it in one step when the block ends well, and is removed otherwise.

    Raises OSError if nothing may be written there; what was at `path` is then still there.
    """
    target = Path(path)
    _refuse_special(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(
        dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"
    )
    temporary = Path(name)
    try:
        os.close(handle)
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(
            temporary, 0o666 & ~umask
        )  # mkstemp's 0600 would hide the result from colleagues
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def open_new(path: Path) -> TextIO:
    """Opens an empty text file for lines that others read while it grows; an older file loses this name alone.

    Raises OSError if the name is that of a link or of no regular file, or nothing may be written there.
    """
    _refuse_special(path)
    path.unlink(
        missing_ok=True
    )  # truncating would empty every other name of a file with several
    handle = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
    )
    return os.fdopen(handle, "w", encoding="utf-8")


def open_own(path: Path, flags: int) -> int:
    """Opens a file that this program writes to again, made if it is missing; returns the descriptor.

    Raises OSError, whose `strerror` says what to do, if it is a link, has several names or is no regular file.
    """
    refuse_link(path)  # the flag O_NOFOLLOW is for one that comes now
    handle = os.open(
        path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666
    )
    status = os.fstat(handle)
    if (
        not stat.S_ISREG(status.st_mode) or status.st_nlink > 1
    ):  # a hard link is another's file, too
        os.close(handle)
        raise OSError(
            errno.EINVAL, "not a regular file with one name; remove it", str(path)
        )
    return handle


def _refuse_special(path: Path) -> None:
    """Refuses a name that is not free and not that of a regular file: a link, a FIFO, a device, a folder."""
    refuse_link(path)
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def refuse_link(path: Path) -> None:
    """Refuses to write through a link, with an OSError: it may lead to a file of somebody else, or to none."""
    if path.is_symlink():
        raise OSError(
            errno.ELOOP,
            "a link, and nothing is written through links; remove it",
            str(path),
        )
