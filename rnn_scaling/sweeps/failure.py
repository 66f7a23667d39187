"""Why a run has no result, in one line of text."""

import collections
import math
import re
import signal
from collections.abc import Sequence

from rnn_scaling.records.importers.reading import RunProgress
from rnn_scaling.records.parts import RunError
from rnn_scaling.sweeps.estimate import Limit

PLACEHOLDER = (
    "Killed"  # error type of the record that is there while a run is in progress
)
REMEDIES = {
    "SIGKILL": "often the kernel's out-of-memory killer; see dmesg",
    "SIGXCPU": "it exceeded the limit of CPU time (ulimit -t)",
    "SIGBUS": "often a full disk or a full /dev/shm",
    "SIGILL": "this CPU lacks an instruction; often the program was built for another CPU",
}
# The progress lines of this suite's trainers, and of `progress` below. Any program can
# print such a line: the digits are bounded because Python converts no more than 4,300.
PROGRESS = re.compile(r"^(warm-up|measuring): (\d{1,20})(?:/(\d{1,20}))? batches")
RATE = re.compile(r"batches, ([\d.,]+ \S+/s)")
LONGEST_MESSAGE = 500
INTERRUPTED_STATUSES = (130, 143)
MOST_LETTERS = 150  # of a quoted line
MOST_ERRORS = (
    100  # lines that are kept, so that those of the failed rank are among them
)
_PREFIX = re.compile(r"\[.{1,40}?\](?:<std\w+>)?:? *")
_RAISED = re.compile(r"[\w.]*(?:Error|Exception)\b|error:|fatal:", re.IGNORECASE)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:: .*)?$")
_LAUNCHER = re.compile(  # the summary of torchrun and accelerate
    r"ChildFailedError|CalledProcessError: Command|torch[/.]distributed[/.].*(?:failed \(exitcode|Sending process)"
)
_RANK = re.compile(r"Root Cause.*?\brank\s*: (\d+)", re.DOTALL)
_KILLED = re.compile(
    r"Root Cause.*?(Signal \d+ \(\w+\) received by PID \d+)", re.DOTALL
)


def reason(
    returncode: int, timed_out: bool, lines: Sequence[str], limit: Limit
) -> RunError:
    last_output = _last_output(lines)
    if timed_out:
        at = next(
            (match[0] for match in map(PROGRESS.match, reversed(lines)) if match),
            last_output,
        )
        return _error(
            "Timeout", f"{limit.words} (last output: {at})" if at else limit.words
        )
    if returncode in INTERRUPTED_STATUSES:
        return _error(
            "Interrupted", "interrupted from outside the sweep (SIGINT or SIGTERM)"
        )
    if returncode < 0:
        message = killed(-returncode)
        return _error(
            "Signal",
            f"{message} (last output: {last_output})" if last_output else message,
        )
    error = last_output.removeprefix("error: ") or "nothing on stderr"
    return _error(
        "NoRecord", f"ended with exit status {returncode} and no result: {error}"
    )


def progress(seen: RunProgress, unit: str) -> str:
    """The progress of a user's command, as a line that PROGRESS matches."""
    rate = (
        ""
        if seen.rate is None
        else f", {seen.rate:,.{max(0, 2 - math.floor(math.log10(seen.rate)))}f} {unit}/s"
    )
    return (
        f"measuring: {seen.step}{f'/{seen.total}' if seen.total else ''} batches{rate}"
    )


def killed(number: int) -> str:
    """ "killed by SIGKILL: often ...", of a signal's number."""
    try:
        name = signal.Signals(number).name
    except ValueError:  # the real-time signals have no names
        name = f"signal {number}"
    return (
        f"killed by {name}: {REMEDIES[name]}"
        if name in REMEDIES
        else f"killed by {name}"
    )


def unwritten(lines: Sequence[str]) -> str | None:
    """The message of a trainer that could not write its record, as on a full disk; None: there is none."""
    error = next(
        (line for line in reversed(lines) if line.startswith("error: --result_file=")),
        None,
    )
    return error and error.removeprefix("error: ")


def _error(kind: str, message: str) -> RunError:
    return RunError(type=kind, message=message[:LONGEST_MESSAGE])


def _last_output(lines: Sequence[str]) -> str:
    """The last line of an error, else the last line that is not progress."""
    for line in reversed(lines):
        if line.startswith(("error: ", "Fatal Python error")):
            return line
    return next((line for line in reversed(lines) if not PROGRESS.match(line)), "")


class ErrorOutput:
    """Collects the lines of a run that name an error."""

    def __init__(self) -> None:
        self._errors: collections.deque[str] = collections.deque(maxlen=MOST_ERRORS)
        self._is_over = self._in_traceback = self._after_file = (
            False  # over: the summary has begun
        )

    def see(self, line: str) -> None:
        """Keeps a line that names an error: the end of a Python traceback, or a line that begins with an error type."""
        self._is_over = self._is_over or bool(_LAUNCHER.search(line))
        text = _PREFIX.sub("", line, count=1)
        if text.startswith("Traceback (most recent call last)"):
            self._in_traceback = True
        elif not self._is_over:
            is_end = (
                self._in_traceback
                and not self._after_file
                and bool(_EXCEPTION.match(text))
            )
            self._in_traceback = self._in_traceback and not is_end
            if is_end or _RAISED.match(text):
                self._errors.append(line)
        self._after_file = text.startswith('File "')

    @property
    def has_errors(self) -> bool:
        """Whether any line named an error."""
        return bool(self._errors)

    def text(self, lines: Sequence[str]) -> str:
        """The last error, with a launcher that of the rank that failed first, and the last lines with words."""
        end = next(
            (k for k, line in enumerate(lines) if _LAUNCHER.search(line)), len(lines)
        )
        summary = "\n".join(lines[end:])
        rank, killed = _RANK.search(summary), _KILLED.search(summary)
        of_rank = [
            line
            for line in self._errors
            if rank and line.startswith(f"[rank{rank[1]}]")
        ]
        errors = [killed[1]] if killed else [*(of_rank or self._errors)][-1:]
        worded = [line for line in lines[:end] if re.search(r"\w\w", line)]
        shown = dict.fromkeys([*errors, *([] if errors and summary else worded[-2:])])
        return " | ".join(line[:MOST_LETTERS] for line in shown) or "nothing"
