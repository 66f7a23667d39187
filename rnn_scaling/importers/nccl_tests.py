"""nccl-tests' text output: time and bandwidth of a collective operation by size; its JSON has the same rows and checks.

Format: NVIDIA/nccl-tests, src/util.cu (writeResultHeader, writeBenchmarkLine*), doc/PERFORMANCE.md for the meanings.
"""

import dataclasses
import re
from collections.abc import Iterable
from typing import Any

from rnn_scaling.audit.numbers import Printed
from rnn_scaling.files.markdown import Table
from rnn_scaling.importers import common
from rnn_scaling.importers.common import (
    ImportedLog,
    Problems,
    by_rank,
    detector,
    not_negative,
    positive,
    printed,
)

FORMAT = "nccl_tests"
COLUMNS = (
    "Operation", "Ranks", "Size (B)", "Count", "Type", "Redop", "Root", "Place",
    "Time (us)", "algbw (GB/s)", "busbw (GB/s)", "Wrong",
)  # fmt: skip
BUSBW_NOTE = (
    "busbw = algbw * factor makes rank counts comparable: 2(n-1)/n for all_reduce, (n-1)/n for all_gather, "
    "reduce_scatter, alltoall, gather and scatter, 1 for broadcast, reduce and sendrecv."
)
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
_AVERAGE = re.compile(r"(?:\s*#)?\s*Avg bus bandwidth\s*:\s*(\S+).*")
_BOUNDS = re.compile(r"(?:\s*#)?\s*Out of bounds values\s*:\s*(\d+)\s+FAILED.*")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One operation of one size, out of place or in place; `ranks` None when the log does not say."""

    line: int
    operation: str
    ranks: int | None
    size: int
    count: int
    type: str
    redop: str
    root: str
    place: str
    time: Printed
    algbw: Printed
    busbw: Printed
    wrong: int | None
    is_cpu_time: bool = False

    def row(self) -> tuple:
        what = (
            self.operation or None,
            self.ranks,
            self.size,
            self.count,
            self.type,
            self.redop,
            self.root,
        )
        return (
            *what,
            self.place,
            self.time.value,
            self.algbw.value,
            self.busbw.value,
            self.wrong,
        )


@dataclasses.dataclass
class _NcclRun:
    """What the lines so far say about the run that the next numbers belong to."""

    operation: str = ""
    ranks: dict[int, int] = dataclasses.field(default_factory=dict)
    repeated_ranks: int = 0
    leading: tuple[
        str, ...
    ] = ()  # columns before those of the two halves, out of place and in place
    half: tuple[str, ...] = ()
    average: float | None = None
    is_own: bool = False  # of the suite's own links, whose times are medians

    def num_ranks(self) -> int | None:
        """Ranks of one group (NCCL_TESTS_SPLIT runs several groups at once)."""
        groups = list(self.ranks.values())
        return groups.count(groups[0]) if groups else None


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Reads every size of every operation. Raises LogError if no number is there."""
    problems = Problems()
    measurements: list[Measurement] = []
    runs = [_NcclRun()]
    for line, _, text in by_rank(lines):
        try:
            for measurement in _read(text, line, runs, problems):
                measurements.append(measurement)
                check(measurement, problems)
        except ValueError as e:
            problems.add(line, f"{e}; line left out", "bad row")
        if problems.too_many(line, len(measurements)):
            break
    if measurements and runs[-1].average is None:
        problems.add(
            measurements[-1].line,
            "no line of the average bus bandwidth follows: the log is cut short",
        )
    nothing = "no result of nccl-tests in this file"
    average = "median" if any(run.is_own for run in runs) else "mean"
    return common.finish(
        FORMAT,
        source,
        (),
        [table(measurements)],
        [*notes(average), *_notes(runs)],
        problems,
        nothing,
    )


