"""Files that are written whole or not at all, and their names."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

RECORD_IN_LOG_DIR = "run.json"  # the record that the trainer leaves beside TensorBoard's files


def write_text(text: str, path: str | os.PathLike[str]) -> None:
    """Replaces the file at `path` by `text` in one step."""
    write_bytes(text.encode("utf-8"), path)


def write_bytes(content: bytes, path: str | os.PathLike[str]) -> None:
    """Replaces the file at `path` by `content` in one step."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(content)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A fresh file beside `path`, which takes its place in one step when the block ends well, and else is removed.

    Raises:
      OSError: if nothing may be written there; what was at `path` is then still there.
    """
    target = Path(path)
    refuse_link(target)
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        os.close(handle)
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp's 0600 would hide the result from colleagues
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def refuse_link(path: Path) -> None:
    """Refuses to write where a link stands: it may lead to a file that is nobody's business here, or that is not there.

    Raises:
      OSError: if it is one; `strerror` says what to do.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, "a link, and nothing is written through links; remove it", str(path))
