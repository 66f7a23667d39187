"""Checks of a record whose fields have the right types: options, lengths and sums.

Each function yields one line per fault, with the path of the field in the file.

`record.from_json` calls all of them. A check that is added refuses records of earlier
versions that break it.
"""

import math
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.config import flags, presets
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.naming import CHOICE_OPTIONS, TRAINER
from rnn_scaling.config.registry import WORKLOADS, workloads
from rnn_scaling.records.decoding import quote
from rnn_scaling.records.environment import Clocks, LoadWindows
from rnn_scaling.records.parts import Batches, Phases, Throughput
from rnn_scaling.records.step_parts import (
    LETTERS,
    OWN,
    PARTS,
    TIMELINE_BINS,
    Graph,
    TimedStep,
    Trace,
)
from rnn_scaling.records.workers import (
    COORDINATOR,
    ROLES,
    Rank,
    Workers,
    count_towers,
    list_batch_seconds,
    sum_over_ranks,
)

ROUNDING = 1e-6  # relative difference of sums that rounding can cause
# The required keys in the seconds of a tower.
_TOWER_GROUPS = {
    "parts": PARTS,
    "busy": OWN,
    "exchange": ("busy", "hidden", "beside_shared", "exposed"),
}
# Options that must be whole numbers, with their minimum in a record.
_WHOLE_NUMBERS = {
    "num_devices": 1,
    "num_workers": 1,
    "batch_size": 1,
    "global_batch_size": 0,
    "num_batches": 1,
}
# Kind of an option -> types of its values in JSON, and their name in faults.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "str": ((str,), "a word"),
}
# Choices that only older versions have.
_FORMER_CHOICES: dict[str, Collection[str]] = {
    "model": workloads.FORMER_WORKLOADS,
    "preset": tuple(presets.FORMER_NAMES),
}
_NEEDED_LISTS = ("seconds", "items")
_OPTIONAL_LISTS = (
    "loss",
    "loss_items",
    "correct",
    "ready",
    "tower_items",
    "tower_positions",
)
# The window of rank 0 may differ by so much from the measured batches, because it
# includes leaving the barriers: milliseconds, but longer on a loaded machine.
_MAX_WINDOW_DIFFERENCE = 0.10  # share of the batches' seconds
_MAX_WINDOW_DIFFERENCE_S = 5.0


