"""python memory_limit.py BYTES COMMAND...: becomes COMMAND, which is killed when it uses more than so many bytes.

So a program that needs too much fails by itself, before the machine swaps or the kernel kills whatever is largest.
What counts is memory in use, as its peak in a record does. TensorFlow reserves up to twice as much and may never touch
it. RLIMIT_DATA, which counts reserved memory, is only a second net, for a program that grows between two looks. Linux
alone tells what another process uses (/proc); elsewhere only the net is set.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time

RESERVED = 2.25  # times what a program uses: an allocator whose blocks double reserves twice as much at most
INTERVAL_S = 0.02
PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
KILLED = "the memory limit was exceeded"


def main(argv: list[str]) -> None:
    """Does not return."""
    limit, command = int(argv[0]), argv[1:]
    program = os.getpid()
    if sys.platform == "linux" and os.fork() == 0:
        _watch(program, limit)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    reserved = int(RESERVED * limit)
    most = reserved if hard == resource.RLIM_INFINITY else min(reserved, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        os.execvp(command[0], command)
    except OSError as e:
        sys.exit(f"error: {command[0]}: {e.strerror}")


def _watch(program: int, limit: int) -> None:
    """Kills the program, this process's parent, when it uses more; ends with it, and does not return."""
    try:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        while os.getppid() == program:
            with open(f"/proc/{program}/statm") as file:
                used = int(file.read().split()[1]) * resource.getpagesize()
            if used > limit:
                os.write(2, f"error: {KILLED}: {used} of {limit} bytes\n".encode())
                os.kill(program, signal.SIGKILL)
            time.sleep(INTERVAL_S)
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
