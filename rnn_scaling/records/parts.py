"""What a run's record says of the run itself: its batches and what follows from them, its phases, its failure."""

import dataclasses
import enum
from collections.abc import Mapping

from rnn_scaling.records.decoding import (
    Count,
    Joules,
    Length,
    Loss,
    Name,
    Number,
    Part,
    PositiveCount,
    Seconds,
    Sparse,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunError(Sparse):
    """Why a run failed; process: of a run that has not ended, by which `machine.alive` finds out whether it goes on."""

    type: str = "unknown"
    message: str = ""
    process: str | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Parameters(Sparse):
    """Numbers and bytes of one copy of the variables. None: an older record, which does not tell."""

    trainable: int
    bytes: int  # of what the optimizer updates
    moving: Count | None = (
        None  # averages that each tower keeps, such as a batch normalisation's
    )
    optimizer: Count | None = None  # its slots
    embedding_bytes: Count | None = None  # those of `bytes` that are looked up by rows
    row_bytes: Count | None = None  # of such a row


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Resumption(Part):
    """That a run went on from a checkpoint: after so many batches, and how long its process took until the next one."""

    batch: Count
    seconds: Seconds


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
    seconds: Seconds  # of these steps, or after the last step
    total_steps: Count  # measured steps
    total_seconds: Seconds  # of the measured steps


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Batches(Sparse):
    """Every batch from the first, warm-up included; tower_items and tower_positions of each batch have one a tower."""

    warmup: int = 0
    measured: int = 0
    seconds: tuple[Length, ...] = ()
    items: tuple[PositiveCount, ...] = dataclasses.field(
        default=(), metadata={"older": "words"}
    )
    loss: tuple[Loss | None, ...] = ()
    tower_items: tuple[tuple[PositiveCount, ...], ...] = dataclasses.field(
        default=(), metadata={"older": "tower_words"}
    )
    tower_positions: tuple[tuple[PositiveCount, ...], ...] = ()
    loss_items: tuple[PositiveCount, ...] | None = None  # what the loss is a mean over
    correct: tuple[Count, ...] | None = (
        None  # how many of these were predicted right; None: not counted
    )
    resumed: tuple[Resumption, ...] | None = None  # None: one process did all of them
    # Of a `Recorder`; None if no sign of early steps was found.
    early_steps: EarlySteps | None = None
    # A sentence that older versions wrote instead of `early_steps`.
    unwaited: str | None = dataclasses.field(default=None, metadata={"former": True})
    ended_by: str | None = None  # the option of our trainer that ended them
    skipped_updates: Count | None = (
        None  # since a gradient was not finite; None: the loss was not scaled
    )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Throughput(Part):
    """Of the measured batches alone. items, seconds: None where the log that was read tells no more than the rate."""

    items: PositiveCount | None = dataclasses.field(metadata={"older": "words"})
    seconds: Length | None
    items_per_second: Length = dataclasses.field(metadata={"older": "words_per_second"})


class LogFindingKind(str, enum.Enum):
    """What makes the rate of a log depend on how its lines are read."""

    FIRST_RANK = "first-rank"  # several ranks printed a rate; the first was taken
    SUM_OF_RANKS = "sum-of-ranks"  # several ranks printed a rate; their sum was taken
    NO_RANKS = "no-ranks"  # a sum was asked for, and no line has the tag of a rank
    ONE_TIMED_RANK = "one-timed-rank"  # several ranks printed times; one was taken
    RUNNING_AVERAGE = "running-average"  # taken: the rate between the lines
    RISING = "rising"  # start-up or a running average; taken: the mean of the lines
    START_UP = "start-up"  # more lines than the usual one are left out
    SLOWER = "slower"  # the later lines are slower; all of them count
    UNSTEADY = "unsteady"  # no level of the rates holds to the end
    TWO_CLUSTERS = "two-clusters"  # lines of another kind, by their values
    EVALUATION = "evaluation"  # lines of another kind, by their words
    LOG_TOTAL = "log-total"  # the log's own total differs from the steps that it shows


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LogFinding(Sparse):
    """A second way to read a log, and which of the two the rate of the record is.

    The kind is the value of a `LogFindingKind`; newer versions may have more.
    """

    kind: Name
    count: Count  # ranks, or lines that were left out or differ
    total: Count  # lines in all, of which `count` is a part; 0 if that has no meaning
    taken: Length  # items/s that the record has
    other: Length | None = None  # items/s by the other way; None if it is not known
    # Mean milliseconds as the two kinds of lines print them; None if they print rates.
    taken_ms: Length | None = None
    other_ms: Length | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Memory(Part):
    """The most that was in use until the last measured batch: by the process on the host, on each device (GPUs)."""

    peak_process_bytes: PositiveCount | None = None
    peak_device_bytes: tuple[Count, ...] | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Energy(Part):
    """Energy of the process's machine during the measured batches; not_measured: counter -> reason."""

    joules: Mapping[str, Joules]
    seconds: Seconds  # between the first and the last read
    not_measured: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PrintedOutput(Sparse):
    """What a sweep saw of the output of another program.

    All fields but `warnings` are about the lines that the rate was read from, and are
    0 or None if that was not a pattern.
    """

    lines: Count = 0  # lines that the pattern matched
    span_s: Seconds | None = None  # between the arrivals of the first and the last one
    process_s: Seconds | None = None  # duration of the whole program
    printed_s: Seconds | None = None  # sum of the printed seconds; None if not printed
    lowest_rate: Length | None = None  # items/s, after the warm-up
    highest_rate: Length | None = None
    # Another rate of the same unit in the same line / the rate that was read: median.
    other_rate_ratio: Length | None = None
    warnings: tuple[str, ...] | None = None  # the program's own lines of warnings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState(Part):
    """What the times of the batches say in addition to the rate (docs/statistics.md); rates in items/s."""

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
    """Seconds of each phase of a run; they sum to the total. cluster: until all processes had met."""

    start: Seconds = 0.0
    cluster: Seconds = 0.0
    build: Seconds = 0.0
    # Of a run that went on from a checkpoint, the warm-up that counts nowhere; the batches before are in the batches'
    # phases and in the total, what else the processes before this one did is not.
    resume: Seconds | None = None
    first_batch: Seconds = 0.0
    warmup: Seconds = 0.0
    measured: Seconds = 0.0
    teardown: Seconds = 0.0
    total: Seconds = 0.0
    further: Mapping[str, Seconds] | None = None

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by name, without their total; those of a newer writer are among them."""
        names = (
            "start",
            "cluster",
            "build",
            "resume",
            "first_batch",
            "warmup",
            "measured",
            "teardown",
        )
        values = {name: getattr(self, name) for name in names}
        return {
            **{name: value for name, value in values.items() if value is not None},
            **(self.further or {}),
        }
