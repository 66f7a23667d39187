"""Whether the process that wrote something still runs: its number, when it started, and the boot that counts both."""

import os
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

DYING_S = 0.2  # that a process which was killed may still be there


def this_process(root: str = "/proc") -> str | None:
    """What `is_alive` finds this process again by; None where the system does not tell."""
    return _of("self", os.getpid(), root)


def is_alive(process: str | None, root: str = "/proc") -> bool:
    """Whether the process of `this_process` still runs on this machine; False where that cannot be known."""
    number = (process or "").partition(" ")[0]
    return (
        number.isdecimal()
        and len(number) < 10
        and _of(number, int(number), root) == process
    )


def _of(folder: str, number: int, root: str) -> str | None:
    try:
        boot = Path(root, "sys/kernel/random/boot_id").read_text().strip()
        # Behind the name of the program, which is in brackets and may hold anything.
        words = (
            Path(root, folder, "stat")
            .read_text(errors="replace")
            .rpartition(")")[2]
            .split()
        )
        return (
            None if words[0] == "Z" else f"{number} {words[19]} {boot}"
        )  # the start is the 22nd word of all
    except (OSError, IndexError):
        return None


def leftovers(variable: str, root: Path = Path("/proc")) -> list[str]:
    """Processes that have a variable in their environment and still run, as "1234 (python daemon.py)"; Linux alone."""
    if not any(_running(variable, root)):
        return []
    time.sleep(DYING_S)
    return [*_running(variable, root)]


def _running(variable: str, root: Path) -> Iterator[str]:
    for folder in root.glob("[0-9]*"):
        try:
            if variable.encode() in (folder / "environ").read_bytes().split(
                b"\0"
            ) and folder.name != str(os.getpid()):
                words = (
                    (folder / "cmdline")
                    .read_bytes()
                    .decode(errors="replace")
                    .rstrip("\0")
                    .split("\0")
                )
                yield f"{folder.name} ({shlex.join(words)[:100]})"
        except OSError:  # it has ended, or is another user's
            continue
