"""What makes the numbers of a record unusable, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rnn_scaling.records import step_problems
from rnn_scaling.records.record import RunRecord
from rnn_scaling.settings import config as configs
from rnn_scaling.settings import flags

ROUNDING = 1e-6  # relative: what sums of as many numbers as there are may differ by
SMALLEST, LARGEST = 1e-12, 1e18  # of seconds and words that can be; beyond them sums and ratios overflow
WHOLE_NUMBERS = {"num_devices": 1, "batch_size": 1, "global_batch_size": 0, "num_batches": 1}  # with their minimum


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
    yield from step_problems.trace_problems(run.trace, run.config.get("num_devices", 0))
    yield from step_problems.graph_problems(run.graph)


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
