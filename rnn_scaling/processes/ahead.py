"""A process that starts before its turn: it loads its libraries while the process before it runs.

The parent writes a line to its stdin when its turn begins, and hands the end that writes on to the process that
follows, which adds a line when it has loaded: then the one whose turn it is has the cores to itself, and measures.
A pipe whose writers have ended stands for the second line, so that nobody waits for a process that has died.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

from rnn_scaling import entry
from rnn_scaling.processes.process import Child, Task

VARIABLE = "RNN_SCALING_AHEAD"  # where the process before it is told that it has loaded: a descriptor; empty: nobody is


class Ahead:
    """A process that has started and waits for its turn."""

    def __init__(self, command: Sequence[str], before: int | None = None) -> None:
        """before: the descriptor that writes to the stdin of the process before it; OSError: it cannot be started."""
        told, passed = ("", []) if before is None else (str(before), [before])
        self.child = Child(Task(command, {VARIABLE: told}), subprocess.PIPE, passed)

    def begin(self, following: Sequence[str] | None) -> "Ahead | None":
        """Begins its turn and starts the command that follows, unless it has ended or the system starts no more."""
        with self.child.stdin as stdin, contextlib.suppress(OSError):
            os.write(stdin.fileno(), f"{time.perf_counter()}\n".encode())
            return Ahead(following, stdin.fileno()) if following else None
        return None

    def close(self) -> None:
        """Ends a process whose turn has not begun."""
        self.child.signal(signal.SIGKILL)
        self.child.reap()
        self.child.stdin.close()
        self.child.close()


def is_ahead() -> bool:
    """Whether this process was started so, and has not waited for its turn."""
    return VARIABLE in os.environ


def wait_for_turn() -> float:
    """Says that this process has loaded; returns the `time.perf_counter()` of the beginning of its turn."""
    if before := os.environ.pop(VARIABLE):
        with contextlib.suppress(BrokenPipeError):  # it has ended
            os.write(int(before), b"\n")
        os.close(int(before))
    turn = sys.stdin.buffer.readline()
    if not turn:  # the parent has ended, and the signal that ends its children is on the way
        os._exit(entry.EXIT_INTERRUPTED)
    return float(turn)


def wait_for_following() -> None:
    """In its turn: waits until the process that follows, if there is one, has loaded."""
    sys.stdin.buffer.readline()
