"""The largest batch that fits into memory: doubled until one does not fit, then halved in between. Pure.

What a batch will take is a line through what smaller ones took at most; a batch whose line ends above the limit is not
tried.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.records.record import RunRecord
from rnn_scaling.settings.config import OPTIONS

SHARE = 0.8  # of the memory that is free, for all processes of a run: the machine needs some, too
UPPER = 1.05  # of what the line says: memory is taken in blocks
# What the kernel counts is more than what is used: stacks and blocks of which only a part was touched. It holds a
# process to so many times what that may use, and at most to so much of what is free.
COUNTED, OF_FREE = 1.25, 0.95
FINENESS = 16  # the answer is known to one part in so many
WITHIN_MEMORY = Path(__file__).parents[1] / "machine" / "within_memory.py"
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
    """What is known: the largest batch that was run, and the smallest that does not fit.

    too_large: None: none was found; is_predicted: by the line and not by a run.
    """

    largest: int | None
    too_large: int | None
    is_predicted: bool


def kernel_limit(limit_bytes: int, free_bytes: int | None, num_processes: int) -> int:
    """What the kernel holds a process to that may use `limit_bytes`.

    Args:
      limit_bytes: of a process.
      free_bytes: of the machine; None: it does not tell.
      num_processes: of a run.
    """
    counted = int(COUNTED * limit_bytes)
    return counted if free_bytes is None else max(limit_bytes, min(counted, int(OF_FREE * free_bytes / num_processes)))


def tried(record: RunRecord, limit_bytes: int | None) -> Tried:
    """What a run says of its batch size.

    Args:
      record: of the run.
      limit_bytes: what its processes may use, so that dying by a signal is likely to come of that; None: anything.
    """
    batch_size = record.config["batch_size"]
    if record.status == "ok" and record.throughput:
        peak, rate = _peak(record), record.throughput.items_per_second
        if peak and limit_bytes and peak > limit_bytes:
            return Tried(batch_size, TOO_LARGE, peak, "it took more than it may")
        return Tried(batch_size, FITS, peak, rate=rate)
    kind, message = (record.error.type, record.error.message) if record.error else (record.status, "")
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


def expected_bytes(tries: Sequence[Tried], batch_size: int) -> int | None:
    """What a batch will take at most, by the line through those that fit; None below two of them.

    Beyond them the line is not allowed to fall: memory of a larger batch is never less.
    """
    known = [(each.batch_size, each.peak_bytes) for each in tries if each.peak_bytes]
    if len({size for size, _ in known}) < 2:
        return None
    mean_size = sum(size for size, _ in known) / len(known)
    mean_bytes = sum(taken for _, taken in known) / len(known)
    squares = sum((size - mean_size) ** 2 for size, _ in known)
    slope = max(0.0, sum((size - mean_size) * (taken - mean_bytes) for size, taken in known) / squares)
    above = max(taken - (mean_bytes + slope * (size - mean_size)) for size, taken in known)
    return round(UPPER * (mean_bytes + slope * (batch_size - mean_size) + max(0.0, above)))


def next_batch(start: int, tries: Sequence[Tried], limit_bytes: int | None) -> int | None:
    """The batch size to run next; None: the largest is known, or a run failed of something else.

    Args:
      start: where to begin.
      tries: what was run.
      limit_bytes: what a process may take; None: nothing is known but what runs say.
    """
    if any(each.outcome == FAILED for each in tries):
        return None
    if not tries:
        return start
    known = what_is_known(tries, limit_bytes)
    largest, too_large = known.largest or 0, known.too_large
    if too_large is None:
        return min(2 * largest, _most()) if largest < _most() else None
    if too_large - largest <= _grain(largest):
        return None
    return _between(largest, too_large)


def what_is_known(tries: Sequence[Tried], limit_bytes: int | None) -> Found:
    """Arguments as in `next_batch`."""
    largest = max((each.batch_size for each in tries if each.outcome == FITS), default=None)
    too_large = min((each.batch_size for each in tries if each.outcome == TOO_LARGE), default=None)
    is_predicted = False
    while True:
        low = largest or 0
        following = 2 * low if too_large is None else _between(low, too_large)
        is_done = too_large is not None and too_large - low <= _grain(low)
        if not low or is_done or not _exceeds(tries, following, limit_bytes):
            return Found(largest, too_large, is_predicted)
        too_large, is_predicted = following, True


def _exceeds(tries: Sequence[Tried], batch_size: int, limit_bytes: int | None) -> bool:
    expected = expected_bytes(tries, batch_size)
    return expected is not None and limit_bytes is not None and expected > limit_bytes


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
