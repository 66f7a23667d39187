"""The contract of all importers: the lines of a log in, one `Reading` out.

    file -> LogLine -> Measurement -> ImportedRun (a RunRecord) -> Reading

A format of `formats.FORMATS` has two methods:

    detect(text)          whether a piece of a file is of this format
    read(lines, terms)    reads all lines of a file and returns a `Reading`

`LogLine` is one line without the tag of its rank. `Measurement` is what one line
prints about the speed of a run, by the groups of a pattern (rate, items, seconds, ms,
step, total, loss). `rates.py` makes one rate of the measurements of a run, and
`run_record` is the only place that makes a record of it. What a log does not contain
is not in the options of the record. A sweep of somebody's program and `import_log`
both read through `importing.py`.
"""

import abc
import dataclasses
import enum
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rnn_scaling.config.naming import TRAINER
from rnn_scaling.records import printed_number
from rnn_scaling.records.importers import rank_tags
from rnn_scaling.records.importers.rank_tags import Ranks
from rnn_scaling.records.options import Options
from rnn_scaling.records.parts import Batches, LogFinding, PrintedOutput, Throughput
from rnn_scaling.records.printed_number import Printed
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.files.markdown import Table

AUTO = "auto"  # as a format: every one that a file seems to hold
REGEX = "regex:"  # in front of a pattern
WALL = "wall"  # as a format: only the duration of the program is read
PIECE = 1 << 20  # longest piece of a line that is held in memory, in characters
LONGEST = 4000  # characters of a line that are read
MAX_ROWS = 100_000  # rows of one log that are kept
LARGEST = 1e30  # sums and ratios of smaller numbers cannot overflow
MAX_KINDS = 20  # kinds of problems that are listed
LEAST_ROUNDING = 1e-6  # share of a rate; less is not recorded
NO_BATCHES = Batches()
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class LogError(ValueError):
    """A log without anything usable; the text is "FILE:LINE: reason"."""

    def __init__(self, source: str, line: int, reason: str) -> None:
        super().__init__(f"{source}:{line}: {reason}")
        self.source = source
        self.line = line
        self.reason = reason


class NoMatch(ValueError):
    """No line of a log matches a pattern."""


class LineError(ValueError):
    """A line that makes a log unusable; the text is that of a sweep."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line} of its output: {reason}")
        self.line = line
        self.reason = reason


@dataclasses.dataclass(frozen=True)
class LogLine:
    """One line of a log."""

    number: int  # from 1
    rank: int | None  # of the tag in front of it; None without a tag
    text: str  # without the tag, the end of the line and colour codes
    tagged: str  # with the tag, since "200: " may also be the number of a step
    arrived_s: float | None = None  # on the clock of the sweep; None if not known


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What one line prints about the speed of a run.

    numbers: By group: rate, items, seconds, ms, step, total, loss.
    """

    line: LogLine
    numbers: Mapping[str, Printed]
    span: tuple[int, int] = (0, 0)  # of the rate or the time in the text of the line
    before: str = ""  # the line up to the first number that is read
    unit: str = ""  # what the rate counts if that has a prefix, as "MB"
    epoch: int | None = None  # None if the log does not name it
    steps: float = 1.0  # steps that it covers

    def value(self, name: str) -> float | None:
        """Return a number, or None if the line does not print it."""
        cell = self.numbers.get(name)
        return None if cell is None else cell.value


class FindingKind(str, enum.Enum):
    """What stands out in the tables of a log; a template of reports has its words."""

    P2P_SLOWER = "p2p-slower"  # than staging through the memory of the host
    ONE_WAY_LINK = "one-way-link"  # slower than its other direction
    SLOW_LINKS = "slow-links"
    SLOW_DEVICE = "slow-device"  # all its links are slow
    SLOW_RUN = "slow-run"  # to its target, compared with its repeats
    NO_SCORE = "no-score"  # runs that did not reach their target


