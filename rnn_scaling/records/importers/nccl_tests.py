"""nccl-tests and rccl-tests: time and bandwidth of a collective operation by size.

Formats: NVIDIA/nccl-tests, src/util.cu (writeResultHeader, writeBenchmarkLine*;
JSON_FILE_VERSION 1 to 3, whose file also holds the environment of the run, which is
never shown) and doc/PERFORMANCE.md. rccl-tests prints the same and may add columns
behind the two halves. Its JSON (ROCm/rccl-tests, src/common.cu, class Reporter) is an
object per line until 2025, and later a list of them; built without MPI, the objects have
the number of GPUs instead of ranks.
"""

import contextlib
import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.records.importers.json_stream import JsonFault, items
from rnn_scaling.records.importers.reading import (
    LogFormat,
    Problems,
    Reading,
    Terms,
    finite_number,
    log_lines,
    make_reading,
    number_lines,
    parse_non_negative,
    parse_printed,
)
from rnn_scaling.records.printed_number import Printed
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import Table

COLUMNS = (
    "Operation", "Ranks", "Size (B)", "Count", "Type", "Redop", "Root", "Place",
    "Time (us)", "algbw (GB/s)", "busbw (GB/s)", "Wrong",
)  # fmt: skip
LARGEST_ERROR = "Largest error"  # column of logs from releases that print no count
BUSBW_NOTE = (
    "busbw = algbw * factor makes rank counts comparable: 2(n-1)/n for all_reduce, "
    "(n-1)/n for all_gather, reduce_scatter, alltoall, gather and scatter, 1 for "
    "broadcast, reduce and sendrecv."
)
JSON_STEP = 1e-6  # of printf's "%lf" and std::to_string
_FACTORS = {
    "all_reduce": 2.0, "reduce_scatter": 1.0, "all_gather": 1.0, "alltoall": 1.0,
    "alltoallv": 1.0, "gather": 1.0, "scatter": 1.0,
}  # of (n-1)/n  # fmt: skip
_OPERATIONS = (
    "all_reduce", "reduce_scatter", "sendrecv", "reduce", "all_gather", "alltoall",
    "broadcast", "gather", "scatter",
)  # fmt: skip
# Programs that print the columns redop and root; the others leave them empty or print
# "none" and -1.
_HAS_REDOP = ("all_reduce", "reduce_scatter", "sendrecv", "reduce")
_HAS_ROOT = ("reduce", "broadcast", "gather", "scatter")
# Operations whose algbw is not size / time (alltoallv: the largest share; hypercube:
# times n - 1).
_OTHER_ALGBW = ("alltoallv", "hypercube")
_NAMES = {name.replace("_", ""): name for name in (*_OPERATIONS, *_OTHER_ALGBW)}
_TEXTS = ("type", "redop", "root")
# Names of the JSON files and of CPU times in the text output.
_SAME = {
    "alg_bw": "algbw", "bus_bw": "busbw", "nwrong": "#wrong", "algBw": "algbw",
    "busBw": "busbw", "wrong": "#wrong", "cpu_time": "time", "cputime": "time",
}  # fmt: skip
_PROGRAM = re.compile(
    r"\b(all_?reduce|all_?gather|reduce_?scatter|alltoallv|alltoall|broadcast|reduce|"
    r"sendrecv|gather|scatter|hypercube)_perf"
)
_HEADER = re.compile(r"(?:\s*#)?\s*size\s+count\s+type\b.*\balgbw\s+busbw\b.*")
_CONFIG = re.compile(r"(?:\s*#)?\s*nThread (\d+) nGpus (\d+) minBytes .*")
_RANK = re.compile(
    r"(?:\s*#)?\s*Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+(\d+) on\s+(\S+)\s+"
    r"device\s+(\d+).*"
)
_ROW = re.compile(r"\s*(\d+)\s+(\d+)\s+([a-z]\w*)\s.*|\s*(\d+)\s+(\d+)\s+[a-z]\w*")
_LEADING_CELLS = {"redop": r"[A-Za-z]\w*", "root": r"-?\d{1,4}"}
_AVERAGE = re.compile(r"(?:\s*#)?\s*Avg bus bandwidth\s*:\s*(\S+).*")
_BOUNDS = re.compile(r"(?:\s*#)?\s*Out of bounds values\s*:\s*(\d+)\s+FAILED.*")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$")
_RESULTS = re.compile(r'"results"\s*:\s*\[')


