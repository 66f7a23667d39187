"""The largest batch that fits into memory: doubled until one does not fit, then halved in between. Pure.

Both ends of the answer are runs: memory grows in blocks, so no line through smaller batches decides what fits.
"""

import dataclasses
from collections.abc import Sequence

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config.run_config import OPTIONS
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.machine.system import GIB
from rnn_scaling.system.processes.tether import KILLED

FINENESS = 16  # the search ends when the answer is known to one part in this number
OUT_OF_MEMORY = ("ResourceExhaustedError", "MemoryError")
SAYS_SO = (
    "out of memory",
    "bad_alloc",
    "Cannot allocate memory",
    "OOM when allocating",
    "cannot map zero-fill pages",
)
# Also ends of a process that was refused memory.
PERHAPS = ("SIGKILL", "SIGABRT", "SIGSEGV", "SIGBUS", "exit status 137")
FITS = "fits"
TOO_LARGE = "out of memory"
FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class Try:
    """One batch size that was run. outcome: FITS, TOO_LARGE or FAILED; words: the error of a run that did not fit."""

    batch_size: int
    outcome: str
    peak_bytes: int | None = None  # of the process, on GPUs of the device
    words: str = ""
    rate: float | None = None  # items/s, if it fits


@dataclasses.dataclass(frozen=True)
class Found:
    """The largest batch that fits, and the smallest above it that does not; None: none was found."""

    largest: int | None
    too_large: int | None


def outcome(record: RunRecord, limit_bytes: int | None) -> Try:
    """The outcome of one run; under a limit a signal probably means the limit."""
    batch_size = record.options["batch_size"]
    if record.status == "ok" and record.throughput:
        most = peak(record)
        rate = record.throughput.items_per_second
        if most and limit_bytes and most > limit_bytes:
            return Try(batch_size, TOO_LARGE, most, KILLED)
        return Try(batch_size, FITS, most, rate=rate)
    kind, message = (
        (record.error.type, record.error.message)
        if record.error
        else (record.status, "")
    )
    if kind == "Signal" and KILLED in message:
        return Try(batch_size, TOO_LARGE, words=KILLED)
    if kind in OUT_OF_MEMORY or any(words in message for words in SAYS_SO):
        return Try(batch_size, TOO_LARGE, words=message)
    signs = PERHAPS if limit_bytes else (PERHAPS[0], PERHAPS[-1])
    if kind in ("Signal", "NoRecord") and any(sign in message for sign in signs):
        return Try(
            batch_size, TOO_LARGE, words=f"killed: perhaps out of memory ({message})"
        )
    return Try(batch_size, FAILED, words=message or kind)


def peak(record: RunRecord) -> int | None:
    """Peak bytes of the process, on GPUs of the fullest device."""
    if record.memory is None:
        return None
    if record.resolved.device_type == "GPU" and record.memory.peak_device_bytes:
        return max(record.memory.peak_device_bytes)
    return record.memory.peak_process_bytes


def next_batch(start: int, tries: Sequence[Try]) -> int | None:
    """The batch size to run next; None: the largest is known, or a run failed of something else."""
    if any(attempt.outcome == FAILED for attempt in tries):
        return None
    if not tries:
        return start
    found = bounds(tries)
    most = int(OPTIONS["batch_size"].metadata["maximum"])
    largest = found.largest or 0
    too_large = found.too_large
    if too_large is None:
        return min(2 * largest, most) if largest < most else None
    return (
        _between(largest, too_large) if too_large - largest > _grain(largest) else None
    )


def bounds(tries: Sequence[Try]) -> Found:
    largest = max(
        (attempt.batch_size for attempt in tries if attempt.outcome == FITS),
        default=None,
    )
    refused = [attempt.batch_size for attempt in tries if attempt.outcome == TOO_LARGE]
    return Found(
        largest, min((size for size in refused if size > (largest or 0)), default=None)
    )


def statements(
    tries: Sequence[Try], samples: str, limit_bytes: int | None, is_finished: bool
) -> list[Statement]:
    """What the tries show; `samples`: what a batch holds, in the plural."""
    sizes = {attempt.batch_size: attempt for attempt in tries}
    failed = next((attempt for attempt in tries if attempt.outcome == FAILED), None)
    if failed:
        return [
            Statement(
                "batch-failed",
                values={"batch_size": failed.batch_size, "reason": failed.words},
            )
        ]
    found = bounds(tries)
    if not tries:
        return [Statement("batch-untried")]
    unfinished = [] if is_finished else [Statement("batch-unfinished")]
    if found.largest is None:
        return [
            Statement(
                "batch-none", values={"batch_size": min(sizes), "samples": samples}
            ),
            *unfinished,
        ]
    most = sizes[found.largest].peak_bytes
    kind = (
        "batch-fits"
        if not most
        else "batch-fits-limit"
        if limit_bytes
        else "batch-fits-peak"
    )
    memory = {"peak_gib": (most or 0) / GIB, "limit_gib": (limit_bytes or 0) / GIB}
    made = [
        Statement(
            kind, values={"batch_size": found.largest, "samples": samples, **memory}
        )
    ]
    if found.too_large is not None:
        reason = sizes[found.too_large].words or TOO_LARGE
        values = {"batch_size": found.too_large, "samples": samples, "reason": reason}
        made.append(Statement("batch-too-large", values=values))
    return [*made, *unfinished]


def _between(low: int, high: int) -> int:
    """About the middle, a multiple of the grain where there is one between."""
    grain = _grain(low)
    middle = (low + high) // 2
    rounded = middle // grain * grain
    return rounded if low < rounded < high else middle


def _grain(largest: int) -> int:
    """A power of two: to how many samples the answer is known."""
    return 1 << max(0, (largest // FINENESS).bit_length() - 1)
