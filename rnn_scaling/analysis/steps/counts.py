"""Operators and kernels of runs: what each configuration has, and whether all of its runs have the same. Pure.

A count says nothing about a machine's speed and has no spread. So counts are never averaged: where two runs of one
configuration differ, the difference is the finding.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.rows import full_config, work_key
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config import registry
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.conditions import NOT_COMPARED
from rnn_scaling.config.naming import distinguishing, network, without_network
from rnn_scaling.config.run_options import MeasureOptions
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.step_parts import (
    CONTROL_FLOW,
    PLACES,
    Graph,
    KernelCounts,
    Trace,
)

# What says how a run is measured and not what it computes: runs that differ in it alone must have the same counts.
HOW_MEASURED = frozenset(f.name for f in dataclasses.fields(MeasureOptions))
ALONG_A_GROUP = {
    *HOW_MEASURED,
    "encoder_type",
    "decoder_type",
    "num_devices",
}  # may differ within one
FAMILIES: Mapping[str, Callable[[str], bool]] = {
    "control": lambda kind: kind in CONTROL_FLOW,
    "lists": lambda kind: kind.startswith("TensorList"),
}
OTHERS = "others"
PHASES = ("forward", "backward")
MOST_NAMED = 5  # types named in a line about a difference


@dataclasses.dataclass(frozen=True)
class StepCounts:
    """One encoder on one number of devices; the numbers are those of a step of all towers."""

    encoder: str
    kernel: str  # what the encoder really ran
    num_devices: int
    runs: int
    unit: str  # of the items
    items: int
    python: int  # operators of the graph as traced from Python
    optimized: int  # after TensorFlow's graph optimizers
    operators: int  # of the partitions that run
    host: int  # kernels on CPU devices, and control flow of loops
    device: int  # kernels on GPUs
    copies: int  # to, from and on GPUs, and fills of their memory
    dispatched: int  # operators that the host launched on GPUs
    input_pipeline: float  # kernels of tf.data's functions
    onednn: (
        bool | None
    )  # whether oneDNN rewrote the graph; None: an older record does not say
    operators_by_type: Mapping[str, int]
    kernels_by_type: Mapping[str, int]
    kernels_by_phase: Mapping[str, int]  # all towers together

    @property
    def kernels(self) -> int:
        """Kernels a step, on the host and on GPUs."""
        return self.host + self.device


@dataclasses.dataclass(frozen=True)
class CountGroup:
    """Configurations that differ in the encoder and the number of devices alone."""

    title: str
    config: Mapping[str, Any]  # of its first run
    counts: tuple[StepCounts, ...]

    @property
    def encoders(self) -> list[str]:
        """In alphabetical order, which puts the fused kernel first."""
        return sorted({counted.encoder for counted in self.counts})

    @property
    def device_counts(self) -> list[int]:
        return sorted({counted.num_devices for counted in self.counts})

    def find(self, encoder: str, num_devices: int) -> StepCounts | None:
        """The counts of an encoder on a number of devices, if they were made."""
        found = (counted for counted in self.counts if counted.encoder == encoder)
        return next(
            (counted for counted in found if counted.num_devices == num_devices), None
        )


@dataclasses.dataclass(frozen=True)
class Inspection:
    """What a set of runs has: groups in the order of their first runs, and a line for each of the others."""

    groups: tuple[CountGroup, ...]
    differences: tuple[str, ...]  # counts that are not the same where they must be
    varying: tuple[str, ...]  # counts that differ as batches of text do in length
    left_out: tuple[str, ...]  # runs without counts


def inspect(records: Mapping[str, RunRecord]) -> Inspection:
    """The counts of traced runs, by the runs' names."""
    left_out: list[str] = []
    differences: list[str] = []
    varying: list[str] = []
    cells_of: dict[tuple, dict[tuple[str, int], list[tuple[str, StepCounts]]]] = {}
    first: dict[tuple, Mapping[str, Any]] = {}
    for name, record in records.items():
        if not (record.status == "ok" and record.graph and record.trace):
            left_out.append(
                f"{name}: {'no trace (--trace_batches)' if record.status == 'ok' else record.status}"
            )
            continue
        config = full_config(record)
        key = (
            own_decoder(config),
            *(item for item in work_key(dict(config)) if item[0] not in ALONG_A_GROUP),
        )
        counts, wrong = _counts(name, record, record.graph, record.trace, config)
        differences += wrong
        (varying if varies(config) else differences).extend(
            _unlike_steps(name, record.trace.kernels.steps)
        )
        first.setdefault(key, config)
        cells_of.setdefault(key, {}).setdefault(
            (counts.encoder, counts.num_devices), []
        ).append((name, counts))
    groups = []
    for (key, cells), title in zip(cells_of.items(), titles(list(first.values()))):
        for runs in cells.values():
            unlike = [line for run in runs[1:] for line in _differences(runs[0], run)]
            (varying if varies(first[key]) else differences).extend(unlike)
        same = [
            dataclasses.replace(runs[0][1], runs=len(runs)) for runs in cells.values()
        ]
        groups.append(CountGroup(title, first[key], tuple(same)))
    return Inspection(
        tuple(groups), tuple(differences), tuple(varying), tuple(left_out)
    )


