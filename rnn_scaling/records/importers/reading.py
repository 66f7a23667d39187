"""The contract of all importers: the lines of a log in, one `Reading` out.

    file -> LogLine -> Measurement -> ImportedRun (a RunRecord) -> Reading

A format of `formats.FORMATS` only parses:

    name                  the name as users choose it
    has_rates             whether it has rates of training runs, which a sweep can read
    needles               texts, one of which is in each file of this format
    read(lines, terms)    read all lines of a file and return a `Reading`

A format may also have `detected`, a pattern, or a `detect` of its own instead of
needles.

`LogLine` is one line without the tag of its rank. `Measurement` contains the numbers
that one line prints about the speed of a run. `rates.py` computes one rate from the
measurements of a run, and `run_record` puts it into a record; values that a log does
not contain are not in the options of the record. A sweep of another program and
`import_log` both read through `importing.py`.
"""

import abc
import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rnn_scaling.config.naming import TRAINER
from rnn_scaling.records import cell_numbers
from rnn_scaling.records.cell_numbers import PrintedNumber
from rnn_scaling.records.folder import UNKNOWN_UNIT
from rnn_scaling.records.importers import rank_tags
from rnn_scaling.records.importers.rank_tags import Ranks
from rnn_scaling.records.options import Options
from rnn_scaling.records.parts import Batches, LogFinding, PrintedOutput, Throughput
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system.files.markdown import Table

AUTO = "auto"  # choice of all formats that a file seems to contain
REGEX = "regex:"  # prefix of a pattern
WALL = "wall"  # the format that reads only the duration of the program
PIECE = 1 << 20  # longest piece of a line that is held in memory, in characters
MAX_LINE_CHARACTERS = 4000  # characters of a line that are read
_MAX_NUMBER = 1e30  # sums and ratios of smaller numbers cannot overflow
MAX_KINDS = 20  # kinds of problems that are listed
_MIN_ROUNDING = 1e-6  # smallest relative rounding error that is recorded
_NO_BATCHES = Batches()
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class NoMatch(ValueError):
    """A log without any line that matches a pattern."""


class LineError(ValueError):
    """A line that makes a log unusable, with its number; a sweep shows its text."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(f"line {line} of its output: {reason}")
        self.line = line
        self.reason = reason


@dataclasses.dataclass(frozen=True)
class LogLine:
    """One line of a log."""

    number: int  # from 1
    rank: int | None  # according to the tag of the line; None without a tag
    text: str  # without the tag, the end of the line and colour codes
    tagged: str  # with the tag, because "200: " may also be the number of a step
    arrived_s: float | None = None  # on the clock of the sweep; None if not known


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The numbers that one line prints about the speed of a run."""

    line: LogLine
    # By group of the pattern: rate, items, seconds, ms, step, total, loss.
    numbers: Mapping[str, PrintedNumber]
    span: tuple[int, int] = (0, 0)  # position of the rate or time in the line
    text_before: str = ""  # the line up to its first number that is read
    unit: str = ""  # unit of the rate if that has a metric prefix, such as "MB"
    epoch: int | None = None  # None if the log does not name it
    steps: float = 1.0  # number of steps that the line covers

    def value(self, name: str) -> float | None:
        """Return a number, or None if the line does not print it."""
        number = self.numbers.get(name)
        return None if number is None else number.value


@dataclasses.dataclass(frozen=True)
class Problem:
    """A fault in a log: its first line and the number of its repetitions."""

    line: int
    reason: str
    more: int = 0  # number of repetitions

    def text(self, source: str) -> str:
        """Return "FILE:LINE: reason (and 3 more such lines)"."""
        text = f"{source}:{self.line}: {self.reason}"
        if not self.more:
            return text
        plural = "s" if self.more > 1 else ""
        return f"{text} (and {self.more} more such line{plural})"


@dataclasses.dataclass(frozen=True)
class ImportedRun:
    """One run of a log as a record."""

    line: int
    # Its options lack num_devices if the log does not contain the number of devices.
    record: RunRecord
    # Numbers that have no field in a record, by the title of their column.
    extra: Mapping[str, PrintedNumber] = dataclasses.field(default_factory=dict)
    rate: PrintedNumber | None = None  # as printed

    @property
    def options(self) -> dict[str, Any]:
        """The options of the run that the log contains."""
        return self.record.config


