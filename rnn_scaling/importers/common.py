"""What every importer shares: its result and points, problems with their line, rank tags, and lines of any file.

An importer is one module with two functions:
  detect(head: str) -> bool                                  is this piece of text of the format?
  parse(lines: Iterable[str], source: str) -> ImportedLog    reads all of it; LogError: nothing there
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from rnn_scaling.importers.rank_tags import untag
from rnn_scaling.records import printed_number
from rnn_scaling.records.parts import LogFinding
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import Table

PIECE = 1 << 20  # longest piece of a line that is held in memory, in characters
MAX_ROWS = 100_000  # rows of one log that are kept
LARGEST = 1e30  # no number of a log is larger; sums and ratios of smaller ones cannot overflow
MAX_KINDS = 20  # kinds of problems that are listed
MAX_REMARKS = 10  # sentences about what stands out in one log
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class LogError(ValueError):
    """A log without anything usable; the text is "FILE:LINE: reason"."""

    def __init__(self, source: str, line: int, reason: str) -> None:
        super().__init__(f"{source}:{line}: {reason}")
        self.source, self.line, self.reason = source, line, reason


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something in a log that is wrong: its first line, and how many further lines have the same fault."""

    line: int
    reason: str
    more: int = 0

    def text(self, source: str) -> str:
        further = (
            f" (and {self.more} more such line{'s' if self.more > 1 else ''})"
            if self.more
            else ""
        )
        return f"{source}:{self.line}: {self.reason}{further}"


@dataclasses.dataclass(frozen=True)
class ScalingRow:
    """One measured point. None: the source does not say."""

    source: str  # file or stream, as the user named it
    line: int  # from 1; 0 where lines mean nothing
    series: str = ""  # what comparable points share (machine, model, mode, ...); "" if there is only one series
    base: str | None = (
        None  # what a run on one device must share to be its baseline; `series` if None
    )
    devices: int | None = None  # devices, workers or GPUs together
    batch_size: printed_number.Printed | None = None  # samples of a device and step
    global_batch_size: printed_number.Printed | None = None  # of all
    seconds: printed_number.Printed | None = None
    rate: printed_number.Printed | None = None  # items per second in `rate_unit`
    rate_unit: str = ""
    speedup: printed_number.Printed | None = None  # against one device
    extra: Mapping[str, printed_number.Printed] = dataclasses.field(
        default_factory=dict
    )  # further numbers by column name


@dataclasses.dataclass(frozen=True)
class ImportedLog:
    format: str
    source: str
    rows: tuple[ScalingRow, ...] = ()  # points of a scaling measurement
    tables: tuple[Table, ...] = ()  # any other numbers
    notes: tuple[
        str, ...
    ] = ()  # what the numbers of this format mean and what it lacks, one sentence each
    problems: tuple[Problem, ...] = ()  # lines that could not be used; the rest was
    # What stands out among the numbers, such as a step or a link far slower than the others, a sentence each.
    remarks: tuple[str, ...] = ()
    # What else the rate of the first row may be.
    findings: tuple[LogFinding, ...] = ()


class Problems:
    """Collects problems in bounded memory: of each kind the first line and a count."""

    def __init__(self) -> None:
        self._first: dict[str, Problem] = {}

    def add(self, line: int, reason: str, kind: str = "") -> None:
        """Notes one problem; `kind`: names the problems that count as the same; "": the reason does."""
        kind = kind or reason
        if kind not in self._first and len(self._first) >= MAX_KINDS:
            kind, reason = "further", "further faults of several kinds"
        known = self._first.get(kind)
        self._first[kind] = (
            dataclasses.replace(known, more=known.more + 1)
            if known
            else Problem(line, reason)
        )

    def too_many(self, line: int, count: int, what: str = "results") -> bool:
        """Whether there are more results than are kept, which is then a problem."""
        if count > MAX_ROWS:
            self.add(line, f"more than {MAX_ROWS} {what}; the rest is left out")
        return count > MAX_ROWS

    def all(self) -> tuple[Problem, ...]:
        """The problems in the order of their lines."""
        return tuple(sorted(self._first.values(), key=lambda problem: problem.line))