@dataclasses.dataclass(frozen=True)
class Finding:
    """Something that stands out in a table."""

    kind: FindingKind
    line: int
    values: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something that is wrong in a log: its first line and how often it came again."""

    line: int
    reason: str
    more: int = 0

    def text(self, source: str) -> str:
        """Return "FILE:LINE: reason (and 3 more such lines)"."""
        further = ""
        if self.more:
            plural = "s" if self.more > 1 else ""
            further = f" (and {self.more} more such line{plural})"
        return f"{source}:{self.line}: {self.reason}{further}"


@dataclasses.dataclass(frozen=True)
class ImportedRun:
    """One run of a log as a record."""

    line: int
    # Without num_devices in its options if the log does not say on how many it ran.
    record: RunRecord
    # Numbers that a record has no place for, by the title of their column.
    extra: Mapping[str, Printed] = dataclasses.field(default_factory=dict)
    rate: Printed | None = None  # as printed

    @property
    def options(self) -> dict[str, Any]:
        """What the log says about the work of the run."""
        return self.record.config


@dataclasses.dataclass(frozen=True)
class Reading:
    """Everything that a log says in one format."""

    format: str
    runs: tuple[ImportedRun, ...] = ()
    tables: tuple[Table, ...] = ()  # any other numbers
    notes: tuple[str, ...] = ()  # the meaning of the numbers, one sentence each
    problems: tuple[Problem, ...] = ()  # lines that could not be used
    findings: tuple[Finding, ...] = ()
    source: str = ""  # the file, as the user named it


class RunProgress(NamedTuple):
    """How far a run is."""

    step: int
    total: int | None  # steps; None if not known
    rate: float | None  # items/s; None if not known


@dataclasses.dataclass(frozen=True)
class Terms:
    """How a log is read."""

    formats: str = AUTO  # the value of --log_format or --format
    # Measurements at the start that no rate counts; None for those of the start-up.
    warmup: int | None = None
    items_per_step: float | None = None  # of all devices; None: the log counts items
    num_devices: int = 1
    items: float | None = None  # of the whole run, for the wall time
    unit: str = ""  # the value of --unit; "" if it is not set
    # Which ranks count if several print; None: as the format does.
    ranks: Ranks | None = None
    # When each line of the log came, in seconds; empty if it is not known.
    arrivals: Sequence[float] = ()
    seconds: float = 0.0  # duration of the program
    launch_s: float = 0.0  # of these, the duration of a program that does nothing
    # `analysis.steady_state.analyse`, of seconds per item and a warm-up; None: only
    # lines at the start that take clearly longer are start-up.
    find_steady_state: Callable[..., Any] | None = None


class LogFormat(abc.ABC):
    """A format of logs."""

    name: str  # as users choose it
    has_rates = False  # of a training run, so that a sweep can read it
    counts_steps = False  # a progress bar, whose rates are steps/s

    @abc.abstractmethod
    def detect(self, text: str) -> bool:
        """Return whether a piece of a file is of this format."""

    @abc.abstractmethod
    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return everything that the lines say; raises LineError if it is nothing."""


class Problems:
    """Collects problems in bounded memory: of each kind the first line and a count."""

    def __init__(self) -> None:
        self._first: dict[str, Problem] = {}

    def add(self, line: int, reason: str, kind: str = "") -> None:
        """Note one problem; problems of one kind count as the same."""
        kind = kind or reason
        if kind not in self._first and len(self._first) >= MAX_KINDS:
            kind = "further"
            reason = "further faults of several kinds"
        known = self._first.get(kind)
        if known is None:
            self._first[kind] = Problem(line, reason)
        else:
            self._first[kind] = dataclasses.replace(known, more=known.more + 1)

    def too_many(self, line: int, count: int, things: str = "results") -> bool:
        """Return whether there are more results than are kept, and note it."""
        if count > MAX_ROWS:
            self.add(line, f"more than {MAX_ROWS} {things}; the rest is left out")
        return count > MAX_ROWS

    def all(self) -> tuple[Problem, ...]:
        """Return the problems in the order of their lines."""
        return tuple(sorted(self._first.values(), key=lambda problem: problem.line))


def finish(
    format: str,
    problems: Problems,
    nothing: str,
    *,
    runs: Iterable[ImportedRun] = (),
    tables: Iterable[Table] = (),
    notes: Iterable[str] = (),
    findings: Iterable[Finding] = (),
) -> Reading:
    """Return the reading of a file.

    Raises:
      LineError: If it has neither a run nor a row of a table.
    """
    kept_runs = tuple(runs)
    kept_tables = tuple(table for table in tables if table.rows)
    faults = problems.all()
    if not (kept_runs or kept_tables):
        first = faults[0] if faults else Problem(1, nothing)
        raise LineError(first.line, first.reason)
    return Reading(
        format, kept_runs, kept_tables, tuple(notes), faults, tuple(findings)
    )