@dataclasses.dataclass(frozen=True)
class Reading:
    """Everything that a log contains in one format."""

    format: str
    runs: tuple[ImportedRun, ...] = ()
    tables: tuple[Table, ...] = ()  # numbers that are not rates of runs
    notes: tuple[str, ...] = ()  # the meaning of the numbers, one sentence each
    problems: tuple[Problem, ...] = ()  # lines that could not be used
    source: str = ""  # the file, as the user named it


class RunProgress(NamedTuple):
    """The progress of a run that is not finished."""

    step: int
    total: int | None  # steps; None if not known
    rate: float | None  # items/s; None if not known


@dataclasses.dataclass(frozen=True)
class Terms:
    """The choices of the user and the facts of a sweep with which a log is read."""

    formats: str = AUTO  # the value of --log_format or --format
    # Measurements that are left out at the start; None to detect the start-up.
    warmup: int | None = None
    # Items of a step on all devices; None if the log prints items.
    items_per_step: float | None = None
    # Devices of a run, and samples of each device per step; None if not known. The size
    # that a log names counts.
    num_devices: int | None = None
    batch_size: int | None = None
    items: float | None = None  # items of the whole run, for WALL
    unit: str = ""  # the value of --unit; "" if it is not set
    # Ranks that count if several print; None for the default of the format.
    ranks: Ranks | None = None
    # Arrival of each line in seconds; empty if not known.
    arrivals: Sequence[float] = ()
    seconds: float = 0.0  # duration of the program
    launch_s: float = 0.0  # duration of a program that does nothing
    # `analysis.steady_state.analyse`, called with seconds per item and a warm-up. If
    # None, the start-up is only the first lines that take clearly longer.
    find_steady_state: Callable[..., Any] | None = None


class LogFormat(abc.ABC):
    """A format of logs; those without a default are mandatory."""

    name: str  # as users choose it
    needles: tuple[str, ...]  # one of these texts is in each log
    has_rates: bool  # whether it has rates of training runs, which a sweep can read
    detected = ""  # pattern of a text of this format; "" if a needle is enough
    counts_steps = False  # whether its rates are steps/s, as in a progress bar

    def detect(self, text: str) -> bool:
        """Return whether a piece of a file is of this format."""
        if not any(needle in text for needle in self.needles):
            return False
        return re.search(self.detected, _ANSI.sub("", text)) is not None

    @abc.abstractmethod
    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return the content of the lines; raises LineError if nothing is usable."""


class Problems:
    """Collects problems in bounded memory: per kind the first line and a count."""

    def __init__(self) -> None:
        self._first: dict[str, Problem] = {}

    def add(self, line: int, reason: str, kind: str = "") -> None:
        """Add a problem.

        Args:
          line: Number of its line.
          reason: A description, shown for the first problem of its kind.
          kind: Problems with the same kind are counted together; "" for the reason.
        """
        kind = kind or reason
        if kind not in self._first and len(self._first) >= MAX_KINDS:
            kind = "further"
            reason = "further faults of several kinds"
        first = self._first.get(kind)
        if first is None:
            self._first[kind] = Problem(line, reason)
        else:
            self._first[kind] = dataclasses.replace(first, more=first.more + 1)

    def all(self) -> tuple[Problem, ...]:
        """Return the problems in the order of their lines."""
        return tuple(sorted(self._first.values(), key=lambda problem: problem.line))


def make_reading(
    format: str,
    problems: Problems,
    missing: str,
    *,
    runs: Iterable[ImportedRun] = (),
    tables: Iterable[Table] = (),
    notes: Iterable[str] = (),
) -> Reading:
    """Return the reading of a file.

    Args:
      format: Name of the format.
      problems: Faults of the file.
      missing: Error for a file that has neither content nor problems.
      runs: Runs of the file.
      tables: Other numbers; tables without rows are left out.
      notes: The meaning of the numbers.

    Raises:
      LineError: If the file has neither a run nor a row of a table.
    """
    kept_runs = tuple(runs)
    kept_tables = tuple(table for table in tables if table.rows)
    faults = problems.all()
    if not (kept_runs or kept_tables):
        first = faults[0] if faults else Problem(1, missing)
        raise LineError(first.line, first.reason)
    return Reading(format, kept_runs, kept_tables, tuple(notes), faults)


def run_record(
    format: str,
    options: Mapping[str, Any],
    unit: str,
    rate: float | None,
    *,
    batches: Batches = _NO_BATCHES,
    rounding: float = 0.0,
    clock: str = "",
    findings: Sequence[LogFinding] = (),
    output: PrintedOutput | None = None,
) -> RunRecord:
    """Return the record of a run whose numbers come from a log.

    Args:
      format: Name of the format; also the trainer, unless the options name another.
      options: Options that the log contains; None values are left out.
      unit: Unit of the items.
      rate: Items/s; None without a rate. Ignored if the batches have their seconds.
      batches: Every measured stretch, if the log has its seconds.
      rounding: Largest relative error of the rate due to its printed digits.
      clock: The clock that timed the steps; "" if the program printed rates or seconds.
      findings: Other ways to read the lines.
      output: Facts about the lines.
    """
    throughput = None
    if batches.seconds:
        seconds = math.fsum(batches.seconds[batches.warmup :])
        items = math.fsum(batches.items[batches.warmup :])
        throughput = Throughput(
            items=convert_whole_to_integer(items),
            seconds=seconds,
            items_per_second=items / seconds,
        )
    elif rate is not None:
        throughput = Throughput(items=None, seconds=None, items_per_second=rate)

    config = {TRAINER: format.partition(":")[0], **options}
    recorded = {name: value for name, value in config.items() if value is not None}
    return RunRecord(
        status="ok",
        error=None,
        options=Options(recorded),
        batches=batches,
        throughput=throughput,
        output=output,
        unit=unit or UNKNOWN_UNIT,
        log_format=format,
        log_rounding=rounding if rounding > _MIN_ROUNDING else None,
        log_clock=clock or None,
        log_findings=tuple(findings) or None,
    )


def read_log_lines(
    lines: Iterable[str],
    arrivals: Sequence[float] = (),
    longest: int = MAX_LINE_CHARACTERS,
) -> Iterator[LogLine]:
    """Yield the lines of a log, each with at most `longest` characters."""
    for number, piece in number_lines(lines):
        text = piece.rstrip("\r\n")
        if "\x1b" in text:
            text = _ANSI.sub("", text)
        rank, untagged = rank_tags.untag(text[:longest])
        arrived_s = arrivals[number - 1] if number <= len(arrivals) else None
        yield LogLine(number, rank, untagged, text[:longest], arrived_s)


def number_lines(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers from 1.

    A piece of `PIECE` characters without an end of line is the beginning of a longer
    line; the next piece has the same number.
    """
    number = 1
    for piece in lines:
        yield number, piece
        if piece.endswith("\n") or len(piece) < PIECE:
            number += 1


