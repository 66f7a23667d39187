"""python tether.py PID [--cores=0,1] COMMAND...: becomes COMMAND, held to cores, which ends with PID, its parent.

The kernel kills it when its parent dies.

A program of its own instead of a function between fork and exec: that one may deadlock when the parent has threads,
and a progress bar has one. Linux alone has this signal; elsewhere a parent that is killed with SIGKILL leaves its
child running to its end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
CORES = "--cores="
COERCED = ("C.UTF-8", "C.utf8", "UTF-8")  # values of LC_CTYPE that Python sets


def environment() -> dict[str, str]:
    """This process's variables, without the LC_CTYPE that Python adds where the caller's locale is C (PEP 538)."""
    variables = dict(os.environ)
    if variables.get("LC_CTYPE") in COERCED:
        with contextlib.suppress(OSError), open("/proc/self/environ", "rb") as given:  # as the process was started
            if b"\0LC_CTYPE=" not in b"\0" + given.read():
                del variables["LC_CTYPE"]
    return variables


def main(argv: list[str]) -> None:
    """Does not return."""
    parent, command = int(argv[0]), argv[1:]
    if sys.platform == "linux":
        import ctypes

        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            sys.exit(f"error: prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it died before the call above, so no signal will come
        sys.exit("error: the sweep has ended")
    if command[0].startswith(CORES):
        cores = command.pop(0).removeprefix(CORES)
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    try:
        os.execvpe(command[0], command, environment())
    except OSError as e:
        sys.exit(f"error: {command[0]}: {e.strerror}")


if __name__ == "__main__":
    main(sys.argv[1:])