def find_config_faults(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of the options.

    An option that this version does not have may be any number or text.
    """
    is_ours = not isinstance(config.get(TRAINER), str)
    yield from _find_value_faults(config)
    for name in ("encoder_type", "variable_update"):
        if is_ours and not isinstance(config.get(name), str):
            yield f"config.{name} is {quote(config.get(name))}; expected a name"
    for name, minimum in _WHOLE_NUMBERS.items():
        default = None if name == "num_devices" else minimum
        value = config.get(name, default)
        if type(value) is not int or value < minimum:
            yield (
                f"config.{name} is {quote(value)}; "
                f"expected a whole number of at least {minimum}"
            )
    for name in configs.OPTIONS:
        is_checked = name in config and name not in _WHOLE_NUMBERS
        if is_checked and (is_ours or name not in CHOICE_OPTIONS):
            yield from _find_option_faults(name, config[name])


def _find_value_faults(config: Mapping[str, Any]) -> Iterator[str]:
    """Yield a fault for each value that is not null, a text or a finite number."""
    for name, value in config.items():
        if isinstance(value, (int, float)):
            if (
                not abs(value) <= sys.float_info.max
            ):  # The comparison is also false for NaN.
                yield f"config.{name} is {quote(value)}; expected a finite number"
        elif not (value is None or isinstance(value, str)):
            yield f"config.{name} is {quote(value)}; expected one value"


def _find_option_faults(name: str, value: Any) -> Iterator[str]:
    """Yield a fault if a value breaks the type, choices or minimum of its option."""
    field = configs.OPTIONS[name]
    if value in _FORMER_CHOICES.get(name, ()):
        return
    if value is None and "None" in str(field.type):
        return
    types, kind = _KINDS[flags.find_kind(field)]
    choices = field.metadata["choices"]
    minimum = field.metadata["minimum"]
    if type(value) not in types:
        yield f"config.{name} is {quote(value)}; expected {kind}"
    elif choices and value not in choices:
        yield f"config.{name} is {quote(value)}; expected {', '.join(choices)}"
    elif minimum is not None and not value >= minimum:
        yield f"config.{name} is {quote(value)}; expected at least {minimum:g}"


def find_unit_faults(config: Mapping[str, Any], unit: str) -> Iterator[str]:
    """Yield a fault if the network counts another unit."""
    model = config.get("model", configs.OPTIONS["model"].default)
    if TRAINER in config or not isinstance(model, str) or model not in WORKLOADS:
        return
    expected = workloads.name_item_unit({**config, "model": model})
    if unit != expected:
        yield f"unit is {quote(unit)}; expected {expected!r}, which --model={model} counts"


def find_phase_faults(phases: Phases, batches: Batches | None) -> Iterator[str]:
    """Yield the phases whose sum differs from the total or from the batches."""
    if batches is None or not phases.total:
        return
    sum_s = math.fsum(phases.parts.values())
    batches_s = math.fsum(batches.seconds)
    measured_s = math.fsum(batches.seconds[batches.warmup :])
    if sum_s and not _is_close(sum_s, phases.total):
        yield f"phases sum to {sum_s:.9g} s, but phases.total is {phases.total:.9g}"
    elif batches_s > phases.total * (1 + ROUNDING):
        yield (
            f"batches.seconds sum to {batches_s:.9g} s, "
            f"more than phases.total, {phases.total:.9g}"
        )
    if phases.measured and not _is_close(phases.measured, measured_s):
        yield (
            f"phases.measured is {phases.measured:.9g} s, "
            f"but the measured batches take {measured_s:.9g}"
        )


def find_batch_faults(
    batches: Batches, throughput: Throughput | None, towers: int | None, noun: str
) -> Iterator[str]:
    """Yield the faults of the batches of a run that measured something.

    Args:
      batches: The batches.
      throughput: The throughput of the measured batches, or None to leave it out.
      towers: Towers of the run; None if unknown.
      noun: The word for items in the names of the file's fields.
    """
    count = len(batches.seconds)
    lists: dict[str, Sequence | None] = {
        "seconds": batches.seconds,
        noun: batches.items,
    }
    for name, values in lists.items():
        if not values:
            yield f"batches.{name} is missing; expected a number for each batch"
            return
    lists["loss"] = batches.loss or None
    lists["learning_rate"] = batches.learning_rate
    lists["grad_norm"] = batches.grad_norm
    lists["loss_items"] = batches.loss_items
    lists["correct"] = batches.correct
    for name, values in lists.items():
        if values is not None and len(values) != count:
            yield (
                f"batches.{name} has length {len(values)}, but batches.seconds "
                f"has length {count}; expected equal lengths"
            )
    if not 0 <= batches.warmup < count:
        yield (
            f"batches.warmup is {quote(batches.warmup)}; expected a whole "
            f"number below the number of batches, {count}"
        )
    yield from _find_tower_faults(batches, towers, noun)
    yield from _find_accuracy_faults(batches)
    if throughput and len(batches.items) == count:
        yield from _find_throughput_faults(batches, throughput, noun)


def _find_tower_faults(
    batches: Batches, num_towers: int | None, noun: str
) -> Iterator[str]:
    """Yield the faults of the items and positions of the towers."""
    count = len(batches.seconds)
    items_path = f"batches.tower_{noun}"
    positions_path = "batches.tower_positions"
    for path, shares_of_batches in (
        (items_path, batches.tower_items),
        (positions_path, batches.tower_positions),
    ):
        if shares_of_batches and len(shares_of_batches) != count:
            yield (
                f"{path} has length {len(shares_of_batches)}; expected "
                f"{count}, a list for each batch"
            )
        for i, shares in enumerate(shares_of_batches):
            if num_towers is not None and len(shares) != num_towers:
                yield (
                    f"{path}[{i}] is {quote([*shares])}; expected a number for "
                    f"each tower ({num_towers})"
                )
                break
    pairs = zip(batches.tower_items, batches.tower_positions)
    for i, (items, positions) in enumerate(pairs):
        if any(count > limit for count, limit in zip(items, positions)):
            yield (
                f"{items_path}[{i}] is {quote([*items])} and {positions_path}[{i}] "
                f"is {quote([*positions])}; expected a position for each"
            )
            break
    for i, (shares, total) in enumerate(zip(batches.tower_items, batches.items)):
        if not _is_close(sum(shares), total):
            yield (
                f"{items_path}[{i}] sum to {sum(shares)}, "
                f"but batches.{noun}[{i}] is {total}"
            )
            break


def _find_accuracy_faults(batches: Batches) -> Iterator[str]:
    if batches.correct is None:
        return
    if batches.loss_items is None:
        yield "batches.loss_items is missing; expected it with batches.correct"
        return
    for i, (correct, items) in enumerate(zip(batches.correct, batches.loss_items)):
        if correct > items:
            yield (
                f"batches.correct[{i}] is {correct}, "
                f"more than batches.loss_items[{i}], {items}"
            )
            return


def find_rate_faults(throughput: Throughput, noun: str) -> Iterator[str]:
    """Yield a fault for items and for seconds if the throughput lacks them."""
    for name, value in ((noun, throughput.items), ("seconds", throughput.seconds)):
        if value is None:
            yield (
                f"throughput.{name} is null; expected a number, unless log_format "
                "names a log and there are no batches"
            )


def _find_throughput_faults(
    batches: Batches, throughput: Throughput, noun: str
) -> Iterator[str]:
    items = math.fsum(batches.items[batches.warmup :])
    seconds = math.fsum(batches.seconds[batches.warmup :])
    if not seconds:
        return  # the warm-up is wrong, and has a fault
    for name, recorded, value in (
        (noun, throughput.items, items),
        ("seconds", throughput.seconds, seconds),
        (f"{noun}_per_second", throughput.items_per_second, items / seconds),
    ):
        if recorded is not None and not _is_close(recorded, value):
            yield (
                f"throughput.{name} is {recorded:.10g}, "
                f"but its measured batches give {value:.10g}"
            )


def find_load_faults(load_windows: Mapping[str, LoadWindows]) -> Iterator[str]:
    """Yield each list that does not have one number per window.

    Args:
      load_windows: The windows of each process, by their path.
    """
    for path, windows in load_windows.items():
        count = len(windows.batches)
        for name in ("seconds", "others", "steal"):
            length = len(getattr(windows, name))
            if length != count:
                yield (
                    f"{path}.{name} has length {length}; expected {count}, a "
                    "number for each window"
                )


def find_clock_faults(clocks: Clocks) -> Iterator[str]:
    """Yield a fault if a sample lacks a device."""
    num_devices = len(clocks.devices)
    for i, sample in enumerate(clocks.samples):
        if len(sample.devices) != num_devices:
            yield (
                f"environment.clocks.samples[{i}].devices has length "
                f"{len(sample.devices)}; expected {num_devices}"
            )
            return


def find_trace_faults(trace: Trace, allowed_towers: Collection[int]) -> Iterator[str]:
    """Yield the faults of the part `trace`.

    Args:
      trace: The part.
      allowed_towers: The numbers of towers that a step may have; empty if unknown.
    """
    for name, steps in (("steps", trace.steps), ("kernels.steps", trace.kernels.steps)):
        if not steps:
            yield f"trace.{name} is []; expected at least one step"
    for name in ("timed_s", "counted_s"):
        if not getattr(trace.cost, name):
            yield f"trace.cost.{name} is []; expected seconds of each traced step"
    for i, step in enumerate(trace.steps):
        yield from _find_step_faults(f"trace.steps[{i}]", step, allowed_towers)


def _find_step_faults(
    path: str, step: TimedStep, allowed_towers: Collection[int]
) -> Iterator[str]:
    if allowed_towers and len(step.towers) not in allowed_towers:
        yield (
            f"{path}.towers has length {len(step.towers)}; expected "
            f"{max(allowed_towers)}, the number of towers"
        )
    for i, tower in enumerate(step.towers):
        tower_path = f"{path}.towers[{i}]"
        if tower.tower != i:
            yield f"{tower_path}.tower is {tower.tower}; expected {i}"
        for group, names in _TOWER_GROUPS.items():
            missing_names = [
                name for name in names if name not in getattr(tower, group)
            ]
            if missing_names:
                yield (
                    f"{tower_path}.{group} lacks {', '.join(missing_names)}; "
                    "expected seconds of each"
                )
        sum_s = math.fsum(tower.parts.get(name, 0.0) for name in PARTS)
        if not _is_close(sum_s, step.seconds):
            yield (
                f"{tower_path}.parts sum to {sum_s:.9g} s, "
                f"but the step has {step.seconds:.9g} s"
            )
    bars = [*step.timeline.towers, step.timeline.exchange]
    is_complete = len(bars) == len(step.towers) + 1
    if not is_complete or not all(map(_is_timeline_bar, bars)):
        yield (
            f"{path}.timeline: expected {TIMELINE_BINS} letters of {LETTERS} "
            "for each tower and for exchange"
        )


def _is_timeline_bar(letters: str) -> bool:
    return len(letters) == TIMELINE_BINS and set(letters) <= set(LETTERS)


def find_graph_faults(graph: Graph) -> Iterator[str]:
    """Yield the missing parts about placement if the graph has one of them.

    The tables of devices need all of these parts.
    """
    if graph.placement is None and graph.copies is None:
        return
    for name, part in (
        ("partitions.by_device", graph.partitions.by_device),
        ("placement", graph.placement),
        ("copies", graph.copies),
    ):
        if part is None:
            yield (
                f"graph.{name} is missing; expected it, because the record "
                "contains other fields of the placement"
            )


def find_rank_faults(workers: Workers) -> Iterator[str]:
    """Yield the faults of the ranks' numbers and roles, and of the staleness."""
    for name, ranks in (("ranks", workers.ranks), ("lost", workers.lost)):
        numbers = set()
        for i, rank in enumerate(ranks):
            path = f"workers.{name}[{i}]"
            if rank.rank in numbers:
                yield f"{path}.rank is {rank.rank} a second time; expected each rank once"
                break
            numbers.add(rank.rank)
            if rank.role not in ROLES:
                yield f"{path}.role is {quote(rank.role)}; expected {', '.join(ROLES)}"
                break
    order = [rank.rank for rank in workers.ranks]
    if order != sorted(order):
        yield (
            f"workers.ranks are in the order {quote(order)}; "
            "expected rising rank numbers"
        )
    for num_updates in workers.staleness or {}:
        is_number = num_updates.isascii() and num_updates.isdigit()
        if not is_number or len(num_updates) >= 10:
            yield (
                f"workers.staleness.{num_updates} is not a number of updates; "
                "expected a whole number"
            )
            break


def find_window_faults(workers: Workers, batches: Batches, noun: str) -> Iterator[str]:
    """Yield the faults of the batches of a run of several processes."""
    count = len(batches.seconds)
    timed_ranks = {}
    # A coordinator counts the batches itself.
    if all(rank.role != COORDINATOR for rank in workers.ranks):
        for i, rank in enumerate(workers.ranks):
            if rank.seconds:
                timed_ranks[f"workers.ranks[{i}]"] = rank
    for path, rank in timed_ranks.items():
        if fault := _find_length_fault(path, rank, count):
            yield fault
            return
    for i, rank in enumerate(workers.ranks):
        sum_s = math.fsum(rank.phases.parts.values()) if rank.phases else 0.0
        if rank.phases and sum_s and not _is_close(sum_s, rank.phases.total):
            yield (
                f"workers.ranks[{i}].phases sum to {sum_s:.9g} s, "
                f"but their total is {rank.phases.total:.9g}"
            )
            break
    if timed_ranks and 0 <= batches.warmup < count:
        yield from _find_sum_faults([*timed_ranks.values()], batches, noun)
    if workers.window_seconds:
        yield from _find_window_length_faults(workers.window_seconds, batches)


def _find_length_fault(path: str, rank: Rank, count: int) -> str:
    """Return a fault if a list of a rank lacks the number of a batch, or ""."""
    for name in (*_NEEDED_LISTS, *_OPTIONAL_LISTS):
        length = len(getattr(rank, name) or ())
        if length != count and (name in _NEEDED_LISTS or length):
            return (
                f"{path}.{name} has length {length}; expected {count}, a "
                "number for each batch of the run"
            )
    return ""


def _find_sum_faults(
    ranks: Sequence[Rank], batches: Batches, noun: str
) -> Iterator[str]:
    """Yield the batches that do not follow from the batches of the ranks."""
    count = len(batches.seconds)
    rounding_s = ROUNDING * math.fsum(batches.seconds)
    expected_lists: dict[str, Sequence] = {
        "seconds": list_batch_seconds(ranks, batches.warmup, count),
        "items": sum_over_ranks(ranks, "items", count),
        "tower_items": count_towers(ranks, "tower_items", count),
        "tower_positions": count_towers(ranks, "tower_positions", count),
    }
    for name, expected_values in expected_lists.items():
        pairs = zip(getattr(batches, name), expected_values)
        for k, (recorded, expected) in enumerate(pairs):
            if recorded == expected:
                continue
            if name == "seconds" and abs(recorded - expected) <= rounding_s:
                continue
            yield (
                f"batches.{name.replace('items', noun)}[{k}] is "
                f"{_quote_entry(recorded)}"
                f", but the ranks give {_quote_entry(expected)}"
            )
            break


def _quote_entry(entry: Any) -> str:
    return quote([*entry] if isinstance(entry, tuple) else entry)


def _find_window_length_faults(window_s: float, batches: Batches) -> Iterator[str]:
    """Yield a fault if rank 0 timed a window that differs from the measured batches."""
    measured_s = math.fsum(batches.seconds[batches.warmup :])
    limit_s = max(_MAX_WINDOW_DIFFERENCE_S, _MAX_WINDOW_DIFFERENCE * measured_s)
    if abs(window_s - measured_s) > limit_s:
        yield (
            f"workers.window_seconds is {window_s:.9g}, but the measured batches take "
            f"{measured_s:.9g}; expected a difference within "
            f"{_MAX_WINDOW_DIFFERENCE_S:g} s or {100 * _MAX_WINDOW_DIFFERENCE:g} %"
        )


def _is_close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=ROUNDING)