def parse_positive(text: str, meaning: str) -> float:
    """Return a number between 1 / _MAX_NUMBER and _MAX_NUMBER.

    Raises:
      ValueError: For any other text, with the meaning and the text.
    """
    return _parse(text, meaning, 1 / _MAX_NUMBER, "above 0")


def parse_non_negative(text: str, meaning: str) -> float:
    """Return a number from 0 to _MAX_NUMBER; raises ValueError for any other text."""
    return _parse(text, meaning, 0.0, "of 0 or more")


def parse_printed(
    text: str, meaning: str, check: Callable[[str, str], float] = parse_positive
) -> PrintedNumber:
    """Return a number with its printed digits.

    Raises:
      ValueError: If the text is not a number, or if `check` raises it.
    """
    check(text, meaning)
    number = cell_numbers.parse_cell(text)
    if number is None:
        raise ValueError(f"expected {meaning}, got {text!r}")
    return number


def read_finite_number(value: object) -> float | None:
    """Return a JSON value as a float; None if it is not a number up to _MAX_NUMBER."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # Integers in JSON may have any number of digits.
        return None
    return number if abs(number) <= _MAX_NUMBER else None


def read_exact_number(value: float, step: float = 1e-9) -> PrintedNumber:
    """Return a number that was not rounded for print, such as one from JSON."""
    number = float(value)
    is_integer = number.is_integer() and abs(number) < 1e15
    return PrintedNumber(number, step, str(int(number)) if is_integer else repr(number))


def convert_whole_to_integer(value: float) -> int:
    """Return a number of items as records hold it: an integer if it is whole."""
    return int(value) if float(value).is_integer() else value  # type: ignore[return-value]


def _parse(text: str, meaning: str, lowest: float, rule: str) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"expected {meaning}, got {str(text)[:40]!r}") from None
    if not lowest <= value <= _MAX_NUMBER:
        raise ValueError(f"expected {meaning} {rule}, got {text!r}")
    return value
