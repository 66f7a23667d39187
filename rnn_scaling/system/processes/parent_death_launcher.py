"""python parent_death_launcher.py PID [--group] [--cores=0,1] [--bytes=N] COMMAND...

Becomes COMMAND, which ends with its parent PID (0: any parent).

The kernel kills it when its parent dies. It is bound to cores, and killed when it uses
more than this many bytes: memory in use, like the peak in a record. TensorFlow reserves
up to twice as much and may never use it; RLIMIT_DATA, which counts reserved memory, is
a second limit.

It is a separate program because a function between fork and exec may deadlock if the
parent has threads, such as the thread of a progress bar.
"""

import contextlib
import os
import resource
import signal
import sys
import time

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
CORES = "--cores="
BYTES = "--bytes="
GROUP = "--group"  # COMMAND gets its own process group, which ends with it
# Reserved memory per used memory: allocators with doubling blocks reserve at most
# twice.
_RESERVED = 2.25
INTERVAL_S = 0.02
# Part of the message of a program that used too much memory. The search for the largest
# batch finds it in the last line of the program's output.
KILLED = "the memory limit was exceeded"
_COERCED = ("C.UTF-8", "C.utf8", "UTF-8")  # values of LC_CTYPE that Python sets


def make_caller_environment() -> dict[str, str]:
    """Return the variables of the caller.

    Python adds LC_CTYPE if the locale of the caller is C (PEP 538); it is removed.
    """
    variables = dict(os.environ)
    if variables.get("LC_CTYPE") in _COERCED:
        # This file contains the variables at the start of the process.
        with contextlib.suppress(OSError), open("/proc/self/environ", "rb") as file:
            if b"\0LC_CTYPE=" not in b"\0" + file.read():
                del variables["LC_CTYPE"]
    return variables


def main(argv: list[str]) -> None:
    """Become the command; the options before it have a fixed order.

    `process.start` and other callers write them in the order of the first line of this
    file. Whatever ends with the program must be arranged before the program is started.
    """
    parent = int(argv[0])
    command = argv[1:]
    _end_with_parent()
    # A parent that died before the call above causes no signal.
    if parent and os.getppid() != parent:
        sys.exit("error: the sweep has ended")
    if command[0] == GROUP:
        command.pop(0)
        _end_group_with_this()
    if command[0].startswith(CORES):
        cores = command.pop(0).removeprefix(CORES)
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    if command[0].startswith(BYTES):
        _limit_memory(int(command.pop(0).removeprefix(BYTES)))
    try:
        os.execvpe(command[0], command, make_caller_environment())
    except OSError as e:
        sys.exit(f"error: {command[0]}: {e.strerror}")


def _end_with_parent(number: int = signal.SIGKILL) -> None:
    """Let the kernel send this process a signal when its parent ends."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0) != 0:
        sys.exit(f"error: prctl(PR_SET_PDEATHSIG): {os.strerror(ctypes.get_errno())}")


def _end_group_with_this() -> None:
    """Let the processes that the program starts end with it, even if it is killed.

    The kernel does not signal grandchildren: a compiler's driver that is killed
    leaves its compiler running. A second process waits for the program's end.
    """
    program = os.getpid()
    if os.getpgrp() != program:
        os.setpgid(0, 0)
    if os.fork() == 0:
        _kill_group_after(program)


def _kill_group_after(program: int) -> None:
    """Kill the process group when the program, this process's parent, has ended."""
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        _end_with_parent(signal.SIGUSR1)
        while os.getppid() == program:
            signal.sigwait([signal.SIGUSR1])
    finally:
        os.killpg(0, signal.SIGKILL)  # This process is in the group.


def _limit_memory(limit: int) -> None:
    """Limit the memory of this process, in bytes, and start the process that watches it."""
    program = os.getpid()
    if os.fork() == 0:
        _kill_above_limit(program, limit)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    reserved = int(_RESERVED * limit)
    if hard != resource.RLIM_INFINITY:
        reserved = min(reserved, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (reserved, reserved))


def _kill_above_limit(program: int, limit: int) -> None:
    """Kill the program, this process's parent, if it uses more; never returns."""
    try:
        _end_with_parent()
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
