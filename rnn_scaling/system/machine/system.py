"""What the system's files and programs say; nothing where they are missing."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

GIB = 2**30
UNLIMITED = 2**60  # version 1 says a number near 2**63 where there is no limit
# Files of a limit and of what is used, by whether the control group is of version 2.
FILES = {
    True: ("memory.max", "memory.current"),
    False: ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}


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


def available_memory_bytes(root: str = "/") -> int | None:
    """Bytes that this process can still take without swapping: MemAvailable, or what a control group leaves."""
    match = re.search(
        r"^MemAvailable:\s*(\d+) kB$", read_text(f"{root}/proc/meminfo"), re.MULTILINE
    )
    known = [int(match[1]) * 1024] if match else []
    for folder, is_second in control_groups(root, "memory"):
        limit, used = (
            read_first_line(f"{folder}/{name}") or "" for name in FILES[is_second]
        )
        if limit.isdecimal() and used.isdecimal() and int(limit) < UNLIMITED:
            # The system drops unused pages of files before it kills a process.
            idle = re.search(
                r"^(?:total_)?inactive_file (\d+)$",
                read_text(f"{folder}/memory.stat"),
                re.MULTILINE,
            )
            known.append(max(0, int(limit) - int(used) + (int(idle[1]) if idle else 0)))
    return min(known, default=None)


def peak_process_bytes(root: str = "/") -> int | None:
    """The most memory that this process had resident at once, with its libraries; None: the system does not tell.

    The kernel's high-water mark: getrusage's counts what the parent had before this program began, as a Python with
    gigabytes of data that starts a run.
    """
    match = re.search(
        r"^VmHWM:\s*(\d+) kB$", read_text(f"{root}proc/self/status"), re.MULTILINE
    )
    return int(match[1]) * 1024 if match else None


def run_command(*words: str) -> str | None:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
