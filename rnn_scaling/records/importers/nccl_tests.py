"""The text output of nccl-tests and rccl-tests.

Formats: NVIDIA/nccl-tests, src/util.cu (writeResultHeader, writeBenchmarkLine*).
rccl-tests prints the same and may add columns behind the two halves.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator, Sequence

from rnn_scaling.records.importers.collectives import (
    CollectiveTiming,
    add_timing,
    find_operation,
    make_time_notes,
    make_timings_reading,
    possible_operations,
    read_timing,
)
from rnn_scaling.records.importers.reading import (
    LogFormat,
    Problems,
    Reading,
    Terms,
    log_lines,
    parse_non_negative,
)

_HEADER = re.compile(r"(?:\s*#)?\s*size\s+count\s+type\b.*\balgbw\s+busbw\b.*")
_CONFIG = re.compile(r"(?:\s*#)?\s*nThread (\d+) nGpus (\d+) minBytes .*")
_RANK = re.compile(
    r"(?:\s*#)?\s*Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+ on\s+\S+\s+device\s+\d+.*"
)
_ROW = re.compile(r"\s*\d+\s+\d+\s+[a-z]\w*(?:\s.*)?")
_LEADING_CELLS = {"redop": r"[A-Za-z]\w*", "root": r"-?\d{1,4}"}
_AVERAGE = re.compile(r"(?:\s*#)?\s*Avg bus bandwidth\s*:\s*(\S+).*")
_BOUNDS = re.compile(r"(?:\s*#)?\s*Out of bounds values\s*:\s*(\d+)\s+FAILED.*")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")


@dataclasses.dataclass
class _Run:
    """The facts of the run to which the next numbers belong."""

    operation: str = ""
    groups: dict[int, int] = dataclasses.field(default_factory=dict)  # by rank
    has_repeated_ranks: bool = False
    leading: Sequence[str] = ()  # columns in front of the two halves
    half: Sequence[str] = ()  # columns out of place, and again in place
    trailing: Sequence[str] = ()  # columns of rccl-tests behind the halves
    average: float | None = None
    is_own: bool = False  # printed by `rnn_scaling.links`, whose times are medians
    timings: list[CollectiveTiming] = dataclasses.field(default_factory=list)

    @property
    def ranks(self) -> int | None:
        """The ranks of one group (NCCL_TESTS_SPLIT runs several at once)."""
        groups = list(self.groups.values())
        return groups.count(groups[0]) if groups else None

    @property
    def largest_error(self) -> float | None:
        """The largest error of all timings; None if the log prints counts."""
        errors = [timing.largest_error for timing in self.timings]
        return max((error for error in errors if error is not None), default=None)


class NcclText(LogFormat):
    """The text output of the programs."""

    name = "nccl_tests"
    needles = ("nThread", "algbw")
    has_rates = False
    detected = r"# nThread \d+ nGpus \d+|\bsize +count +type\b.* time +algbw +busbw"

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return every size of every operation."""
        problems = Problems()
        last_line = 1
        runs = [_Run()]
        for line in log_lines(lines):
            try:
                for timing in _read_line(line.text, line.number, runs, problems):
                    add_timing(timing, runs[-1].timings, problems)
                    last_line = line.number
            except ValueError as e:
                problems.add(line.number, f"{e}; line left out", "bad row")
        if any(run.timings for run in runs) and runs[-1].average is None:
            reason = "the line with the average bus bandwidth is missing: the log is cut short"
            problems.add(last_line, reason)
        notes = make_time_notes("median" if any(run.is_own for run in runs) else "mean")
        timings: list[CollectiveTiming] = []
        for run in runs:
            notes += _infer_operation(run)
            timings += run.timings
        averages = [f"{run.average:g}" for run in runs if run.average is not None]
        if averages:
            notes.append(
                f"Average bus bandwidth as printed: {', '.join(averages)} GB/s, the "
                "mean over all sizes, small ones included."
            )
        return make_timings_reading(self.name, timings, dict.fromkeys(notes), problems)


