"""Compare the operators and kernels of runs.

A count does not depend on the speed of a machine and has no spread. So counts are never
averaged: if two runs of one configuration differ, the difference is the result.

`reports.counts_report` shows an `Inspection`. Statements name the runs by the keys of
the mapping that `inspect` gets.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.keys import build_key, drop_options
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.config import registry
from rnn_scaling.config import run_config as configs
from rnn_scaling.config.conditions import NOT_COMPARED
from rnn_scaling.config.naming import (
    drop_network_options,
    find_distinguishing,
    name_network,
)
from rnn_scaling.config.run_options import MeasureOptions
from rnn_scaling.records.options import Options
from rnn_scaling.records.record import RunRecord
from rnn_scaling.records.step_parts import (
    CONTROL_FLOW,
    KERNEL_COUNTS,
    Graph,
    Trace,
)

# Options of the measurement. They do not change what a run computes, so runs that
# differ only in them must have the same counts.
MEASURE_OPTIONS = frozenset(field.name for field in dataclasses.fields(MeasureOptions))
# Options that may differ within a group.
_VARIED_OPTIONS = {*MEASURE_OPTIONS, "encoder_type", "decoder_type", "num_devices"}
_FAMILIES: Mapping[str, Callable[[str], bool]] = {
    "control": lambda kind: kind in CONTROL_FLOW,
    "lists": lambda kind: kind.startswith("TensorList"),
}
_OTHERS = "others"
PHASES = ("forward", "backward")
_NUMBERS = ("items", "python", "optimized", "operators", *KERNEL_COUNTS)
_BY_NAME = ("operators_by_type", "kernels_by_type", "kernels_by_phase")
_ONEDNN_STATES = {True: "on", False: "off", None: "unknown"}


@dataclasses.dataclass(frozen=True)
class StepCounts:
    """One encoder on one number of devices; counts are per step, over all towers."""

    encoder: str
    kernel: str  # the encoder implementation that ran
    num_devices: int
    runs: int
    unit: str  # the unit of the items
    items: int
    python: int  # operators of the graph as traced from Python
    optimized: int  # operators after TensorFlow's graph optimizers
    operators: int  # operators of the partitions that run
    host: int  # kernels on CPU devices, and control flow of loops
    device: int  # kernels on GPUs
    copies: int  # copies that involve GPUs, and fills of their memory
    dispatched: int  # operators that the host launched on GPUs
    input_pipeline: float  # kernels of tf.data's functions
    onednn: bool | None  # whether oneDNN rewrote the graph; None in older records
    operators_by_type: Mapping[str, int]
    kernels_by_type: Mapping[str, int]
    kernels_by_phase: Mapping[str, int]

    @property
    def kernels(self) -> int:
        """Kernels per step, on the host and on GPUs."""
        return self.host + self.device


@dataclasses.dataclass(frozen=True)
class CountGroup:
    """Configurations that differ only in the encoder and the number of devices."""

    title: str
    options: Options  # the options of its first run
    counts: tuple[StepCounts, ...]

    @property
    def encoders(self) -> list[str]:
        """In alphabetical order, which puts the fused encoder first."""
        return sorted({counts.encoder for counts in self.counts})

    @property
    def device_counts(self) -> list[int]:
        return sorted({counts.num_devices for counts in self.counts})

    def find(self, encoder: str, num_devices: int) -> StepCounts | None:
        """Return the counts of an encoder on a number of devices, if there are any."""
        for counts in self.counts:
            if (counts.encoder, counts.num_devices) == (encoder, num_devices):
                return counts
        return None


@dataclasses.dataclass(frozen=True)
class Inspection:
    """The counts of a set of runs.

    Attributes:
      groups: Groups in the order of their first runs.
      differences: Differences between counts that must be the same.
      varying: Differences between counts of batches of text, whose lengths differ.
      left_out: Runs without counts.
    """

    groups: tuple[CountGroup, ...]
    differences: tuple[Statement, ...]
    varying: tuple[Statement, ...]
    left_out: tuple[Statement, ...]


@dataclasses.dataclass(frozen=True)
class _TracedRun:
    """A run with counts, and the key of its group."""

    name: str
    record: RunRecord
    counts: StepCounts
    group_key: Hashable

    @property
    def has_varying_lengths(self) -> bool:
        return has_varying_lengths(self.record.options)


def inspect(records: Mapping[str, RunRecord]) -> Inspection:
    """Return the counts of traced runs, given by name."""
    left_out = []
    traced_runs = []
    for name, record in records.items():
        if reason := _explain_missing_counts(name, record):
            left_out.append(reason)
        else:
            traced_runs.append(_read_counts(name, record))
    # The key is whether the batches of the runs vary in length.
    differences: dict[bool, list[Statement]] = {False: [], True: []}
    for run in traced_runs:
        differences[False] += _state_contradictions(run.name, run.counts)
        differences[run.has_varying_lengths] += _state_step_differences(run)
    group_keys = [run.group_key for run in traced_runs]
    groups = list(group_by(traced_runs, group_keys).values())
    titles = _make_group_titles([runs[0].record.options for runs in groups])
    count_groups = []
    for title, runs in zip(titles, groups, strict=True):
        merged_counts = []
        for first, *repeats in _group_by_configuration(runs):
            for repeat in repeats:
                run_differences = _state_run_differences(first, repeat)
                differences[first.has_varying_lengths] += run_differences
            num_runs = 1 + len(repeats)
            merged_counts.append(dataclasses.replace(first.counts, runs=num_runs))
        options = runs[0].record.options
        count_groups.append(CountGroup(title, options, tuple(merged_counts)))
    return Inspection(
        tuple(count_groups),
        tuple(differences[False]),
        tuple(differences[True]),
        tuple(left_out),
    )


def _read_counts(name: str, record: RunRecord) -> _TracedRun:
    """Return a run that has a graph and a trace with its counts and its group."""
    assert record.graph is not None and record.trace is not None
    settings = drop_options(build_key(record.options), _VARIED_OPTIONS)
    return _TracedRun(
        name,
        record,
        _count_run(record, record.graph, record.trace),
        (own_decoder(record.options), settings),
    )


def _group_by_configuration(runs: Sequence[_TracedRun]) -> Iterable[list[_TracedRun]]:
    """Return the repeats of each encoder and number of devices."""
    keys = [(run.counts.encoder, run.counts.num_devices) for run in runs]
    return group_by(runs, keys).values()


def _explain_missing_counts(name: str, record: RunRecord) -> Statement | None:
    """State why a run has no counts, or None if it has."""
    if record.status != "ok":
        return state("run-not-ok", run=name, status=record.status)
    if not (record.graph and record.trace):
        return state("run-without-trace", run=name)
    return None


def state_agreement(inspection: Inspection) -> list[Statement]:
    """State that the counts agree. Call it only if there are no differences."""
    run_counts = []
    onednn_states = set()
    for group in inspection.groups:
        run_counts += [counts.runs for counts in group.counts]
        onednn_states |= {counts.onednn for counts in group.counts}
    statements = [state("counts-agree", runs=sum(run_counts))]
    repeated = sum(count for count in run_counts if count > 1)
    if repeated:
        statements.append(state("counts-repeat", runs=repeated))
    # oneDNN fuses operators on some processors, so the statement says whether it was on.
    if onednn_states == {True}:
        statements.append(state("onednn-on"))
    elif onednn_states == {False}:
        statements.append(state("onednn-off"))
    return statements


def _make_group_titles(settings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a title per group: the update mode, and options that differ."""
    left_out = {*NOT_COMPARED, *_VARIED_OPTIONS, "variable_update"}
    compared = [name for name in configs.OPTIONS if name not in left_out]
    varied_options = find_distinguishing(compared, settings)
    for config in settings:
        names = drop_network_options(varied_options, config)
        title_parts = [str(config["variable_update"])]
        title_parts += [f"{name}={config[name]}" for name in names]
        if decoder := own_decoder(config):
            title_parts.append(f"decoder {decoder}")
        yield ", ".join(title_parts)


