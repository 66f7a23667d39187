"""How much memory there is for a process, by the system and by the control group that it runs in."""

import re
from pathlib import PurePosixPath

from rnn_scaling.machine.system import read_first_line, read_text

GIB = 2**30
UNLIMITED = 2**60  # version 1 says a number near 2**63 where there is no limit


def available_bytes(root: str = "/") -> int | None:
    """Bytes that this process can still take without swapping: MemAvailable, or what a control group leaves."""
    match = re.search(r"^MemAvailable:\s*(\d+) kB$", read_text(f"{root}proc/meminfo"), re.MULTILINE)
    known = [int(match[1]) * 1024] if match else []
    for line in read_text(f"{root}proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" or "memory" in controllers.split(","):
            known += _left_of_groups(root, path, is_second=number == "0")
    return min(known, default=None)


def _left_of_groups(root: str, path: str, is_second: bool) -> list[int]:
    """What is left to a control group, of version 2 or 1, and to each above it that has a limit."""
    mount = f"{root}sys/fs/cgroup" if is_second else f"{root}sys/fs/cgroup/memory"
    most, now = ("memory.max", "memory.current") if is_second else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    left = []
    for group in (PurePosixPath(path), *PurePosixPath(path).parents):
        folder = f"{mount}{'' if str(group) == '/' else group}"
        limit, used = (read_first_line(f"{folder}/{name}") or "" for name in (most, now))
        if limit.isdecimal() and used.isdecimal() and int(limit) < UNLIMITED:
            # The system drops unused pages of files before it kills a process.
            idle = re.search(r"^(?:total_)?inactive_file (\d+)$", read_text(f"{folder}/memory.stat"), re.MULTILINE)
            left.append(max(0, int(limit) - int(used) + (int(idle[1]) if idle else 0)))
    return left
