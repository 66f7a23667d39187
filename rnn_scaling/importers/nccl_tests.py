"""nccl-tests' text output: time and bandwidth of a collective operation by size.

Format: NVIDIA/nccl-tests, src/util.cu (writeResultHeader, writeBenchmarkLine*) and
doc/PERFORMANCE.md. rccl-tests prints the same and may add columns behind the two halves.
"""

import dataclasses
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from rnn_scaling.importers import common
from rnn_scaling.importers.common import (
    ImportedLog,
    Problems,
    by_rank,
    detector,
    not_negative,
    printed,
)
from rnn_scaling.records.printed_number import Printed
from rnn_scaling.system.files.markdown import Table

FORMAT = "nccl_tests"
COLUMNS = (
    "Operation", "Ranks", "Size (B)", "Count", "Type", "Redop", "Root", "Place",
    "Time (us)", "algbw (GB/s)", "busbw (GB/s)", "Wrong",
)  # fmt: skip
BUSBW_NOTE = (
    "busbw = algbw * factor makes rank counts comparable: 2(n-1)/n for all_reduce, (n-1)/n for all_gather, "
    "reduce_scatter, alltoall, gather and scatter, 1 for broadcast, reduce and sendrecv."
)
LARGEST_ERROR = "Largest error"  # column of logs from releases that print no count
_OPERATIONS = (
    "all_reduce",
    "reduce_scatter",
    "sendrecv",
    "reduce",
    "all_gather",
    "alltoall",
    "broadcast",
    "gather",
    "scatter",
)
# What each program prints in the columns redop and root; the others leave them empty
# or print "none" and -1.
_HAS_REDOP = ("all_reduce", "reduce_scatter", "sendrecv", "reduce")
_HAS_ROOT = ("reduce", "broadcast", "gather", "scatter")
# Operations whose algbw is not size / time (alltoallv: the largest share; hypercube: times n - 1).
OTHER_ALGBW = ("alltoallv", "hypercube")
_NAME = re.compile(
    r"\b(all_?reduce|all_?gather|reduce_?scatter|alltoallv|alltoall|broadcast|reduce|sendrecv|gather|scatter|hypercube)"
    r"_perf"
)
detect = detector(
    r"# nThread \d+ nGpus \d+|\bsize +count +type\b.* time +algbw +busbw",
    "nThread",
    "algbw",
)
_HEADER = re.compile(r"(?:\s*#)?\s*size\s+count\s+type\b.*\balgbw\s+busbw\b.*")
_CONFIG = re.compile(r"(?:\s*#)?\s*nThread (\d+) nGpus (\d+) minBytes .*")
_RANK = re.compile(
    r"(?:\s*#)?\s*Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+(\d+) on\s+(\S+)\s+device\s+(\d+).*"
)
_ROW = re.compile(r"\s*(\d+)\s+(\d+)\s+([a-z]\w*)\s.*|\s*(\d+)\s+(\d+)\s+[a-z]\w*")
_LEADING_CELLS = {
    "redop": re.compile(r"[A-Za-z]\w*"),
    "root": re.compile(r"-?\d{1,4}"),
}
_AVERAGE = re.compile(r"(?:\s*#)?\s*Avg bus bandwidth\s*:\s*(\S+).*")
_BOUNDS = re.compile(r"(?:\s*#)?\s*Out of bounds values\s*:\s*(\d+)\s+FAILED.*")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One operation of one size, out of place or in place."""

    line: int
    operation: str  # "" if neither the log nor its numbers tell
    ranks: int | None  # None if the log has no "Rank" lines
    size: int
    count: int | None  # None for rccl-tests' JSON, which has no count
    type: str
    redop: str
    root: str
    place: str
    time: Printed
    algbw: Printed
    busbw: Printed
    wrong: int | None  # values; None if nothing was checked
    is_cpu_time: bool = False
    largest_error: float | None = None  # of releases that print no number of values

    def row(self) -> tuple:
        """Return the cells of COLUMNS."""
        return (
            self.operation or None,
            self.ranks,
            self.size,
            self.count,
            self.type,
            self.redop,
            self.root,
            self.place,
            self.time.value,
            self.algbw.value,
            self.busbw.value,
            self.wrong,
        )


@dataclasses.dataclass
class _NcclRun:
    """Everything that the lines so far say about the run of the next numbers."""

    operation: str = ""
    ranks: dict[int, int] = dataclasses.field(default_factory=dict)
    repeated_ranks: int = 0
    leading: tuple[str, ...] = ()  # columns in front of the two halves
    half: tuple[str, ...] = ()  # columns out of place, and again in place
    trailing: tuple[str, ...] = ()  # columns behind them: rccl-tests' algo, proto, ...
    average: float | None = None
    is_own: bool = False  # of the suite's own links, whose times are medians
    measurements: list[Measurement] = dataclasses.field(default_factory=list)
    possible_operations: tuple[str, ...] = ()  # by the numbers; set at the end

    def num_ranks(self) -> int | None:
        """Return the ranks of one group (NCCL_TESTS_SPLIT runs several at once)."""
        groups = list(self.ranks.values())
        return groups.count(groups[0]) if groups else None

    def largest_error(self) -> float | None:
        """Return the largest error of all rows, or None if the log prints counts."""
        errors = [
            row.largest_error
            for row in self.measurements
            if row.largest_error is not None
        ]
        return max(errors, default=None)


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Read every size of every operation.

    Raises:
      LogError: If the file has no row of numbers.
    """
    problems = Problems()
    count = 0
    last_line = 1
    runs = [_NcclRun()]
    for line, _, text in by_rank(lines):
        try:
            for measurement in _read(text, line, runs, problems):
                runs[-1].measurements.append(measurement)
                check(measurement, problems)
                count += 1
                last_line = line
        except ValueError as e:
            problems.add(line, f"{e}; line left out", "bad row")
        if problems.too_many(line, count):
            break
    if count and runs[-1].average is None:
        reason = "no line of the average bus bandwidth follows: the log is cut short"
        problems.add(last_line, reason)
    for run in runs:
        _name_operation(run)
    measurements = [row for run in runs for row in run.measurements]
    average = "median" if any(run.is_own for run in runs) else "mean"
    return common.finish(
        FORMAT,
        source,
        (),
        [table(measurements)],
        [*notes(average), *_notes(runs)],
        problems,
        "no result of nccl-tests in this file",
    )