def own_decoder(config: Mapping[str, Any]) -> str:
    """Return the type of the decoder, or "" if the encoder has the same type."""
    decoder = config["decoder_type"]
    return "" if decoder in (None, config["encoder_type"]) else str(decoder)


def _count_run(record: RunRecord, graph: Graph, trace: Trace) -> StepCounts:
    """Return the counts of one traced run."""
    kernels = trace.kernels
    by_phase: Counter[str] = Counter()
    for part in kernels.by_phase:
        by_phase[part.phase] += part.kernels
    return StepCounts(
        encoder=name_network(record.options),
        kernel=record.resolved.encoder_kernel or "",
        num_devices=record.options["num_devices"],
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
        **{name: getattr(kernels.steps[-1], name) for name in KERNEL_COUNTS},
    )


def has_varying_lengths(config: Mapping[str, Any]) -> bool:
    """Return whether batches differ in length, and so in the iterations of loops."""
    source = registry.DATA_SOURCES.get(config["data_source"])
    return source is not None and source.varies


def _state_contradictions(run: str, counts: StepCounts) -> Iterator[Statement]:
    """Yield the counts of one run that contradict each other."""
    by_type = sum(counts.kernels_by_type.values())
    if by_type != counts.kernels:
        yield state(
            "kernel-sums-differ", run=run, by_type=by_type, by_place=counts.kernels
        )
    if count_iterations(counts) < 0:
        yield state("loop-kernels-missing", run=run, loops=count_loops(counts))