@dataclasses.dataclass(frozen=True)
class CollectiveTiming:
    """One operation of one size, out of place or in place."""

    line: int
    operation: str  # "" if not known
    ranks: int | None  # None if not known
    place: str
    values: Mapping[str, Any]  # by the names of the text output

    @property
    def time(self) -> Printed:
        """In microseconds."""
        return self._cell("time", "a time in us")

    @property
    def algbw(self) -> Printed:
        """In GB/s."""
        return self._cell("algbw", "algbw")

    @property
    def busbw(self) -> Printed:
        """In GB/s."""
        return self._cell("busbw", "busbw")

    @property
    def size(self) -> int:
        """In bytes."""
        return int(parse_non_negative(self.values["size"], "a size"))

    @property
    def wrong(self) -> int | None:
        """How many values are wrong; None if nothing was checked."""
        wrong = self.values.get("#wrong")
        return (
            None
            if wrong in (None, "N/A")
            else int(parse_non_negative(wrong, "wrong values"))
        )

    @property
    def largest_error(self) -> float | None:
        """The error of releases that print no number of values; as large for NaN."""
        error = str(self.values.get("error", "N/A"))
        if error.lstrip("-").lower() in ("nan", "inf"):
            return math.inf
        return None if error == "N/A" else parse_non_negative(error, "a largest error")

    @property
    def row(self) -> tuple[str | int | float | None, ...]:
        """The cells of COLUMNS, and the largest error.

        Raises:
          ValueError: If a number cannot be.
          KeyError: If one is missing.
        """
        count = self.values["count"]
        texts = [str(self.values.get(name, "")).strip() for name in _TEXTS]
        return (
            self.operation or None,
            self.ranks,
            self.size,
            None if count is None else int(parse_non_negative(count, "a count")),
            *texts,
            self.place,
            *(cell.value for cell in (self.time, self.algbw, self.busbw)),
            self.wrong,
            self.largest_error,
        )

    def _cell(self, name: str, meaning: str) -> Printed:
        value = self.values[name]
        if isinstance(value, str):
            return parse_printed(value, meaning, parse_non_negative)
        number = parse_non_negative(value, meaning)
        return Printed(number, JSON_STEP, f"{number:g}")


@dataclasses.dataclass
class _Run:
    """The facts of the run to which the next numbers belong."""

    operation: str = ""
    groups: dict[int, int] = dataclasses.field(default_factory=dict)  # by rank
    has_repeated_ranks: bool = False
    leading: tuple[str, ...] = ()  # columns in front of the two halves
    half: tuple[str, ...] = ()  # columns out of place, and again in place
    trailing: tuple[str, ...] = ()  # columns of rccl-tests behind the halves
    average: float | None = None
    is_own: bool = False  # printed by `rnn_scaling.links`, whose times are medians
    rows: list[CollectiveTiming] = dataclasses.field(default_factory=list)

    @property
    def ranks(self) -> int | None:
        """The ranks of one group (NCCL_TESTS_SPLIT runs several at once)."""
        groups = list(self.groups.values())
        return groups.count(groups[0]) if groups else None

    @property
    def largest_error(self) -> float | None:
        """The largest error of all rows; None if the log prints counts."""
        errors = [row.largest_error for row in self.rows]
        return max((error for error in errors if error is not None), default=None)