def _read_line(
    text: str, line: int, runs: list[_Run], problems: Problems
) -> Iterable[CollectiveTiming]:
    """Return the timings of a line, or add its other content to the run."""
    run = runs[-1]
    rank = _RANK.fullmatch(text)
    if (rank or _CONFIG.fullmatch(text)) and run.leading:
        # Another program starts after the numbers.
        run = _Run(operation=run.operation)
        runs.append(run)
    if rank:
        run.has_repeated_ranks |= int(rank[1]) in run.groups
        run.groups[int(rank[1])] = int(rank[2] or 0)
    elif _HEADER.fullmatch(text):
        if run.timings:  # The program is repeated, or it prints no "Rank" lines.
            run = _Run(operation=run.operation, groups=run.groups)
            runs.append(run)
        _read_header(text.lstrip("# ").split(), run)
    elif match := _AVERAGE.fullmatch(text):
        run.average = parse_non_negative(match[1], "an average bus bandwidth")
    elif match := _BOUNDS.fullmatch(text):
        largest = run.largest_error
        error = "" if largest is None else f", largest error {largest:g}"
        reason = f"FAILED: {match[1]} out of bounds values{error}: "
        problems.add(line, f"{reason}the operation's results are wrong")
    elif run.leading and _ROW.fullmatch(text):
        return _read_row(text, line, run)
    elif "_perf" in text and (name := find_operation(text)):
        if run.leading and "concluded" not in text:
            run = _Run()
            runs.append(run)
        run.operation = name
        run.is_own = text.rstrip().endswith("(rnn_scaling.links): medians")
    return ()


def _read_header(headers: Sequence[str], run: _Run) -> None:
    """Set the columns of a run from a header, without the time stamp."""
    names = [header for header in headers if header != "timestamp"]
    clocks = [i for i, name in enumerate(names) if name in ("time", "cputime")]
    if len(clocks) == 2 and names[:3] == ["size", "count", "type"]:
        first, second = clocks
        end = 2 * second - first
        half = names[first:second]
        if {"algbw", "busbw"} <= set(half) and half == names[second:end]:
            run.leading = names[:first]
            run.half = half
            run.trailing = names[end:]
            return
    raise ValueError(
        "expected the columns size, count, type, and two groups of time, algbw, busbw, "
        f"got {' '.join(names)[:80]}"
    )


def _read_row(text: str, line: int, run: _Run) -> Iterator[CollectiveTiming]:
    """Yield the out-of-place and the in-place half of one line of numbers."""
    cells = _TIMESTAMP.sub("", text.rstrip()).split()
    leading = _read_leading(cells, run.leading)
    values = cells[len(leading) :]
    size = len(run.half)
    # The out-of-place numbers may be blank.
    for places in (("out of place", "in place"), ("in place",)):
        width = size * len(places)
        if len(values) in (width, width + len(run.trailing)):
            break
    else:
        columns = (*run.leading, *run.half, *run.half)
        raise ValueError(
            f"expected {len(columns)} columns ({' '.join(columns)}), got {len(cells)}"
        )
    for number, place in enumerate(places):
        half = values[number * size : (number + 1) * size]
        # This suite's own link test measures nothing in place.
        if set(half) != {"N/A"}:
            numbers_by_name = {**leading, **dict(zip(run.half, half))}
            yield read_timing(line, run.operation, run.ranks, place, numbers_by_name)


def _read_leading(texts: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """Return the cells in front of the halves by column.

    The columns redop and root may be blank: programs without a reduction or a root
    print nothing there. A time with at most four digits has a decimal point.
    """
    cells = dict(zip(columns[:3], texts[:3]))
    for name in columns[3:]:
        following = texts[len(cells)] if len(cells) < len(texts) else ""
        if re.fullmatch(_LEADING_CELLS.get(name, ".*"), following):
            cells[name] = following
    return cells


def _infer_operation(run: _Run) -> Iterator[str]:
    """Infer the operation of a run from its numbers if no line names it.

    Returns:
      Notes on the run.
    """
    if run.leading and not run.groups:
        yield (
            "There are no 'Rank' lines, so the number of ranks is unknown and "
            "busbw is not checked."
        )
    if run.has_repeated_ranks:
        yield (
            "The same rank is listed twice: the programs were built without "
            "MPI=1, so each one ran by itself instead of in one run over all "
            "ranks."
        )
    if run.largest_error is not None:
        yield (
            "Largest error is the largest difference from the right value; this "
            "release does not count wrong values."
        )
    if run.operation or not run.timings:
        return
    possible_names = possible_operations(run.timings)
    text = "The log does not name the operation (releases before 2025)"
    if len(possible_names) == 1:
        run.timings = [
            timing._replace(operation=possible_names[0]) for timing in run.timings
        ]
        text += f"; busbw / algbw and the columns are those of {possible_names[0]}."
    elif possible_names:
        text += f"; busbw / algbw leaves {' and '.join(possible_names)}."
    else:
        text += ": busbw could not be checked there."
    yield text
