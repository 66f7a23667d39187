"""python tether.py PID COMMAND...: becomes COMMAND, which the kernel kills when the process PID, its parent, dies.

A program of its own instead of a function between fork and exec: that one may deadlock when the parent has threads,
and a progress bar has one. Linux alone has this signal; elsewhere a parent that is killed with SIGKILL leaves its
child running to its end.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def main(argv: list[str]) -> None:
    """Does not return."""
    parent, command = int(argv[0]), argv[1:]
    if sys.platform == "linux":
        import ctypes

        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            sys.exit(f"error: prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it died before the call above, so no signal will come
        sys.exit("error: the sweep has ended")
    try:
        os.execvp(command[0], command)
    except OSError as e:
        sys.exit(f"error: {command[0]}: {e.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
