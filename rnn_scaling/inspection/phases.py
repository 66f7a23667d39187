"""Split the time of a traced step into parts, tower by tower.

At each instant a tower is in exactly one part, the first of PARTS that applies, so the
parts sum to the length of the step. Exchange that runs while the tower computes is
hidden, and reported separately.

Shapes: K intervals between the starts and ends of kernels, N towers.

`observe` splits the steps of the suite's trainer; `kineto.step_split` uses the same
sweep for traces of PyTorch.
"""

import dataclasses
import math
from collections import defaultdict
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

_STARVED_PHASE = "waits"  # the key of waiting for input among the phases


@dataclasses.dataclass(frozen=True, eq=False)
class _Sweep:
    """The intervals of a step.

    Attributes:
      points: Limits of the intervals [K + 1], in ns.
      active: (tower or None, phase) -> whether it runs in each interval [K].
      computes: Whether each tower computes [N, K].
      parts: Part of each tower [N, K], an index into PARTS.
    """

    points: np.ndarray
    active: Mapping[tuple[int | None, str], np.ndarray]
    computes: np.ndarray
    parts: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """Lengths of the intervals [K], in ns."""
        return np.diff(self.points)

    def runs(self, tower: int | None, phase: str) -> np.ndarray:
        """Return whether a phase of a tower runs in each interval [K]."""
        mask = self.active.get((tower, phase))
        return np.zeros(len(self.points) - 1, bool) if mask is None else mask

    def seconds(self, mask: np.ndarray) -> float:
        """Return the length of the intervals in a mask [K]."""
        return int(self.lengths[mask].sum()) / 1e9


def split(step: TracedStep, num_towers: int) -> dict[str, Any]:
    """Split the time of one step, in seconds, as JSON (docs/inspect.md has the fields).

    Raises:
      ValueError: If the step has no length, or a kernel has the tower of another run.
    """
    sweep = _sweep_step(step, num_towers)
    compute_s = sweep.seconds(np.any(sweep.computes, axis=0))
    tower_compute_s = [sweep.seconds(computes) for computes in sweep.computes]
    return {
        "seconds": (step.end_ns - step.start_ns) / 1e9,
        "towers": [_make_tower_data(sweep, step, tower) for tower in range(num_towers)],
        "shared": {
            "busy": _sum_busy_seconds(sweep, None, (*names.SHARED_OWN, names.EXCHANGE))
        },
        "concurrency": math.fsum(tower_compute_s) / compute_s if compute_s else None,
        "kernels": sum(
            kernel.kind != COPY and not kernel.is_launch_only for kernel in step.kernels
        ),
        "timeline": _make_timeline(sweep),
    }


def list_segments(
    step: TracedStep, num_towers: int
) -> list[list[tuple[str, int, int]]]:
    """Return the parts of each tower in order, as (part, start, end) in ns.

    Raises:
      ValueError: Like `split`.
    """
    sweep = _sweep_step(step, num_towers)
    by_tower = []
    for parts in sweep.parts:
        starts = np.flatnonzero(np.diff(parts, prepend=-1))
        ends = np.append(starts[1:], len(parts))
        points = sweep.points.tolist()
        by_tower.append(
            [
                (names.PARTS[parts[i]], points[i], points[j])
                for i, j in zip(starts.tolist(), ends.tolist())
            ]
        )
    return by_tower


def _sweep_step(step: TracedStep, num_towers: int) -> _Sweep:
    """Cut a step at the start and end of each kernel, and mark what runs in between."""
    if step.end_ns <= step.start_ns:
        raise ValueError(
            f"expected a step of positive duration, "
            f"got {step.start_ns} to {step.end_ns} ns"
        )
    spans: dict[tuple[int | None, str], list[tuple[int, int]]] = defaultdict(list)
    edges = [step.start_ns, step.end_ns]
    for kernel in step.kernels:
        if kernel.tower is not None and not 0 <= kernel.tower < num_towers:
            raise ValueError(
                f"expected kernels of {num_towers} towers, "
                f"got {kernel.name} of tower {kernel.tower}"
            )
        start = max(kernel.start_ns, step.start_ns)
        end = min(kernel.end_ns, step.end_ns)
        activity = _describe_kernel_activity(kernel)
        if start < end and activity is not None:
            spans[activity].append((start, end))
            edges += (start, end)
    points = np.unique(edges)
    active = {
        activity: find_covered(points, pairs) for activity, pairs in spans.items()
    }
    return _assign_parts(points, active, num_towers)


def _describe_kernel_activity(kernel: KernelEvent) -> tuple[int | None, str] | None:
    """Return the (tower, phase) for which a kernel works.

    Returns:
      None if the kernel only waits or launches a GPU operator.
    """
    if kernel.is_launch_only:
        return None
    phase = kernel.phase if kernel.phase in names.PHASES else names.OTHER
    if kernel.kind != WAIT:
        return (None if phase == names.EXCHANGE else kernel.tower), phase
    if kernel.type in RECEIVES:
        return None
    is_collective = kernel.type.lstrip("_").startswith(names.COLLECTIVES)
    if phase == names.EXCHANGE and is_collective:
        return None, names.EXCHANGE
    return (kernel.tower, _STARVED_PHASE) if phase == names.INPUT else None


