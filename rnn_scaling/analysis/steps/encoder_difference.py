"""Why two encoders' steps are so many kernels: sentences that say counted facts and nothing else. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from rnn_scaling.analysis.steps.counts import Counts
from rnn_scaling.records.step_names import CONTROL_FLOW

FAMILIES = {
    "control flow of loops (Enter, Exit, LoopCond, Merge, NextIteration, Switch)": lambda t: t in CONTROL_FLOW,
    "lists of the steps' values (TensorList...)": lambda t: t.startswith("TensorList"),
}
REST = "everything else"
PHASES = ("forward", "backward")


def loops(counts: Counts) -> int:
    """While loops in the partitions: each has one LoopCond on each of its devices."""
    return counts.operators_by_type.get("LoopCond", 0)


def iterations(counts: Counts) -> int:
    """How often the loops' bodies run in a step, together: a loop asks its condition once more than its body runs.

    Holds for loops that lie in no other loop, as all of the models' do.
    """
    return counts.kernels_by_type.get("LoopCond", 0) - loops(counts)


def family(by_type: Mapping[str, int]) -> dict[str, int]:
    """Kernels by family; the families part all types, so that they sum to the whole."""
    counts = {name: sum(n for kind, n in by_type.items() if has(kind)) for name, has in FAMILIES.items()}
    counts[REST] = sum(by_type.values()) - sum(counts.values())
    return counts


def sentences(few: Counts, many: Counts) -> list[str]:
    """What makes `many` more kernels than `few`; both on the same number of devices."""
    more = many.kernels - few.kernels
    lines = [
        f"On {_devices(few.num_devices)} a step of {many.encoder} invokes {many.kernels:,} kernels and one of "
        f"{few.encoder} {few.kernels:,}: {times(many.kernels, few.kernels)} times as many, from "
        f"{times(many.operators, few.operators)} times as many operators. An operator of {many.encoder} is "
        f"{many.kernels / many.operators:.1f} kernels a step on average, one of {few.encoder} "
        f"{few.kernels / few.operators:.1f}."
    ]
    names = [f"{each.encoder} is {each.kernel}" for each in (many, few) if each.kernel not in ("", each.encoder)]
    lines += [f"What ran: {', '.join(names)}."] if names else []
    lines += [_loops(each) for each in (many, few)]
    parts = ", ".join(
        f"{phase} {many.kernels_by_phase.get(phase, 0):,} against {few.kernels_by_phase.get(phase, 0):,}"
        for phase in PHASES
    )
    rest = f"all else {_rest(many):,} against {_rest(few):,}" if _rest(many) != _rest(few) else "all else the same"
    lines.append(f"Kernels by phase, {many.encoder} against {few.encoder}: {parts}, {rest}.")
    left, right = family(many.kernels_by_type), family(few.kernels_by_type)
    shares = "; ".join(f"{left[name] - right[name]:+,} {name}" for name in left)
    lines.append(f"The difference of {more:+,} kernels is {shares}.")
    return lines


def times(more: int, less: int) -> str:
    """A ratio as text; "n/a" without a base."""
    return f"{more / less:.2f}" if less else "n/a"


def _loops(counts: Counts) -> str:
    if not loops(counts):
        return f"{counts.encoder} has no loop: no operator runs more than once a step."
    control = family(counts.kernels_by_type)[next(iter(FAMILIES))]
    carried = counts.kernels_by_type.get("NextIteration", 0) / iterations(counts) if iterations(counts) else 0.0
    return (
        f"{counts.encoder} has {loops(counts)} while loops, whose bodies run {iterations(counts):,} times a step in "
        f"all and carry {carried:.1f} values on average to the next time; control flow is {control:,} of its kernels "
        f"({100 * control / counts.kernels:.0f} %)."
    )


def _rest(counts: Counts) -> int:
    return counts.kernels - sum(counts.kernels_by_phase.get(phase, 0) for phase in PHASES)


def _devices(number: int) -> str:
    return f"{number} device{'' if number == 1 else 's'}"
