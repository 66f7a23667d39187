"""Processes that a run left behind: those that have its variable in their environment and still run. Linux alone."""

import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

DYING_S = 0.2  # that a process which was killed may still be there


def find(variable: str, root: Path = Path("/proc")) -> list[str]:
    """Number and command of each, as "1234 (python daemon.py)"."""
    if not any(_running(variable, root)):
        return []
    time.sleep(DYING_S)
    return [*_running(variable, root)]


def _running(variable: str, root: Path) -> Iterator[str]:
    for folder in root.glob("[0-9]*"):
        try:
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0") and folder.name != str(os.getpid()):
                words = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
                yield f"{folder.name} ({shlex.join(words)[:100]})"
        except OSError:  # it has ended, or is another user's
            continue