class NcclText(LogFormat):
    """The text output."""

    name = "nccl_tests"

    def detect(self, text: str) -> bool:
        """Return whether a text has the head of the program or of its table."""
        head = r"# nThread \d+ nGpus \d+|\bsize +count +type\b.* time +algbw +busbw"
        has_needle = "nThread" in text or "algbw" in text
        return has_needle and re.search(head, text) is not None

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return every size of every operation."""
        problems = Problems()
        last_line = 1
        runs = [_Run()]
        for line in log_lines(lines):
            try:
                for row in _read_line(line.text, line.number, runs, problems):
                    _add(row, runs[-1].rows, problems)
                    last_line = line.number
            except ValueError as e:
                problems.add(line.number, f"{e}; line left out", "bad row")
        if any(run.rows for run in runs) and runs[-1].average is None:
            reason = (
                "no line of the average bus bandwidth follows: the log is cut short"
            )
            problems.add(last_line, reason)
        rows: list[CollectiveTiming] = []
        run_notes: list[str] = []
        for run in runs:
            run_notes += _infer_operation(run)
            rows += run.rows
        notes = [*_time_notes(runs), *dict.fromkeys(run_notes), *_averages(runs)]
        return _finish(self.name, rows, notes, problems)


class NcclJson(LogFormat):
    """The file of `-J`: the numbers of the text output, unrounded."""

    name = "nccl_tests_json"

    def detect(self, text: str) -> bool:
        """Return whether a text begins with a version and the program's arguments."""
        head = r'\A\s*\{\s*"version"\s*:\s*\d+\s*,.*?"(nccl_version|args)"\s*:'
        return re.match(head, text[:20_000], re.S) is not None

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return the results one by one; of a truncated file, those that are whole."""
        text = "".join(lines)
        problems = Problems()
        results = _RESULTS.search(text)
        members: Any = {}
        # Of a truncated file, what is before the results.
        for document in (text, f"{text[: results.end()]}]}}" if results else "{}"):
            with contextlib.suppress(input_files.JsonError):
                members = input_files.parse_json(document)
                break
        members = members if isinstance(members, dict) else {}
        notes = _read_members(members, problems)
        arguments = members.get("args")
        program = str(arguments[0]) if isinstance(arguments, list) and arguments else ""
        operation = operation_of(program)
        config = members.get("config")
        ranks = num_ranks(config) if isinstance(config, dict) else None
        rows: list[CollectiveTiming] = []

        def add(line: int, result: Mapping[str, Any]) -> None:
            for key, place in (
                ("out_of_place", "out of place"),
                ("in_place", "in place"),
            ):
                if result.get(key) is not None:
                    values = {**result, **result[key]}
                    _add(
                        _measurement(line, operation, ranks, place, values),
                        rows,
                        problems,
                    )

        found = items(text, results.end()) if results else iter(())
        _add_objects(found, add, problems)
        return _finish(self.name, rows, [*_time_notes([]), *notes], problems)


class RcclJson(LogFormat):
    """The file of `-Z json -x FILE` of rccl-tests: one object per size and place."""

    name = "rccl_tests_json"

    def detect(self, text: str) -> bool:
        """Return whether a text has an object of a result."""
        keys = r'"inPlace"\s*:[^{}]*"algBw"\s*:[^{}]*"busBw"\s*:'
        return "busBw" in text and re.search(keys, text) is not None

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return the objects one by one; of a truncated file, the complete ones."""
        problems = Problems()
        rows: list[CollectiveTiming] = []

        def add(line: int, result: Mapping[str, Any]) -> None:
            _add(_of_object(line, result), rows, problems)

        _add_objects(_objects("".join(lines), problems), add, problems)
        return _finish(self.name, rows, _time_notes([]), problems)


def _add(
    row: CollectiveTiming, rows: list[CollectiveTiming], problems: Problems
) -> None:
    """Add a row with possible numbers, and report its faults."""
    if not problems.is_over_limit(row.line, len(rows) + 1):
        assert row.row
        rows.append(row)
        _check(row, problems)


