"""Read files and programs of the system; missing ones are not an error.

All other modules of `machine` read through these functions.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

GIB = 2**30
UNLIMITED = 2**60  # without a limit version 1 has a number near 2**63
# Files of the limit and of the used memory, by whether the control group has version 2.
FILES = {
    True: ("memory.max", "memory.current"),
    False: ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}


def list_cpuinfo_values(cpuinfo: str, field: str) -> list[str]:
    return re.findall(rf"^{field}\s*: *(.*?) *$", cpuinfo, re.MULTILINE)


def read_text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def read_first_line(path: str) -> str | None:
    return next(iter(read_text(path).splitlines()), None)


def find_control_groups(root: str, controller: str) -> Iterator[tuple[str, bool]]:
    """Yield the control groups that limit this process: folder, whether it has version 2."""
    for line in read_text(f"{root}/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        hierarchy = controller if controllers else ""
        # In a container the path may belong to the host; then only the root exists.
        for group in dict.fromkeys([path, *map(str, Path(path).parents)]):
            yield f"{root}/sys/fs/cgroup/{hierarchy}/{group}", not controllers


def find_available_memory_bytes(root: str = "/") -> int | None:
    """Return the bytes that this process can allocate without swapping; None if unknown.

    This is MemAvailable, or less because of the limit of a control group.
    """
    match = re.search(
        r"^MemAvailable:\s*(\d+) kB$", read_text(f"{root}/proc/meminfo"), re.MULTILINE
    )
    limits = [int(match[1]) * 1024] if match else []
    for folder, is_second in find_control_groups(root, "memory"):
        limit_file, used_file = FILES[is_second]
        limit = read_first_line(f"{folder}/{limit_file}") or ""
        used = read_first_line(f"{folder}/{used_file}") or ""
        if limit.isdecimal() and used.isdecimal() and int(limit) < UNLIMITED:
            # The system drops unused pages of files before it kills a process.
            idle = re.search(
                r"^(?:total_)?inactive_file (\d+)$",
                read_text(f"{folder}/memory.stat"),
                re.MULTILINE,
            )
            idle_bytes = int(idle[1]) if idle else 0
            limits.append(max(0, int(limit) - int(used) + idle_bytes))
    return min(limits, default=None)


def find_peak_process_bytes(root: str = "/") -> int | None:
    """Return the peak resident memory of this process; None if unknown.

    getrusage would include the memory of the parent before this program began.
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
