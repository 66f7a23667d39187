"""Why a run has no result, in one line of text."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Sequence

from rnn_scaling.importers.log_formats import Seen
from rnn_scaling.records.parts import RunError
from rnn_scaling.sweeps.limit import Limit

PLACEHOLDER = "Killed"  # error type of the record that is there while a run is in progress
REMEDIES = {
    "SIGKILL": "often the kernel's out-of-memory killer; see dmesg",
    "SIGXCPU": "it exceeded the limit of CPU time (ulimit -t)",
    "SIGBUS": "often a full disk or a full /dev/shm",
    "SIGILL": "this CPU lacks an instruction; often the program was built for another CPU",
}
# The progress lines of this suite's trainers, and of `progress` below.
PROGRESS = re.compile(r"^(warm-up|measuring): (\d+)(?:/(\d+))? batches")
RATE = re.compile(r"batches, ([\d.,]+ \S+/s)")
LONGEST_MESSAGE = 500
INTERRUPTED_STATUSES = (130, 143)


def reason(returncode: int, timed_out: bool, lines: Sequence[str], limit: Limit) -> RunError:
    """The error of a run that left no result."""
    last_output = _last_output(lines)
    if timed_out:
        at = next((match[0] for match in map(PROGRESS.match, reversed(lines)) if match), last_output)
        return _error("Timeout", f"{limit.words} (last output: {at})" if at else limit.words)
    if returncode in INTERRUPTED_STATUSES:
        return _error("Interrupted", "interrupted from outside the sweep (SIGINT or SIGTERM)")
    if returncode < 0:
        message = killed(-returncode)
        return _error("Signal", f"{message} (last output: {last_output})" if last_output else message)
    error = last_output.removeprefix("error: ") or "nothing on stderr"
    return _error("NoRecord", f"ended with exit status {returncode} and no result: {error}")


def progress(seen: Seen, unit: str) -> str:
    """The progress of a user's command, as a line that PROGRESS matches."""
    rate = "" if seen.rate is None else f", {seen.rate:,.{max(0, 2 - math.floor(math.log10(seen.rate)))}f} {unit}/s"
    return f"measuring: {seen.step}{f'/{seen.total}' if seen.total else ''} batches{rate}"


def killed(number: int) -> str:
    """ "killed by SIGKILL: often ...", of a signal's number."""
    name = _signal_name(number)
    return f"killed by {name}: {REMEDIES[name]}" if name in REMEDIES else f"killed by {name}"


def unwritten(lines: Sequence[str]) -> str | None:
    """The message of a trainer that could not write its record, as on a full disk; None: there is none."""
    error = next((line for line in reversed(lines) if line.startswith("error: --result_file=")), None)
    return error and error.removeprefix("error: ")


def _error(kind: str, message: str) -> RunError:
    return RunError(type=kind, message=message[:LONGEST_MESSAGE])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time signals have no names
        return f"signal {number}"


def _last_output(lines: Sequence[str]) -> str:
    """The last line of an error, else the last line that is not progress."""
    for line in reversed(lines):
        if line.startswith(("error: ", "Fatal Python error")):
            return line
    return next((line for line in reversed(lines) if not PROGRESS.match(line)), "")