def agreement(inspection: Inspection) -> list[Statement]:
    """Whether runs of one configuration have the same counts, as they must."""
    if inspection.differences:
        return [Statement("counts-differ", line) for line in inspection.differences]
    if inspection.varying:
        lines = [Statement("counts-vary", line) for line in inspection.varying]
        return [*lines, Statement("counts-of-last-step")]
    counts = [
        configuration for group in inspection.groups for configuration in group.counts
    ]
    found = [
        Statement(
            "counts-agree",
            values={"runs": sum(configuration.runs for configuration in counts)},
        )
    ]
    if repeated := sum(
        configuration.runs for configuration in counts if configuration.runs > 1
    ):
        found.append(Statement("counts-repeat", values={"runs": repeated}))
    states = {configuration.onednn for configuration in counts}
    if (
        len(states) == 1 and None not in states
    ):  # on another processor the same step can have other counts
        found.append(Statement("onednn-on" if states == {True} else "onednn-off"))
    return found


def titles(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """A name for each group: the update mode, and what else tells the groups apart."""
    left_out = {*NOT_COMPARED, *ALONG_A_GROUP, "variable_update"}
    named = [name for name in configs.OPTIONS if name not in left_out]
    varied = distinguishing(
        named, [{name: repr(config[name]) for name in named} for config in settings]
    )
    names = []
    for config in settings:
        shown = without_network(varied, config)
        words = [
            str(config["variable_update"]),
            *(f"{name}={config[name]}" for name in shown),
        ]
        words += [f"decoder {decoder}"] if (decoder := own_decoder(config)) else []
        names.append(", ".join(words))
    return names


def own_decoder(config: Mapping[str, Any]) -> str:
    """The kernel of the decoder where it is another one than the encoder's; else empty."""
    return (
        ""
        if config["decoder_type"] == config["encoder_type"]
        else config["decoder_type"]
    )


def _counts(
    name: str, record: RunRecord, graph: Graph, trace: Trace, config: Mapping[str, Any]
) -> tuple[StepCounts, list[str]]:
    """The counts of one run, and what in them is not as it must be."""
    partitions, kernels = graph.partitions, trace.kernels
    last, wrong = kernels.steps[-1], []
    by_type = sum(kernels.by_type.values())
    if by_type != last.host + last.device:
        wrong.append(
            f"{name}: {by_type} kernels by type, {last.host + last.device} by place"
        )
    loops = partitions.by_type.get("LoopCond", 0)
    if (
        kernels.by_type.get("LoopCond", 0) < loops
    ):  # each asks its condition once at least
        wrong.append(f"{name}: the trace lacks kernels of {loops} loops in the graph")
    by_phase: Counter[str] = Counter()
    for part in kernels.by_phase:
        by_phase[part.phase] += part.kernels
    counts = StepCounts(
        encoder=network(config),
        kernel=record.resolved.encoder_kernel or "",
        num_devices=config["num_devices"],
        runs=1,
        unit=record.unit,
        items=trace.items,
        python=graph.python.operators,
        optimized=graph.optimized.operators,
        operators=partitions.operators,
        input_pipeline=kernels.input_pipeline,
        onednn=record.resolved.onednn,
        operators_by_type=partitions.by_type,
        kernels_by_type=kernels.by_type,
        kernels_by_phase=dict(by_phase),
        **{part: getattr(last, part) for part in PLACES},
    )
    return counts, wrong


def varies(config: Mapping[str, Any]) -> bool:
    """Whether batches differ in length, and loops with them in their turns."""
    source = registry.DATA_SOURCES.get(config["data_source"])
    return source is not None and source.varies


def _unlike_steps(name: str, steps: Sequence[KernelCounts]) -> list[str]:
    """A line for each counted step that is not as the first."""
    lines = []
    for number, step in enumerate(steps[1:], 2):
        pairs = [
            (part, getattr(step, part), getattr(steps[0], part)) for part in PLACES
        ]
        unlike = [
            f"{part} {count} instead of {first}"
            for part, count, first in pairs
            if count != first
        ]
        lines += (
            [f"{name}: counted step {number} differs from step 1: {', '.join(unlike)}"]
            if unlike
            else []
        )
    return lines


def _differences(
    first: tuple[str, StepCounts], second: tuple[str, StepCounts]
) -> list[str]:
    """A line for each count that two runs of one configuration do not share."""
    (here, left), (there, right) = first, second
    lines = []
    if left.onednn is not right.onednn:
        states = {True: "on", False: "off", None: "unknown"}
        lines.append(
            f"oneDNN: {states[left.onednn]} in {here}, {states[right.onednn]} in {there}"
        )
    for part in (
        "items",
        "python",
        "optimized",
        "operators",
        "host",
        "device",
        "copies",
        "dispatched",
    ):
        values = getattr(left, part), getattr(right, part)
        if values[0] != values[1]:
            name = left.unit if part == "items" else part
            lines.append(
                f"{name}: {values[0]:,} in {here}, {values[1]:,} in {there} ({values[1] - values[0]:+,})"
            )
    for part in ("operators_by_type", "kernels_by_type", "kernels_by_phase"):
        left_part, right_part = getattr(left, part), getattr(right, part)
        changed = {
            k: right_part.get(k, 0) - left_part.get(k, 0)
            for k in {**left_part, **right_part}
        }
        named = [f"{k} {by:+,}" for k, by in sorted(changed.items()) if by]
        if named:
            more = (
                f" and {len(named) - MOST_NAMED} more"
                if len(named) > MOST_NAMED
                else ""
            )
            lines.append(
                f"{part}: {', '.join(named[:MOST_NAMED])}{more} in {there} against {here}"
            )
    return lines


def loops(counts: StepCounts) -> int:
    """While loops in the partitions: each has one LoopCond on each of its devices."""
    return counts.operators_by_type.get("LoopCond", 0)


def iterations(counts: StepCounts) -> int:
    """How often bodies of loops (none in another) run in a step: each asks its condition once more than that."""
    return counts.kernels_by_type.get("LoopCond", 0) - loops(counts)


def families(by_type: Mapping[str, int]) -> dict[str, int]:
    """Kernels by family of types; the families sum to all kernels."""
    counts = {
        name: sum(n for kind, n in by_type.items() if holds(kind))
        for name, holds in FAMILIES.items()
    }
    return {**counts, OTHERS: sum(by_type.values()) - sum(counts.values())}


def encoder_difference(few: StepCounts, many: StepCounts) -> list[Statement]:
    """What makes `many` more kernels than `few`; both on the same number of devices."""
    ratios: dict[str, object] = {"devices": few.num_devices, "reference": few.encoder}
    ratios |= {"kernels": many.kernels, "reference_kernels": few.kernels}
    ratios |= {
        "kernel_ratio": many.kernels / few.kernels,
        "operator_ratio": many.operators / few.operators,
    }
    on_many, on_few = (counts.kernels / counts.operators for counts in (many, few))
    per_operator = {
        "reference": few.encoder,
        "per_operator": on_many,
        "reference_per_operator": on_few,
    }
    phases = {"reference": few.encoder, **_by_phase(many)}
    phases |= {
        f"reference_{phase}": kernels for phase, kernels in _by_phase(few).items()
    }
    left, right = families(many.kernels_by_type), families(few.kernels_by_type)
    by_family = {
        "difference": many.kernels - few.kernels,
        **{name: left[name] - right[name] for name in left},
    }
    special = [
        counts for counts in (many, few) if counts.kernel not in ("", counts.encoder)
    ]
    return [
        Statement("kernels-ratio", many.encoder, ratios),
        Statement("kernels-per-operator", many.encoder, per_operator),
        *(
            Statement("encoder-kernel", counts.encoder, {"kernel": counts.kernel})
            for counts in special
        ),
        _loops(many),
        _loops(few),
        Statement("kernels-by-phase", many.encoder, phases),
        Statement("kernels-by-family", many.encoder, by_family),
    ]


def _loops(counts: StepCounts) -> Statement:
    if not loops(counts):
        return Statement("no-loops", counts.encoder)
    times, control = iterations(counts), families(counts.kernels_by_type)["control"]
    carried = counts.kernels_by_type.get("NextIteration", 0) / times if times else 0.0
    values = {"loops": loops(counts), "iterations": times, "carried": carried}
    values |= {"control": control, "control_share": control / counts.kernels}
    return Statement("loops", counts.encoder, values)


def _by_phase(counts: StepCounts) -> dict[str, int]:
    kernels = {phase: counts.kernels_by_phase.get(phase, 0) for phase in PHASES}
    return {**kernels, OTHERS: counts.kernels - sum(kernels.values())}
