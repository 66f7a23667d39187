"""A folder of run records: what is good in it, what is left out and why, and which files in it are the report's own."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rnn_scaling import record
from rnn_scaling.inspection import step_parts
from rnn_scaling.record import RunRecord
from rnn_scaling.settings import config as configs
from rnn_scaling.settings import flags

SCHEMA = "rnn_scaling.report/1"
EDGE = 4096  # bytes at the start of a file within which a report's own file says so
MARK = f"\n<!-- {SCHEMA} -->\n"  # the end of Markdown
_SCHEMA = re.escape(SCHEMA.encode())
# How a file of the report says so, by the end of its name: at one place, so that a text about reports is not one.
STARTS = {
    ".csv": rb"schema,[^\n]*\r?\n" + _SCHEMA + rb",",
    # Also what inspect and threads write beside their records.
    ".json": rb'\{\s*"schema": "rnn_scaling\.(?:report|inspect|threads)/1"',
    ".html": rb'<!doctype html>\n(?:<(?!meta name="generator")[^\n]*\n){1,8}<meta name="generator" content="'
    + _SCHEMA
    + rb'">',
    ".svg": rb"<!-- " + _SCHEMA + rb" -->\n<svg ",
    ".png": rb"\x89PNG\r\n\x1a\n(?s:.){0,200}tEXtSoftware\x00" + _SCHEMA,
}
ROUNDING = 1e-6  # relative: what sums of as many numbers as there are may differ by
SMALLEST, LARGEST = 1e-12, 1e18  # of seconds and words that can be; beyond them sums and ratios overflow
WHOLE_NUMBERS = {"num_devices": 1, "batch_size": 1, "global_batch_size": 0, "num_batches": 1}  # with their minimum


@dataclasses.dataclass(frozen=True)
class RunFile:
    """One run record and the name of its file."""

    name: str
    record: RunRecord


@dataclasses.dataclass(frozen=True)
class Folder:
    """What a folder holds. left_out: a line for each file that is no good record, which names it."""

    runs: tuple[RunFile, ...]
    left_out: tuple[str, ...]


def read(folder: Path) -> Folder:
    """Every run record (*.json) of the folder itself, by file name.

    Subfolders are other sets of runs (the two sides of an A/B, before and after): read together they would look like
    repeats of one configuration. JSON of this suite's commands is passed over, and so is a copy of a record: two
    processes never took the same times to the last digit, so counting both would narrow every interval.
    """
    return read_files({path.name: path for path in sorted(folder.glob("*.json"))})


def read_files(paths: Mapping[str, Path]) -> Folder:
    """The run records among these files, each under the name that the report gives it; copies are passed over."""
    runs, left_out = [], []
    shared: dict[str, dict[str, Any]] = {}
    seen: dict[int, RunFile] = {}
    for name, path in paths.items():
        try:
            run = record.read(path)
            if wrong := next(problems(run), None):
                raise record.RecordError(f"{path}: {wrong}")
        except RecursionError:
            left_out.append(f"{path}: nested too deeply for a run record")
            continue
        except OSError as e:
            left_out.append(f"{path}: {e.strerror or e}")
            continue
        except record.RecordError as e:
            if not _is_result(path):
                left_out.append(str(e))
            continue
        file = RunFile(name, _shared(run, shared))
        if run.status == "ok" and len(run.batches["seconds"]) > 1:
            first = seen.setdefault(_times(run), file)
            if first is not file and _same_run(first.record, run):
                left_out.append(f"{path}: a copy of {first.name}, whose batches are the same to the last digit")
                continue
        runs.append(file)
    return Folder(tuple(runs), tuple(left_out))


def subfolders_with_records(folder: Path) -> list[Path]:
    """Folders one level down that hold run records."""
    inside = (path for path in folder.iterdir() if path.is_dir())
    return sorted(path for path in inside if any(_starts(file, rb"run/") for file in path.glob("*.json")))


def is_own(path: Path) -> bool:
    """Whether a file was written by the report: the schema stands where the report puts it in a file of that name."""
    mark = MARK.encode()
    try:
        with open(path, "rb") as file:
            if path.suffix == ".md":
                file.seek(max(0, path.stat().st_size - len(mark)))
                return file.read() == mark
            pattern = STARTS.get(path.suffix)
            return pattern is not None and re.match(pattern, file.read(EDGE)) is not None
    except OSError:
        return False


def _is_result(path: Path) -> bool:
    """Whether a file is what one of this suite's commands wrote beside the records: no record, and nothing lost."""
    return _starts(path, rb"(?!run/)")


def _starts(path: Path, schema: bytes) -> bool:
    """Whether a file starts as one of this suite does whose schema's name matches."""
    try:
        with open(path, "rb") as file:
            return re.match(rb'\{\s*"schema": "rnn_scaling\.' + schema, file.read(EDGE)) is not None
    except OSError:
        return False


def _times(run: RunRecord) -> int:
    return hash((repr(run.config.get("num_devices")), tuple(run.batches["seconds"])))


def _same_run(a: RunRecord, b: RunRecord) -> bool:
    return a.batches == b.batches and a.config == b.config


