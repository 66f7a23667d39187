"""Run child processes with a time limit, and leave none of them running.

Sweeps, links and verification start their programs as `Task`s.
"""

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
from rnn_scaling.system.processes import parent_death_launcher

TICK_S = 0.5  # how often to check for ended children while stderr is silent
_BLIND_TICK_S = 0.05  # how often to check if a child has no stderr to read
MAX_KEPT_LINES = 200
MAX_LINE_BYTES = 65536
_MAX_READS_AT_END = 64  # reads per child after all children were killed
_INTERRUPT_GRACE_S = 1.0
TIMEOUT_GRACE_S = 2.0
# The least grace if there are several children, because they share the cores while the
# first one writes its results.
SEVERAL_GRACE_S = 5.0
# After the end of one of several children: time for the first other child to report the
# cause, and then for all others to end.
REPORT_GRACE_S = 20.0
OTHERS_GRACE_S = 5.0
PARENT_DEATH_LAUNCHER = Path(__file__).with_name("parent_death_launcher.py")
START = Path(__file__).with_name("start.py")


OnLine = Callable[[str | None], None]
IsProgress = Callable[[str], object]


@dataclasses.dataclass(frozen=True)
class Task:
    """A command of a child process.

    Attributes:
      command: The program and its arguments.
      environment: Variables in addition to those of this process.
      cores: The cores that the child may use; empty for all.
      prefix: A text that is put before each line of the child.
      may_fail: Whether the other children continue if this one fails.
      has_streams: Whether the child shares stdout and stderr with this process.
        Otherwise stdout is discarded and stderr is read.
      reads_stdout: Whether stdout is read like stderr.
    """

    command: Sequence[str]
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cores: Sequence[int] = ()
    prefix: str = ""
    may_fail: bool = False
    has_streams: bool = False
    reads_stdout: bool = False


@dataclasses.dataclass(frozen=True)
class ProcessOutcome:
    """How the first child that failed ended, or the first child if none failed.

    Attributes:
      returncode: The exit status, or minus the number of a signal.
      timed_out: Whether the time limit ended the child.
      lines: The last lines of stderr of all children.
      task: The index of the child's task.
      returncodes: The return codes of all children.
      seconds: The time from the start of the first child to the end of all.
    """

    returncode: int
    timed_out: bool
    lines: list[str]
    task: int = 0
    returncodes: tuple[int, ...] = ()
    seconds: float = 0.0


def make_module_command(name: str, python: str = sys.executable) -> tuple[str, ...]:
    """Return the command that runs a module of this package from any folder."""
    return python, str(START), entry.get_program_name(), name


def run_together(
    tasks: Sequence["Task | Child"],
    timeout_s: float,
    on_line: OnLine = lambda line: None,
    is_progress: IsProgress | None = None,
    arrivals: list[float] | None = None,
) -> ProcessOutcome:
    """Run commands, each in its own process group, until all have ended.

    When the first command ends, or a command without `may_fail` fails, the others get
    some seconds to end. No process of the groups is left when this returns or raises.

    Args:
      tasks: The commands; a `Child` has started already.
      timeout_s: Time limit in seconds; 0 for none. At the limit, the group of the first
        child that still runs gets SIGTERM, so that a trainer can write its state and
        let the others end. All groups get SIGKILL some seconds later.
      on_line: Called with each line of stderr, and with None at least every TICK_S.
      is_progress: Returns whether a line restarts the time limit; None if no line does.
      arrivals: A list to which the arrival time of each line is appended
        (time.monotonic()).

    Raises:
      OSError: If a process cannot be started.
      KeyboardInterrupt: After Ctrl-C. The children end like at the time limit, with
        SIGINT and less time.
    """
    with selectors.DefaultSelector() as selector:
        children = _Children(selector, on_line, is_progress, arrivals)
        began = time.monotonic()
        timed_out = False
        try:
            children.start(tasks)
            timed_out = not children.wait(
                timeout_s or math.inf, children.find_decisive_child
            )
            children.is_progress = None  # No line extends the time from now on.
            if timed_out or not children.end_by_themselves():
                children.end_first(signal.SIGTERM, TIMEOUT_GRACE_S)
        except KeyboardInterrupt:
            children.end_first(signal.SIGINT, _INTERRUPT_GRACE_S)
            raise
        finally:
            returncodes = children.end()
    task = children.decisive
    seconds = time.monotonic() - began
    return ProcessOutcome(
        returncodes[task],
        timed_out=timed_out,
        lines=list(children.lines),
        task=task,
        returncodes=tuple(returncodes),
        seconds=seconds,
    )


