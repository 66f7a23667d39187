"""Operators and kernels of runs: what each configuration has, and whether all of its runs have the same. Pure.

A count says nothing about a machine's speed and has no spread. So counts are never averaged: where two runs of one
configuration differ, the difference is the finding.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.keys import build_key, drop_options
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config import registry
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.conditions import NOT_COMPARED
from rnn_scaling.config.naming import distinguishing, network, without_network
from rnn_scaling.config.run_options import MeasureOptions
from rnn_scaling.records.options import Options
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
NUMBERS = ("items", "python", "optimized", "operators", *PLACES)
BY_NAME = ("operators_by_type", "kernels_by_type", "kernels_by_phase")
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
    options: Options  # of its first run
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
    """Return the counts of traced runs, by the runs' names."""
    left_out: list[str] = []
    # By whether batches differ in length: then counts may differ, too.
    findings: dict[bool, list[str]] = {False: [], True: []}
    cells_of: dict[tuple, dict[tuple[str, int], list[tuple[str, StepCounts]]]] = {}
    first: dict[tuple, Options] = {}
    for name, record in records.items():
        if not (record.status == "ok" and record.graph and record.trace):
            is_ok = record.status == "ok"
            reason = "no trace (--trace_batches)" if is_ok else record.status
            left_out.append(f"{name}: {reason}")
            continue
        options = record.options
        key = own_decoder(options), drop_options(build_key(options), ALONG_A_GROUP)
        counts = _counts(record, record.graph, record.trace, options)
        findings[False] += _contradictions(name, counts)
        findings[varies(options)] += _unlike_steps(name, record.trace.kernels.steps)
        first.setdefault(key, options)
        cells = cells_of.setdefault(key, {})
        place = (counts.encoder, counts.num_devices)
        cells.setdefault(place, []).append((name, counts))
    groups = []
    for (key, cells), title in zip(cells_of.items(), titles(list(first.values()))):
        is_varying = varies(first[key])
        same = []
        for runs in cells.values():
            for run in runs[1:]:
                findings[is_varying] += _differences(runs[0], run)
            same.append(dataclasses.replace(runs[0][1], runs=len(runs)))
        groups.append(CountGroup(title, first[key], tuple(same)))
    return Inspection(
        tuple(groups), tuple(findings[False]), tuple(findings[True]), tuple(left_out)
    )


def agreement(inspection: Inspection) -> list[Statement]:
    """Return whether runs of one configuration have the same counts, as they must."""
    if inspection.differences:
        return [Statement("counts-differ", line) for line in inspection.differences]
    if inspection.varying:
        lines = [Statement("counts-vary", line) for line in inspection.varying]
        return [*lines, Statement("counts-of-last-step")]
    counts = [cell for group in inspection.groups for cell in group.counts]
    runs = [cell.runs for cell in counts]
    repeated = sum(count for count in runs if count > 1)
    found = [Statement("counts-agree", values={"runs": sum(runs)})]
    if repeated:
        found.append(Statement("counts-repeat", values={"runs": repeated}))
    # On another processor the same step can have other counts.
    states = {cell.onednn for cell in counts}
    kinds = {True: "onednn-on", False: "onednn-off"}
    if len(states) == 1 and None not in states:
        found.append(Statement(kinds[states == {True}]))
    return found