def _finish(
    name: str,
    rows: Sequence[CollectiveTiming],
    notes: Sequence[str],
    problems: Problems,
) -> Reading:
    has_errors = any(row.largest_error is not None for row in rows)
    columns = (*COLUMNS, LARGEST_ERROR) if has_errors else COLUMNS
    cells = tuple(row.row[: len(columns)] for row in rows)
    table = Table("Collective operations (nccl-tests)", columns, cells)
    nothing = f"no result of {name} in this file"
    return make_reading(name, problems, nothing, tables=[table], notes=notes)


def _read_line(
    text: str, line: int, runs: list[_Run], problems: Problems
) -> list[CollectiveTiming]:
    """Return the timings of a line, or add its other content to the run."""
    run = runs[-1]
    is_head = _CONFIG.fullmatch(text) or _RANK.fullmatch(text)
    if is_head and run.leading:  # numbers came before: another program starts
        run = _Run(operation=run.operation)
        runs.append(run)
    if match := _RANK.fullmatch(text):
        run.has_repeated_ranks |= int(match[1]) in run.groups
        run.groups[int(match[1])] = int(match[2] or 0)
    elif _HEADER.fullmatch(text):
        if run.rows:  # the same program again, or one without "Rank" lines
            run = _Run(operation=run.operation, groups=run.groups)
            runs.append(run)
        _read_header(text.lstrip("# ").split(), run)
    elif match := _AVERAGE.fullmatch(text):
        run.average = parse_non_negative(match[1], "an average bus bandwidth")
    elif match := _BOUNDS.fullmatch(text):
        largest = run.largest_error
        error = "" if largest is None else f", largest error {largest:g}"
        problems.add(
            line,
            f"FAILED: {match[1]} out of bounds values{error}: "
            "the operation's results are wrong",
        )
    elif run.leading and _ROW.fullmatch(text):
        return _read_row(text, line, run)
    elif "_perf" in text and (name := operation_of(text)):
        if run.leading and "concluded" not in text:
            run = _Run()
            runs.append(run)
        run.operation = name
        run.is_own = text.rstrip().endswith("(rnn_scaling.links): medians")
    return []


def _read_header(words: Sequence[str], run: _Run) -> None:
    """Take the columns that a header names, except the time stamp."""
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


def _read_row(text: str, line: int, run: _Run) -> list[CollectiveTiming]:
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
    # The suite's own links measure nothing in place.
    return [
        _measurement(
            line,
            run.operation,
            run.ranks,
            place,
            {**named, **dict(zip(run.half, half))},
        )
        for place, half in halves.items()
        if set(half) != {"N/A"}
    ]


def _measurement(
    line: int, operation: str, ranks: int | None, place: str, values: Mapping[str, Any]
) -> CollectiveTiming:
    named = {_SAME.get(name, name): value for name, value in values.items()}
    is_cpu_time = bool({"cputime", "cpu_time"} & values.keys())
    named["is_cpu_time"] = is_cpu_time
    return CollectiveTiming(line, operation, ranks, place, named)