def finish(
    format: str,
    source: str,
    rows: Iterable[ScalingRow],
    tables: Iterable[Table],
    notes: Iterable[str],
    problems: Problems,
    nothing: str,
    remarks: Iterable[str] = (),
    findings: Iterable[LogFinding] = (),
) -> ImportedLog:
    """The result; without any row it is an error."""
    points, kept = tuple(rows), tuple(table for table in tables if table.rows)
    faults = problems.all()
    if not (points or kept):
        first = faults[0] if faults else Problem(1, nothing)
        raise LogError(source, first.line, first.reason)
    kept_remarks = list(remarks)
    if len(kept_remarks) > MAX_REMARKS:
        kept_remarks[MAX_REMARKS:] = [
            f"{source}: and {len(kept_remarks) - MAX_REMARKS} more of this kind"
        ]
    return ImportedLog(
        format,
        source,
        points,
        kept,
        tuple(notes),
        faults,
        tuple(kept_remarks),
        tuple(findings),
    )


def detector(regex: str | re.Pattern[str], *needles: str) -> Callable[[str], bool]:
    """A `detect`: whether a text has one of the needles, which is quick to see, and what the regex matches."""
    pattern = re.compile(regex)
    return lambda head: (
        any(needle in head for needle in needles) and bool(pattern.search(head))
    )


def numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Lines with their number from 1, without end of line and colour codes.

    A piece without an end of line as long as `PIECE` is the beginning of a longer line, not a line.
    """
    number = 1
    for piece in lines:
        text = piece.rstrip("\r\n")
        yield number, _ANSI.sub("", text) if "\x1b" in text else text
        if piece.endswith("\n") or len(piece) < PIECE:
            number += 1


def by_rank(
    lines: Iterable[str], longest: int = 4000
) -> Iterator[tuple[int, int | None, str]]:
    """(number, rank, text without tag) of the first `longest` characters of each line."""
    for number, tagged in numbered(lines):
        yield number, *untag(tagged[:longest])


def positive(text: str, what: str) -> float:
    """A number between 1 / LARGEST and LARGEST. Raises ValueError with `what` and the text, for anything else."""
    return _number(text, what, 1 / LARGEST, "above 0")


def not_negative(text: str, what: str) -> float:
    """A number of zero or more, up to LARGEST. Raises ValueError with `what` and the text, for anything else."""
    return _number(text, what, 0.0, "of 0 or more")


def printed(
    text: str, what: str, check: Callable[[str, str], float] = positive
) -> printed_number.Printed:
    """A number as it was printed; `check`: `positive` or `not_negative`."""
    check(text, what)
    cell = printed_number.parse(text)
    if cell is None:
        raise ValueError(f"expected {what}, got {text!r}")
    return cell


def finite(value: object) -> float | None:
    """A value of JSON as a number of at most LARGEST, of either sign; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:  # JSON's integers have no bound
        return None
    return number if abs(number) <= LARGEST else None


def exact(value: float) -> printed_number.Printed:
    """The cell of a number that was not rounded for print, as in JSON: every decimal that it has counts."""
    if float(value).is_integer() and abs(value) < 1e15:
        return printed_number.Printed(float(value), 1e-9, str(int(value)))
    shown = repr(float(value))
    mantissa, _, exponent = shown.partition("e")
    return printed_number.Printed(
        float(value),
        10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])),
        shown,
    )


def _number(text: str, what: str, least: float, rule: str) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"expected {what}, got {str(text)[:40]!r}") from None
    if not least <= value <= LARGEST:
        raise ValueError(f"expected {what} {rule}, got {text!r}")
    return value


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file with their ends, in pieces of at most `PIECE` bytes; bytes that are no UTF-8 become U+FFFD.

    Raises OSError if the file cannot be read, and LogError if it is no text.
    """
    with input_files.open_regular(path) as file:
        head = file.read(4096)
        reason = _not_text(head)
        if reason:
            raise LogError(str(path), 1, reason)
        file.seek(3 if head.startswith(b"\xef\xbb\xbf") else 0)
        while piece := file.readline(PIECE):
            yield piece.decode("utf-8", errors="replace")


def _not_text(head: bytes) -> str:
    if not head:
        return "the file is empty"
    if head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "UTF-16 text; convert it first: iconv -f UTF-16 -t UTF-8"
    if (
        head[:2] == b"\x1f\x8b"
        or head[:4] == b"PK\x03\x04"
        or head[:4] == b"\x28\xb5\x2f\xfd"
    ):
        return "a compressed file; unpack it first"
    if b"\0" in head:
        return "a binary file; expected a log or JSON"
    return ""
