"""Child processes with a time limit: their exit status and output, and no process left running."""

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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from rnn_scaling.system import entry
from rnn_scaling.system.processes import tether

TICK_S = 0.5  # how often the children's ends are looked for when their stderrs stay silent or open
BLIND_TICK_S = 0.05  # the same where a child's stderr is not read
LINES_KEPT = 200
LONGEST_LINE = 65536
READS_AT_END = 64
INTERRUPT_GRACE_S = 1.0
TIMEOUT_GRACE_S = 2.0
SEVERAL_GRACE_S = 5.0  # instead, where several run: they share the cores while the first writes down what was measured
# When one of several children has ended: how long the first that still can may take to say why, and then the others.
TELLING_GRACE_S = 20.0
FOLLOWING_GRACE_S = 5.0
TETHER, START = (Path(__file__).with_name(name) for name in ("tether.py", "start.py"))


OnLine = Callable[[str | None], None]
IsAlive = Callable[[str], object]


@dataclasses.dataclass(frozen=True)
class Task:
    """What one of several children runs."""

    command: Sequence[str]
    environment: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # variables besides this process's own
    cores: Sequence[int] = ()  # that it is held to; empty: none
    prefix: str = ""  # stands before each line that it says
    may_fail: bool = False  # the others go on when it fails
    # Its stdout and stderr are this process's own; else stdout goes nowhere and stderr is read.
    has_streams: bool = False
    reads_stdout: bool = False  # stdout is read, too, as if it were stderr


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a child ended, of several the one that mattered: the first that failed, else the first of all."""

    returncode: int  # exit status, or minus the signal's number
    timed_out: bool  # the wall limit ended it
    lines: list[str]  # the last lines of stderr, of all children
    task: int = 0
    returncodes: tuple[
        int, ...
    ] = ()  # of all children, also of those that were ended here
    seconds: float = 0.0  # from the start of the first to the end of all


def our_module(name: str, python: str = sys.executable) -> tuple[str, ...]:
    """The command that runs a module of this package, wherever the caller stands."""
    return python, str(START), entry.program(), name


def run_together(
    tasks: Sequence["Task | Child"],
    timeout_s: float,
    on_line: OnLine = lambda line: None,
    is_alive: IsAlive | None = None,
    arrivals: list[float] | None = None,
) -> Ended:
    """Runs commands, each in a process group of its own; these groups are gone when this returns or raises.

    When the first of them ends, or any fails that may not, the others have some seconds to end by themselves.

    Args:
      tasks: what to run; a `Child` has started already.
      timeout_s: wall limit in seconds; 0: none. The group of the first that still runs then gets SIGTERM, so that a
        trainer can write how far it was and let the others go, and all get SIGKILL some seconds later.
      on_line: gets each line of stderr, and None every TICK_S at least.
      is_alive: says of a line whether the limit counts anew from it; None: of none.

    Raises:
      OSError: if a process cannot be started.
      KeyboardInterrupt: Ctrl-C; as at the limit, with SIGINT and less time.
    """
    with selectors.DefaultSelector() as selector:
        children = _Children(selector, on_line, is_alive, arrivals)
        began = time.monotonic()
        timed_out = False
        try:
            children.start(tasks)
            timed_out = not children.wait(timeout_s or math.inf, children.is_decided)
            children.is_alive = (
                None  # from here on nothing that they say prolongs their life
            )
            if timed_out or not children.end_by_themselves():
                children.end_first(signal.SIGTERM, TIMEOUT_GRACE_S)
        except KeyboardInterrupt:
            children.end_first(signal.SIGINT, INTERRUPT_GRACE_S)
            raise
        finally:
            returncodes = children.end()
    task = children.decisive
    seconds = time.monotonic() - began
    return Ended(
        returncodes[task],
        timed_out,
        list(children.lines),
        task,
        tuple(returncodes),
        seconds,
    )


class _Children:
    def __init__(
        self,
        selector: selectors.BaseSelector,
        on_line: OnLine,
        is_alive: IsAlive | None,
        arrivals: list[float] | None,
    ) -> None:
        self._selector = selector
        self._on_line = on_line
        self._arrivals = arrivals
        self.is_alive, self._alive_at = is_alive, time.monotonic()
        self.lines: collections.deque[str] = collections.deque(maxlen=LINES_KEPT)
        self._all: list[Child] = []
        # The child whose end is reported, and whether it failed.
        self.decisive = 0
        self._has_failed = False

    def start(self, tasks: Sequence["Task | Child"]) -> None:
        for task in tasks:
            self._all.append(Child(task) if isinstance(task, Task) else task)
            if self._all[-1].stderr is not None:
                self._selector.register(
                    self._all[-1].stderr, selectors.EVENT_READ, self._all[-1]
                )

    def wait(self, seconds: float, is_over: Callable[[], bool]) -> bool:
        """Reads until it ends (True) or has been silent for so many seconds (False)."""
        self._alive_at = time.monotonic()
        while not is_over():
            left = self._alive_at + seconds - time.monotonic()
            if left <= 0:
                return False
            self._read(min(left, TICK_S))
            self._on_line(None)
        return True

    def is_decided(self) -> bool:
        """Whether the first has ended or one has failed that may not."""
        statuses = [child.status() for child in self._all]
        failed = [
            n
            for n, status in enumerate(statuses)
            if status and not self._all[n].task.may_fail
        ]
        # Of those that failed since the last look one that a signal killed is a cause, others may have followed it.
        self.decisive = min(
            failed, key=lambda n: ((statuses[n] or 0) > 0, n), default=0
        )
        self._has_failed = bool(failed)
        return self._has_failed or statuses[0] is not None

    def end_by_themselves(self) -> bool:
        """Waits for the ends of all; returns whether they have come."""
        ended = self.wait(TELLING_GRACE_S, self._have_told) and self.wait(
            FOLLOWING_GRACE_S, self._have_ended
        )
        if not self._has_failed:
            self.is_decided()  # by one that failed after the first had ended well
        return ended

    def _have_told(self) -> bool:
        """Whether the first that can tell what happened, since no signal has killed or stopped it, has ended."""
        statuses = (child.status() for child in self._all if not child.is_stopped())
        return (
            next((status for status in statuses if status is None or status >= 0), 0)
            is not None
        )

    def _have_ended(self) -> bool:
        return all(child.status() is not None for child in self._all)

    def end_first(self, number: int, seconds: float) -> None:
        """Ends the first that still runs with a signal; waits so many seconds for it, and then for the others."""
        seconds = max(seconds, SEVERAL_GRACE_S) if len(self._all) > 1 else seconds
        first = next(
            (
                child
                for child in self._all
                if child.status() is None and not child.is_stopped()
            ),
            None,
        )
        if first is not None:
            first.signal(number)
            if self.wait(seconds, lambda: first.status() is not None):
                self.wait(seconds, self._have_ended)

    def end(self) -> list[int]:
        """Kills what is left of all groups; returns the children's return codes."""
        for child in self._all:
            child.signal(
                signal.SIGKILL
            )  # before it is reaped: afterwards its number could be another's
        returncodes = [child.reap() for child in self._all]
        for _ in range(
            READS_AT_END * len(self._all)
        ):  # not for ever: a process that left a group may still write
            if not self._selector.get_map() or not self._read(0.0):
                break
        for child in self._all:
            self._keep(child, child.rest)
            child.close()
        return returncodes

    def _read(self, seconds: float) -> bool:
        """Waits this long for output; returns whether there was any."""
        is_blind = len(self._selector.get_map()) < len(
            self._all
        )  # one has closed its stderr, and may live on
        ready = self._selector.select(
            min(seconds, BLIND_TICK_S) if is_blind else seconds
        )
        contents = [self._read_child(key.data) for key, _ in ready]
        return any(contents)

    def _read_child(self, child: "Child") -> bool:
        assert child.stderr is not None  # since it is selected
        content = os.read(child.stderr.fileno(), LONGEST_LINE)
        if not content:
            self._selector.unregister(child.stderr)
        now = time.monotonic()
        pieces = content.replace(b"\r", b"\n").split(b"\n")
        if pieces[0].strip(b" \b"):
            child.rest_at = now
        *lines, rest = [child.rest + pieces[0], *pieces[1:]]
        if len(rest) > LONGEST_LINE:
            lines = [*lines, rest]
            rest = b""
        child.rest = rest
        for line in lines:
            self._keep(child, line)
            child.rest_at = now
        return bool(content)

    def _keep(self, child: "Child", line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        if text:
            text = child.task.prefix + text
            if self._arrivals is not None:
                self._arrivals.append(child.rest_at)
            self.lines.append(text)
            if self.is_alive is not None and self.is_alive(text):
                self._alive_at = time.monotonic()
            self._on_line(text)


class Child:
    """A process that runs a task; whoever starts it ends and closes it."""

    def __init__(
        self, task: Task, stdin: int = subprocess.DEVNULL, passed: Sequence[int] = ()
    ) -> None:
        """passed: file descriptors that it inherits."""
        self.task = task
        self.rest = b""
        # When the incomplete line in `rest` arrived.
        self.rest_at = 0.0
        stdout = subprocess.PIPE if task.reads_stdout else subprocess.DEVNULL
        stderr = subprocess.STDOUT if task.reads_stdout else subprocess.PIPE
        cores = (
            [f"{tether.CORES}{','.join(map(str, task.cores))}"] if task.cores else []
        )
        # A session of its own: Ctrl-C reaches the parent alone, which then decides; and one call kills the whole group.
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                str(TETHER),
                str(os.getpid()),
                *cores,
                *task.command,
            ],
            stdin=stdin,
            stdout=None if task.has_streams else stdout,
            stderr=None if task.has_streams else stderr,
            start_new_session=True,
            env={**tether.environment(), **task.environment},
            pass_fds=passed,
        )
        self.stderr = (
            self._process.stdout if task.reads_stdout else self._process.stderr
        )

    def status(self) -> int | None:
        """Its exit status or minus a signal's number; None while it runs."""
        if self._process.returncode is not None:
            return self._process.returncode
        # WNOWAIT leaves it a zombie, so that its number, which is its group's, stays taken.
        ended = os.waitid(
            os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT
        )
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def is_stopped(self) -> bool:
        """Whether a signal, as SIGSTOP, has stopped it."""
        try:
            return (
                os.waitid(
                    os.P_PID, self._process.pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT
                )
                is not None
            )
        except ChildProcessError:  # it has ended
            return False

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def reap(self) -> int:
        return self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def stdin(self) -> IO[bytes]:
        """Writes to its stdin, if that is a pipe."""
        assert self._process.stdin is not None
        return self._process.stdin

    def close(self) -> None:
        if self.stderr is not None:
            self.stderr.close()