def _read(
    text: str, line: int, runs: list[_NcclRun], problems: Problems
) -> list[Measurement]:
    """Return the measurements of a line, or take what else it says into the run."""
    run = runs[-1]
    if match := _CONFIG.fullmatch(text):
        if run.leading:  # numbers came before: another program starts
            runs.append(_NcclRun(operation=run.operation))
    elif match := _RANK.fullmatch(text):
        if run.leading:
            runs.append(_NcclRun(operation=run.operation))
        run = runs[-1]
        run.repeated_ranks += int(match[1]) in run.ranks
        run.ranks[int(match[1])] = int(match[2] or 0)
    elif _HEADER.fullmatch(text):
        if run.measurements:  # the same program again, or one without "Rank" lines
            run = _NcclRun(operation=run.operation, ranks=run.ranks)
            runs.append(run)
        _read_header(text.lstrip("# ").split(), run)
    elif match := _AVERAGE.fullmatch(text):
        run.average = not_negative(match[1], "an average bus bandwidth")
    elif match := _BOUNDS.fullmatch(text):
        largest = run.largest_error()
        error = "" if largest is None else f", largest error {largest:g}"
        problems.add(
            line,
            f"FAILED: {match[1]} out of bounds values{error}: "
            "the operation's results are wrong",
        )
    elif run.leading and _ROW.fullmatch(text):
        return _row(text, line, run)
    elif "_perf" in text and (name := operation_of(text)):
        if run.leading and "concluded" not in text:
            runs.append(_NcclRun())
        runs[-1].operation = name
        runs[-1].is_own = text.rstrip().endswith("(rnn_scaling.links): medians")
    return []


def _read_header(words: Sequence[str], run: _NcclRun) -> None:
    """Take the columns that a header names, except the time stamp.

    Raises:
      ValueError: If the header does not name both halves, or names other columns.
    """
    names = [word for word in words if word != "timestamp"]
    clocks = [i for i, name in enumerate(names) if name in ("time", "cputime")]
    if len(clocks) == 2 and names[:3] == ["size", "count", "type"]:
        first, second = clocks
        end = 2 * second - first
        half = names[first:second]
        if {"algbw", "busbw"} <= set(half) and half == names[second:end]:
            run.leading = tuple(names[:first])
            run.half = tuple(half)
            run.trailing = tuple(names[end:])
            return
    raise ValueError(
        "expected size, count, type and twice time, algbw, busbw, "
        f"got {' '.join(names)[:80]}"
    )