def problems(run: RunRecord) -> Iterator[str]:
    """What makes a record's numbers unusable, in words; nothing for a good one."""
    if not isinstance(run.config, dict):
        yield f"config is {_spelled(run.config)}; expected the run's options"
        return
    for name in ("resolved", "environment", "phases", "graph", "trace"):
        if not isinstance(getattr(run, name), dict):
            yield f"{name} is {_spelled(getattr(run, name))}; expected an object"
            return
    if not (run.error is None or isinstance(run.error, dict)):
        yield f"error is {_spelled(run.error)}; expected an object or null"
    for name, value in run.config.items():
        if not (value is None or isinstance(value, (str, int, float))):
            yield f"config.{name} is {_spelled(value)}; expected one value"
    for name in ("encoder_type", "variable_update"):
        if not isinstance(run.config.get(name), str):
            yield f"config.{name} is {_spelled(run.config.get(name))}; expected a name"
    for name, minimum in WHOLE_NUMBERS.items():
        value = run.config.get(name, None if name == "num_devices" else minimum)
        if type(value) is not int or value < minimum:
            yield f"config.{name} is {_spelled(value)}; expected a whole number of at least {minimum}"
    yield from _option_problems(run.config)
    if run.status == "ok" or run.throughput:
        yield from _batch_problems(run)
    for name, value in run.phases.items():
        if not _is_number(value) or value < 0:
            yield f"phases.{name} is {_spelled(value)}; expected seconds"
    yield from step_parts.problems(run.trace, run.config.get("num_devices", 0))
    yield from step_parts.graph_problems(run.graph)


def _option_problems(config: dict[str, Any]) -> Iterator[str]:
    """Values that no command line could have given; an option that this version does not know may be anything."""
    expected = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a word"}
    types = {"int": (int,), "float": (int, float), "bool": (bool,), "str": (str,)}
    for name, value in config.items():
        field = configs.OPTIONS.get(name)
        if field is None or (value is None and "None" in str(field.type)):
            continue
        kind, choices, minimum = flags.kind_of(field), field.metadata["choices"], field.metadata["minimum"]
        if type(value) not in types[kind]:
            yield f"config.{name} is {_spelled(value)}; expected {expected[kind]}"
        elif choices and value not in choices:
            yield f"config.{name} is {_spelled(value)}; expected {', '.join(choices)}"
        elif minimum is not None and not value >= minimum:
            yield f"config.{name} is {_spelled(value)}; expected at least {minimum:g}"


def _batch_problems(run: RunRecord) -> Iterator[str]:
    batches = run.batches if isinstance(run.batches, dict) else {}
    lists = {name: batches.get(name) for name in ("seconds", "words")}
    for name, values in lists.items():
        if not isinstance(values, list) or not values:
            yield f"batches.{name} is {_spelled(values)}; expected a number for each batch"
            return
        if not _all_positive(values):
            wrong = next(i for i, value in enumerate(values) if not _all_positive([value]))
            yield f"batches.{name}[{wrong}] is {_spelled(values[wrong])}; expected a number above 0"
    count, warmup = len(lists["seconds"]), batches.get("warmup")
    if len(lists["words"]) != count:
        yield f"batches.words has {len(lists['words'])} entries and batches.seconds {count}; expected as many"
    if type(warmup) is not int or not 0 <= warmup < count:
        yield f"batches.warmup is {_spelled(warmup)}; expected a whole number below the {count} batches"
    for name in ("tower_words", "tower_positions"):
        yield from _tower_problems(name, batches.get(name, []), count, run.config.get("num_devices"))
    towers = batches.get("tower_words", [])
    wrong = (i for i, (each, words) in enumerate(zip(towers, lists["words"])) if not _close(sum(each), words))
    if (i := next(wrong, None)) is not None:
        yield f"batches.tower_words[{i}] sum to {sum(towers[i])} and batches.words[{i}] is {lists['words'][i]}"
    for name in ("words", "seconds", "words_per_second"):
        value = run.throughput.get(name) if isinstance(run.throughput, dict) else None
        if not _all_positive([value]):
            yield f"throughput.{name} is {_spelled(value)}; expected a number above 0"
            return
    sums = {name: math.fsum(values[warmup:]) for name, values in lists.items()}
    sums["words_per_second"] = sums["words"] / sums["seconds"]
    for name, value in sums.items():
        if not _close(run.throughput[name], value):
            yield f"throughput.{name} is {run.throughput[name]:.10g}, and its measured batches make {value:.10g}"


def _tower_problems(name: str, batches: Any, count: int, devices: Any) -> Iterator[str]:
    """Numbers of each tower in each batch; older records have none."""
    if batches == []:
        return
    if not isinstance(batches, list) or len(batches) != count:
        yield f"batches.{name} is {_spelled(batches)}; expected a list for each of the {count} batches"
        return
    for i, towers in enumerate(batches):
        if not (isinstance(towers, list) and _all_positive(towers)):
            yield f"batches.{name}[{i}] is {_spelled(towers)}; expected a number above 0 for each tower"
            return
        if len(towers) != devices:
            yield f"batches.{name}[{i}] is {_spelled(towers)}; expected a number for each of the {devices} towers"
            return


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=ROUNDING)


def _all_positive(values: list[Any]) -> bool:
    """Whether there are values, all of them numbers above 0 that can be; at the speed of C, for there are millions."""
    if not values or not {*map(type, values)} <= {int, float}:
        return False
    return min(values) >= SMALLEST and max(values) <= LARGEST and not any(map(math.isnan, values))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and -LARGEST <= value <= LARGEST


def _spelled(value: Any) -> str:
    text = "missing" if value is None else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _shared(run: RunRecord, shared: dict[str, dict[str, Any]]) -> RunRecord:
    """The record with parts that many runs have in common kept once: thousands of records then fit into memory."""
    parts = {name: getattr(run, name) for name in ("config", "resolved", "parameters", "environment")}
    environment = parts["environment"]
    load = environment.pop("load", None) if isinstance(environment, dict) else None
    kept = {name: shared.setdefault(json.dumps(part), part) for name, part in parts.items()}
    if load is not None:
        kept["environment"] = {**kept["environment"], "load": load}
    batches = {sys.intern(name): value for name, value in run.batches.items()}
    return dataclasses.replace(run, batches=batches, **kept)
