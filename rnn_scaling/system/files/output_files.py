"""Write result files in one step or line by line, and never through links.

`sweeps.folder.LEFTOVER` recognises temporary files by their names, .NAME.*.tmp.

Every result of a command is written with these functions, so that no program reads half
a file.
"""

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

RECORD_IN_LOG_DIR = "run.json"  # the record next to TensorBoard's files


def write_text(text: str, path: str | os.PathLike[str]) -> None:
    """Replace the file at `path` by `text` in one step."""
    write_bytes(text.encode("utf-8"), path)


def write_bytes(content: bytes, path: str | os.PathLike[str]) -> None:
    """Replace the file at `path` by `content` in one step."""
    with open_replacement(path) as temporary, open(temporary, "wb") as file:
        file.write(content)


@contextlib.contextmanager
def open_replacement(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a new file that replaces `path` in one step when the block has succeeded.

    If the block raises, the new file is removed and `path` is unchanged.

    Raises:
      OSError: If the folder cannot be written to, or `path` is a special file.
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
        # The mode 0600 of mkstemp would hide the result from colleagues.
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def open_new(path: Path) -> TextIO:
    """Open an empty text file for lines that other programs read while it grows.

    An older file is unlinked, because truncating it would change its hard links.

    Raises:
      OSError: If the name belongs to a link or a special file, or the folder cannot be
        written to.
    """
    _refuse_special(path)
    path.unlink(missing_ok=True)
    handle = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666
    )
    return os.fdopen(handle, "w", encoding="utf-8")


def open_own(path: Path, flags: int) -> int:
    """Open a file of this program to write again, creating it if missing.

    Returns:
      The file descriptor.

    Raises:
      OSError: If it is a link, has several names or is not a regular file. `strerror`
        contains the remedy.
    """
    refuse_link(path)  # O_NOFOLLOW is for a link that is created after this check.
    handle = os.open(
        path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666
    )
    status = os.fstat(handle)
    # With several names the file may also belong to somebody else.
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        os.close(handle)
        raise OSError(
            errno.EINVAL,
            "it is not a regular file, or it has other hard links; remove it",
            str(path),
        )
    return handle


def _refuse_special(path: Path) -> None:
    """Raise OSError if a name belongs to a link, a FIFO, a device or a folder."""
    refuse_link(path)
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def refuse_link(path: Path) -> None:
    """Raise OSError for a link: its target may belong to somebody else, or be missing."""
    if path.is_symlink():
        raise OSError(
            errno.ELOOP,
            "it is a symbolic link, and files are never written through links; remove "
            "it",
            str(path),
        )
