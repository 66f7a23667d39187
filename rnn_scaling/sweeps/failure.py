"""Explain in one line why a run has no result.

PROGRESS and RATE must match the lines that training/progress.py prints. PLACEHOLDER is
stored in records, and training/recording.py writes it too.
"""

import collections
import math
import re
import signal
from collections.abc import Sequence

from rnn_scaling.records.importers.reading import RunProgress
from rnn_scaling.records.parts import RunError
from rnn_scaling.sweeps.estimate import Limit

# Error type of the record that exists while a run is in progress.
PLACEHOLDER = "Killed"
_REMEDIES = {
    "SIGKILL": "often the kernel's out-of-memory killer; see dmesg",
    "SIGXCPU": "it exceeded the limit of CPU time (ulimit -t)",
    "SIGBUS": "often a full disk or a full /dev/shm",
    "SIGILL": "this CPU lacks an instruction; often the program was built for another CPU",
}
# The progress lines of this suite's trainers, and of `format_progress`. Any program can
# print such a line: the digits are bounded because Python converts no more than 4,300.
PROGRESS = re.compile(r"^(warm-up|measuring): (\d{1,20})(?:/(\d{1,20}))? batches")
RATE = re.compile(r"batches, ([\d.,]+ \S+/s)")
MAX_MESSAGE_LENGTH = 500
_MAX_QUOTE_LENGTH = 150  # letters of a quoted line
_INTERRUPTED_STATUSES = (130, 143)
# Enough that the errors of the rank that failed first are among them.
_MAX_ERRORS = 100
_PREFIX = re.compile(r"\[.{1,40}?\](?:<std\w+>)?:? *")
_RAISED = re.compile(r"[\w.]*(?:Error|Exception)\b|error:|fatal:", re.IGNORECASE)
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?:: .*)?$")
# The summary of torchrun and accelerate.
_LAUNCHER = re.compile(
    r"ChildFailedError|CalledProcessError: Command"
    r"|torch[/.]distributed[/.].*(?:failed \(exitcode|Sending process)"
)
_RANK = re.compile(r"Root Cause.*?\brank\s*: (\d+)", re.DOTALL)
_KILLED = re.compile(
    r"Root Cause.*?(Signal \d+ \(\w+\) received by PID \d+)", re.DOTALL
)


def explain_end(
    returncode: int, timed_out: bool, lines: Sequence[str], limit: Limit
) -> RunError:
    """Return the error of a process that left no result.

    Args:
      returncode: Exit status, or the negative number of a signal.
      timed_out: Whether the time limit ended the process.
      lines: The last lines of output.
      limit: The time limit of the process.
    """
    last_output = _find_last_output(lines)
    if timed_out:
        return _make_error(
            "Timeout", limit.words, _find_last_progress(lines) or last_output
        )
    if returncode in _INTERRUPTED_STATUSES:
        message = "interrupted from outside the sweep (SIGINT or SIGTERM)"
        return _make_error("Interrupted", message)
    if returncode < 0:
        return _make_error("Signal", describe_signal(-returncode), last_output)
    error = last_output.removeprefix("error: ") or "nothing on stderr"
    return _make_error(
        "NoRecord", f"ended with exit status {returncode} and no result: {error}"
    )


def format_progress(progress: RunProgress, unit: str) -> str:
    """Return the progress of a user's program as a line that PROGRESS matches."""
    line = f"measuring: {progress.step}"
    if progress.total:
        line += f"/{progress.total}"
    line += " batches"
    if progress.rate is not None:
        decimals = max(0, 2 - math.floor(math.log10(progress.rate)))
        line += f", {progress.rate:,.{decimals}f} {unit}/s"
    return line


def describe_signal(number: int) -> str:
    """Return the name of a signal that killed a process, and its usual cause."""
    try:
        name = signal.Signals(number).name
    except ValueError:  # the real-time signals have no names
        name = f"signal {number}"
    if name in _REMEDIES:
        return f"killed by {name}: {_REMEDIES[name]}"
    return f"killed by {name}"


def find_write_error(lines: Sequence[str]) -> str | None:
    """Return the message of a trainer that could not write its record, or None."""
    for line in reversed(lines):
        if line.startswith("error: --result_file="):
            return line.removeprefix("error: ")
    return None


def _make_error(kind: str, message: str, last_output: str = "") -> RunError:
    if last_output:
        message += f" (last output: {last_output})"
    return RunError(type=kind, message=message[:MAX_MESSAGE_LENGTH])


def _find_last_progress(lines: Sequence[str]) -> str:
    for line in reversed(lines):
        match = PROGRESS.match(line)
        if match:
            return match[0]
    return ""


def _find_last_output(lines: Sequence[str]) -> str:
    """Return the last line of an error, or else the last line that is not progress."""
    for line in reversed(lines):
        if line.startswith(("error: ", "Fatal Python error")):
            return line
    for line in reversed(lines):
        if not PROGRESS.match(line):
            return line
    return ""


class ErrorOutput:
    """Collects the lines of a run that name an error."""

    def __init__(self) -> None:
        self._errors: collections.deque[str] = collections.deque(maxlen=_MAX_ERRORS)
        self._in_summary = False  # A launcher's summary follows all errors.
        self._in_traceback = False
        self._after_file = False

    def read(self, line: str) -> None:
        """Keep a line that names an error.

        It is the end of a Python traceback, or begins with the type of an error.
        """
        if _LAUNCHER.search(line):
            self._in_summary = True
        text = _PREFIX.sub("", line, count=1)
        if text.startswith("Traceback (most recent call last)"):
            self._in_traceback = True
        elif not self._in_summary:
            is_code = self._after_file
            is_end = self._in_traceback and not is_code and bool(_EXCEPTION.match(text))
            if is_end:
                self._in_traceback = False
            if is_end or _RAISED.match(text):
                self._errors.append(line)
        self._after_file = text.startswith('File "')

    @property
    def has_errors(self) -> bool:
        """Whether any line named an error."""
        return bool(self._errors)

    def summarize(self, lines: Sequence[str]) -> str:
        """Return the last error and the last lines with words.

        If a launcher names the rank that failed first, the error is from this rank.
        """
        end = len(lines)
        for index, line in enumerate(lines):
            if _LAUNCHER.search(line):
                end = index
                break
        summary = "\n".join(lines[end:])
        errors = self._select_errors(summary)
        quotes = dict.fromkeys(errors)
        if not errors or not summary:
            worded = [line for line in lines[:end] if re.search(r"\w\w", line)]
            quotes |= dict.fromkeys(worded[-2:])
        return " | ".join(line[:_MAX_QUOTE_LENGTH] for line in quotes) or "nothing"

    def _select_errors(self, summary: str) -> list[str]:
        """Return the error that matters, or nothing."""
        signal_match = _KILLED.search(summary)
        if signal_match:
            return [signal_match[1]]
        rank_match = _RANK.search(summary)
        if rank_match:
            prefix = f"[rank{rank_match[1]}]"
            rank_errors = [line for line in self._errors if line.startswith(prefix)]
            if rank_errors:
                return rank_errors[-1:]
        return list(self._errors)[-1:]
