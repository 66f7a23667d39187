"""Files that are written whole or not at all, and their names."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

RECORD_IN_LOG_DIR = "run.json"  # the record that the trainer leaves beside TensorBoard's files


def write_text(text: str, path: str | os.PathLike[str]) -> None:
    """Replaces the file at `path` by `text` in one step."""
    write_bytes(text.encode("utf-8"), path)


def write_bytes(content: bytes, path: str | os.PathLike[str]) -> None:
    """Replaces the file at `path` by `content` in one step (temporary file beside it, then rename)."""
    target = Path(path).resolve()  # a link stays a link
    if target.exists() and not target.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp's 0600 would hide the result from colleagues
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