def find_covered(
    points: np.ndarray, spans: Sequence[tuple[int, int]] | np.ndarray
) -> np.ndarray:
    """Return whether at least one span covers each interval between points [K]."""
    size = len(points)
    starts, ends = np.transpose(spans)
    opened = np.bincount(np.searchsorted(points, starts), minlength=size)
    num_closed = np.bincount(np.searchsorted(points, ends), minlength=size)
    return np.cumsum(opened - num_closed)[:-1] > 0


def _assign_parts(
    points: np.ndarray,
    active: Mapping[tuple[int | None, str], np.ndarray],
    num_towers: int,
) -> _Sweep:
    """Assign one part to each tower in each interval."""
    size = len(points) - 1
    computes = np.zeros((num_towers, size), bool)
    for (tower, phase), mask in active.items():
        if tower is not None and phase in names.OWN:
            computes[tower] |= mask
    parts = np.full((num_towers, size), names.PARTS.index(names.IDLE), np.int8)
    sweep = _Sweep(points, active, computes, parts)
    for tower in range(num_towers):
        masks: dict[str, np.ndarray] = {
            phase: sweep.runs(tower, phase) for phase in names.OWN
        }
        for phase in names.SHARED_OWN:
            masks[f"shared_{phase}"] = sweep.runs(None, phase)
        masks[names.EXPOSED] = sweep.runs(None, names.EXCHANGE)
        starved = sweep.runs(tower, _STARVED_PHASE)
        masks[names.STARVED] = starved | sweep.runs(None, _STARVED_PHASE)
        masks[names.WAITS] = np.any(np.delete(computes, tower, axis=0), axis=0)
        # The first part has priority, so it is written last.
        for part, mask in reversed(masks.items()):
            parts[tower, mask] = names.PARTS.index(part)
    return sweep


def _make_tower_data(sweep: _Sweep, step: TracedStep, tower: int) -> dict[str, Any]:
    """Return the fields of a `records.step_parts.TowerStep`."""
    exchange = sweep.runs(None, names.EXCHANGE)
    computes = sweep.computes[tower]
    exposed = sweep.parts[tower] == names.PARTS.index(names.EXPOSED)
    forward = np.flatnonzero(sweep.runs(tower, names.FORWARD))
    backward = np.flatnonzero(sweep.runs(tower, names.BACKWARD))
    first_s = None
    arrival_s = None
    if len(forward):
        first_s = (int(sweep.points[forward[0]]) - step.start_ns) / 1e9
    if len(backward):
        arrival_s = (int(sweep.points[backward[-1] + 1]) - step.start_ns) / 1e9
    return {
        "tower": tower,
        "parts": {
            part: sweep.seconds(sweep.parts[tower] == index)
            for index, part in enumerate(names.PARTS)
        },
        "busy": _sum_busy_seconds(sweep, tower, names.OWN),
        "exchange": {
            "busy": sweep.seconds(exchange),
            "hidden": sweep.seconds(exchange & computes),
            "beside_shared": sweep.seconds(exchange & ~computes & ~exposed),
            "exposed": sweep.seconds(exposed),
        },
        "first_s": first_s,
        "arrival_s": arrival_s,
    }


def _sum_busy_seconds(
    sweep: _Sweep, tower: int | None, phases: Sequence[str]
) -> dict[str, float]:
    return {phase: sweep.seconds(sweep.runs(tower, phase)) for phase in phases}


def _make_timeline(sweep: _Sweep) -> dict[str, Any]:
    """Return one letter per bin: each tower's largest part, and whether exchange runs.

    Exchange runs in a bin if it takes at least half of it.
    """
    start = sweep.points[0]
    span = sweep.points[-1] - sweep.points[0]
    edges = start + np.arange(names.TIMELINE_BINS + 1) * span / names.TIMELINE_BINS
    towers = []
    for parts in sweep.parts:
        shares = np.stack(
            [_sum_bins_ns(sweep, parts == i, edges) for i in range(len(names.PARTS))]
        )
        towers.append("".join(names.LETTERS[i] for i in shares.argmax(axis=0)))
    exchange_ns = _sum_bins_ns(sweep, sweep.runs(None, names.EXCHANGE), edges)
    is_exchange = exchange_ns * 2 >= np.diff(edges)
    exposed = names.LETTERS[names.PARTS.index(names.EXPOSED)]
    idle = names.LETTERS[-1]
    exchange = "".join(exposed if runs else idle for runs in is_exchange)
    return {"towers": towers, "exchange": exchange}


def _sum_bins_ns(sweep: _Sweep, mask: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the nanoseconds of a mask [K] in each bin between `edges`."""
    total = np.concatenate([[0], np.cumsum(np.where(mask, sweep.lengths, 0))])
    start = sweep.points[0]
    return np.diff(np.interp(edges - start, sweep.points - start, total))