def _leading_cells(words: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """Return the cells in front of the halves by column.

    The columns redop and root may be blank: programs without a reduction or a root
    print nothing there. A time with at most four digits has a decimal point.
    """
    cells = dict(zip(columns[:3], words[:3]))
    for name in columns[3:]:
        following = words[len(cells)] if len(cells) < len(words) else ""
        if re.fullmatch(_LEADING_CELLS.get(name, ".*"), following):
            cells[name] = following
    return cells


def _of_object(line: int, result: Mapping[str, Any]) -> CollectiveTiming:
    """Return the measurement of one object of rccl-tests' JSON."""
    name = str(result["name"])
    letters = re.sub(r"[^a-z]", "", name.lower()).removesuffix("perf")
    ranks = finite_number(result.get("ranks", result.get("gpus")))
    return _measurement(
        line,
        _NAMES.get(letters, name[:40]),
        int(ranks) if ranks and ranks >= 1 else None,
        "in place" if result["inPlace"] else "out of place",
        {"count": None, **result},
    )


def operation_of(text: str) -> str:
    """Return the operation of a program that a line names: "all_reduce", or ""."""
    match = _PROGRAM.search(text)
    return _NAMES[match[1].replace("_", "")] if match else ""


def _objects(text: str, problems: Problems) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the results of rccl-tests, of a list or of lines among other text."""
    if start := re.match(r"\s*\[", text):
        yield from items(text, start.end())
        return
    for line, content in number_lines(text.splitlines(keepends=True)):
        if not content.lstrip().startswith("{"):
            continue
        try:
            value = input_files.parse_json(content)
        except input_files.JsonError:
            problems.add(line, "not a complete JSON object; left out", "not JSON")
            continue
        if "busBw" in value:
            yield line, value


def _add_objects(
    objects: Iterable[tuple[int, Any]],
    add: Callable[[int, Mapping[str, Any]], None],
    problems: Problems,
) -> None:
    """Add each result; a fault of one result does not affect the others."""
    try:
        for line, result in objects:
            try:
                add(line, result)
            except KeyError as e:
                problems.add(line, f"{e.args[0]} is missing; left out", "bad result")
            except (ValueError, TypeError, AttributeError) as e:
                problems.add(line, f"{e}; left out", "bad result")
    except JsonFault as e:
        problems.add(e.line, str(e))


def _read_members(members: Mapping[str, Any], problems: Problems) -> list[str]:
    """Report the faults that a JSON file names, and return its average as a note."""
    bounds = members.get("out_of_bounds")
    if isinstance(bounds, dict) and bounds.get("okay") == "false":
        problems.add(
            1,
            f"{bounds.get('count')} out of bounds values: the operation's results are "
            "wrong",
        )
    errors = members.get("errors")
    if isinstance(errors, list) and any(errors):
        shown = json.dumps([error for error in errors if error])[:200]
        problems.add(1, f"NCCL reported: {shown}")
    average = members.get("average_bus_bandwidth")
    if not isinstance(average, dict) or not average:
        return []
    return [
        f"Average bus bandwidth as printed: {average.get('bandwidth')} GB/s, the mean "
        "over all sizes."
    ]


def num_ranks(config: Mapping[str, Any]) -> int | None:
    """Return the ranks of one group; some releases list the first GPU per process."""
    devices = config.get("devices")
    listed = devices if isinstance(devices, list) else []
    listed = [device for device in listed if isinstance(device, dict)]
    ranks = sorted(int(finite_number(device.get("rank")) or 0) for device in listed)
    threads = finite_number(config.get("nthreads")) or 0
    per_process = int(threads * (finite_number(config.get("ngpus")) or 0))
    if not ranks or per_process < 1 or ranks[0] < 0:
        return None
    if ranks != list(range(len(ranks))) or len(ranks) % per_process:
        return ranks[-1] + per_process
    groups = [str(device.get("group")) for device in listed]
    return groups.count(groups[0])


def factor(operation: str, ranks: int) -> float | None:
    """Return busbw / algbw of an operation; None for one that is not known.

    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md, "Summary", and each test's GetBw.
    """
    if operation in _FACTORS:
        return _FACTORS[operation] * (ranks - 1) / ranks
    is_known = operation in ("broadcast", "reduce", "sendrecv", "hypercube")
    return 1.0 if is_known else None


def _check(row: CollectiveTiming, problems: Problems) -> None:
    """Report wrong results, and bandwidths that differ by more than their rounding."""
    place = f"{row.operation or 'operation'} of {row.size} B, {row.place}"
    if row.wrong:
        text = f"{place}: {row.wrong} wrong values; do not trust the operation"
        problems.add(row.line, text, "wrong")
    has_size = row.operation not in _OTHER_ALGBW and not row.values["is_cpu_time"]
    if has_size and row.time.low > 0:
        low, high = _by_time(row)
        if not row.algbw.low <= high or not low <= row.algbw.high:
            rate = row.size / row.time.value / 1e3
            text = (
                f"{place}: algbw {row.algbw.text} is not size / time = {rate:.4g} GB/s"
            )
            problems.add(row.line, text, "algbw")
    expected = factor(row.operation, row.ranks) if row.ranks else None
    if expected is None or _fits(row, expected, row.algbw.low, row.algbw.high):
        return
    text = (
        f"{place}: busbw {row.busbw.text} is not algbw {row.algbw.text} * "
        f"{expected:.4g} ({row.ranks} ranks)"
    )
    if row.busbw.text == row.algbw.text and expected != 1:
        text += "; nccl-tests before June 2020 had the factor in algbw already"
    problems.add(row.line, text, "busbw")


def _by_time(row: CollectiveTiming) -> tuple[float, float]:
    """Return the bounds of size / time in GB/s."""
    return row.size / row.time.high / 1e3, row.size / row.time.low / 1e3


def _fits(row: CollectiveTiming, expected: float, low: float, high: float) -> bool:
    return row.busbw.low <= high * expected and row.busbw.high >= low * expected


def possible_operations(rows: Sequence[CollectiveTiming]) -> tuple[str, ...]:
    """Return the operations whose factor and columns fit all rows of a run.

    Returns:
      Names of operations; empty if the number of ranks is unknown or 1.
    """
    ranks = rows[0].ranks
    if ranks is None or ranks < 2:
        return ()
    has_redop = any(row.values.get("redop") not in (None, "", "none") for row in rows)
    has_root = any(row.values.get("root") not in (None, "", "-1") for row in rows)
    by_columns = []
    by_factor = []
    by_time = []
    for name in _OPERATIONS:
        expected = factor(name, ranks) or 0.0
        if has_redop == (name in _HAS_REDOP) and has_root == (name in _HAS_ROOT):
            by_columns.append(name)
        if all(_fits(row, expected, row.algbw.low, row.algbw.high) for row in rows):
            by_factor.append(name)
        # Releases before June 2020 have the factor in algbw already.
        timed = [row for row in rows if row.time.low > 0]
        if all(_fits(row, expected, *_by_time(row)) for row in timed):
            by_time.append(name)
    both = [name for name in by_columns if name in by_factor]
    return tuple(both or [name for name in by_columns if name in by_time] or by_factor)


def _infer_operation(run: _Run) -> list[str]:
    """Infer the operation of a run from its numbers if no line names it.

    Returns:
      Notes on the run.
    """
    notes = []
    if run.leading and not run.groups:
        notes.append(
            "No 'Rank' lines: the number of ranks is not known, busbw could not be "
            "checked."
        )
    if run.has_repeated_ranks:
        notes.append(
            "The same rank is listed twice: programs built without MPI=1 ran at the same "
            "time, each alone, instead of one run over all."
        )
    if run.largest_error is not None:
        notes.append(
            "Largest error is the largest difference from the right value; this release "
            "does not count wrong values."
        )
    if run.operation or not run.rows:
        return notes
    possible = possible_operations(run.rows)
    text = "The log does not name the operation (releases before 2025)"
    if len(possible) == 1:
        run.rows = [dataclasses.replace(row, operation=possible[0]) for row in run.rows]
        text += f"; busbw / algbw and the columns are those of {possible[0]}."
    elif possible:
        text += f"; busbw / algbw leaves {' and '.join(possible)}."
    else:
        text += ": busbw could not be checked there."
    return [*notes, text]


def _time_notes(runs: Sequence[_Run]) -> list[str]:
    average = "median" if any(run.is_own for run in runs) else "mean"
    return [
        f"time is the {average} of the iterations of one operation; algbw = size / time, "
        "GB/s = 10**9 B/s.",
        BUSBW_NOTE,
    ]


def _averages(runs: Sequence[_Run]) -> list[str]:
    averages = [run.average for run in runs if run.average is not None]
    if not averages:
        return []
    shown = ", ".join(f"{average:g}" for average in averages)
    return [
        f"Average bus bandwidth as printed: {shown} GB/s, the mean over all sizes, small ones included."
    ]
