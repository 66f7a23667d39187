"""Where the time of a traced step goes, tower by tower. Pure; works on the events of a trace.

At each instant a tower is in exactly one part, the first of PARTS that holds. So the parts sum to the step's length,
and what another part covers is reported next to them: exchange that ran while the tower computed is hidden.
n: kernels of a step, K: elementary intervals between their ends, N: towers.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnn_scaling.inspection.operators import (
    COPY,
    RECEIVES,
    WAIT,
    KernelEvent,
    TracedStep,
)
from rnn_scaling.records import step_parts as names

_STARVED_PHASE = "waits"  # how waiting for input is filed among the phases


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
        where = self.active.get((tower, phase))
        return np.zeros(len(self.points) - 1, bool) if where is None else where

    def seconds(self, where: np.ndarray) -> float:
        """Seconds of the instants at which `where` [K] holds."""
        return int(self.lengths[where].sum()) / 1e9


def split(step: TracedStep, num_towers: int) -> dict[str, Any]:
    """Where one step's time went; JSON-ready, in seconds (docs/phases.md has the fields).

    Raises ValueError if the step has no length, or a kernel belongs to a tower that the run does not have.
    """
    sweep = _sweep(step, num_towers)
    everyone = sweep.seconds(np.any(sweep.computes, axis=0))
    tower_seconds = [
        sweep.seconds(sweep.computes[tower]) for tower in range(num_towers)
    ]
    return {
        "seconds": (step.end_ns - step.start_ns) / 1e9,
        "towers": [_tower(sweep, step, tower) for tower in range(num_towers)],
        "shared": {"busy": _busy(sweep, None, (*names.SHARED_OWN, names.EXCHANGE))},
        "concurrency": math.fsum(tower_seconds) / everyone if everyone else None,
        "kernels": sum(
            kernel.kind != COPY and not kernel.dispatched for kernel in step.kernels
        ),
        "timeline": _timeline(sweep),
    }


def segments(step: TracedStep, num_towers: int) -> list[list[tuple[str, int, int]]]:
    """(part, start, end in ns) of each tower one after the other, without a gap. Raises what `split` raises."""
    sweep = _sweep(step, num_towers)
    by_tower = []
    for parts in sweep.parts:
        starts = np.flatnonzero(np.diff(parts, prepend=-1))
        ends = np.append(starts[1:], len(parts))
        at = sweep.points.tolist()
        by_tower.append(
            [
                (names.PARTS[parts[i]], at[i], at[j])
                for i, j in zip(starts.tolist(), ends.tolist())
            ]
        )
    return by_tower


def _sweep(step: TracedStep, num_towers: int) -> _Sweep:
    if step.end_ns <= step.start_ns:
        raise ValueError(
            f"expected a step with a length, got one from {step.start_ns} to {step.end_ns} ns"
        )
    spans: dict[tuple[int | None, str], tuple[list[int], list[int]]] = {}
    for kernel in step.kernels:
        if kernel.tower is not None and not 0 <= kernel.tower < num_towers:
            raise ValueError(
                f"expected kernels of {num_towers} towers, got {kernel.name} of tower {kernel.tower}"
            )
        start = max(kernel.start_ns, step.start_ns)
        end = min(kernel.end_ns, step.end_ns)
        if start < end and (filed := _activity(kernel)) is not None:
            starts, ends = spans.setdefault(filed, ([], []))
            starts.append(start)
            ends.append(end)
    arrays = {
        filed: (np.array(starts), np.array(ends))
        for filed, (starts, ends) in spans.items()
    }
    points = np.unique(
        np.concatenate([[step.start_ns, step.end_ns], *sum(arrays.values(), ())])
    )
    active = {filed: _covered(points, *pair) for filed, pair in arrays.items()}
    return _partition(points, active, num_towers)


def _activity(kernel: KernelEvent) -> tuple[int | None, str] | None:
    """(tower, phase) that a kernel is activity of; None for one that only waits, or launches work of a GPU."""
    if kernel.dispatched:
        return None
    phase = kernel.phase if kernel.phase in names.PHASES else names.OTHER
    if kernel.kind != WAIT:
        return (None if phase == names.EXCHANGE else kernel.tower), phase
    if kernel.type in RECEIVES:
        return None
    if phase == names.EXCHANGE and kernel.type.lstrip("_").startswith(
        names.COLLECTIVES
    ):
        return None, names.EXCHANGE
    return (kernel.tower, _STARVED_PHASE) if phase == names.INPUT else None


def _covered(points: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """[K] whether at least one of the intervals covers each stretch between two points."""
    size = len(points)
    opened = np.bincount(np.searchsorted(points, starts), minlength=size)
    closed = np.bincount(np.searchsorted(points, ends), minlength=size)
    return np.cumsum(opened - closed)[:-1] > 0


def _partition(
    points: np.ndarray,
    active: Mapping[tuple[int | None, str], np.ndarray],
    num_towers: int,
) -> _Sweep:
    size = len(points) - 1
    computes = np.zeros((num_towers, size), bool)
    for (tower, phase), where in active.items():
        if tower is not None and phase in names.OWN:
            computes[tower] |= where
    sweep = _Sweep(
        points,
        active,
        computes,
        np.full((num_towers, size), names.PARTS.index(names.IDLE), np.int8),
    )
    for tower in range(num_towers):
        others = np.delete(computes, tower, axis=0).any(axis=0)
        ranked = [
            *((phase, sweep.runs(tower, phase)) for phase in names.OWN),
            *(
                (f"shared_{phase}", sweep.runs(None, phase))
                for phase in names.SHARED_OWN
            ),
            (names.EXPOSED, sweep.runs(None, names.EXCHANGE)),
            (
                names.STARVED,
                sweep.runs(tower, _STARVED_PHASE) | sweep.runs(None, _STARVED_PHASE),
            ),
            (names.WAITS, others),
        ]
        for part, where in reversed(
            ranked
        ):  # what comes first in the order is written last
            sweep.parts[tower, where] = names.PARTS.index(part)
    return sweep


def _tower(sweep: _Sweep, step: TracedStep, tower: int) -> dict[str, Any]:
    exchange = sweep.runs(None, names.EXCHANGE)
    computes = sweep.computes[tower]
    exposed = sweep.parts[tower] == names.PARTS.index(names.EXPOSED)
    forward, backward = (
        np.flatnonzero(sweep.runs(tower, phase))
        for phase in (names.FORWARD, names.BACKWARD)
    )
    exchanges = {"busy": exchange, "hidden": exchange & computes}
    exchanges |= {"beside_shared": exchange & ~computes & ~exposed, "exposed": exposed}
    return {
        "tower": tower,
        "parts": {
            part: sweep.seconds(sweep.parts[tower] == i)
            for i, part in enumerate(names.PARTS)
        },
        "busy": _busy(sweep, tower, names.OWN),
        "exchange": {name: sweep.seconds(active) for name, active in exchanges.items()},
        "first_s": (int(sweep.points[forward[0]]) - step.start_ns) / 1e9
        if len(forward)
        else None,
        "arrival_s": (int(sweep.points[backward[-1] + 1]) - step.start_ns) / 1e9
        if len(backward)
        else None,
    }


def _busy(sweep: _Sweep, tower: int | None, phases: Sequence[str]) -> dict[str, float]:
    return {phase: sweep.seconds(sweep.runs(tower, phase)) for phase in phases}


def _timeline(sweep: _Sweep) -> dict[str, Any]:
    """Each tower's time in letters, the part that takes most of each; and where exchange takes half of it."""
    start = sweep.points[0]
    span = sweep.points[-1] - sweep.points[0]
    edges = start + np.arange(names.TIMELINE_BINS + 1) * span / names.TIMELINE_BINS
    towers = []
    for parts in sweep.parts:
        shares = np.stack(
            [_in_bins(sweep, parts == i, edges) for i in range(len(names.PARTS))]
        )
        towers.append("".join(names.LETTERS[i] for i in shares.argmax(axis=0)))
    exchange = _in_bins(sweep, sweep.runs(None, names.EXCHANGE), edges) * 2 >= np.diff(
        edges
    )
    letter = names.LETTERS[names.PARTS.index(names.EXPOSED)]
    return {
        "towers": towers,
        "exchange": "".join(
            letter if there else names.LETTERS[-1] for there in exchange
        ),
    }


def _in_bins(sweep: _Sweep, where: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Nanoseconds of `where` [K] in each bin between `edges`."""
    reached = np.concatenate([[0], np.cumsum(np.where(where, sweep.lengths, 0))])
    return np.diff(
        np.interp(edges - sweep.points[0], sweep.points - sweep.points[0], reached)
    )
