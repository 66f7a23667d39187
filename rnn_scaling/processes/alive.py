"""Whether the process that wrote something still runs: its number, when it started, and the boot that counts both."""

import os
from pathlib import Path


def this_process(root: str = "/proc") -> str | None:
    """What `is_alive` finds this process again by; None where the system does not tell."""
    return _of("self", os.getpid(), root)


def is_alive(process: str | None, root: str = "/proc") -> bool:
    """Whether the process of `this_process` still runs on this machine; False where that cannot be known."""
    number = (process or "").partition(" ")[0]
    return number.isdecimal() and len(number) < 10 and _of(number, int(number), root) == process


def _of(folder: str, number: int, root: str) -> str | None:
    try:
        boot = Path(root, "sys/kernel/random/boot_id").read_text().strip()
        # Behind the name of the program, which is in brackets and may hold anything.
        words = Path(root, folder, "stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if words[0] == "Z" else f"{number} {words[19]} {boot}"  # the start is the 22nd word of all
    except (OSError, IndexError):
        return None
