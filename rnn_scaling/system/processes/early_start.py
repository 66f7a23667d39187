"""Processes that start before their turns: each loads its libraries during the warm-up of the one before it.

A process gets two lines on stdin. The parent writes the first when the turn of the process begins, and passes the
writing end to the process that follows. That one writes the second line when it has loaded: then the first has the
cores to itself, and measures. The end of the pipe counts as this line, so that nobody waits for a dead process.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from rnn_scaling.system import entry
from rnn_scaling.system.processes.process import Child, Task

VARIABLE = "RNN_SCALING_EARLY"  # the descriptor that writes to the process before it; empty: there is none


class EarlyProcess:
    """A process that has started and waits for its turn."""

    def __init__(self, command: Sequence[str], before: int | None = None) -> None:
        """before: the descriptor that writes to the process before it. Raises OSError if it cannot be started."""
        self._before = before
        passed = [] if before is None else [before]
        self.child = Child(
            Task(command, {VARIABLE: "".join(map(str, passed))}),
            subprocess.PIPE,
            passed,
        )

    def begin(self, following: Sequence[str] | None) -> "EarlyProcess | None":
        """Begins its turn, and starts the command that follows; None: it has ended, or the other cannot be started."""
        with self.child.stdin as stdin, contextlib.suppress(OSError):
            os.write(stdin.fileno(), b"\n")
            return EarlyProcess(following, stdin.fileno()) if following else None
        return None

    def is_loading(self) -> bool:
        """Whether the process before it would still wait for this one: it holds the writing end (Linux, else False)."""
        return os.path.lexists(f"/proc/{self.child.pid}/fd/{self._before}")

    def close(self) -> None:
        """Ends a process whose turn has not begun."""
        self.child.signal(signal.SIGKILL)
        self.child.reap()
        self.child.stdin.close()
        self.child.close()


def is_early() -> bool:
    """Whether this process was started before its turn and has not waited for it yet."""
    return VARIABLE in os.environ


def wait_for_turn() -> None:
    """Reports that this process has loaded, and waits until its turn begins."""
    if before := os.environ.pop(VARIABLE):
        with contextlib.suppress(BrokenPipeError):  # it has ended
            os.write(int(before), b"\n")
        os.close(int(before))
    if (
        not sys.stdin.buffer.readline()
    ):  # the parent has ended, and the signal that ends its children is on the way
        os._exit(entry.EXIT_INTERRUPTED)


def wait_for_following() -> None:
    """Waits until the process that follows, if there is one, has loaded."""
    sys.stdin.buffer.readline()