class _Children:
    """The running children, their output, and the child whose end is reported."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        on_line: OnLine,
        is_progress: IsProgress | None,
        arrivals: list[float] | None,
    ) -> None:
        self._selector = selector
        self._on_line = on_line
        self._arrivals = arrivals
        self.is_progress = is_progress
        self._progress_at = time.monotonic()
        self.lines: collections.deque[str] = collections.deque(maxlen=MAX_KEPT_LINES)
        self._all: list[Child] = []
        # The index of the child whose end is reported, and whether it failed.
        self.decisive = 0
        self._has_failed = False

    def start(self, tasks: Sequence["Task | Child"]) -> None:
        for task in tasks:
            child = Child(task) if isinstance(task, Task) else task
            self._all.append(child)
            if child.stderr is not None:
                self._selector.register(child.stderr, selectors.EVENT_READ, child)

    def wait(self, seconds: float, is_over: Callable[[], bool]) -> bool:
        """Read until `is_over`; return False after this many seconds without progress."""
        self._progress_at = time.monotonic()
        while not is_over():
            left = self._progress_at + seconds - time.monotonic()
            if left <= 0:
                return False
            self._read(min(left, TICK_S))
            self._on_line(None)
        return True

    def find_decisive_child(self) -> bool:
        """Set the child whose end is reported, and whether it failed.

        Returns:
          Whether the first child has ended, or a child without `may_fail` has failed.
        """
        statuses = [child.poll_status() for child in self._all]
        failed = [
            number
            for number, status in enumerate(statuses)
            if status and not self._all[number].task.may_fail
        ]
        # If several have failed since the last check, one that a signal killed is the
        # cause; others may have ended because of it.
        by_cause = [number for number in failed if (statuses[number] or 0) < 0]
        self.decisive = min(by_cause or failed, default=0)
        self._has_failed = bool(failed)
        return self._has_failed or statuses[0] is not None

    def end_by_themselves(self) -> bool:
        """Wait until all children have ended; return whether they have."""
        ended = self.wait(REPORT_GRACE_S, self._has_reported) and self.wait(
            OTHERS_GRACE_S, self._have_ended
        )
        if not self._has_failed:
            # A child may have failed after the first one ended successfully.
            self.find_decisive_child()
        return ended

    def _has_reported(self) -> bool:
        """Return whether the first child that can report a cause has ended.

        A child that a signal has killed or stopped cannot report a cause.
        """
        for child in self._all:
            if not child.is_stopped():
                status = child.poll_status()
                if status is None or status >= 0:
                    return status is not None
        return True

    def _have_ended(self) -> bool:
        return all(child.poll_status() is not None for child in self._all)

    def end_first(self, number: int, seconds: float) -> None:
        """Send a signal to the first child that runs; wait for it, then for the others."""
        seconds = max(seconds, SEVERAL_GRACE_S) if len(self._all) > 1 else seconds
        running = (child for child in self._all if child.poll_status() is None)
        first = next((child for child in running if not child.is_stopped()), None)
        if first is not None:
            first.signal(number)
            if self.wait(seconds, lambda: first.poll_status() is not None):
                self.wait(seconds, self._have_ended)

    def end(self) -> list[int]:
        """Kill all groups; return the return codes of the children."""
        for child in self._all:
            # After the child is reaped, its number could belong to another process.
            child.signal(signal.SIGKILL)
        returncodes = [child.reap() for child in self._all]
        # The number of reads is limited: a process that left its group may still write.
        for _ in range(_MAX_READS_AT_END * len(self._all)):
            if not self._selector.get_map() or not self._read(0.0):
                break
        for child in self._all:
            self._keep(child, child.incomplete_line)
            child.close()
        return returncodes

    def _read(self, seconds: float) -> bool:
        """Wait this long for output; return whether there was any."""
        # A child that has closed its stderr may still run.
        if len(self._selector.get_map()) < len(self._all):
            seconds = min(seconds, _BLIND_TICK_S)
        ready = self._selector.select(seconds)
        contents = [self._read_child(key.data) for key, _ in ready]
        return any(contents)

    def _read_child(self, child: "Child") -> bool:
        assert child.stderr is not None  # It was selected.
        content = os.read(child.stderr.fileno(), MAX_LINE_BYTES)
        if not content:
            self._selector.unregister(child.stderr)
        now = time.monotonic()
        pieces = content.replace(b"\r", b"\n").split(b"\n")
        if pieces[0].strip(b" \b"):
            child.arrived_at = now
        *lines, incomplete = [child.incomplete_line + pieces[0], *pieces[1:]]
        if len(incomplete) > MAX_LINE_BYTES:
            lines.append(incomplete)
            incomplete = b""
        child.incomplete_line = incomplete
        for line in lines:
            self._keep(child, line)
            child.arrived_at = now
        return bool(content)

    def _keep(self, child: "Child", line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        if text:
            text = child.task.prefix + text
            if self._arrivals is not None:
                self._arrivals.append(child.arrived_at)
            self.lines.append(text)
            if self.is_progress is not None and self.is_progress(text):
                self._progress_at = time.monotonic()
            self._on_line(text)


class Child:
    """A process that runs a task. Its creator must end and close it."""

    def __init__(
        self, task: Task, stdin: int = subprocess.DEVNULL, passed: Sequence[int] = ()
    ) -> None:
        """Start the process, which inherits the file descriptors `passed`."""
        self.task = task
        self.incomplete_line = b""
        # The arrival of the incomplete line, by time.monotonic().
        self.arrived_at = 0.0
        stdout = subprocess.PIPE if task.reads_stdout else subprocess.DEVNULL
        stderr = subprocess.STDOUT if task.reads_stdout else subprocess.PIPE
        command = [sys.executable, "-I", str(PARENT_DEATH_LAUNCHER), str(os.getpid())]
        if task.cores:
            cores = ",".join(map(str, task.cores))
            command.append(f"{parent_death_launcher.CORES}{cores}")
        # In its own session Ctrl-C reaches only the parent, which then decides, and one
        # call kills the group.
        self._process = subprocess.Popen(
            [*command, *task.command],
            stdin=stdin,
            stdout=None if task.has_streams else stdout,
            stderr=None if task.has_streams else stderr,
            start_new_session=True,
            env={**parent_death_launcher.make_caller_environment(), **task.environment},
            pass_fds=passed,
        )
        self.stderr = (
            self._process.stdout if task.reads_stdout else self._process.stderr
        )

    def poll_status(self) -> int | None:
        """Return the exit status or minus the number of a signal; None while it runs."""
        if self._process.returncode is not None:
            return self._process.returncode
        # WNOWAIT leaves a zombie, so that no other process gets the number of the
        # group.
        ended = os.waitid(
            os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT
        )
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def is_stopped(self) -> bool:
        """Return whether a signal such as SIGSTOP has stopped the process."""
        options = os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self._process.pid, options) is not None
        except ChildProcessError:  # The process has ended.
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
        """The stdin of the process, which must be a pipe."""
        assert self._process.stdin is not None
        return self._process.stdin

    def close(self) -> None:
        if self.stderr is not None:
            self.stderr.close()
