"""Search the largest batch that fits into memory.

The batch size is doubled until it does not fit, then the range is halved. Memory grows
in blocks, so no line through smaller batches decides: both ends of the answer are runs.

Pure: `sweeps.batch_search` makes the runs and asks for the next size.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.statements import Statement, Word, state
from rnn_scaling.config.run_config import OPTIONS
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.machine.system import GIB
from rnn_scaling.system.processes.parent_death_launcher import KILLED

FINENESS = 16  # the search ends when the answer is known to one part in this number
_OUT_OF_MEMORY = ("ResourceExhaustedError", "MemoryError")
_OUT_OF_MEMORY_TEXTS = (
    "out of memory",
    "bad_alloc",
    "Cannot allocate memory",
    "OOM when allocating",
    "cannot map zero-fill pages",
)
# A process whose memory is refused may also end in these ways.
_KILLED_TEXTS = ("SIGKILL", "exit status 137")
_KILLED_TEXTS_UNDER_LIMIT = (*_KILLED_TEXTS, "SIGABRT", "SIGSEGV", "SIGBUS")


class Outcome(Word):
    """Whether a batch fits."""

    FITS = "fits"
    TOO_LARGE = "out of memory"
    FAILED = "failed"


FITS, TOO_LARGE, FAILED = Outcome


@dataclasses.dataclass(frozen=True)
class Try:
    """One batch size that was run.

    Attributes:
      peak_bytes: Peak memory of the process, on GPUs of the fullest device.
      message: The error of a run that did not fit.
      rate: Items/s, if it fits.
    """

    batch_size: int
    outcome: Outcome
    peak_bytes: int | None = None
    message: str = ""
    rate: float | None = None


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The largest batch that fits, and the smallest larger one that does not.

    Either is None if there is no such run.
    """

    largest: int | None
    too_large: int | None


def judge_run(record: RunRecord, limit_bytes: int | None) -> Try:
    """Return the outcome of a run. Under a limit, a signal probably means the limit."""
    batch_size = record.options["batch_size"]
    if record.status == "ok" and record.throughput:
        peak_bytes = find_peak_bytes(record)
        if peak_bytes and limit_bytes and peak_bytes > limit_bytes:
            return Try(batch_size, TOO_LARGE, peak_bytes, KILLED)
        rate = disturbance.compute_counted_rate(record)
        return Try(batch_size, FITS, peak_bytes, rate=rate)
    kind = record.status
    message = ""
    if record.error:
        kind = record.error.type
        message = record.error.message
    if kind == "Signal" and KILLED in message:
        return Try(batch_size, TOO_LARGE, message=KILLED)
    if kind in _OUT_OF_MEMORY or any(text in message for text in _OUT_OF_MEMORY_TEXTS):
        return Try(batch_size, TOO_LARGE, message=message)
    signs = _KILLED_TEXTS_UNDER_LIMIT if limit_bytes else _KILLED_TEXTS
    if kind in ("Signal", "NoRecord") and any(sign in message for sign in signs):
        message = f"killed: perhaps out of memory ({message})"
        return Try(batch_size, TOO_LARGE, message=message)
    return Try(batch_size, FAILED, message=message or kind)


def find_peak_bytes(record: RunRecord) -> int | None:
    """Return the peak bytes of the process, on GPUs of the fullest device."""
    if record.memory is None:
        return None
    if record.resolved.device_type == "GPU" and record.memory.peak_device_bytes:
        return max(record.memory.peak_device_bytes)
    return record.memory.peak_process_bytes


def choose_next_batch(start: int, tries: Sequence[Try]) -> int | None:
    """Return the batch size to run next.

    Returns:
      None if the largest is known, or if a run failed for another reason.
    """
    if any(attempt.outcome == FAILED for attempt in tries):
        return None
    if not tries:
        return start
    limits = find_bounds(tries)
    maximum = int(OPTIONS["batch_size"].metadata["maximum"])
    largest = limits.largest or 0
    if limits.too_large is None:
        return min(2 * largest, maximum) if largest < maximum else None
    if limits.too_large - largest <= _search_precision(largest):
        return None
    return _choose_middle_batch_size(largest, limits.too_large)


def find_bounds(tries: Sequence[Try]) -> Bounds:
    fitting = [attempt.batch_size for attempt in tries if attempt.outcome == FITS]
    largest = max(fitting, default=None)
    refused = [attempt.batch_size for attempt in tries if attempt.outcome == TOO_LARGE]
    larger = [size for size in refused if size > (largest or 0)]
    return Bounds(largest, min(larger, default=None))


def make_statements(
    tries: Sequence[Try], samples: str, limit_bytes: int | None, is_finished: bool
) -> list[Statement]:
    """State what the tries show.

    Args:
      samples: The noun for a batch's samples, in the plural.
    """
    if not tries:
        return [state("batch-untried")]
    sizes = {attempt.batch_size: attempt for attempt in tries}
    values: dict[str, Any]
    for attempt in tries:
        if attempt.outcome == FAILED:
            values = {"batch_size": attempt.batch_size, "reason": attempt.message}
            return [state("batch-failed", **values)]
    limits = find_bounds(tries)
    statements = []
    if limits.largest is None:
        values = {"batch_size": min(sizes), "samples": samples}
        statements.append(state("batch-none", **values))
    else:
        peak_bytes = sizes[limits.largest].peak_bytes or 0
        values = {
            "batch_size": limits.largest,
            "samples": samples,
            "peak_gib": peak_bytes / GIB,
            "limit_gib": (limit_bytes or 0) / GIB,
        }
        kind = "batch-fits"
        if peak_bytes:
            kind = "batch-fits-limit" if limit_bytes else "batch-fits-peak"
        statements.append(state(kind, **values))
        if limits.too_large is not None:
            reason = sizes[limits.too_large].message or TOO_LARGE.value
            values = {
                "batch_size": limits.too_large,
                "samples": samples,
                "reason": reason,
            }
            statements.append(state("batch-too-large", **values))
    if not is_finished:
        statements.append(state("batch-unfinished"))
    return statements


def _choose_middle_batch_size(low: int, high: int) -> int:
    """Return about the middle, as a multiple of the grain if there is one between."""
    grain = _search_precision(low)
    middle = (low + high) // 2
    rounded = middle // grain * grain
    return rounded if low < rounded < high else middle


def _search_precision(largest: int) -> int:
    """Return the precision of the answer in samples, a power of two."""
    return 1 << max(0, (largest // FINENESS).bit_length() - 1)
