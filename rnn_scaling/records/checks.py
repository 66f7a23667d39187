"""What is wrong with numbers of a record that are right in type: options, lengths, sums. In words, with their paths."""

import math
import operator
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.config import flags
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.naming import THEIRS, TRAINER
from rnn_scaling.config.registry import WORKLOADS, workloads
from rnn_scaling.records.decoding import spelled
from rnn_scaling.records.environment import Clocks
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
    batch_seconds,
    tower_counts,
)

ROUNDING = 1e-6  # relative: sums may differ by this much through rounding
EXCHANGES = ("busy", "hidden", "beside_shared", "exposed")
# With their minimum.
WHOLE_NUMBERS = {
    "num_devices": 1,
    "num_workers": 1,
    "batch_size": 1,
    "global_batch_size": 0,
    "num_batches": 1,
}
# Kind of an option -> types of its values in JSON, and what these are in words.
_KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "bool": ((bool,), "true or false"),
    "str": ((str,), "a word"),
}
NEEDED_LISTS = ("seconds", "items")
OPTIONAL_LISTS = (
    "loss",
    "loss_items",
    "correct",
    "ready",
    "tower_items",
    "tower_positions",
)
# Rank 0's clock also sees the barriers themselves: ranks leave one within milliseconds, on a loaded machine later.
WINDOW_SHARE = 0.10
WINDOW_S = 5.0


def config_faults(config: Mapping[str, Any]) -> Iterator[str]:
    """What no command line could have given; an option that this version does not know may be any one value."""
    is_others = isinstance(config.get(TRAINER), str)
    yield from _value_faults(config)
    for name in ("encoder_type", "variable_update"):
        if not is_others and not isinstance(config.get(name), str):
            yield f"config.{name} is {spelled(config.get(name))}; expected a name"
    for name, minimum in WHOLE_NUMBERS.items():
        value = config.get(name, None if name == "num_devices" else minimum)
        if type(value) is not int or value < minimum:
            yield f"config.{name} is {spelled(value)}; expected a whole number of at least {minimum}"
    yield from _option_faults(
        {
            name: value
            for name, value in config.items()
            if not (is_others and name in THEIRS)
        }
    )


def _value_faults(config: Mapping[str, Any]) -> Iterator[str]:
    """Values that are neither a finite number nor a word."""
    for name, value in config.items():
        if isinstance(value, (int, float)):
            if not abs(value) <= sys.float_info.max:  # NaN is no number up to it
                yield f"config.{name} is {spelled(value)}; expected a finite number"
        elif not (value is None or isinstance(value, str)):
            yield f"config.{name} is {spelled(value)}; expected one value"


def _option_faults(config: dict[str, Any]) -> Iterator[str]:
    """Values that break the rule of their option; those of WHOLE_NUMBERS have their own."""
    for name, field in configs.OPTIONS.items():
        if name not in config or name in WHOLE_NUMBERS:
            continue
        value = config[name]
        if name == "model" and value in workloads.FORMER_WORKLOADS:
            continue
        types, expected = _KINDS[flags.kind_of(field)]
        choices = field.metadata["choices"]
        minimum = field.metadata["minimum"]
        if value is None and "None" in str(field.type):
            continue
        if type(value) not in types:
            yield f"config.{name} is {spelled(value)}; expected {expected}"
        elif choices and value not in choices:
            yield f"config.{name} is {spelled(value)}; expected {', '.join(choices)}"
        elif minimum is not None and not value >= minimum:
            yield f"config.{name} is {spelled(value)}; expected at least {minimum:g}"


def unit_faults(config: Mapping[str, Any], unit: str) -> Iterator[str]:
    name = config.get("model", configs.OPTIONS["model"].default)
    workload = (
        WORKLOADS.get(name) if isinstance(name, str) and TRAINER not in config else None
    )
    expected = workloads.unit_of({**config, "model": name}) if workload else unit
    if unit != expected:
        yield f"unit is {spelled(unit)}; expected {expected!r}, which --model={name} counts"


def phase_faults(phases: Phases, batches: Batches | None) -> Iterator[str]:
    if batches is None or not phases.total:
        return
    parts = math.fsum(phases.parts.values())
    timed = math.fsum(batches.seconds)
    if parts and not _close(parts, phases.total):
        yield f"phases sum to {parts:.9g} s and phases.total is {phases.total:.9g}"
    elif timed > phases.total * (1 + ROUNDING):
        yield f"batches.seconds sum to {timed:.9g} s, more than phases.total, {phases.total:.9g}"
    measured = math.fsum(batches.seconds[batches.warmup :])
    if phases.measured and not _close(phases.measured, measured):
        yield f"phases.measured is {phases.measured:.9g} s, and the measured batches make {measured:.9g}"


