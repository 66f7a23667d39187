"""Why a run has no result, in one line."""

from __future__ import annotations

import math
import re
import signal
from collections.abc import Sequence

from rnn_scaling.importers.log_formats import Seen
from rnn_scaling.records.parts import RunError
from rnn_scaling.sweeps.limit import Limit

PLACEHOLDER = "Killed"  # error type of the record that stands while a run goes on
REMEDIES = {
    "SIGKILL": "often the kernel's out-of-memory killer; see dmesg",
    "SIGXCPU": "the limit of CPU time (ulimit -t)",
    "SIGBUS": "often a full disk or /dev/shm under a mapped file",
    "SIGILL": "an instruction that this CPU lacks; often a build for another CPU",
}
# Of this suite's trainers, and what `progress` makes of another's line.
PROGRESS = re.compile(r"^(warm-up|measuring): (\d+)(?:/(\d+))? batches")
RATE = re.compile(r"batches, ([\d.,]+ \S+/s)")
LONGEST_MESSAGE = 500
INTERRUPTED_STATUSES = (130, 143)


def reason(returncode: int, timed_out: bool, lines: Sequence[str], limit: Limit) -> RunError:
    """What is to be said of a run that left no result."""
    telling = _telling(lines)
    if timed_out:
        at = next((match[0] for match in map(PROGRESS.match, reversed(lines)) if match), telling)
        return _error("Timeout", f"{limit.words} (last output: {at})" if at else limit.words)
    if returncode in INTERRUPTED_STATUSES:
        return _error("Interrupted", "interrupted by a signal from outside the sweep (SIGINT or SIGTERM)")
    if returncode < 0:
        message = killed(-returncode)
        return _error("Signal", f"{message} (last output: {telling})" if telling else message)
    last_words = telling.removeprefix("error: ") or "nothing on stderr"
    return _error("NoRecord", f"ended with exit status {returncode} and no result: {last_words}")


def progress(seen: Seen, unit: str) -> str:
    """A line that PROGRESS matches, of how far another trainer's run is."""
    rate = "" if seen.rate is None else f", {seen.rate:,.{max(0, 2 - math.floor(math.log10(seen.rate)))}f} {unit}/s"
    return f"measuring: {seen.step}{f'/{seen.total}' if seen.total else ''} batches{rate}"


def killed(number: int) -> str:
    """ "killed by SIGKILL: often ...", of a signal's number."""
    name = _signal_name(number)
    return f"killed by {name}: {REMEDIES[name]}" if name in REMEDIES else f"killed by {name}"


def unwritten(lines: Sequence[str]) -> str | None:
    """What a trainer says that could not write its record, as on a full disk; None if it says no such thing."""
    error = next((line for line in reversed(lines) if line.startswith("error: --result_file=")), None)
    return error and error.removeprefix("error: ")


def _error(kind: str, message: str) -> RunError:
    return RunError(type=kind, message=message[:LONGEST_MESSAGE])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # the real-time signals have no names
        return f"signal {number}"


def _telling(lines: Sequence[str]) -> str:
    """The line that says most: an error's, else the last that is not progress."""
    for line in reversed(lines):
        if line.startswith(("error: ", "Fatal Python error")):
            return line
    return next((line for line in reversed(lines) if not PROGRESS.match(line)), "")
