"""Where the time of a traced step goes, tower by tower. Pure; works on the events of a trace.

At each instant a tower is in exactly one part, the first of PARTS that holds. So the parts sum to the step's length,
and what another part covers is said beside them: exchange that ran while the tower computed is hidden.
n: kernels of a step, K: elementary intervals between their ends, N: towers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rnn_scaling.analysis.student import t_quantile
from rnn_scaling.inspection.events import COPY, WAIT, Kernel, TracedStep
from rnn_scaling.inspection.operators import RECEIVES
from rnn_scaling.records.step_names import (
    BACKWARD,
    COLLECTIVES,
    EXCHANGE,
    EXPOSED,
    FORWARD,
    IDLE,
    INPUT,
    LETTERS,
    OTHER,
    OWN,
    PARTS,
    PHASES,
    SHARED_OWN,
    STARVED,
    TIMELINE_BINS,
    WAITS,
)

LEAST_STEPS = 3  # traced steps below which no straggler is named
LEVEL = 0.95  # one-sided, of each test behind a straggler
MOST_IDLE = 0.5  # share of a step without a timed kernel, above which arrival times say too little
SERIAL = 0.1  # concurrency above 1, a further tower, up to which towers count as run one after another
_STARVED_PHASE = "waits"  # how waiting for input is filed among the phases


class Segment(NamedTuple):
    """A stretch of a tower's time in one part."""

    part: str
    start_ns: int
    end_ns: int


@dataclasses.dataclass(frozen=True, eq=False)
class _Sweep:
    """Every instant of a step. points: [K + 1] ns; active: (tower or None, phase) -> [K] whether it runs then."""

    points: np.ndarray
    active: Mapping[tuple[int | None, str], np.ndarray]
    computes: np.ndarray  # [N, K] whether a tower computes
    parts: np.ndarray  # [N, K] index into PARTS

    @property
    def lengths(self) -> np.ndarray:
        """[K] nanoseconds."""
        return np.diff(self.points)

    def runs(self, tower: int | None, phase: str) -> np.ndarray:
        """[K] whether a phase of a tower runs."""
        found = self.active.get((tower, phase))
        return np.zeros(len(self.points) - 1, bool) if found is None else found

    def seconds(self, where: np.ndarray) -> float:
        """Seconds of the instants at which `where` [K] holds."""
        return int(self.lengths[where].sum()) / 1e9


def split(step: TracedStep, num_towers: int) -> dict[str, Any]:
    """Where one step's time went; JSON-ready, in seconds (docs/phases.md has the fields).

    Args:
      step: kernels of one step, of any order; what lies outside of the step is cut off.
      num_towers: towers of the run, also those of which the trace holds no kernel.

    Raises:
      ValueError: if the step has no length, or a kernel is of a tower that the run has not.
    """
    sweep = _sweep(step, num_towers)
    everyone = sweep.seconds(sweep.computes.any(axis=0))
    own = [sweep.seconds(sweep.computes[tower]) for tower in range(num_towers)]
    return {
        "seconds": (step.end_ns - step.start_ns) / 1e9,
        "towers": [_tower(sweep, step, tower) for tower in range(num_towers)],
        "shared": {"busy": _busy(sweep, None, (*SHARED_OWN, EXCHANGE))},
        "concurrency": math.fsum(own) / everyone if everyone else None,
        "kernels": sum(kernel.kind != COPY and not kernel.dispatched for kernel in step.kernels),
        "timeline": _timeline(sweep),
    }


def segments(step: TracedStep, num_towers: int) -> list[list[Segment]]:
    """The parts of each tower's time one after the other, without a gap. Raises what `split` raises."""
    sweep = _sweep(step, num_towers)
    found = []
    for parts in sweep.parts:
        starts = np.flatnonzero(np.diff(parts, prepend=-1))
        ends = np.append(starts[1:], len(parts))
        found.append(
            [
                Segment(PARTS[parts[i]], int(sweep.points[i]), int(sweep.points[j]))
                for i, j in zip(starts.tolist(), ends.tolist())
            ]
        )
    return found


def _sweep(step: TracedStep, num_towers: int) -> _Sweep:
    if step.end_ns <= step.start_ns:
        raise ValueError(f"expected a step with a length, got one from {step.start_ns} to {step.end_ns} ns")
    spans: dict[tuple[int | None, str], tuple[list[int], list[int]]] = {}
    for kernel in step.kernels:
        if kernel.tower is not None and not 0 <= kernel.tower < num_towers:
            raise ValueError(f"expected kernels of {num_towers} towers, got {kernel.name} of tower {kernel.tower}")
        start, end = max(kernel.start_ns, step.start_ns), min(kernel.end_ns, step.end_ns)
        if start < end and (filed := _activity(kernel)) is not None:
            starts, ends = spans.setdefault(filed, ([], []))
            starts.append(start)
            ends.append(end)
    arrays = {filed: (np.array(starts), np.array(ends)) for filed, (starts, ends) in spans.items()}
    points = np.unique(
        np.concatenate([[step.start_ns, step.end_ns], *(times for pair in arrays.values() for times in pair)])
    )
    active = {filed: _covered(points, *pair) for filed, pair in arrays.items()}
    return _partition(points, active, num_towers)


