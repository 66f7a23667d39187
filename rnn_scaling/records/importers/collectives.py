"""The timings of collective operations that nccl-tests and rccl-tests print.

`nccl_tests` makes timings with `read_timing`, checks them with `add_timing`, and ends
with `make_timings_reading`. The first fields of
`CollectiveTiming` are the cells of COLUMNS, in this order: change both together.

Source of the numbers: NVIDIA/nccl-tests, doc/PERFORMANCE.md.
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
_ERROR_COLUMN = "Largest error"  # column of logs from releases that print no count
_BUSBW_NOTE = (
    "busbw = algbw * factor makes rank counts comparable: 2(n-1)/n for all_reduce, "
    "(n-1)/n for all_gather, reduce_scatter, alltoall, gather and scatter, 1 for "
    "broadcast, reduce and sendrecv."
)
_JSON_STEP = 1e-6  # last digit of printf's "%lf" and std::to_string


@dataclasses.dataclass(frozen=True)
class Operation:
    """The bandwidths of an operation, and the columns that its program fills.

    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md, "Summary", and each test's GetBw.
    """

    # busbw / algbw as a multiple of (n-1)/n; None if busbw is algbw.
    shares: float | None = None
    # Programs without a reduction or a root leave these columns empty, or print "none"
    # and -1.
    has_redop: bool = False
    has_root: bool = False
    # Whether algbw is size / time. alltoallv divides the largest share, and hypercube
    # multiplies by n - 1.
    divides_size: bool = True


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
    # With --report_cputime the time ends at the last launch, but algbw is still computed
    # from the time until the operations have finished, so the two cannot be compared.
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

    def has_busbw(self, factor: float, algbw: tuple[float, float]) -> bool:
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

    Args:
      line: The number of the line in the file.
      operation: The name of the collective, or "" if it is unknown.
      ranks: The number of ranks, or None if it is unknown.
      place: "out of place" or "in place".
      values: The printed values by their column or field.

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


def compute_busbw_factor(operation: Operation, ranks: int) -> float:
    """Return busbw / algbw of an operation."""
    if operation.shares is None:
        return 1.0
    return operation.shares * (ranks - 1) / ranks


def add_timing(
    timing: CollectiveTiming, timings: list[CollectiveTiming], problems: Problems
) -> None:
    """Append a timing to the list, and report its faults."""
    timings.append(timing)
    _check(timing, problems)


def _check(timing: CollectiveTiming, problems: Problems) -> None:
    """Report wrong results, and bandwidths that differ by more than their rounding."""
    title = f"{timing.operation or 'operation'} of {timing.size} B, {timing.place}"
    if timing.wrong:
        text = f"{title}: {timing.wrong} wrong values; do not trust the operation"
        problems.add(timing.line, text, "wrong")
    operation = OPERATIONS.get(timing.operation or "")
    divides_size = operation is None or operation.divides_size
    if divides_size and not timing.is_cpu_time and timing.time.low > 0:
        low, high = timing.computed_algbw
        if timing.algbw.low > high or timing.algbw.high < low:
            algbw = timing.size / timing.time.value / 1e3
            text = (
                f"{title}: algbw {timing.algbw.text} is not size / time = "
                f"{algbw:.4g} GB/s"
            )
            problems.add(timing.line, text, "algbw")
    if operation is None or not timing.ranks:
        return
    expected = compute_busbw_factor(operation, timing.ranks)
    if timing.has_busbw(expected, timing.printed_algbw):
        return
    text = (
        f"{title}: busbw {timing.busbw.text} is not algbw {timing.algbw.text} "
        f"* {expected:.4g} (number of ranks: {timing.ranks})"
    )
    if timing.busbw.text == timing.algbw.text and expected != 1:
        text += "; before June 2020, algbw of nccl-tests already included the factor"
    problems.add(timing.line, text, "busbw")


def list_possible_operations(timings: Sequence[CollectiveTiming]) -> list[str]:
    """Return the names of the operations that all timings of a run may be about.

    Three rules are tried in this order: columns and factor; columns and the factor of
    releases that had it in algbw already; only the factor.

    Returns:
      Names of operations; empty if the number of ranks is unknown or 1.
    """
    ranks = timings[0].ranks
    if ranks is None or ranks < 2:
        return []
    has_redop = any(timing.redop not in ("", "none") for timing in timings)
    has_root = any(timing.root not in ("", "-1") for timing in timings)
    timed = [timing for timing in timings if timing.time.low > 0]
    names_with_columns = []
    names_with_factor = []
    names_with_time = []
    for name, operation in OPERATIONS.items():
        if not operation.divides_size:
            continue
        expected = compute_busbw_factor(operation, ranks)
        if (has_redop, has_root) == (operation.has_redop, operation.has_root):
            names_with_columns.append(name)
        if all(timing.has_busbw(expected, timing.printed_algbw) for timing in timings):
            names_with_factor.append(name)
        # Releases before June 2020 have the factor in algbw already.
        if all(timing.has_busbw(expected, timing.computed_algbw) for timing in timed):
            names_with_time.append(name)
    for names in (names_with_factor, names_with_time):
        names_with_both = [name for name in names_with_columns if name in names]
        if names_with_both:
            return names_with_both
    return names_with_factor


def make_time_notes(average: str) -> list[str]:
    """Return the sentences below the table about time, algbw and busbw.

    Args:
      average: "mean" or "median", the average over iterations that the program prints.
    """
    return [
        f"time is the {average} of the iterations of one operation; algbw = size / "
        "time, GB/s = 10**9 B/s.",
        _BUSBW_NOTE,
    ]


def make_timings_reading(
    name: str,
    timings: Sequence[CollectiveTiming],
    notes: Iterable[str],
    problems: Problems,
) -> Reading:
    """Return the reading with one table of all timings, in the order of COLUMNS."""
    has_errors = any(timing.largest_error is not None for timing in timings)
    columns = (*COLUMNS, _ERROR_COLUMN) if has_errors else COLUMNS
    cells = tuple(timing.cells[: len(columns)] for timing in timings)
    table = Table("Collective operations (nccl-tests)", columns, cells)
    empty_message = f"this file contains no result of {name}"
    return make_reading(name, problems, empty_message, tables=[table], notes=notes)
