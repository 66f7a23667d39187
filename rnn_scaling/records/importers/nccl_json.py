"""The JSON files of nccl-tests and rccl-tests.

Formats: NVIDIA/nccl-tests, JSON_FILE_VERSION 1 to 3, whose file also holds the
environment of the run, which is not reported. rccl-tests (ROCm/rccl-tests,
src/common.cu, class Reporter) writes an object per line until 2025, and later a list of
them; built without MPI, the objects have the number of GPUs instead of ranks.

`formats` has the entries, and `collectives` checks the numbers.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rnn_scaling.records.importers.collectives import (
    NAMES,
    CollectiveTiming,
    add_timing,
    find_operation,
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
    finite_number,
    number_lines,
)
from rnn_scaling.system.files import input_files

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
        ranks = num_ranks(members.get("config"))

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
    ranks = finite_number(result.get("ranks", result.get("gpus")))
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


def num_ranks(config: Any) -> int | None:
    """Return the ranks of one group; some releases list the first GPU per process."""
    config = config if isinstance(config, dict) else {}
    devices = config.get("devices")
    if not isinstance(devices, list):
        return None
    devices = [device for device in devices if isinstance(device, dict)]
    ranks = sorted(int(finite_number(device.get("rank")) or 0) for device in devices)
    threads = finite_number(config.get("nthreads")) or 0
    per_process = int(threads * (finite_number(config.get("ngpus")) or 0))
    if not ranks or per_process < 1 or ranks[0] < 0:
        return None
    if ranks != list(range(len(ranks))) or len(ranks) % per_process:
        return ranks[-1] + per_process
    groups = [str(device.get("group")) for device in devices]
    return groups.count(groups[0])
