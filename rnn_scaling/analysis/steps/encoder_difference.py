"""Why two encoders' steps have different numbers of kernels, from counts alone. Pure."""

from collections.abc import Callable, Mapping

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps.counts import StepCounts
from rnn_scaling.records.step_parts import CONTROL_FLOW

FAMILIES: Mapping[str, Callable[[str], bool]] = {
    "control": lambda kind: kind in CONTROL_FLOW,
    "lists": lambda kind: kind.startswith("TensorList"),
}
OTHERS = "others"
PHASES = ("forward", "backward")


def loops(counts: StepCounts) -> int:
    """While loops in the partitions: each has one LoopCond on each of its devices."""
    return counts.operators_by_type.get("LoopCond", 0)


def iterations(counts: StepCounts) -> int:
    """How often bodies of loops (none in another) run in a step: each asks its condition once more than that."""
    return counts.kernels_by_type.get("LoopCond", 0) - loops(counts)


def families(by_type: Mapping[str, int]) -> dict[str, int]:
    """Kernels by family of types; the families sum to all kernels."""
    counts = {name: sum(n for kind, n in by_type.items() if holds(kind)) for name, holds in FAMILIES.items()}
    return {**counts, OTHERS: sum(by_type.values()) - sum(counts.values())}


def statements(few: StepCounts, many: StepCounts) -> list[Statement]:
    """What makes `many` more kernels than `few`; both on the same number of devices."""
    ratios: dict[str, object] = {"devices": few.num_devices, "reference": few.encoder}
    ratios |= {"kernels": many.kernels, "reference_kernels": few.kernels}
    ratios |= {"kernel_ratio": many.kernels / few.kernels, "operator_ratio": many.operators / few.operators}
    on_many, on_few = (counts.kernels / counts.operators for counts in (many, few))
    per_operator = {"reference": few.encoder, "per_operator": on_many, "reference_per_operator": on_few}
    phases = {"reference": few.encoder, **_by_phase(many)}
    phases |= {f"reference_{phase}": kernels for phase, kernels in _by_phase(few).items()}
    left, right = families(many.kernels_by_type), families(few.kernels_by_type)
    by_family = {"difference": many.kernels - few.kernels, **{name: left[name] - right[name] for name in left}}
    special = [counts for counts in (many, few) if counts.kernel not in ("", counts.encoder)]
    return [
        Statement("kernels-ratio", many.encoder, ratios),
        Statement("kernels-per-operator", many.encoder, per_operator),
        *(Statement("encoder-kernel", counts.encoder, {"kernel": counts.kernel}) for counts in special),
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