def run_record(
    format: str,
    options: Mapping[str, Any],
    unit: str,
    rate: float | None,
    *,
    batches: Batches = NO_BATCHES,
    rounding: float = 0.0,
    clock: str = "",
    findings: Sequence[LogFinding] = (),
    output: PrintedOutput | None = None,
) -> RunRecord:
    """Return the record of a run whose numbers come from a log.

    Args:
      format: Name of the format; the trainer, unless the options name another.
      options: What the log says about the run.
      unit: What it counts.
      rate: Items/s; None if the log has none. Batches have their own.
      batches: Every measured stretch, if the log has their seconds.
      rounding: By what share of itself the rate may be off.
      clock: What timed the steps; "" if the program printed rates or seconds.
      findings: Other ways to read the lines.
      output: What was seen of the lines.
    """
    throughput = None
    if batches.seconds:
        seconds = math.fsum(batches.seconds[batches.warmup :])
        items = math.fsum(batches.items[batches.warmup :])
        throughput = Throughput(
            items=whole(items), seconds=seconds, items_per_second=items / seconds
        )
    elif rate is not None:
        throughput = Throughput(items=None, seconds=None, items_per_second=rate)
    config = {TRAINER: format.partition(":")[0], **options}
    return RunRecord(
        status="ok",
        error=None,
        options=Options(
            {name: value for name, value in config.items() if value is not None}
        ),
        batches=batches,
        throughput=throughput,
        output=output,
        unit=unit,
        log_format=format,
        log_rounding=rounding if rounding > LEAST_ROUNDING else None,
        log_clock=clock or None,
        log_findings=tuple(findings) or None,
    )


def log_lines(
    lines: Iterable[str], arrivals: Sequence[float] = (), longest: int = LONGEST
) -> Iterator[LogLine]:
    """Yield the lines of a log, each with at most `longest` characters."""
    for number, piece in numbered(lines):
        text = piece.rstrip("\r\n")
        if "\x1b" in text:
            text = _ANSI.sub("", text)
        rank, untagged = rank_tags.untag(text[:longest])
        arrived_s = arrivals[number - 1] if number <= len(arrivals) else None
        yield LogLine(number, rank, untagged, text[:longest], arrived_s)


def numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers from 1.

    A piece without an end of line that is as long as `PIECE` is the beginning of a
    longer line, and no line of its own.
    """
    number = 1
    for piece in lines:
        yield number, piece
        if piece.endswith("\n") or len(piece) < PIECE:
            number += 1


def positive(text: str, meaning: str) -> float:
    """Return a number between 1 / LARGEST and LARGEST.

    Raises:
      ValueError: With the meaning and the text, for anything else.
    """
    return _number(text, meaning, 1 / LARGEST, "above 0")


def not_negative(text: str, meaning: str) -> float:
    """Return a number from 0 to LARGEST; raises ValueError for anything else."""
    return _number(text, meaning, 0.0, "of 0 or more")


def printed(
    text: str, meaning: str, check: Callable[[str, str], float] = positive
) -> Printed:
    """Return a number as it was printed; `check` is `positive` or `not_negative`."""
    check(text, meaning)
    cell = printed_number.parse(text)
    if cell is None:
        raise ValueError(f"expected {meaning}, got {text!r}")
    return cell


def finite(value: object) -> float | None:
    """Return a value of JSON as a number of at most LARGEST; None for other values."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # the integers of JSON have no bound
        return None
    return number if abs(number) <= LARGEST else None


def exact(value: float, step: float = 1e-9) -> Printed:
    """Return the cell of a number that was not rounded for print, as in JSON."""
    if float(value).is_integer() and abs(value) < 1e15:
        return Printed(float(value), step, str(int(value)))
    return Printed(float(value), step, repr(float(value)))


def whole(value: float) -> int:
    """Return a number of items as records hold it: an integer if it is whole."""
    return int(value) if float(value).is_integer() else value  # type: ignore[return-value]


def _number(text: str, meaning: str, least: float, rule: str) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"expected {meaning}, got {str(text)[:40]!r}") from None
    if not least <= value <= LARGEST:
        raise ValueError(f"expected {meaning} {rule}, got {text!r}")
    return value
