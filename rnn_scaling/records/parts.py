"""Parts of a record about the run: batches, rates, phases and failures.

Field names are keys of record files; rename only with metadata `older`, see
decoding.py. The values of the enums are stored too: add new ones, but never change one.
"""

import dataclasses
import enum
from collections.abc import Mapping

from rnn_scaling.records.decoding import (
    Count,
    Joules,
    Loss,
    Magnitude,
    Name,
    Number,
    Part,
    PositiveCount,
    PositiveNumber,
    Seconds,
    Single,
    Sparse,
)

PHASES = (
    "start",
    "cluster",
    "build",
    "resume",
    "first_batch",
    "warmup",
    "measured",
    "teardown",
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunError(Sparse):
    """Why a run failed."""

    type: str = "unknown"
    message: str = ""
    # The process of a run that has not ended; see `system.processes.alive`.
    process: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parameters(Sparse):
    """Size of one copy of the variables; None for fields that older records lack."""

    trainable: int
    bytes: int  # size of the variables that the optimizer updates
    # Averages that each tower keeps, for example of a batch normalisation.
    moving: Count | None = None
    optimizer: Count | None = None  # numbers in the optimizer's slots
    embedding_bytes: Count | None = None  # part of `bytes`: tables looked up by rows
    row_bytes: Count | None = None  # size of one such row


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Resumption(Part):
    """The continuation of a run from a checkpoint."""

    batch: Count  # batches before it
    seconds: Seconds  # time from the start of the process to the next batch


class EarlyStepsKind(str, enum.Enum):
    """The pattern of step times that shows that steps were reported too early."""

    FAST_START = "fast-start"  # the first steps are much faster than the later ones
    FEW_LONG = "few-long"  # steps at regular distances take most of the time
    LONG_LAST = "long-last"  # the last step takes most of the time
    LONG_END = "long-end"  # most of the time passed after the last step


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EarlySteps(Part):
    """A sign that a program reported steps before its devices had finished them.

    The kind is the value of an `EarlyStepsKind`; newer versions may have more.
    """

    kind: Name
    steps: Count  # the fast steps at the start, or the long ones
    seconds: Seconds  # duration of these steps, or time after the last step
    total_steps: Count  # measured steps
    total_seconds: Seconds  # duration of the measured steps


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batches(Sparse):
    """Every batch from the first, warm-up included.

    tower_items and tower_positions have one number per tower for each batch.
    """

    warmup: int = 0
    measured: int = 0
    seconds: tuple[PositiveNumber, ...] = ()
    items: tuple[PositiveCount, ...] = dataclasses.field(
        default=(), metadata={"older": "words"}
    )
    loss: tuple[Loss | None, ...] = ()
    # Only runs with a `Recorder` have them; None for a step that did not report one.
    learning_rate: tuple[Single | None, ...] | None = None
    grad_norm: tuple[Magnitude | None, ...] | None = None
    tower_items: tuple[tuple[PositiveCount, ...], ...] = dataclasses.field(
        default=(), metadata={"older": "tower_words"}
    )
    tower_positions: tuple[tuple[PositiveCount, ...], ...] = ()
    loss_items: tuple[PositiveCount, ...] | None = None  # the loss is their mean
    correct: tuple[Count, ...] | None = None  # correct predictions among `loss_items`
    resumed: tuple[Resumption, ...] | None = None  # None if one process ran all batches
    # Only runs with a `Recorder` have it; None without signs of early steps.
    early_steps: EarlySteps | None = None
    # A sentence that older versions wrote instead of `early_steps`.
    unwaited: str | None = dataclasses.field(default=None, metadata={"former": True})
    ended_by: str | None = None  # the option of our trainer that ended the run
    # Updates skipped because a gradient was not finite; None without loss scaling.
    skipped_updates: Count | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Throughput(Part):
    """The throughput of the measured batches.

    items and seconds are None if a log contained only the rate.
    """

    items: PositiveCount | None = dataclasses.field(metadata={"older": "words"})
    seconds: PositiveNumber | None
    items_per_second: PositiveNumber = dataclasses.field(
        metadata={"older": "words_per_second"}
    )


class LogFindingKind(str, enum.Enum):
    """Why the rate of a log depends on how its lines are read."""

    FIRST_RANK = "first-rank"  # several ranks printed a rate; the first one counts
    SUM_OF_RANKS = "sum-of-ranks"  # several ranks printed a rate; their sum counts
    NO_RANKS = "no-ranks"  # a sum was requested, but no line has the tag of a rank
    PER_DEVICE = "per-device"  # the rates of one device were multiplied by the devices
    ONE_TIMED_RANK = "one-timed-rank"  # several ranks printed times; one counts
    RUNNING_AVERAGE = "running-average"  # the rate between the lines counts
    RISING = "rising"  # start-up or a running average; the mean of the lines counts
    START_UP = "start-up"  # more than one line at the start is left out
    SLOWER = "slower"  # the later lines are slower; all of them count
    UNSTEADY = "unsteady"  # the rates change level until the end
    TWO_CLUSTERS = "two-clusters"  # lines of another kind, by their values
    EVALUATION = "evaluation"  # lines of another kind, by their words
    LOG_TOTAL = "log-total"  # the total in the log differs from the steps in it


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogFinding(Sparse):
    """A second way to read a log; the record contains the rate of the first.

    The kind is the value of a `LogFindingKind`; newer versions may have more.
    """

    kind: Name
    count: Count  # ranks, or lines that were left out or differ
    total: Count  # all lines, of which `count` is a part; 0 if there is no such total
    taken: PositiveNumber  # items/s in the record
    other: PositiveNumber | None = None  # items/s by the other way; None if unknown
    # Mean milliseconds in the two kinds of lines; None if they print rates.
    taken_ms: PositiveNumber | None = None
    other_ms: PositiveNumber | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Memory(Part):
    """Peak memory until the end of the measured batches: the process, and each GPU."""

    peak_process_bytes: PositiveCount | None = None
    peak_device_bytes: tuple[Count, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Energy(Part):
    """Energy of the process's machine during the measured batches."""

    joules: Mapping[str, Joules]
    seconds: Seconds  # time between the first and the last reading
    # Reason by counter.
    not_measured: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrintedOutput(Sparse):
    """The output of another program in a sweep.

    All fields except `warnings` are about the lines that contained the rate; they are
    0 or None if the rate was not read with a pattern.
    """

    lines: Count = 0  # lines that the pattern matched
    # Time between the arrivals of the first and the last line.
    span_s: Seconds | None = None
    process_s: Seconds | None = None  # duration of the whole program
    printed_s: Seconds | None = None  # sum of the printed seconds; None if not printed
    lowest_rate: PositiveNumber | None = None  # items/s, after the warm-up
    highest_rate: PositiveNumber | None = None
    # Median of: another rate of the same unit in the same line / the rate that counts.
    other_rate_ratio: PositiveNumber | None = None
    warnings: tuple[str, ...] | None = None  # the program's own lines of warnings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState(Part):
    """The steady state of a run (docs/statistics.md); rates in items/s."""

    kind: str
    start: int | None
    rate_steady: Number | None
    move: Number | None
    half_width: Number | None
    period: int | None
    outliers: tuple[int, ...]
    # A sentence that older versions wrote.
    text: str | None = dataclasses.field(default=None, metadata={"former": True})


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Phases(Sparse):
    """Seconds of each phase of a run; they sum to the total."""

    start: Seconds = 0.0
    cluster: Seconds = 0.0  # time until all processes had met
    build: Seconds = 0.0
    # The repeated warm-up of a run that continued from a checkpoint. The batches before
    # the checkpoint are in their phases and in the total; the other time of earlier
    # processes is in neither.
    resume: Seconds | None = None
    first_batch: Seconds = 0.0
    warmup: Seconds = 0.0
    measured: Seconds = 0.0
    teardown: Seconds = 0.0
    total: Seconds = 0.0
    extra_fields: Mapping[str, Seconds] | None = None

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by phase, with the phases that newer versions added."""
        seconds = {}
        for name in PHASES:
            value = getattr(self, name)
            if value is not None:
                seconds[name] = value
        return {**seconds, **(self.extra_fields or {})}