def _state_step_differences(run: _TracedRun) -> Iterator[Statement]:
    """Yield a statement for each counted step that differs from the first."""
    assert run.record.trace is not None
    steps = run.record.trace.kernels.steps
    for number, step in enumerate(steps[1:], 2):
        changes = []
        for name in KERNEL_COUNTS:
            count = getattr(step, name)
            expected = getattr(steps[0], name)
            if count != expected:
                changes.append(
                    state("count-instead", name=name, count=count, expected=expected)
                )
        if changes:
            yield state("step-differs", run=run.name, step=number, changes=changes)


def _state_run_differences(first: _TracedRun, second: _TracedRun) -> list[Statement]:
    """Return the counts that differ between two runs of one configuration."""
    first_counts = first.counts
    second_counts = second.counts
    runs = {"first_run": first.name, "second_run": second.name}
    statements = []
    if first_counts.onednn is not second_counts.onednn:
        statements.append(
            state(
                "onednn-differs",
                **runs,
                old=_ONEDNN_STATES[first_counts.onednn],
                new=_ONEDNN_STATES[second_counts.onednn],
            )
        )
    for number in _NUMBERS:
        count = getattr(second_counts, number)
        expected = getattr(first_counts, number)
        if count != expected:
            statements.append(
                state(
                    "number-differs",
                    **runs,
                    name=first_counts.unit if number == "items" else number,
                    old=expected,
                    new=count,
                    difference=count - expected,
                )
            )
    for table in _BY_NAME:
        differences = Counter(getattr(second_counts, table))
        differences.subtract(getattr(first_counts, table))
        changes = []
        for name, difference in sorted(differences.items()):
            if difference:
                changes.append(state("count-change", name=name, difference=difference))
        if changes:
            statements.append(
                state("table-differs", **runs, name=table, changes=changes)
            )
    return statements


def count_loops(counts: StepCounts) -> int:
    """Return the while loops in the partitions.

    Each loop has one LoopCond operator on each of its devices.
    """
    return counts.operators_by_type.get("LoopCond", 0)


def count_iterations(counts: StepCounts) -> int:
    """Return how often the bodies of loops run in a step.

    No loop is inside another one. A loop evaluates its condition once more than its
    body runs.
    """
    return counts.kernels_by_type.get("LoopCond", 0) - count_loops(counts)


def sum_families(by_type: Mapping[str, int]) -> dict[str, int]:
    """Return the kernels of each family of types; their sum is all kernels."""
    sums = dict.fromkeys([*_FAMILIES, _OTHERS], 0)
    for kind, count in by_type.items():
        names = [name for name, contains in _FAMILIES.items() if contains(kind)]
        sums[names[0] if names else _OTHERS] += count
    return sums


def compare_encoders(fewer: StepCounts, more: StepCounts) -> list[Statement]:
    """State why one encoder invokes more kernels than another.

    Both have the same number of devices.
    """
    reference = {"reference": fewer.encoder}
    ratios = {
        "devices": fewer.num_devices,
        "kernels": more.kernels,
        "reference_kernels": fewer.kernels,
        "kernel_ratio": more.kernels / fewer.kernels,
        "operator_ratio": more.operators / fewer.operators,
    }
    per_operator = {
        "per_operator": more.kernels / more.operators,
        "reference_per_operator": fewer.kernels / fewer.operators,
    }
    phases = _sum_phases(more)
    for phase, count in _sum_phases(fewer).items():
        phases[f"reference_{phase}"] = count
    families = Counter(sum_families(more.kernels_by_type))
    families.subtract(sum_families(fewer.kernels_by_type))
    differences = {"difference": more.kernels - fewer.kernels, **families}
    implementations = []
    for counts in (more, fewer):
        if counts.kernel not in ("", counts.encoder):
            implementations.append(
                state("encoder-kernel", counts.encoder, kernel=counts.kernel)
            )
    return [
        state("kernels-ratio", more.encoder, **reference | ratios),
        state("kernels-per-operator", more.encoder, **reference | per_operator),
        *implementations,
        _state_loop(more),
        _state_loop(fewer),
        state("kernels-by-phase", more.encoder, **reference | phases),
        state("kernels-by-family", more.encoder, **differences),
    ]


def _state_loop(counts: StepCounts) -> Statement:
    """State how many loops a step has, and what they cost."""
    loops = count_loops(counts)
    if not loops:
        return state("no-loops", counts.encoder)
    iterations = count_iterations(counts)
    control = sum_families(counts.kernels_by_type)["control"]
    carried = counts.kernels_by_type.get("NextIteration", 0)
    return state(
        "loops",
        counts.encoder,
        loops=loops,
        iterations=iterations,
        carried=carried / iterations if iterations else 0.0,
        control=control,
        control_share=control / counts.kernels,
    )


def _sum_phases(counts: StepCounts) -> dict[str, int]:
    kernels = {phase: counts.kernels_by_phase.get(phase, 0) for phase in PHASES}
    return {**kernels, _OTHERS: counts.kernels - sum(kernels.values())}
