"""One child process with a wall limit: how it ended and what it said, with nothing of it left running."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import math
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

TICK_S = 0.5  # how often the child's end is looked for when its stderr stays silent or open
LINES_KEPT = 200
LONGEST_LINE = 65536
READS_AT_END = 64
INTERRUPT_GRACE_S, TIMEOUT_GRACE_S = 1.0, 2.0
TETHER = Path(__file__).with_name("tether.py")
PACKAGES = str(Path(__file__).resolve().parents[2])  # the folder of this package


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes:
      returncode: exit status, or minus the signal's number.
      timed_out: the wall limit ended it.
      lines: the last lines of its stderr.
    """

    returncode: int
    timed_out: bool
    lines: list[str]


def run(
    command: Sequence[str],
    timeout_s: float,
    on_line: Callable[[str | None], None] = lambda line: None,
    is_alive: Callable[[str], object] | None = None,
) -> Ended:
    """Runs a command in a process group of its own; that group is gone when this returns or raises.

    Args:
      command: program and arguments.
      timeout_s: wall limit in seconds; 0: none. The group then gets SIGTERM, so that a trainer can write how far it
        was, and SIGKILL two seconds later.
      on_line: gets each line of stderr, and None every TICK_S at least.
      is_alive: says of a line whether the limit counts anew from it; None: of none.

    Raises:
      OSError: if no process can be started.
      KeyboardInterrupt: Ctrl-C; the group gets SIGINT, and SIGKILL a second later.
    """
    child = _Child(command, on_line, is_alive)
    timed_out = False
    try:
        timed_out = not child.wait(timeout_s or math.inf)
        if timed_out:
            child.is_alive = None  # from here on nothing that it says prolongs its life
            child.signal(signal.SIGTERM)
            child.wait(TIMEOUT_GRACE_S)
    except KeyboardInterrupt:
        child.signal(signal.SIGINT)
        child.wait(INTERRUPT_GRACE_S)
        raise
    finally:
        returncode = child.end()
    return Ended(returncode, timed_out, list(child.lines))


class _Child:
    def __init__(
        self,
        command: Sequence[str],
        on_line: Callable[[str | None], None],
        is_alive: Callable[[str], object] | None = None,
    ) -> None:
        # A session of its own: Ctrl-C reaches the parent alone, which then decides; and one call kills the whole group.
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(TETHER), str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env=_environment(command),
        )
        self.lines: collections.deque[str] = collections.deque(maxlen=LINES_KEPT)
        self._on_line, self._rest = on_line, b""
        self.is_alive, self._alive_at = is_alive, time.monotonic()
        assert self._process.stderr is not None  # since it is a pipe
        self._stderr = self._process.stderr
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._stderr, selectors.EVENT_READ)

    def wait(self, seconds: float) -> bool:
        """Reads stderr until the child has ended (True) or has shown no sign of life for so many seconds (False)."""
        self._alive_at = time.monotonic()
        while not self._has_ended():
            left = self._alive_at + seconds - time.monotonic()
            if left <= 0:
                return False
            self._read(min(left, TICK_S))
            self._on_line(None)
        return True

    def signal(self, number: int) -> None:
        """Sends a signal to the child's whole group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, only zombies are left
            os.killpg(self._process.pid, number)

    def end(self) -> int:
        """Kills what is left of the group; returns the child's return code."""
        self.signal(signal.SIGKILL)  # before the child is reaped: afterwards its number could be another's
        returncode = self._process.wait()
        for _ in range(READS_AT_END):  # not for ever: a process that left the group may still write
            if not self._open() or not self._read(0.0):
                break
        self._keep(self._rest)
        self._stderr.close()
        self._selector.close()
        return returncode

    def _has_ended(self) -> bool:
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            return self._process.poll() is not None
        # WNOWAIT leaves it a zombie, so that its number, which is its group's, stays taken.
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _open(self) -> bool:
        return bool(self._selector.get_map())

    def _read(self, seconds: float) -> bool:
        """Waits this long for output; returns whether there was any."""
        if not self._open():  # closed its stderr but lives on
            time.sleep(min(seconds, 0.05))
            return False
        if not self._selector.select(seconds):
            return False
        content = os.read(self._stderr.fileno(), LONGEST_LINE)
        if not content:
            self._selector.unregister(self._stderr)
        *lines, self._rest = (self._rest + content).replace(b"\r", b"\n").split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            lines, self._rest = [*lines, self._rest], b""
        for line in lines:
            self._keep(line)
        return bool(content)

    def _keep(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        if text:
            self.lines.append(text)
            if self.is_alive is not None and self.is_alive(text):
                self._alive_at = time.monotonic()
            self._on_line(text)


def _environment(command: Sequence[str]) -> dict[str, str] | None:
    """For a module of this package: it is found whatever folder the caller stands in, also one that has a folder
    `models` (on Python 3.10 the latter would still come first). None: as this process has it.
    """
    if tuple(command[:2]) != (sys.executable, "-m") or not command[2].startswith("rnn_scaling."):
        return None
    paths = filter(None, [PACKAGES, os.environ.get("PYTHONPATH")])
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