def _activity(kernel: Kernel) -> tuple[int | None, str] | None:
    """(tower, phase) that a kernel is activity of; None for one that only waits, or launches work of a GPU."""
    if kernel.dispatched:
        return None
    phase = kernel.phase if kernel.phase in PHASES else OTHER
    if kernel.kind != WAIT:
        return (None if phase == EXCHANGE else kernel.tower), phase
    if kernel.type in RECEIVES:
        return None
    if phase == EXCHANGE and kernel.type.lstrip("_").startswith(COLLECTIVES):
        return None, EXCHANGE
    return (kernel.tower, _STARVED_PHASE) if phase == INPUT else None


def _covered(points: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """[K] whether at least one of the intervals covers each stretch between two points."""
    size = len(points)
    opened = np.bincount(np.searchsorted(points, starts), minlength=size)
    closed = np.bincount(np.searchsorted(points, ends), minlength=size)
    return np.cumsum(opened - closed)[:-1] > 0


def _partition(points: np.ndarray, active: Mapping[tuple[int | None, str], np.ndarray], num_towers: int) -> _Sweep:
    size = len(points) - 1
    computes = np.zeros((num_towers, size), bool)
    for (tower, phase), where in active.items():
        if tower is not None and phase in OWN:
            computes[tower] |= where
    sweep = _Sweep(points, active, computes, np.full((num_towers, size), PARTS.index(IDLE), np.int8))
    for tower in range(num_towers):
        others = np.delete(computes, tower, axis=0).any(axis=0)
        ranked = [
            *((phase, sweep.runs(tower, phase)) for phase in OWN),
            *((f"shared_{phase}", sweep.runs(None, phase)) for phase in SHARED_OWN),
            (EXPOSED, sweep.runs(None, EXCHANGE)),
            (STARVED, sweep.runs(tower, _STARVED_PHASE) | sweep.runs(None, _STARVED_PHASE)),
            (WAITS, others),
        ]
        for part, where in reversed(ranked):  # what comes first in the order is written last
            sweep.parts[tower, where] = PARTS.index(part)
    return sweep


def _tower(sweep: _Sweep, step: TracedStep, tower: int) -> dict[str, Any]:
    exchange, computes = sweep.runs(None, EXCHANGE), sweep.computes[tower]
    exposed = sweep.parts[tower] == PARTS.index(EXPOSED)
    forward, backward = (np.flatnonzero(sweep.runs(tower, phase)) for phase in (FORWARD, BACKWARD))
    return {
        "tower": tower,
        "parts": {part: sweep.seconds(sweep.parts[tower] == i) for i, part in enumerate(PARTS)},
        "busy": _busy(sweep, tower, OWN),
        "exchange": {
            "busy": sweep.seconds(exchange),
            "hidden": sweep.seconds(exchange & computes),
            "beside_shared": sweep.seconds(exchange & ~computes & ~exposed),
            "exposed": sweep.seconds(exposed),
        },
        "first_s": (int(sweep.points[forward[0]]) - step.start_ns) / 1e9 if len(forward) else None,
        "arrival_s": (int(sweep.points[backward[-1] + 1]) - step.start_ns) / 1e9 if len(backward) else None,
    }


def _busy(sweep: _Sweep, tower: int | None, phases: Sequence[str]) -> dict[str, float]:
    return {phase: sweep.seconds(sweep.runs(tower, phase)) for phase in phases}


def _timeline(sweep: _Sweep) -> dict[str, Any]:
    """Each tower's time in letters, the part that takes most of each; and where exchange takes half of it."""
    edges = sweep.points[0] + np.arange(TIMELINE_BINS + 1) * (sweep.points[-1] - sweep.points[0]) / TIMELINE_BINS
    towers = []
    for parts in sweep.parts:
        shares = np.stack([_in_bins(sweep, parts == i, edges) for i in range(len(PARTS))])
        towers.append("".join(LETTERS[i] for i in shares.argmax(axis=0)))
    exchange = _in_bins(sweep, sweep.runs(None, EXCHANGE), edges) * 2 >= np.diff(edges)
    letter = LETTERS[PARTS.index(EXPOSED)]
    return {"towers": towers, "exchange": "".join(letter if there else LETTERS[-1] for there in exchange)}


def _in_bins(sweep: _Sweep, where: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Nanoseconds of `where` [K] in each bin between `edges`."""
    reached = np.concatenate([[0], np.cumsum(np.where(where, sweep.lengths, 0))])
    return np.diff(np.interp(edges - sweep.points[0], sweep.points - sweep.points[0], reached))


def straggler(steps: Sequence[Mapping[str, Any]], synchronous: bool, clustered: bool = False) -> tuple[int | None, str]:
    """The tower that the others wait for, if the arrival times give the evidence, and a sentence that says why.

    It is named where the same tower ends its backward pass last in every step, and three differences from the next
    latest tower are each above 0 by Student's t over the steps (one-sided, 95 %): the end itself, the time from its own
    first kernel to that end, and its own forward and backward compute. The second excludes a tower that only started
    later, the third one that only stood still: in a barrier, or because nobody launched its kernels.

    Args:
      steps: what `split` returned for each traced step.
      synchronous: whether the towers exchange a step's gradients within it.
      clustered: whether XLA made clusters of operators, which say neither tower nor phase.
    """
    reason = _no_evidence(steps, synchronous, clustered)
    if reason:
        return None, f"the straggler cannot be named: {reason}"
    last = [max(step["towers"], key=lambda tower: tower["arrival_s"]) for step in steps]
    tower = last[0]["tower"]
    if any(each["tower"] != tower for each in last):
        order = ", ".join(str(each["tower"]) for each in last)
        return None, f"the straggler cannot be named: another tower is last from step to step ({order})"
    differences = [_lateness(step, each) for step, each in zip(steps, last)]
    late, took, computed = (_lower([values[i] for values in differences]) for i in range(3))
    ends = f"tower {tower} is last in every step, by {_ms([values[0] for values in differences])} ms"
    if late[1] <= 0:
        return None, f"the straggler cannot be named: {ends}, which is within the scatter of the steps"
    if took[1] <= 0:
        longer = _ms([values[1] for values in differences])
        return None, (
            f"the straggler cannot be named: {ends}, but from its own first kernel on it does not take longer by more "
            f"than the scatter ({longer} ms)"
        )
    if computed[1] <= 0:
        excess = _ms([values[2] for values in differences])
        return None, (
            f"the straggler cannot be named: {ends}, but its own compute is not longer by more than the scatter "
            f"({excess} ms): a barrier, or the launching of its kernels, may hold it up"
        )
    share = late[0] / (math.fsum(step["seconds"] for step in steps) / len(steps))
    longer = _ms([values[2] for values in differences])
    return (
        tower,
        f"straggler: {ends} ({100 * share:.1f} % of a step); it computes forward and backward {longer} ms longer",
    )


def _no_evidence(steps: Sequence[Mapping[str, Any]], synchronous: bool, clustered: bool) -> str | None:
    count = len(steps[0]["towers"]) if steps else 0
    if count < 2:
        return "there is one tower" if count else "no step was traced"
    if not synchronous:
        return "no gradients of a step are exchanged within it, so no tower waits for another"
    if clustered:
        return "XLA's clusters (--xla) do not say whose operators they hold"
    if len(steps) < LEAST_STEPS:
        return f"{LEAST_STEPS} traced steps or more show scatter, got {len(steps)}; use --trace_batches={LEAST_STEPS}"
    unseen = sorted({t["tower"] for s in steps for t in s["towers"] if None in (t["first_s"], t["arrival_s"])})
    if unseen:
        return f"the trace holds no forward or no backward kernel of tower {', '.join(map(str, unseen))}"
    idle = math.fsum(step["towers"][0]["parts"][IDLE] / step["seconds"] for step in steps) / len(steps)
    if idle > MOST_IDLE:
        return f"in {100 * idle:.0f} % of a step no kernel runs that the trace has times of"
    concurrency = math.fsum(step["concurrency"] or 0.0 for step in steps) / len(steps)
    if concurrency <= 1 + SERIAL * (count - 1):
        return f"the trace has the towers one after another (concurrency {concurrency:.2f}): arrival order says nothing"
    return None


def _lateness(step: Mapping[str, Any], last: Mapping[str, Any]) -> tuple[float, float, float]:
    """Seconds by which the last tower ended later, took longer and computed longer than the next latest one."""
    others = [tower for tower in step["towers"] if tower["tower"] != last["tower"]]
    second = max(others, key=lambda tower: tower["arrival_s"])
    late = last["arrival_s"] - second["arrival_s"]
    took = late - (last["first_s"] - second["first_s"])
    compute = [math.fsum(tower["busy"][phase] for phase in (FORWARD, BACKWARD)) for tower in (last, second)]
    # To the nanosecond: the error of floating point has no scatter, and would be above 0 in every step.
    return round(late, 9), round(took, 9), round(compute[0] - compute[1], 9)


def _lower(values: Sequence[float]) -> tuple[float, float]:
    """(mean, lower end of its one-sided 95 % interval)."""
    mean = math.fsum(values) / len(values)
    return mean, mean - t_quantile(LEVEL, len(values) - 1) * scatter(values) / math.sqrt(len(values))


def scatter(values: Sequence[float]) -> float:
    """Standard deviation; 0.0 of a single value."""
    if len(values) < 2:
        return 0.0
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _ms(values: Sequence[float]) -> str:
    return f"{1000 * math.fsum(values) / len(values):.2f} ± {1000 * scatter(values):.2f}"