def _read(
    text: str, line: int, runs: list[_NcclRun], problems: Problems
) -> list[Measurement]:
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
        run.leading, run.half = _columns(text.lstrip("# ").split())
    elif match := _AVERAGE.fullmatch(text):
        run.average = (
            positive(match[1], "an average bus bandwidth") if float(match[1]) else 0.0
        )
    elif match := _BOUNDS.fullmatch(text):
        problems.add(
            line, f"{match[1]} out of bounds values: the operation's results are wrong"
        )
    elif run.leading and _ROW.fullmatch(text):
        return _row(text, line, run)
    elif "_perf" in text and (name := operation_of(text)):
        if run.leading and "concluded" not in text:
            runs.append(_NcclRun())
        runs[-1].operation = name
        runs[-1].is_own = text.rstrip().endswith("(rnn_scaling.links): medians")
    return []


def _columns(words: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The columns that a header names, without the time stamp: the leading ones, and those of a half."""
    words = [word for word in words if word != "timestamp"]
    first = next(
        (i for i, word in enumerate(words) if word in ("time", "cputime")), len(words)
    )
    half = words[first:][: (len(words) - first) // 2]
    if (
        words[first:] != half * 2
        or not {"algbw", "busbw"} <= set(half)
        or words[:3] != ["size", "count", "type"]
    ):
        raise ValueError(
            f"expected size, count, type and twice time, algbw, busbw, got {' '.join(words)[:80]}"
        )
    return tuple(words[:first]), tuple(half)


def _row(text: str, line: int, run: _NcclRun) -> list[Measurement]:
    """The out-of-place and the in-place half of one line of numbers."""
    words = _TIMESTAMP.sub("", text.rstrip()).split()
    first, size = len(run.leading), len(run.half)
    columns = (*run.leading, *run.half, *run.half)
    places = ["out of place", "in place"]
    if len(words) == first + size:  # no out-of-place numbers: blanks
        places = places[1:]
    elif len(words) != len(columns):
        raise ValueError(
            f"expected {len(columns)} columns ({' '.join(columns)}), got {len(words)}"
        )
    named = dict(zip(run.leading, words))
    made = []
    for i, place in enumerate(places):
        values = dict(zip(run.half, words[first + i * size :]))
        if set(values.values()) == {
            "N/A"
        }:  # not measured: the suite's own links has no in-place half
            continue
        made.append(_measurement(named, values, place, line, run))
    return made


def _measurement(
    named: dict[str, str], values: dict[str, str], place: str, line: int, run: _NcclRun
) -> Measurement:
    clock = "cputime" if "cputime" in values else "time"
    wrong = values.get("#wrong", values.get("error", "N/A"))
    return Measurement(
        line, run.operation, run.num_ranks(), whole(named["size"]), whole(named["count"]), named["type"],
        named.get("redop", ""), named.get("root", ""), place,
        printed(values[clock], "a time in us", not_negative), printed(values["algbw"], "algbw", not_negative),
        printed(values["busbw"], "busbw", not_negative),
        # Older releases print the largest error here, not a count: "0e+00", "5e-07".
        int(not_negative(wrong, "a count of wrong values")) if wrong != "N/A" else None,
        clock == "cputime",
    )  # fmt: skip


def _notes(runs: list[_NcclRun]) -> list[str]:
    texts = []
    if any(run.leading and not run.ranks for run in runs):
        texts.append(
            "No 'Rank' lines: the number of ranks is not known, busbw could not be checked."
        )
    if any(run.leading and not run.operation for run in runs):
        texts.append(
            "The log does not name the operation (releases before 2025): busbw could not be checked there."
        )
    if any(run.repeated_ranks for run in runs):
        texts.append(
            "The same rank is listed twice: programs built without MPI=1 ran at the same time, each alone, "
            "instead of one run over all."
        )
    averages = [run.average for run in runs if run.average is not None]
    if averages:
        shown = ", ".join(f"{average:g}" for average in averages[:10])
        texts.append(
            f"Average bus bandwidth as printed: {shown} GB/s, the mean over all sizes, small ones included."
        )
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


def table(measurements: list[Measurement]) -> Table:
    return Table(
        "Collective operations (nccl-tests)",
        COLUMNS,
        tuple(measured.row() for measured in measurements),
    )
