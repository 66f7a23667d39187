"""The largest batch that fits into memory: doubled until one does not fit, then halved in between. Pure.

Both ends of the answer are runs: memory grows in blocks, so no line through smaller batches decides what fits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnn_scaling.processes.memory_limit import KILLED
from rnn_scaling.records.record import RunRecord
from rnn_scaling.settings.config import OPTIONS

SHARE = 0.8  # of the memory that is free, for all processes of a run: the machine needs some, too
FINENESS = 16  # the answer is known to one part in so many
OUT_OF_MEMORY = ("ResourceExhaustedError", "MemoryError")
SAYS_SO = ("out of memory", "bad_alloc", "Cannot allocate memory", "OOM when allocating", "cannot map zero-fill pages")
PERHAPS = ("SIGKILL", "SIGABRT", "SIGSEGV", "SIGBUS", "exit status 137")  # what a process dies of, too, when refused
FITS, TOO_LARGE, FAILED = "fits", "out of memory", "failed"


@dataclasses.dataclass(frozen=True)
class Tried:
    """One batch size that was run.

    Attributes:
      outcome: FITS, TOO_LARGE or FAILED.
      peak_bytes: the most that the process had, on GPUs the device; None: nobody tells.
      words: what the run said when it did not fit.
      rate: items/s of its few batches; None unless it fits.
    """

    batch_size: int
    outcome: str
    peak_bytes: int | None = None
    words: str = ""
    rate: float | None = None


@dataclasses.dataclass(frozen=True)
class Found:
    """What runs show: the largest batch that fits, and the smallest above it that does not; None: none was found."""

    largest: int | None
    too_large: int | None


def tried(record: RunRecord, limit_bytes: int | None) -> Tried:
    """What a run says of its batch size.

    Args:
      limit_bytes: what its processes may use, so that dying by a signal is likely to come of that; None: anything.
    """
    batch_size = record.config["batch_size"]
    if record.status == "ok" and record.throughput:
        peak, rate = _peak(record), record.throughput.items_per_second
        if peak and limit_bytes and peak > limit_bytes:
            return Tried(batch_size, TOO_LARGE, peak, KILLED)
        return Tried(batch_size, FITS, peak, rate=rate)
    kind, message = (record.error.type, record.error.message) if record.error else (record.status, "")
    if kind == "Signal" and KILLED in message:
        return Tried(batch_size, TOO_LARGE, words=KILLED)
    if kind in OUT_OF_MEMORY or any(words in message for words in SAYS_SO):
        return Tried(batch_size, TOO_LARGE, words=message)
    signs = PERHAPS if limit_bytes else (PERHAPS[0], PERHAPS[-1])
    if kind in ("Signal", "NoRecord") and any(sign in message for sign in signs):
        return Tried(batch_size, TOO_LARGE, words=f"killed: perhaps out of memory ({message})")
    return Tried(batch_size, FAILED, words=message or kind)


def _peak(record: RunRecord) -> int | None:
    if record.memory is None:
        return None
    if record.resolved.device_type == "GPU" and record.memory.peak_device_bytes:
        return max(record.memory.peak_device_bytes)
    return record.memory.peak_process_bytes


def next_batch(start: int, tries: Sequence[Tried]) -> int | None:
    """The batch size to run next; None: the largest is known, or a run failed of something else."""
    if any(each.outcome == FAILED for each in tries):
        return None
    if not tries:
        return start
    known = what_is_known(tries)
    largest, too_large = known.largest or 0, known.too_large
    if too_large is None:
        return min(2 * largest, _most()) if largest < _most() else None
    if too_large - largest <= _grain(largest):
        return None
    return _between(largest, too_large)


def what_is_known(tries: Sequence[Tried]) -> Found:
    """Arguments as in `next_batch`."""
    largest = max((each.batch_size for each in tries if each.outcome == FITS), default=None)
    too_large = (each.batch_size for each in tries if each.outcome == TOO_LARGE and each.batch_size > (largest or 0))
    return Found(largest, min(too_large, default=None))


def _between(low: int, high: int) -> int:
    """About the middle, a multiple of the grain where there is one between."""
    grain, middle = _grain(low), (low + high) // 2
    rounded = middle // grain * grain
    return rounded if low < rounded < high else middle


def _grain(largest: int) -> int:
    """A power of two: to how many samples the answer is known."""
    return 1 << max(0, (largest // FINENESS).bit_length() - 1)


def _most() -> int:
    return int(OPTIONS["batch_size"].metadata["maximum"])