def batch_faults(
    batches: Batches, throughput: Throughput | None, devices: int | None, noun: str
) -> Iterator[str]:
    """What does not fit together in a run that measured something; `devices`: towers of the run, None: not known."""
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
    lists["loss_items"] = batches.loss_items
    lists["correct"] = batches.correct
    for name, values in lists.items():
        if values is not None and len(values) != count:
            yield f"batches.{name} has {len(values)} entries and batches.seconds {count}; expected the same number"
    if not 0 <= batches.warmup < count:
        yield f"batches.warmup is {spelled(batches.warmup)}; expected a whole number below the {count} batches"
    yield from _tower_faults(batches, devices, noun)
    yield from _accuracy_faults(batches)
    if throughput and len(batches.items) == count:
        yield from _throughput_faults(batches, throughput, noun)


def _tower_faults(batches: Batches, devices: int | None, noun: str) -> Iterator[str]:
    """Shares of towers that do not fit the batches."""
    count = len(batches.seconds)
    for name, towers in (
        (f"tower_{noun}", batches.tower_items),
        ("tower_positions", batches.tower_positions),
    ):
        if towers and len(towers) != count:
            yield f"batches.{name} has {len(towers)} entries; expected a list for each of the {count} batches"
        sizes = [*map(len, towers)]
        if devices is not None and {*sizes} - {devices}:
            wrong = next(i for i, size in enumerate(sizes) if size != devices)
            shown = spelled([*towers[wrong]])
            yield f"batches.{name}[{wrong}] is {shown}; expected a number for each of the {devices} towers"
    for i, (shares, places) in enumerate(
        zip(batches.tower_items, batches.tower_positions)
    ):
        if any(map(operator.gt, shares, places)):
            shown = f"{spelled([*shares])} and batches.tower_positions[{i}] is {spelled([*places])}"
            yield f"batches.tower_{noun}[{i}] is {shown}; expected a position for each"
            break
    for i, (whole, items) in enumerate(
        zip(map(sum, batches.tower_items), batches.items)
    ):
        if whole != items and not _close(whole, items):
            yield f"batches.tower_{noun}[{i}] sum to {whole} and batches.{noun}[{i}] is {items}"
            break


def _accuracy_faults(batches: Batches) -> Iterator[str]:
    if batches.correct is None:
        return
    if batches.loss_items is None:
        yield "batches.loss_items is missing; expected it with batches.correct"
        return
    for i, (correct, items) in enumerate(zip(batches.correct, batches.loss_items)):
        if correct > items:
            yield f"batches.correct[{i}] is {correct}, more than batches.loss_items[{i}], {items}"
            return


def rate_faults(throughput: Throughput, noun: str) -> Iterator[str]:
    """Numbers that only a run without batches, read from a log, may lack."""
    for name, value in ((noun, throughput.items), ("seconds", throughput.seconds)):
        if value is None:
            yield f"throughput.{name} is null; expected a number: log_format names no log that told the rate alone"


def _throughput_faults(
    batches: Batches, throughput: Throughput, noun: str
) -> Iterator[str]:
    items, seconds = (
        math.fsum(values[batches.warmup :])
        for values in (batches.items, batches.seconds)
    )
    if not seconds:
        return  # the warm-up is wrong, and was named
    for name, stands, value in (
        (noun, throughput.items, items),
        ("seconds", throughput.seconds, seconds),
        (f"{noun}_per_second", throughput.items_per_second, items / seconds),
    ):
        if stands is not None and not _close(stands, value):
            yield f"throughput.{name} is {stands:.10g}, and its measured batches make {value:.10g}"


def clock_faults(clocks: Clocks) -> Iterator[str]:
    """Samples that are not of the devices."""
    for i, sample in enumerate(clocks.samples):
        if len(sample.devices) != len(clocks.devices):
            count = len(sample.devices)
            yield f"environment.clocks.samples[{i}] has {count} devices; expected {len(clocks.devices)}"
            return


def trace_faults(trace: Trace, towers: Collection[int]) -> Iterator[str]:
    """What does not fit together in a record's `trace`; `towers`: how many it may be of, empty: not known."""
    for name, steps in (("steps", trace.steps), ("kernels.steps", trace.kernels.steps)):
        if not steps:
            yield f"trace.{name} lists no step"
    for name in ("timed_s", "counted_s"):
        if not getattr(trace.cost, name):
            yield f"trace.cost.{name} is []; expected seconds of each traced step"
    for i, step in enumerate(trace.steps):
        yield from _step_faults(f"trace.steps[{i}]", step, towers)


def _step_faults(path: str, step: TimedStep, towers: Collection[int]) -> Iterator[str]:
    if towers and len(step.towers) not in towers:
        yield f"{path}.towers has {len(step.towers)} entries; expected the {max(towers)} towers of the run"
    for i, tower in enumerate(step.towers):
        if tower.tower != i:
            yield f"{path}.towers[{i}].tower is {tower.tower}; expected {i}"
        for group, names in (("parts", PARTS), ("busy", OWN), ("exchange", EXCHANGES)):
            if lacking := [name for name in names if name not in getattr(tower, group)]:
                yield f"{path}.towers[{i}].{group} lacks {', '.join(lacking)}; expected seconds of each"
        whole = math.fsum(tower.parts.get(part, 0.0) for part in PARTS)
        if not _close(whole, step.seconds):
            yield f"{path}.towers[{i}].parts sum to {whole:.9g} s and the step has {step.seconds:.9g} s"
    bars = [*step.timeline.towers, step.timeline.exchange]
    if len(bars) != len(step.towers) + 1 or any(
        len(bar) != TIMELINE_BINS or set(bar) - set(LETTERS) for bar in bars
    ):
        yield f"{path}.timeline: expected {TIMELINE_BINS} letters of {LETTERS} for each tower and for exchange"