def titles(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a name for each group: the update mode, and what tells the groups apart."""
    left_out = {*NOT_COMPARED, *ALONG_A_GROUP, "variable_update"}
    named = [name for name in configs.OPTIONS if name not in left_out]
    varied = distinguishing(named, settings)
    names = []
    for config in settings:
        words = [str(config["variable_update"])]
        words += [f"{name}={config[name]}" for name in without_network(varied, config)]
        if decoder := own_decoder(config):
            words.append(f"decoder {decoder}")
        names.append(", ".join(words))
    return names


def own_decoder(config: Mapping[str, Any]) -> str:
    """Return the kernel of the decoder, empty if it is the encoder's."""
    decoder = config["decoder_type"]
    return "" if decoder in (None, config["encoder_type"]) else str(decoder)


def _counts(
    record: RunRecord, graph: Graph, trace: Trace, config: Mapping[str, Any]
) -> StepCounts:
    """Return the counts of one run."""
    kernels = trace.kernels
    by_phase: Counter[str] = Counter()
    for part in kernels.by_phase:
        by_phase[part.phase] += part.kernels
    return StepCounts(
        encoder=network(config),
        kernel=record.resolved.encoder_kernel or "",
        num_devices=config["num_devices"],
        runs=1,
        unit=record.unit,
        items=trace.items,
        python=graph.python.operators,
        optimized=graph.optimized.operators,
        operators=graph.partitions.operators,
        input_pipeline=kernels.input_pipeline,
        onednn=record.resolved.onednn,
        operators_by_type=graph.partitions.by_type,
        kernels_by_type=kernels.by_type,
        kernels_by_phase=dict(by_phase),
        **{part: getattr(kernels.steps[-1], part) for part in PLACES},
    )


def _contradictions(name: str, counts: StepCounts) -> list[str]:
    """Return a line for each mistake in the counts of one run."""
    lines = []
    by_type = sum(counts.kernels_by_type.values())
    if by_type != counts.kernels:
        lines.append(f"{name}: {by_type} kernels by type, {counts.kernels} by place")
    if iterations(counts) < 0:
        num_loops = loops(counts)
        lines.append(
            f"{name}: the trace lacks kernels of {num_loops} loops in the graph"
        )
    return lines


def varies(config: Mapping[str, Any]) -> bool:
    """Whether batches differ in length, and loops with them in their turns."""
    source = registry.DATA_SOURCES.get(config["data_source"])
    return source is not None and source.varies


def _unlike_steps(name: str, steps: Sequence[KernelCounts]) -> list[str]:
    """Return a line for each counted step that differs from the first."""
    lines = []
    for number, step in enumerate(steps[1:], 2):
        unlike = []
        for part in PLACES:
            count = getattr(step, part)
            expected = getattr(steps[0], part)
            if count != expected:
                unlike.append(f"{part} {count} instead of {expected}")
        if unlike:
            listed = ", ".join(unlike)
            lines.append(f"{name}: counted step {number} differs from step 1: {listed}")
    return lines


def _differences(
    first: tuple[str, StepCounts], second: tuple[str, StepCounts]
) -> list[str]:
    """Return a line for each count that two runs of one configuration do not share."""
    here, left = first
    there, right = second
    lines = []
    if left.onednn is not right.onednn:
        states = {True: "on", False: "off", None: "unknown"}
        ours = states[left.onednn]
        theirs = states[right.onednn]
        lines.append(f"oneDNN: {ours} in {here}, {theirs} in {there}")
    for part in NUMBERS:
        old = getattr(left, part)
        new = getattr(right, part)
        if old != new:
            name = left.unit if part == "items" else part
            lines.append(
                f"{name}: {old:,} in {here}, {new:,} in {there} ({new - old:+,})"
            )
    for part in BY_NAME:
        changed = Counter(getattr(right, part))
        changed.subtract(getattr(left, part))
        named = [f"{kind} {by:+,}" for kind, by in sorted(changed.items()) if by]
        if named:
            few = ", ".join(named[:MOST_NAMED])
            hidden = len(named) - MOST_NAMED
            more = f" and {hidden} more" if hidden > 0 else ""
            lines.append(f"{part}: {few}{more} in {there} against {here}")
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
    """Return what makes `many` more kernels than `few`, on as many devices."""
    ratios = {
        "devices": few.num_devices,
        "kernels": many.kernels,
        "reference_kernels": few.kernels,
        "kernel_ratio": many.kernels / few.kernels,
        "operator_ratio": many.operators / few.operators,
    }
    per_operator = {
        "per_operator": many.kernels / many.operators,
        "reference_per_operator": few.kernels / few.operators,
    }
    phases = _by_phase(many)
    phases |= {f"reference_{name}": count for name, count in _by_phase(few).items()}
    by_family = Counter(families(many.kernels_by_type))
    by_family.subtract(families(few.kernels_by_type))
    differences = {"difference": many.kernels - few.kernels, **by_family}
    special = []
    for counts in (many, few):
        if counts.kernel not in ("", counts.encoder):
            values = {"kernel": counts.kernel}
            special.append(Statement("encoder-kernel", counts.encoder, values))
    reference = {"reference": few.encoder}
    return [
        Statement("kernels-ratio", many.encoder, reference | ratios),
        Statement("kernels-per-operator", many.encoder, reference | per_operator),
        *special,
        _loops(many),
        _loops(few),
        Statement("kernels-by-phase", many.encoder, reference | phases),
        Statement("kernels-by-family", many.encoder, differences),
    ]


def _loops(counts: StepCounts) -> Statement:
    if not loops(counts):
        return Statement("no-loops", counts.encoder)
    times = iterations(counts)
    control = families(counts.kernels_by_type)["control"]
    carried = counts.kernels_by_type.get("NextIteration", 0)
    values = {
        "loops": loops(counts),
        "iterations": times,
        "carried": carried / times if times else 0.0,
        "control": control,
        "control_share": control / counts.kernels,
    }
    return Statement("loops", counts.encoder, values)


def _by_phase(counts: StepCounts) -> dict[str, int]:
    kernels = {phase: counts.kernels_by_phase.get(phase, 0) for phase in PHASES}
    return {**kernels, OTHERS: counts.kernels - sum(kernels.values())}
