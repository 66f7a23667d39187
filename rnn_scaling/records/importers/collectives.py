"""Collective operations: what programs print about them, and whether it is consistent.

The numbers are those of nccl-tests and rccl-tests (NVIDIA/nccl-tests,
doc/PERFORMANCE.md).
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from rnn_scaling.records.cell_numbers import PrintedNumber
from rnn_scaling.records.importers.reading import (
    Problems,
    Reading,
    make_reading,
    parse_non_negative,
    parse_printed,
)
from rnn_scaling.system.files.markdown import Table, Value

COLUMNS = (
    "Operation", "Ranks", "Size (B)", "Count", "Type", "Redop", "Root", "Place",
    "Time (us)", "algbw (GB/s)", "busbw (GB/s)", "Wrong",
)  # fmt: skip
_LARGEST_ERROR = "Largest error"  # column of logs from releases that print no count
_BUSBW_NOTE = (
    "busbw = algbw * factor makes rank counts comparable: 2(n-1)/n for all_reduce, "
    "(n-1)/n for all_gather, reduce_scatter, alltoall, gather and scatter, 1 for "
    "broadcast, reduce and sendrecv."
)
_JSON_STEP = 1e-6  # last digit of printf's "%lf" and std::to_string


@dataclasses.dataclass(frozen=True)
class Operation:
    """An operation: its bandwidths, and the columns that its program fills.

    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md, "Summary", and each test's GetBw.
    """

    shares: float | None = (
        None  # busbw / algbw as a multiple of (n-1)/n; None if it is 1
    )
    # Other programs leave the columns redop and root empty, or print "none" and -1.
    has_redop: bool = False
    has_root: bool = False
    # alltoallv counts the largest share, and hypercube multiplies by n - 1.
    divides_size: bool = True  # algbw is size / time


OPERATIONS = {
    "all_reduce": Operation(2.0, has_redop=True),
    "reduce_scatter": Operation(1.0, has_redop=True),
    "sendrecv": Operation(has_redop=True),
    "reduce": Operation(has_redop=True, has_root=True),
    "all_gather": Operation(1.0),
    "alltoall": Operation(1.0),
    "broadcast": Operation(has_root=True),
    "gather": Operation(1.0, has_root=True),
    "scatter": Operation(1.0, has_root=True),
    "alltoallv": Operation(1.0, divides_size=False),
    "hypercube": Operation(divides_size=False),
}
NAMES = {name.replace("_", ""): name for name in OPERATIONS}
# Names in the text output of fields in JSON files and of CPU times.
_TEXT_NAMES = {
    "alg_bw": "algbw", "bus_bw": "busbw", "nwrong": "#wrong", "algBw": "algbw",
    "busBw": "busbw", "wrong": "#wrong", "cpu_time": "time", "cputime": "time",
}  # fmt: skip
_PROGRAM = re.compile(r"\b([a-z_]+)_perf")


class CollectiveTiming(NamedTuple):
    """One operation of one size, out of place or in place, in the order of COLUMNS."""

    operation: str | None  # None if unknown
    ranks: int | None  # None if unknown
    size: int  # bytes
    num_elements: int | None
    type: str
    redop: str
    root: str
    place: str  # "out of place" or "in place"
    time: PrintedNumber  # microseconds
    algbw: PrintedNumber  # GB/s
    busbw: PrintedNumber  # GB/s
    wrong: int | None  # wrong values; None if they were not counted
    # The error that old releases print instead of a count; infinite for NaN.
    largest_error: float | None
    line: int
    is_cpu_time: bool

    @property
    def cells(self) -> tuple[Value, ...]:
        """The cells of COLUMNS, and the largest error."""
        cells: list[Value] = []
        for cell in self[: len(COLUMNS) + 1]:
            cells.append(cell.value if isinstance(cell, PrintedNumber) else cell)
        return tuple(cells)

    @property
    def computed_algbw(self) -> tuple[float, float]:
        """The bounds of size / time in GB/s; the time must be above 0."""
        return self.size / self.time.high / 1e3, self.size / self.time.low / 1e3

    @property
    def printed_algbw(self) -> tuple[float, float]:
        """The bounds of algbw in GB/s."""
        return self.algbw.low, self.algbw.high

    def fits(self, factor: float, algbw: tuple[float, float]) -> bool:
        """Return whether busbw is factor * algbw, within the bounds of an algbw."""
        low, high = algbw
        return self.busbw.low <= high * factor and self.busbw.high >= low * factor


def read_timing(
    line: int,
    operation: str,
    ranks: int | None,
    place: str,
    values: Mapping[str, Any],
) -> CollectiveTiming:
    """Return a timing from its values by column or field.

    Raises:
      ValueError: If a number is impossible.
      KeyError: If a number is missing.
    """
    numbers_by_name = {
        _TEXT_NAMES.get(name, name): value for name, value in values.items()
    }
    count = numbers_by_name["count"]
    texts = [
        str(numbers_by_name.get(name, "")).strip() for name in ("type", "redop", "root")
    ]
    data_type, redop, root = texts
    return CollectiveTiming(
        operation or None,
        ranks=ranks,
        size=int(parse_non_negative(numbers_by_name["size"], "a size")),
        num_elements=_read_count(count, "a count"),
        type=data_type,
        redop=redop,
        root=root,
        place=place,
        time=_read_number(numbers_by_name["time"], "a time in us"),
        algbw=_read_number(numbers_by_name["algbw"], "algbw"),
        busbw=_read_number(numbers_by_name["busbw"], "busbw"),
        wrong=_read_count(numbers_by_name.get("#wrong"), "wrong values"),
        largest_error=_read_error(str(numbers_by_name.get("error", "N/A"))),
        line=line,
        is_cpu_time=not {"cputime", "cpu_time"}.isdisjoint(values),
    )


def _read_count(value: Any, meaning: str) -> int | None:
    if value in (None, "N/A"):
        return None
    return int(parse_non_negative(value, meaning))


def _read_error(text: str) -> float | None:
    if text.lstrip("-").lower() in ("nan", "inf"):
        return math.inf
    return None if text == "N/A" else parse_non_negative(text, "a largest error")


def _read_number(value: Any, meaning: str) -> PrintedNumber:
    if isinstance(value, str):
        return parse_printed(value, meaning, parse_non_negative)
    number = parse_non_negative(value, meaning)
    return PrintedNumber(number, _JSON_STEP, f"{number:g}")


def find_operation(text: str) -> str:
    """Return the operation of a program that a line names: "all_reduce", or ""."""
    names = [match[1].replace("_", "") for match in _PROGRAM.finditer(text)]
    return next((NAMES[name] for name in names if name in NAMES), "")


def factor(operation: Operation, ranks: int) -> float:
    """Return busbw / algbw of an operation."""
    if operation.shares is None:
        return 1.0
    return operation.shares * (ranks - 1) / ranks


def add_timing(
    row: CollectiveTiming, rows: list[CollectiveTiming], problems: Problems
) -> None:
    """Add a row, and report its faults."""
    rows.append(row)
    _check(row, problems)


def _check(row: CollectiveTiming, problems: Problems) -> None:
    """Report wrong results, and bandwidths that differ by more than their rounding."""
    timing = f"{row.operation or 'operation'} of {row.size} B, {row.place}"
    if row.wrong:
        text = f"{timing}: {row.wrong} wrong values; do not trust the operation"
        problems.add(row.line, text, "wrong")
    operation = OPERATIONS.get(row.operation or "")
    divides_size = operation is None or operation.divides_size
    if divides_size and not row.is_cpu_time and row.time.low > 0:
        low, high = row.computed_algbw
        if not row.algbw.low <= high or not low <= row.algbw.high:
            rate = row.size / row.time.value / 1e3
            text = (
                f"{timing}: algbw {row.algbw.text} is not size / time = {rate:.4g} GB/s"
            )
            problems.add(row.line, text, "algbw")
    if operation is None or not row.ranks:
        return
    expected = factor(operation, row.ranks)
    if row.fits(expected, row.printed_algbw):
        return
    text = (
        f"{timing}: busbw {row.busbw.text} is not algbw {row.algbw.text} * "
        f"{expected:.4g} ({row.ranks} ranks)"
    )
    if row.busbw.text == row.algbw.text and expected != 1:
        text += "; nccl-tests before June 2020 had the factor in algbw already"
    problems.add(row.line, text, "busbw")


def possible_operations(rows: Sequence[CollectiveTiming]) -> list[str]:
    """Return the operations whose factor and columns fit all rows of a run.

    Returns:
      Names of operations; empty if the number of ranks is unknown or 1.
    """
    ranks = rows[0].ranks
    if ranks is None or ranks < 2:
        return []
    has_redop = any(row.redop not in ("", "none") for row in rows)
    has_root = any(row.root not in ("", "-1") for row in rows)
    timed_rows = [row for row in rows if row.time.low > 0]
    by_columns = []
    by_factor = []
    by_time = []
    for name, operation in OPERATIONS.items():
        if not operation.divides_size:
            continue
        expected = factor(operation, ranks)
        if (has_redop, has_root) == (operation.has_redop, operation.has_root):
            by_columns.append(name)
        if all(row.fits(expected, row.printed_algbw) for row in rows):
            by_factor.append(name)
        # Releases before June 2020 have the factor in algbw already.
        if all(row.fits(expected, row.computed_algbw) for row in timed_rows):
            by_time.append(name)
    for fitting in (by_factor, by_time):
        by_both = [name for name in by_columns if name in fitting]
        if by_both:
            return by_both
    return by_factor


def time_notes(average: str) -> list[str]:
    return [
        f"time is the {average} of the iterations of one operation; algbw = size / "
        "time, GB/s = 10**9 B/s.",
        _BUSBW_NOTE,
    ]


def make_timings_reading(
    name: str,
    rows: Sequence[CollectiveTiming],
    notes: Iterable[str],
    problems: Problems,
) -> Reading:
    has_errors = any(row.largest_error is not None for row in rows)
    columns = (*COLUMNS, _LARGEST_ERROR) if has_errors else COLUMNS
    cells = tuple(row.cells[: len(columns)] for row in rows)
    table = Table("Collective operations (nccl-tests)", columns, cells)
    nothing = f"this file contains no result of {name}"
    return make_reading(name, problems, nothing, tables=[table], notes=notes)