def graph_faults(graph: Graph) -> Iterator[str]:
    """What is missing in a record's `graph` that tells placement: the tables of devices need all of it, or none."""
    if graph.placement is None and graph.copies is None:
        return
    for name, part in (
        ("partitions.by_device", graph.partitions.by_device),
        ("placement", graph.placement),
        ("copies", graph.copies),
    ):
        if part is None:
            yield f"graph.{name} is missing; expected it with the graph's other places"


def rank_faults(workers: Workers) -> Iterator[str]:
    """Ranks with a repeated number or an unknown role."""
    for name, ranks in (("ranks", workers.ranks), ("lost", workers.lost)):
        numbers = set()
        for i, rank in enumerate(ranks):
            if rank.rank in numbers:
                yield f"workers.{name}[{i}].rank is {rank.rank} again; expected each rank once"
                break
            numbers.add(rank.rank)
            if rank.role not in ROLES:
                yield f"workers.{name}[{i}].role is {spelled(rank.role)}; expected {', '.join(ROLES)}"
                break
    in_order = [rank.rank for rank in workers.ranks]
    if in_order != sorted(in_order):
        yield f"workers.ranks are in the order {spelled(in_order)}; expected their numbers to rise"
    for age in workers.staleness or {}:
        if not (age.isascii() and age.isdigit() and len(age) < 10):
            yield f"workers.staleness.{age}: expected a number of updates"
            break


def window_faults(workers: Workers, batches: Batches, noun: str) -> Iterator[str]:
    """What does not fit together in a run of several processes that measured something."""
    count = len(batches.seconds)
    # Under a coordinator each worker goes at its own pace: the run's batches are what the coordinator saw.
    is_driven = any(rank.role == COORDINATOR for rank in workers.ranks)
    timed = [
        (f"workers.ranks[{i}]", rank)
        for i, rank in enumerate(workers.ranks)
        if rank.seconds and not is_driven
    ]
    if missing := next(
        (
            fault
            for path, rank in timed
            for fault in _missing_entries(path, rank, count)
        ),
        None,
    ):
        yield missing
        return
    for i, phases in ((i, rank.phases) for i, rank in enumerate(workers.ranks)):
        parts = math.fsum(phases.parts.values()) if phases else 0.0
        if phases and parts and not math.isclose(parts, phases.total, rel_tol=ROUNDING):
            yield f"workers.ranks[{i}].phases sum to {parts:.9g} s and their total is {phases.total:.9g}"
            break
    if timed and 0 <= batches.warmup < count:
        yield from _sum_faults([rank for _, rank in timed], batches, noun)
    if workers.window_seconds:
        yield from _length_faults(workers.window_seconds, batches)


def _missing_entries(path: str, rank: Rank, count: int) -> Iterator[str]:
    """The lists of a rank that have not one entry for each batch."""
    lengths = {
        name: len(getattr(rank, name) or ())
        for name in (*NEEDED_LISTS, *OPTIONAL_LISTS)
    }
    for name, length in lengths.items():
        if length != count and (name in NEEDED_LISTS or length):
            yield f"{path}.{name} has {length} entries; expected one for each of the run's {count} batches"


def _sum_faults(timed: Sequence[Rank], batches: Batches, noun: str) -> Iterator[str]:
    """Where the cluster's batches are not those of its ranks."""
    count = len(batches.seconds)
    rounding = ROUNDING * math.fsum(batches.seconds)
    lists: dict[str, Sequence] = {
        "seconds": batch_seconds(timed, batches.warmup, count)
    }
    lists["items"] = [sum(shares) for shares in zip(*(rank.items for rank in timed))]
    lists |= {
        name: tower_counts(timed, name, count)
        for name in ("tower_items", "tower_positions")
    }
    for name, expected in lists.items():
        for k, (stands, made) in enumerate(zip(getattr(batches, name), expected)):
            if stands != made and not (
                name == "seconds" and abs(stands - made) <= rounding
            ):
                shown = [
                    spelled([*part] if isinstance(part, tuple) else part)
                    for part in (stands, made)
                ]
                yield f"batches.{name.replace('items', noun)}[{k}] is {shown[0]}, and the ranks make it {shown[1]}"
                break


def _length_faults(window_s: float, batches: Batches) -> Iterator[str]:
    """A window that rank 0's clock saw to be another than the batches make."""
    measured = math.fsum(batches.seconds[batches.warmup :])
    if abs(window_s - measured) > max(WINDOW_S, WINDOW_SHARE * measured):
        yield (
            f"workers.window_seconds is {window_s:.9g}, and the measured batches make {measured:.9g}; expected them "
            f"within {WINDOW_S:g} s or {100 * WINDOW_SHARE:g} %"
        )


def _close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=ROUNDING)
