"""What the system's files and programs say; nothing where they are missing."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path


def cpuinfo_values(cpuinfo: str, field: str) -> list[str]:
    return re.findall(rf"^{field}\s*: *(.*?) *$", cpuinfo, re.MULTILINE)


def read_text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def read_first_line(path: str) -> str | None:
    return next(iter(read_text(path).splitlines()), None)


def control_groups(root: str, controller: str) -> Iterator[tuple[str, bool]]:
    """(folder, whether it is of version 2) of this process's control group and of those above, which limit it too."""
    for line in read_text(f"{root}/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        place = f"{root}/sys/fs/cgroup/{controller if controllers else ''}"
        # In a container the path may be the host's, and only the root is to be seen.
        for group in dict.fromkeys([path, *map(str, Path(path).parents)]):
            yield f"{place}/{group}", not controllers


def peak_process_bytes(root: str = "/") -> int | None:
    """The most memory that this process had resident at once, with its libraries; None: the system does not tell.

    The kernel's high-water mark: getrusage's counts what the parent had before this program began, as a Python with
    gigabytes of data that starts a run.
    """
    match = re.search(r"^VmHWM:\s*(\d+) kB$", read_text(f"{root}proc/self/status"), re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def run_command(*words: str) -> str | None:
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
