"""python within_memory.py BYTES COMMAND...: becomes COMMAND, whose data may take so many bytes, and no more.

A program that asks for more is refused by the kernel and fails by itself, before the machine swaps or the kernel kills
whatever is largest. RLIMIT_DATA counts memory that can be written, each process by itself; RLIMIT_AS would count what
is only mapped, too, which in TensorFlow is several times as much. Only Linux (4.7 or later) counts so; elsewhere the
limit is set, and may hold nothing.
"""

from __future__ import annotations

import os
import resource
import sys


def main(argv: list[str]) -> None:
    """Does not return."""
    limit, command = int(argv[0]), argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        os.execvp(command[0], command)
    except OSError as e:
        sys.exit(f"error: {command[0]}: {e.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
