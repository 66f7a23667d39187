"""python tether.py PID [--group] [--cores=0,1] [--bytes=N] COMMAND...

It becomes COMMAND, which ends with PID, its parent.

The kernel kills it when its parent dies (PID 0: whichever that is). It is held to cores, and killed when it uses more
than so many bytes: memory in use, as its peak in a record. TensorFlow reserves up to twice as much and may never touch
it; RLIMIT_DATA, which counts reserved memory, is a second net.

A program of its own instead of a function between fork and exec: that one may deadlock when the parent has threads,
and a progress bar has one.
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
RESERVED = 2.25  # times what a program uses: an allocator whose blocks double reserves twice as much at most
INTERVAL_S = 0.02
KILLED = "the memory limit was exceeded"
COERCED = ("C.UTF-8", "C.utf8", "UTF-8")  # values of LC_CTYPE that Python sets


def environment() -> dict[str, str]:
    """This process's variables, without the LC_CTYPE that Python adds where the caller's locale is C (PEP 538)."""
    variables = dict(os.environ)
    if variables.get("LC_CTYPE") in COERCED:
        with (
            contextlib.suppress(OSError),
            open("/proc/self/environ", "rb") as given,
        ):  # as the process was started
            if b"\0LC_CTYPE=" not in b"\0" + given.read():
                del variables["LC_CTYPE"]
    return variables


def main(argv: list[str]) -> None:
    parent = int(argv[0])
    command = argv[1:]
    _end_with_parent()
    if (
        parent and os.getppid() != parent
    ):  # it died before the call above, so no signal will come
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
        os.execvpe(command[0], command, environment())
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
        os.killpg(0, signal.SIGKILL)  # this process, too


def _limit_memory(limit: int) -> None:
    program = os.getpid()
    if os.fork() == 0:
        _watch(program, limit)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    reserved = int(RESERVED * limit)
    most = reserved if hard == resource.RLIM_INFINITY else min(reserved, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _watch(program: int, limit: int) -> None:
    """Kills the program, this process's parent, when it uses more; ends with it, and does not return."""
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
