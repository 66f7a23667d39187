"""What is wrong with the `graph` and `trace` of a record, which may have been edited or cut."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.records.step_names import LETTERS, OWN, PARTS, TIMELINE_BINS

ROUNDING = 1e-6  # relative: what a sum of parts may differ by
SMALLEST, LARGEST = 1e-12, 1e18  # of seconds, words and counts that can be; beyond them sums and ratios overflow


def trace_problems(trace: Any, num_towers: int) -> Iterator[str]:
    """What makes a record's `trace` unusable, in words; nothing for a good one, or an empty one."""
    if trace == {}:
        return
    if not isinstance(trace, dict):
        yield "trace is no object"
        return
    steps = trace.get("steps")
    if not isinstance(steps, list) or not steps:
        yield "trace.steps lists no step"
        return
    for i, step in enumerate(steps):
        yield from _step_problems(f"trace.steps[{i}]", step, num_towers)
    if not _number(trace.get("words")):
        yield "trace.words: expected the words of a step"
    yield from _cost_problems(trace.get("cost"))
    yield from _kernel_problems(trace.get("kernels"))


def _step_problems(name: str, step: Any, num_towers: int) -> Iterator[str]:
    if not isinstance(step, dict) or not _is_length(step.get("seconds")):
        yield f"{name}.seconds: expected a number above 0"
        return
    towers = step.get("towers")
    if not isinstance(towers, list) or len(towers) != num_towers:
        yield f"{name}.towers: expected the {num_towers} towers of the run"
        return
    for i, tower in enumerate(towers):
        yield from _tower_problems(f"{name}.towers[{i}]", tower, i, step["seconds"])
    if not _number_or_null(step, "concurrency"):
        yield f"{name}.concurrency: expected a number or null"
    if not _number(step.get("kernels")):
        yield f"{name}.kernels: expected a number"
    timeline = step.get("timeline")
    bars = [*timeline.get("towers", []), timeline.get("exchange")] if _is_timeline(timeline) else []
    if len(bars) != num_towers + 1 or not all(isinstance(bar, str) and _is_bar(bar) for bar in bars):
        yield f"{name}.timeline: expected {TIMELINE_BINS} letters of {LETTERS} for each tower and for exchange"


def _is_timeline(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("towers"), list)


def _is_bar(bar: str) -> bool:
    return len(bar) == TIMELINE_BINS and not set(bar) - set(LETTERS)


def _tower_problems(name: str, tower: Any, number: int, seconds: float) -> Iterator[str]:
    if not isinstance(tower, dict) or tower.get("tower") != number:
        yield f"{name}: expected tower {number}"
        return
    for group, names in (
        ("parts", PARTS),
        ("busy", OWN),
        ("exchange", ("busy", "hidden", "beside_shared", "exposed")),
    ):
        values = tower.get(group)
        if not isinstance(values, dict) or not all(_number(values.get(each)) for each in names):
            yield f"{name}.{group}: expected seconds of {', '.join(names)}"
            return
    whole = math.fsum(tower["parts"][part] for part in PARTS)
    if not math.isclose(whole, seconds, rel_tol=ROUNDING):
        yield f"{name}.parts sum to {whole:.9g} s and the step has {seconds:.9g} s"
    for when in ("first_s", "arrival_s"):
        if not _number_or_null(tower, when):
            yield f"{name}.{when}: expected seconds or null"


def _cost_problems(cost: Any) -> Iterator[str]:
    if not isinstance(cost, dict):
        yield "trace.cost is missing"
        return
    lists = [cost.get(name) for name in ("timed_s", "counted_s")]
    values = [cost.get("untraced_s")]
    for found in lists:
        values += found if isinstance(found, list) and found else [None]
    if not all(map(_is_length, values)):
        yield "trace.cost: expected seconds above 0 of untraced_s, timed_s and counted_s"
    if not all(_number(cost.get(name)) for name in ("start_s", "stop_s")):
        yield "trace.cost: expected seconds of start_s and stop_s"


