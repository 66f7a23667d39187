"""nccl-tests' JSON file (-J): the numbers of its text output, unrounded to six decimals.

Format: NVIDIA/nccl-tests, src/util.cu, JSON_FILE_VERSION 1 to 3. The file also holds the whole environment of the run,
which is read over and never shown.
"""

import contextlib
import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from rnn_scaling.importers.common import (
    ImportedLog,
    Problems,
    finish,
    finite,
    not_negative,
)
from rnn_scaling.importers.json_stream import JsonFault, items
from rnn_scaling.importers.nccl_tests import (
    Measurement,
    check,
    notes,
    operation_of,
    table,
    whole,
)
from rnn_scaling.records.printed_number import Printed
from rnn_scaling.system.files import input_files

FORMAT = "nccl_tests_json"
_RESULTS = re.compile(r'"results"\s*:\s*\[')
STEP = 1e-6  # of printf's "%lf"
_DETECT = re.compile(
    r'\A\s*\{\s*"version"\s*:\s*\d+\s*,.*?"(nccl_version|args)"\s*:', re.S
)


@dataclasses.dataclass
class _File:
    """What the file says in addition to its results."""

    operation: str = ""
    ranks: int | None = None
    measurements: list[Measurement] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)


def detect(head: str) -> bool:
    """An object that begins with a version and the program's arguments."""
    return bool(_DETECT.match(head[:20_000]))


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Reads the results one by one; of a truncated file, those that are whole, and what stands before them."""
    text, problems, file = "".join(lines), Problems(), _File()
    results = _RESULTS.search(text)
    for document in (text, f"{text[: results.end()]}]}}" if results else "{}"):
        with contextlib.suppress(input_files.JsonError):
            members = input_files.parse_json(document)
            for key, value in members.items() if isinstance(members, dict) else ():
                _member(key, value, file, problems)
            break
    try:
        for line, result in items(text, results.end()) if results else ():
            try:
                _add(result, line, file, problems)
            except (ValueError, KeyError, TypeError, AttributeError) as e:
                reason = (
                    f"{e.args[0]} is missing" if isinstance(e, KeyError) else str(e)
                )
                problems.add(
                    line,
                    f"result {len(file.measurements)}: {reason}; left out",
                    "bad result",
                )
    except JsonFault as e:
        problems.add(e.line, str(e))
    nothing = "no result in this JSON file of nccl-tests"
    return finish(
        FORMAT,
        source,
        (),
        [table(file.measurements)],
        [*notes(), *file.notes],
        problems,
        nothing,
    )


def _member(key: str, value: Any, file: _File, problems: Problems) -> None:
    match key, value:
        case "args", [program, *_]:
            file.operation = operation_of(str(program))
        case "config", dict(config):
            file.ranks = _num_ranks(config)
        case "out_of_bounds", {"okay": "false", **bounds}:
            problems.add(
                1,
                f"{bounds.get('count')} out of bounds values: the operation's results are wrong",
            )
        case "average_bus_bandwidth", dict(average) if average:
            bandwidth = average.get("bandwidth")
            file.notes.append(
                f"Average bus bandwidth as printed: {bandwidth} GB/s, the mean over all sizes."
            )
        case "errors", [*errors] if any(errors):
            problems.add(
                1,
                f"NCCL reported: {json.dumps([error for error in errors if error])[:200]}",
            )


def _num_ranks(config: Mapping[str, Any]) -> int | None:
    """Ranks of one group; some releases list only the first GPU of each process."""
    devices = config.get("devices")
    listed = (
        [device for device in devices if isinstance(device, dict)]
        if isinstance(devices, list)
        else []
    )
    ranks = sorted(int(finite(device.get("rank")) or 0) for device in listed)
    per_process = int(
        (finite(config.get("nthreads")) or 0) * (finite(config.get("ngpus")) or 0)
    )
    if not ranks or per_process < 1 or ranks[0] < 0:
        return None
    if ranks != list(range(len(ranks))) or len(ranks) % per_process:
        return ranks[-1] + per_process
    groups = [str(device.get("group")) for device in listed]
    return groups.count(groups[0])


def _add(result: Mapping[str, Any], line: int, file: _File, problems: Problems) -> None:
    for key, place in (("out_of_place", "out of place"), ("in_place", "in place")):
        values = result.get(key)
        if values is None:
            continue
        clock = "cpu_time" if "cpu_time" in values else "time"
        wrong = values["nwrong"]
        measurement = Measurement(
            line, file.operation, file.ranks, whole(result["size"]), whole(result["count"]), str(result["type"]),
            str(result.get("redop", "")), str(result.get("root", "")).strip(), place,
            _cell(values[clock], "a time in us"), _cell(values["alg_bw"], "alg_bw"), _cell(values["bus_bw"], "bus_bw"),
            None if wrong is None else int(not_negative(wrong, "nwrong")), clock == "cpu_time",
        )  # fmt: skip
        if not problems.too_many(line, len(file.measurements) + 1):
            file.measurements.append(measurement)
            check(measurement, problems)


def _cell(value: Any, what: str) -> Printed:
    number = not_negative(value, what)
    return Printed(number, STEP, f"{number:g}")
