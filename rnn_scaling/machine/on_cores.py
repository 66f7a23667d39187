"""python on_cores.py CORES COMMAND...: becomes COMMAND, held to these cores ("0,1") with all its processes."""

from __future__ import annotations

import os
import sys


def main(argv: list[str]) -> None:
    """Does not return."""
    cores, command = [int(core) for core in argv[0].split(",")], argv[1:]
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    try:
        os.execvp(command[0], command)
    except OSError as e:
        sys.exit(f"error: {command[0]}: {e.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
