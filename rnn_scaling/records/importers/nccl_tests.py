"""The text output and the JSON files of nccl-tests and rccl-tests.

Formats: NVIDIA/nccl-tests, src/util.cu (writeResultHeader, writeBenchmarkLine*).
rccl-tests prints the same and may add columns behind the two halves.

The file of JSON_FILE_VERSION 1 to 3 also holds the environment of the run, which is not
reported. rccl-tests (ROCm/rccl-tests, src/common.cu, class Reporter) writes an object
per line until 2025, and later a list of them; built without MPI, the objects have the
number of GPUs instead of ranks.
"""

import contextlib
import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.records.importers.collectives import (
    NAMES,
    CollectiveTiming,
    add_timing,
    find_operation,
    list_possible_operations,
    make_time_notes,
    make_timings_reading,
    read_timing,
)
from rnn_scaling.records.importers.json_stream import JsonFault, read_items
from rnn_scaling.records.importers.reading import (
    LogFormat,
    Problems,
    Reading,
    Terms,
    number_lines,
    parse_non_negative,
    read_finite_number,
    read_log_lines,
)
from rnn_scaling.system.files import input_files

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
        for line in read_log_lines(lines):
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
    possible_names = list_possible_operations(run.timings)
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


_RESULTS = re.compile(r'"results"\s*:\s*\[')


class NcclJson(LogFormat):
    """The file of `-J`: the numbers of the text output, unrounded."""

    name = "nccl_tests_json"
    needles = ('"version"',)
    has_rates = False
    detected = r'\A\s*\{\s*"version"\s*:\s*\d+\s*,(?s:.*?)"(nccl_version|args)"\s*:'

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return the results one by one; of a truncated file, the complete ones."""
        text = "".join(lines)
        problems = Problems()
        results = _RESULTS.search(text)
        members: Any = {}
        # The part before the results can be read even if the file is truncated.
        for document in (text, f"{text[: results.end()]}]}}" if results else "{}"):
            with contextlib.suppress(input_files.JsonError):
                members = input_files.parse_json(document)
                break
        members = members if isinstance(members, dict) else {}
        notes = [*make_time_notes("mean"), *_read_members(members, problems)]
        arguments = members.get("args")
        program = str(arguments[0]) if isinstance(arguments, list) and arguments else ""
        operation = find_operation(program)
        ranks = count_ranks(members.get("config"))

        def read_result(
            line: int, result: Mapping[str, Any]
        ) -> Iterator[CollectiveTiming]:
            for place in ("out of place", "in place"):
                place_values = result.get(place.replace(" ", "_"))
                if place_values is not None:
                    values = {**result, **place_values}
                    yield read_timing(line, operation, ranks, place, values)

        timings: list[CollectiveTiming] = []
        if results:
            timings = _read_all(read_items(text, results.end()), read_result, problems)
        return make_timings_reading(self.name, timings, notes, problems)


class RcclJson(LogFormat):
    """The file of `-Z json -x FILE` of rccl-tests: one object per size and place."""

    name = "rccl_tests_json"
    needles = ("busBw",)
    has_rates = False
    detected = r'"inPlace"\s*:[^{}]*"algBw"\s*:[^{}]*"busBw"\s*:'

    def read(self, lines: Iterable[str], terms: Terms) -> Reading:
        """Return the objects one by one; of a truncated file, the complete ones."""
        problems = Problems()
        objects = _read_objects("".join(lines), problems)
        timings = _read_all(objects, _read_object, problems)
        return make_timings_reading(
            self.name, timings, make_time_notes("mean"), problems
        )


def _read_object(line: int, result: Mapping[str, Any]) -> Iterator[CollectiveTiming]:
    """Yield the timing of one object of rccl-tests' JSON."""
    name = str(result["name"])
    letters = re.sub(r"[^a-z]", "", name.lower()).removesuffix("perf")
    ranks = read_finite_number(result.get("ranks", result.get("gpus")))
    yield read_timing(
        line,
        NAMES.get(letters, name[:40]),
        int(ranks) if ranks and ranks >= 1 else None,
        "in place" if result["inPlace"] else "out of place",
        {"count": None, **result},
    )


def _read_objects(text: str, problems: Problems) -> Iterator[tuple[int, Any]]:
    """Yield the results of rccl-tests, of a list or of lines among other text."""
    if start := re.match(r"\s*\[", text):
        yield from read_items(text, start.end())
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


def _read_all(
    objects: Iterable[tuple[int, Any]],
    read: Callable[[int, Mapping[str, Any]], Iterable[CollectiveTiming]],
    problems: Problems,
) -> list[CollectiveTiming]:
    """Return the timings of objects; a fault of one does not affect the others."""
    timings: list[CollectiveTiming] = []
    try:
        for line, result in objects:
            try:
                for timing in read(line, result):
                    add_timing(timing, timings, problems)
            except KeyError as e:
                problems.add(line, f"{e.args[0]} is missing; left out", "bad result")
            except (ValueError, TypeError, AttributeError) as e:
                problems.add(line, f"{e}; left out", "bad result")
    except JsonFault as e:
        problems.add(e.line, str(e))
    return timings


def _read_members(members: Mapping[str, Any], problems: Problems) -> list[str]:
    """Report the faults that a JSON file names, and return its average as a note."""
    bounds = members.get("out_of_bounds")
    if isinstance(bounds, dict) and bounds.get("okay") == "false":
        count = bounds.get("count")
        reason = f"{count} out of bounds values: the operation's results are wrong"
        problems.add(1, reason)
    errors = members.get("errors")
    if isinstance(errors, list) and any(errors):
        text = json.dumps([error for error in errors if error])[:200]
        problems.add(1, f"NCCL reported: {text}")
    average = members.get("average_bus_bandwidth")
    if not isinstance(average, dict) or not average:
        return []
    return [
        f"Average bus bandwidth as printed: {average.get('bandwidth')} GB/s, the mean "
        "over all sizes."
    ]


def count_ranks(config: Any) -> int | None:
    """Return the ranks of one group; some releases list the first GPU per process."""
    config = config if isinstance(config, dict) else {}
    devices = config.get("devices")
    if not isinstance(devices, list):
        return None
    devices = [device for device in devices if isinstance(device, dict)]
    ranks = sorted(
        int(read_finite_number(device.get("rank")) or 0) for device in devices
    )
    threads = read_finite_number(config.get("nthreads")) or 0
    per_process = int(threads * (read_finite_number(config.get("ngpus")) or 0))
    if not ranks or per_process < 1 or ranks[0] < 0:
        return None
    if ranks != list(range(len(ranks))) or len(ranks) % per_process:
        return ranks[-1] + per_process
    groups = [str(device.get("group")) for device in devices]
    return groups.count(groups[0])