def _row(text: str, line: int, run: _NcclRun) -> list[Measurement]:
    """Return the out-of-place and the in-place half of one line of numbers."""
    words = _TIMESTAMP.sub("", text.rstrip()).split()
    named = _leading_cells(words, run.leading)
    values = words[len(named) :]
    size = len(run.half)
    without_trailing = len(values) - len(run.trailing)
    if without_trailing in (size, 2 * size) and len(values) != 2 * size:
        values = values[:without_trailing]
    if len(values) == 2 * size:
        halves = {"out of place": values[:size], "in place": values[size:]}
    elif len(values) == size:  # no out-of-place numbers: blanks
        halves = {"in place": values}
    else:
        columns = (*run.leading, *run.half, *run.half)
        raise ValueError(
            f"expected {len(columns)} columns ({' '.join(columns)}), got {len(words)}"
        )
    measurements = []
    for place, half in halves.items():
        # The suite's own links measure nothing in place.
        if set(half) != {"N/A"}:
            cells = dict(zip(run.half, half))
            measurements.append(_measurement(named, cells, place, line, run))
    return measurements


def _leading_cells(words: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """Return the cells in front of the halves by column.

    The columns redop and root may be blank: programs without a reduction or a root
    print nothing there. A time of as few digits as a root has a decimal point.
    """
    cells = dict(zip(columns[:3], words[:3]))
    for name in columns[3:]:
        pattern = _LEADING_CELLS.get(name)
        following = words[len(cells)] if len(cells) < len(words) else ""
        if pattern is None or pattern.fullmatch(following):
            cells[name] = following
    return cells


def _measurement(
    named: dict[str, str], values: dict[str, str], place: str, line: int, run: _NcclRun
) -> Measurement:
    clock = "cputime" if "cputime" in values else "time"
    wrong = values.get("#wrong", "N/A")
    num_wrong = None
    if wrong != "N/A":
        num_wrong = int(not_negative(wrong, "a count of wrong values"))
    error = values.get("error", "N/A")
    largest_error = None
    if error != "N/A":
        largest_error = _error(error)
    return Measurement(
        line,
        run.operation,
        run.num_ranks(),
        whole(named["size"]),
        whole(named["count"]),
        named["type"],
        named.get("redop", ""),
        named.get("root", ""),
        place,
        printed(values[clock], "a time in us", not_negative),
        printed(values["algbw"], "algbw", not_negative),
        printed(values["busbw"], "busbw", not_negative),
        num_wrong,
        clock == "cputime",
        largest_error,
    )


def _error(text: str) -> float:
    """Return the largest error of a row; infinite for NaN, which is as wrong.

    Raises:
      ValueError: If the text is not a number of 0 or more.
    """
    if text.lstrip("-").lower() in ("nan", "inf"):
        return math.inf
    return not_negative(text, "a largest error")


def _name_operation(run: _NcclRun) -> None:
    """Name the operation of a run by busbw / algbw, if no line of the log does."""
    if run.operation or not run.measurements:
        return
    run.possible_operations = possible_operations(run.measurements)
    if len(run.possible_operations) == 1:
        name = run.possible_operations[0]
        run.measurements = [
            dataclasses.replace(row, operation=name) for row in run.measurements
        ]


def possible_operations(rows: Sequence[Measurement]) -> tuple[str, ...]:
    """Return the operations whose factor and columns fit all rows of a run.

    Returns:
      Names of operations, none if the number of ranks is unknown or 1.
    """
    ranks = rows[0].ranks
    if ranks is None or ranks < 2:
        return ()
    by_columns = [name for name in _OPERATIONS if _fits_columns(name, rows)]
    by_factor = [name for name in _OPERATIONS if _fits_factor(name, rows)]
    # Releases before June 2020 have the factor in algbw already: busbw / (size / time).
    by_time = [name for name in _OPERATIONS if _fits_factor(name, rows, by_time=True)]
    both = [name for name in by_columns if name in by_factor]
    if not both:
        both = [name for name in by_columns if name in by_time]
    return tuple(both or by_factor)


def _fits_columns(operation: str, rows: Sequence[Measurement]) -> bool:
    """Tell whether an operation's program fills redop and root as these rows do."""
    has_redop = any(row.redop not in ("", "none") for row in rows)
    has_root = any(row.root not in ("", "-1") for row in rows)
    return has_redop == (operation in _HAS_REDOP) and has_root == (
        operation in _HAS_ROOT
    )


def _fits_factor(
    operation: str, rows: Sequence[Measurement], by_time: bool = False
) -> bool:
    """Tell whether busbw is algbw (or size / time) times the operation's factor."""
    for row in rows:
        expected = factor(operation, row.ranks or 1) or 0.0
        low = row.algbw.low
        high = row.algbw.high
        if by_time and row.time.low > 0:
            low = row.size / row.time.high / 1e3
            high = row.size / row.time.low / 1e3
        if row.busbw.low > high * expected or row.busbw.high < low * expected:
            return False
    return True


def _notes(runs: list[_NcclRun]) -> list[str]:
    texts = []
    if any(run.leading and not run.ranks for run in runs):
        texts.append(
            "No 'Rank' lines: the number of ranks is not known, "
            "busbw could not be checked."
        )
    texts += _operation_notes(runs)
    if any(run.repeated_ranks for run in runs):
        texts.append(
            "The same rank is listed twice: programs built without MPI=1 ran at the "
            "same time, each alone, instead of one run over all."
        )
    if any(run.largest_error() is not None for run in runs):
        texts.append(
            "Largest error is the largest difference from the right value; this "
            "release does not count wrong values."
        )
    averages = [run.average for run in runs if run.average is not None]
    if averages:
        shown = ", ".join(f"{average:g}" for average in averages[:10])
        texts.append(
            f"Average bus bandwidth as printed: {shown} GB/s, "
            "the mean over all sizes, small ones included."
        )
    return texts


def _operation_notes(runs: Iterable[_NcclRun]) -> list[str]:
    """Return a sentence for each outcome of naming operations by their numbers."""
    texts = []
    for run in runs:
        if run.operation or not run.leading:
            continue
        names = run.possible_operations
        text = "The log does not name the operation (releases before 2025)"
        if len(names) == 1:
            text += f"; busbw / algbw and the columns are those of {names[0]}."
        elif names:
            text += f"; busbw / algbw leaves {', '.join(names[:-1])} and {names[-1]}."
        else:
            text += ": busbw could not be checked there."
        if text not in texts:
            texts.append(text)
    return texts


def whole(size: Any) -> int:
    return int(not_negative(size, "a size"))


def notes(average: str = "mean") -> list[str]:
    """What the columns mean; `average` is what was taken of the iterations."""
    time = f"time is the {average} of the iterations of one operation; algbw = size / time, GB/s = 10**9 B/s."
    return [time, BUSBW_NOTE]


def operation_of(text: str) -> str:
    """The operation that a command, path or title names ("build/all_reduce_perf_mpi" -> "all_reduce"); "" for none."""
    match = _NAME.search(text)
    if match is None:
        return ""
    return (
        match[1].replace("allreduce", "all_reduce").replace("allgather", "all_gather")
    )


def factor(operation: str, ranks: int) -> float | None:
    """busbw / algbw of an operation; None for one that is not known.

    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md, "Summary", and each test's GetBw function.
    """
    share = (ranks - 1) / ranks
    if operation == "all_reduce":
        return 2 * share
    if operation in (
        "all_gather",
        "reduce_scatter",
        "alltoall",
        "alltoallv",
        "gather",
        "scatter",
    ):
        return share
    return (
        1.0 if operation in ("broadcast", "reduce", "sendrecv", "hypercube") else None
    )


def check(row: Measurement, problems: Problems) -> None:
    """Notes wrong results, and bandwidths that do not follow from size, time and ranks within rounding."""
    place = f"{row.operation or 'operation'} of {row.size} B, {row.place}"
    if row.wrong:
        problems.add(
            row.line,
            f"{place}: {row.wrong} wrong values; do not trust the operation",
            "wrong",
        )
    if row.operation not in OTHER_ALGBW and not row.is_cpu_time and row.time.low > 0:
        low, high = row.size / row.time.high / 1e3, row.size / row.time.low / 1e3
        if not row.algbw.low <= high or not low <= row.algbw.high:
            text = f"{place}: algbw {row.algbw.text} is not size / time = {row.size / row.time.value / 1e3:.4g} GB/s"
            problems.add(row.line, text, "algbw")
    expected = factor(row.operation, row.ranks) if row.ranks else None
    if expected is None:
        return
    if (
        row.busbw.low > row.algbw.high * expected
        or row.busbw.high < row.algbw.low * expected
    ):
        text = f"{place}: busbw {row.busbw.text} is not algbw {row.algbw.text} * {expected:.4g} ({row.ranks} ranks)"
        if row.busbw.text == row.algbw.text and expected != 1:
            text += "; nccl-tests before June 2020 had the factor in algbw already"
        problems.add(row.line, text, "busbw")


def table(measurements: Sequence[Measurement]) -> Table:
    """Return the rows, with the largest errors if the log has any."""
    columns: tuple[str, ...] = COLUMNS
    rows = [row.row() for row in measurements]
    if any(row.largest_error is not None for row in measurements):
        columns = (*COLUMNS, LARGEST_ERROR)
        rows = [(*row.row(), row.largest_error) for row in measurements]
    return Table("Collective operations (nccl-tests)", columns, tuple(rows))