def _kernel_problems(kernels: Any) -> Iterator[str]:
    if not isinstance(kernels, dict):
        yield "trace.kernels is missing"
        return
    steps, rows = kernels.get("steps"), kernels.get("by_phase")
    places = ("host", "device", "copies", "dispatched")
    if not isinstance(steps, list) or not steps:
        yield "trace.kernels.steps lists no step"
    elif not all(isinstance(step, dict) and all(_number(step.get(place)) for place in places) for step in steps):
        yield f"trace.kernels.steps: expected {', '.join(places)} of each step"
    if not isinstance(rows, list) or not all(_is_phase(row) for row in rows):
        yield "trace.kernels.by_phase: expected the kernels of each tower and phase"
    if not _are_counts(kernels.get("by_type")):
        yield "trace.kernels.by_type: expected the kernels of each type"
    if not _number(kernels.get("input_pipeline")):
        yield "trace.kernels.input_pipeline: expected a number"


def graph_problems(graph: Any) -> Iterator[str]:
    """What makes a record's `graph` unusable, in words; nothing for a good one, or an empty one."""
    if graph == {}:
        return
    for name in ("python", "optimized", "partitions"):
        part = graph.get(name) if isinstance(graph, dict) else None
        if not isinstance(part, dict) or not _number(part.get("operators")):
            yield f"graph.{name}.operators: expected a number"
        elif name == "partitions" and not _are_counts(part.get("by_type")):
            yield "graph.partitions.by_type: expected the operators of each type"
    if not isinstance(graph, dict) or not {"placement", "copies"} & graph.keys():
        return
    partitions = graph.get("partitions")
    if not isinstance(partitions, dict) or not _are_counts(partitions.get("by_device")):
        yield "graph.partitions.by_device: expected the operators of each device"
    variables = graph["placement"].get("variables") if isinstance(graph.get("placement"), dict) else None
    if not _all(variables, _is_variable):
        yield "graph.placement.variables: expected the place of each variable, its slots, gradients and update"
    if not _all(graph.get("copies"), _is_copy):
        yield "graph.copies: expected what each device sends to each other"


def _is_variable(value: Any) -> bool:
    return (
        _has(value, ("name", "device"), ("bytes",))
        and _all(value.get("slots"), lambda slot: _has(slot, ("device",), ("bytes",)))
        and _all(value.get("gradients"), _is_gradient)
        and _has(value.get("update"), ("device",))
        and _all(value["update"].get("types"), _is_text)
    )


def _is_gradient(value: Any) -> bool:
    return _has(value, ("device", "kind"), ("tower",)) and _number_or_null(value, "bytes")


def _is_copy(value: Any) -> bool:
    return _has(value, ("from", "to"), ("pairs", "bytes", "of_unknown_size")) and _all(
        value.get("largest"), lambda tensor: _has(tensor, ("name",), ("bytes",))
    )


def _all(values: Any, right: Callable[[Any], bool]) -> bool:
    return isinstance(values, list) and all(map(right, values))


def _has(value: Any, texts: Sequence[str] = (), numbers: Sequence[str] = ()) -> bool:
    if not isinstance(value, dict):
        return False
    return all(_is_text(value.get(name)) for name in texts) and all(_number(value.get(name)) for name in numbers)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value.isprintable()


def _is_phase(row: Any) -> bool:
    has_tower = isinstance(row, dict) and (row.get("tower") is None or _number(row["tower"]))
    return has_tower and isinstance(row.get("phase"), str) and _number(row.get("kernels"))


def _are_counts(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_number, value.values()))


def _number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= LARGEST


def _number_or_null(values: Mapping[str, Any], name: str) -> bool:
    return name in values and (values[name] is None or _number(values[name]))


def _is_length(value: Any) -> bool:
    return _number(value) and value >= SMALLEST
