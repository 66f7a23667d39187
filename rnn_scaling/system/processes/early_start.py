"""Processes that start before their turn, and load libraries while others warm up.

A process gets two lines on stdin. The parent writes the first line when the turn of the
process begins, and passes the writing end to the next process. The next process writes
the second line when it has loaded its libraries: then the first process has all cores,
and measures. The end of the pipe counts as this line, so that no process waits for a
dead one.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from rnn_scaling.system import entry
from rnn_scaling.system.processes.process import Child, Task

# The descriptor that writes to the previous process, or "" for the first.
VARIABLE = "RNN_SCALING_EARLY"


class EarlyProcess:
    """A process that has started and waits for its turn."""

    def __init__(self, command: Sequence[str], previous: int | None = None) -> None:
        """Start the process.

        Args:
          command: The program and its arguments.
          previous: The descriptor that writes to the previous process, or None.

        Raises:
          OSError: If the process cannot be started.
        """
        self._previous = previous
        passed = [] if previous is None else [previous]
        self.child = Child(
            Task(command, {VARIABLE: "".join(map(str, passed))}),
            subprocess.PIPE,
            passed,
        )

    def begin(self, next_command: Sequence[str] | None) -> "EarlyProcess | None":
        """Begin the turn of this process, and start the next command early.

        Returns:
          The next process; None without a command, if it cannot be started, or if
          this process has ended.
        """
        with self.child.stdin as stdin, contextlib.suppress(OSError):
            os.write(stdin.fileno(), b"\n")
            return EarlyProcess(next_command, stdin.fileno()) if next_command else None
        return None

    def is_loading(self) -> bool:
        """Return whether this process still loads its libraries (known only on Linux).

        While it loads, it holds the writing end of the pipe to the previous process,
        which waits for that end.
        """
        return os.path.lexists(f"/proc/{self.child.pid}/fd/{self._previous}")

    def close(self) -> None:
        """End a process whose turn has not begun."""
        self.child.signal(signal.SIGKILL)
        self.child.reap()
        self.child.stdin.close()
        self.child.close()


def is_early() -> bool:
    """Return whether this process was started early and has not waited for its turn."""
    return VARIABLE in os.environ


def wait_for_turn() -> None:
    """Report that this process has loaded its libraries, and wait for its turn."""
    if previous := os.environ.pop(VARIABLE):
        with contextlib.suppress(BrokenPipeError):  # The previous process has ended.
            os.write(int(previous), b"\n")
        os.close(int(previous))
    # End of file means that the parent has ended.
    if not sys.stdin.buffer.readline():
        os._exit(entry.EXIT_INTERRUPTED)


def wait_for_following() -> None:
    """Wait until the next process, if there is one, has loaded its libraries."""
    sys.stdin.buffer.readline()
