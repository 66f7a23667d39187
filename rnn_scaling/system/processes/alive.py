"""Identify processes by number, start and boot, to find out whether they still run.

Records of runs in progress contain the identity as text. Its format must stay, or these
runs seem to have ended.
"""

import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

DYING_S = 0.2  # time until a killed process has disappeared


def identify_this_process(root: str = "/proc") -> str | None:
    """Return the identity of this process; None if the system does not report it."""
    return _read_identity("self", os.getpid(), root)


def is_alive(process: str | None, root: str = "/proc") -> bool:
    """Return whether the process with an identity runs on this machine.

    False if the system does not report it.
    """
    number = (process or "").partition(" ")[0]
    return (
        number.isdecimal()
        and len(number) < 10
        and _read_identity(number, int(number), root) == process
    )


def _read_identity(folder: str, number: int, root: str) -> str | None:
    try:
        boot = Path(root, "sys/kernel/random/boot_id").read_text().strip()
        # The name of the program is in brackets and may contain anything.
        text = Path(root, folder, "stat").read_text(errors="replace")
        words = text.rpartition(")")[2].split()
        # The state is the 3rd word of all, the start the 22nd.
        return None if words[0] == "Z" else f"{number} {words[19]} {boot}"
    except (OSError, IndexError):
        return None


def find_leftovers(variable: str, root: Path = Path("/proc")) -> list[str]:
    """List running processes with a text in their environment (only on Linux).

    Returns:
      Texts such as "1234 (python daemon.py)".
    """
    if not any(_find_running(variable, root)):
        return []
    time.sleep(DYING_S)
    return [*_find_running(variable, root)]


def _find_running(variable: str, root: Path) -> Iterator[str]:
    for folder in root.glob("[0-9]*"):
        if folder.name == str(os.getpid()):
            continue
        try:
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                text = (folder / "cmdline").read_bytes().decode(errors="replace")
                words = text.rstrip("\0").split("\0")
                yield f"{folder.name} ({shlex.join(words)[:100]})"
        except OSError:  # It has ended, or belongs to another user.
            continue
