"""rccl-tests' JSON (-Z json -x FILE): one object per size and place.

Format: ROCm/rccl-tests, src/common.cu, class Reporter. Releases until 2025 write an
object per line, later ones a list of them with the key numCycle. Built without MPI, the
objects have the number of GPUs instead of nodes and ranks.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rnn_scaling.importers.common import (
    ImportedLog,
    Problems,
    detector,
    finish,
    finite,
    not_negative,
    numbered,
)
from rnn_scaling.importers.json_stream import JsonFault, items
from rnn_scaling.importers.nccl_tests import Measurement, check, notes, table, whole
from rnn_scaling.records.printed_number import Printed
from rnn_scaling.system.files import input_files

FORMAT = "rccl_tests_json"
STEP = 1e-6  # smallest difference that std::to_string prints
_OPERATIONS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "alltoall",
    "alltoallv": "alltoallv",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "sendrecv",
    "gather": "gather",
    "scatter": "scatter",
    "hypercube": "hypercube",
}
_LIST = re.compile(r"\s*\[")
detect = detector(r'"inPlace"\s*:[^{}]*"algBw"\s*:[^{}]*"busBw"\s*:', "busBw")


def parse(lines: Iterable[str], source: str) -> ImportedLog:
    """Read the objects one by one; of a truncated file, the complete ones.

    Raises:
      LogError: If the file has no complete object of a result.
    """
    problems = Problems()
    measurements: list[Measurement] = []
    try:
        for line, result in _objects(lines, problems):
            if problems.too_many(line, len(measurements) + 1):
                break
            try:
                measurement = _measurement(result, line)
            except KeyError as e:
                problems.add(line, f"{e.args[0]} is missing; left out", "bad result")
                continue
            except (ValueError, TypeError) as e:
                problems.add(line, f"{e}; left out", "bad result")
                continue
            measurements.append(measurement)
            check(measurement, problems)
    except JsonFault as e:
        problems.add(e.line, str(e))
    return finish(
        FORMAT,
        source,
        (),
        [table(measurements)],
        notes(),
        problems,
        "no result of rccl-tests in this file",
    )


def _objects(
    lines: Iterable[str], problems: Problems
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the results with their lines, of a list or of lines among other text.

    Raises:
      JsonFault: If a list ends early or is not JSON.
    """
    text = "".join(lines)
    if start := _LIST.match(text):
        for line, value in items(text, start.end()):
            if isinstance(value, dict):
                yield line, value
            else:
                problems.add(line, "expected an object of a result; left out")
        return
    for line, content in numbered(text.splitlines(keepends=True)):
        if not content.lstrip().startswith("{"):
            continue
        try:
            value = input_files.parse_json(content)
        except input_files.JsonError:
            problems.add(line, "not a complete JSON object; left out", "not JSON")
            continue
        if "busBw" in value:
            yield line, value


def _measurement(result: Mapping[str, Any], line: int) -> Measurement:
    """Return the measurement of one object.

    Raises:
      KeyError: If a key is missing.
      ValueError: If a value is not a number of its kind.
    """
    wrong = result["wrong"]
    num_wrong = None
    if wrong != "N/A":
        num_wrong = int(not_negative(wrong, "wrong"))
    return Measurement(
        line,
        _operation(str(result["name"])),
        _num_ranks(result),
        whole(result["size"]),
        None,
        str(result["type"]),
        str(result["redop"]),
        "",
        "in place" if result["inPlace"] else "out of place",
        _cell(result["time"], "a time in us"),
        _cell(result["algBw"], "algBw"),
        _cell(result["busBw"], "busBw"),
        num_wrong,
    )


def _operation(name: str) -> str:
    """Return nccl-tests' name of an operation: "AllReduce" is all_reduce."""
    letters = re.sub(r"[^a-z]", "", name.lower()).removesuffix("perf")
    return _OPERATIONS.get(letters, name[:40])


def _num_ranks(result: Mapping[str, Any]) -> int | None:
    """Return the ranks of all nodes; without MPI every GPU is one."""
    ranks = finite(result.get("ranks", result.get("gpus")))
    if ranks is None or ranks < 1:
        return None
    return int(ranks)


def _cell(value: Any, meaning: str) -> Printed:
    number = not_negative(value, meaning)
    return Printed(number, STEP, f"{number:g}")
