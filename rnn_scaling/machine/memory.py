"""How much memory there is for a process, by the system and by the control group that it runs in."""

import re

from rnn_scaling.machine.system import control_groups, read_first_line, read_text

GIB = 2**30
UNLIMITED = 2**60  # version 1 says a number near 2**63 where there is no limit
# Files of a limit and of what is used, by whether the control group is of version 2.
FILES = {True: ("memory.max", "memory.current"), False: ("memory.limit_in_bytes", "memory.usage_in_bytes")}


def available_bytes(root: str = "/") -> int | None:
    """Bytes that this process can still take without swapping: MemAvailable, or what a control group leaves."""
    match = re.search(r"^MemAvailable:\s*(\d+) kB$", read_text(f"{root}/proc/meminfo"), re.MULTILINE)
    known = [int(match[1]) * 1024] if match else []
    for folder, is_second in control_groups(root, "memory"):
        limit, used = (read_first_line(f"{folder}/{name}") or "" for name in FILES[is_second])
        if limit.isdecimal() and used.isdecimal() and int(limit) < UNLIMITED:
            # The system drops unused pages of files before it kills a process.
            idle = re.search(r"^(?:total_)?inactive_file (\d+)$", read_text(f"{folder}/memory.stat"), re.MULTILINE)
            known.append(max(0, int(limit) - int(used) + (int(idle[1]) if idle else 0)))
    return min(known, default=None)
