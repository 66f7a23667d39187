"""Where a run became steady, from the times of its batches.

seconds an item -> outliers -> cycle -> changes of level -> the last level that holds -> SteadyState

Outliers are marked and stay in the rate. Method, sources and simulated error: docs/statistics.md.
y: log seconds (of an item where batches differ in items), [n] = batches.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnn_scaling.analysis import change_points
from rnn_scaling.analysis.confidence import half_width_over_batches
from rnn_scaling.analysis.statements import Statement

SHORTEST = 30  # batches below which nothing is said
JUDGED = 60  # batches from which a run is said to have no steady state; a shorter one may still be warming up
TOLERANCE = 0.01  # levels that differ by less are one level
# Start-up (compiling, one shape after the other): within so many batches, one takes this much longer than usual (log),
# and so many times as much longer than any later batch does.
START_UPS = ((20, math.log(2), 1.25), (100, math.log(3), 1.5))
SETTLING = 30  # batches, or a tenth of the run, in which a level of its own is warm-up and no disturbance
LEAST_MOVE = 0.0005  # a smaller change of the rate is none
DISTURBANCE = 0.05  # share of the batches that one disturbance may take
# What passes and is named: at least so many batches in a row, so much longer (log) by so many standard deviations.
PASSING = (2, math.log(1.25), 5)


@dataclasses.dataclass(frozen=True)
class SteadyState:
    kind: str  # "flat", "warm-up", "slow-down", "cyclic", "no steady state" or "too short"
    # Items a second (batches a second without items) after the default warm-up; None where there are none.
    rate_default: float | None
    start: int | None = None  # index of the first steady batch; None if there is none
    outliers: tuple[
        int, ...
    ] = ()  # indices of batches far from their level; they stay in every rate
    rate_steady: float | None = None  # the same of the steady batches
    move: float | None = (
        None  # rate_steady / rate_default - 1, how far the default headline is off
    )
    # Relative 95 % half-width of rate_steady from the steady batches; says nothing about other processes.
    half_width: float | None = None
    period: int | None = None  # batches after which times repeat, if they do
    # Change of the time over the last half of the batches, if no level holds to the end.
    trend: float | None = None
    # The batches in a row that took longest, and how many times as long as usual.
    passing: tuple[int, ...] = ()
    passing_times: float | None = None


def analyse(
    step_s: Sequence[float],
    items: Sequence[float] | None = None,
    warmup: int = 10,
) -> SteadyState:
    """Finds the steady part of a run.

    Args:
      step_s: seconds of every batch from the first, warm-up included.
      items: items of the same batches; where they differ, seconds an item are judged.
    """
    seconds = np.asarray(step_s, float)
    work = np.ones(len(seconds)) if items is None else np.asarray(items, float)
    n = len(seconds)
    rate_default = _rate(seconds[warmup:], work[warmup:]) if n > warmup else None
    if n < SHORTEST:
        return SteadyState("too short", rate_default)
    series, cuts = _with_levels(_prepare(seconds, work))
    edges = [*([0] if series.lead else []), series.lead, *cuts, n]
    start, disturbed = _steady_start(series, edges)
    passing = _passing(series, start)
    outliers = tuple(sorted({*_outliers(series, edges, start, disturbed), *passing}))
    state = SteadyState("", rate_default, start, outliers, period=series.period)
    state = _concluded(state, series, seconds, work)
    if not passing:
        return state
    usual = np.median(series.y[series.lead :])
    times = math.exp(float(np.mean(series.y[passing])) - usual)
    return dataclasses.replace(state, passing=tuple(passing), passing_times=times)


class UntilKnown:
    """Says when a run knows its rate: two looks in a row find the half-width within the target.

    Each look is a chance to stop by luck, so there are few: from 60 batches on, each time they have grown by a quarter.
    """

    GROWTH = 1.25
    IN_A_ROW = 2

    def __init__(self, target: float) -> None:
        """target: relative half-width to reach (0.02: 2 %)."""
        self._target = target
        self._next = JUDGED
        self._passed = 0

    def due(self, batches: int) -> bool:
        """True if `reached` would look now, which takes some milliseconds."""
        return self._passed < self.IN_A_ROW and batches >= self._next

    def reached(
        self, step_s: Sequence[float], items: Sequence[float] | None = None
    ) -> bool:
        """True once the rate of the batches so far (from the first, warm-up included) is known to the target."""
        if self.due(len(step_s)):
            self._next = math.ceil(len(step_s) * self.GROWTH)
            width = analyse(
                step_s, items
            ).half_width  # None while there is no steady part
            self._passed = (
                self._passed + 1 if width is not None and width <= self._target else 0
            )
        return self._passed >= self.IN_A_ROW


@dataclasses.dataclass(frozen=True)
class _Series:
    """The series that is searched. y: without the effect of items and cycle; clipped: outliers at their bounds."""

    y: np.ndarray
    clipped: np.ndarray
    lead: int  # batches of the start-up
    period: int | None
    noise: float


def _prepare(seconds: np.ndarray, work: np.ndarray) -> _Series:
    log_s = np.log(seconds)
    varies = work.min() != work.max()
    y = change_points.item_cost(log_s, np.log(work)) if varies else log_s
    n = len(y)
    lead = _start_up(y)
    half = lead + (n - lead) // 2
    low, high = change_points.outlier_bounds(y[lead:])
    clipped = np.concatenate([y[:lead], np.clip(y[lead:], low, high)])
    period = change_points.cycle_length(clipped[half:])
    if period:
        y, clipped = (
            change_points.without_cycle(values, period, half) for values in (y, clipped)
        )
    if varies:  # batches may repeat in length though an item always takes the same
        period = (
            change_points.cycle_length(
                np.clip(log_s, *change_points.outlier_bounds(log_s))[lead:]
            )
            or period
        )
    return _Series(y, clipped, lead, period, change_points.noise(clipped[lead:]))


def _with_levels(series: _Series) -> tuple[_Series, list[int]]:
    """Changes of level, looked for again where the noise about the first ones was larger than assumed."""
    y = series.clipped[series.lead :]
    noise = series.noise
    cuts = change_points.change_points(y, noise)
    about = change_points.noise_about(y, cuts)
    if cuts and about > noise:
        noise = about
        cuts = change_points.change_points(y, noise)
    return dataclasses.replace(series, noise=noise), [series.lead + cut for cut in cuts]


def _start_up(y: np.ndarray) -> int:
    """Batches up to the last early one that took far longer than usual, and than any later one."""
    excess = y - np.median(y[len(y) // 2 :])
    end = 0
    for window, longer, times in START_UPS:
        early = min(window, len(y) // 3)
        large = np.flatnonzero(
            excess[:early] > max(longer, times * float(excess[early:].max()))
        )
        end = max(end, int(large[-1]) + 1 if len(large) else 0)
    return end


def _steady_start(
    series: _Series, edges: Sequence[int]
) -> tuple[int | None, list[int]]:
    """The first steady batch, and the batches of disturbances after it; None without a steady part."""
    n = len(series.y)
    long_run = series.noise
    enough = max(
        min(30, 2 * n // 3), math.ceil(n / 4)
    )  # 30 and a quarter of them; two thirds in a run below 45
    start, disturbed = _same_level(series, edges, settling=max(SETTLING, n // 10))
    if n - start < enough:
        start, disturbed = _same_level(series, edges, settling=0)
    y = series.clipped.copy()
    y[disturbed] = np.median(np.delete(y[start:], [i - start for i in disturbed]))
    for cut in range(start, n - enough + 1, max(1, (n - start) // 20)):
        if not change_points.drifts(y[cut:], long_run, TOLERANCE):
            break
    else:
        return None, []
    for window in {max(series.lead, cut - (n - cut)), series.lead}:
        changes = cut - window >= change_points.MIN_SIZE and change_points.drifts(
            y[window:], long_run, TOLERANCE
        )
        if changes and change_points.goes_on(y[window:], cut - window, long_run):
            return None, []
    return cut, [i for i in disturbed if i >= cut]


def _same_level(
    series: _Series, edges: Sequence[int], settling: int
) -> tuple[int, list[int]]:
    """Goes back from the last segment while medians agree, over short disturbances that begin after `settling`."""
    y = series.clipped
    run = edges[-2]
    disturbed: list[int] = []
    gap: list[int] = []
    for i in range(len(edges) - 3, -1, -1):
        start = edges[i]
        stop = edges[i + 1]
        if start < series.lead:
            break
        steady = np.delete(y[run:], [j - run for j in disturbed])
        error = math.sqrt(series.noise * (1 / (stop - start) + 1 / len(steady)))
        if abs(np.median(y[start:stop]) - np.median(steady)) <= max(
            TOLERANCE, 3 * error
        ):
            run = start
            disturbed = gap + disturbed
            gap = []
        elif start >= settling and stop - start + len(gap) <= DISTURBANCE * len(y):
            gap = [*range(start, stop), *gap]
        else:
            break
    return run, disturbed


def _outliers(
    series: _Series, edges: Sequence[int], start: int | None, disturbed: Sequence[int]
) -> tuple[int, ...]:
    residual = np.zeros(len(series.y))
    ends = sorted(
        {
            *(e for e in edges if start is None or e <= start),
            *([] if start is None else [start]),
            edges[-1],
        }
    )
    for a, b in zip(ends, ends[1:]):
        residual[a:b] = series.y[a:b] - np.median(series.y[a:b])
    low, high = change_points.outlier_bounds(residual)
    far = np.flatnonzero((residual < low) | (residual > high))
    return tuple(sorted({*(int(i) for i in far if i >= series.lead), *disturbed}))


def _passing(series: _Series, start: int | None) -> list[int]:
    """The batches in a row that took longest beyond what noise explains, in the steady part or where there is none."""
    first = max(series.lead, start or 0)
    residual = series.y - np.median(series.y[first:])
    fewest, longer, deviations = PASSING
    sigma = change_points.robust_scale(residual[first:])
    far = [
        i
        for i in np.flatnonzero(residual > max(longer, deviations * sigma)).tolist()
        if i >= first
    ]
    rows: list[list[int]] = []
    for i in far:
        if not rows or rows[-1][-1] != i - 1:
            rows.append([])
        rows[-1].append(i)
    # A level of its own is no passing disturbance.
    short = [
        row for row in rows if fewest <= len(row) <= max(5, DISTURBANCE * len(series.y))
    ]
    return max(short, key=lambda row: float(residual[row].sum()), default=[])


def _concluded(
    so_far: SteadyState, series: _Series, seconds: np.ndarray, work: np.ndarray
) -> SteadyState:
    """Adds the kind and the rates."""
    n = len(seconds)
    start = so_far.start
    period = so_far.period
    if start is None:
        kind = "no steady state" if n >= JUDGED else "too short"
        trend = math.expm1(change_points.trend(series.clipped[n // 2 :]))
        return dataclasses.replace(so_far, kind=kind, trend=trend)
    if period:
        whole = start + (n - start) % period  # rates of whole periods only
        start = whole if n - whole >= period else start
    kind = "flat" if not start else _kind_of_start(series, start)
    if period:
        kind = "cyclic"
    rate = _rate(seconds[start:], work[start:])
    move = None if so_far.rate_default is None else rate / so_far.rate_default - 1
    width = half_width_over_batches(seconds[start:], work[start:])
    return dataclasses.replace(
        so_far, kind=kind, start=start, rate_steady=rate, move=move, half_width=width
    )


def _kind_of_start(series: _Series, start: int) -> str:
    """Whether the batches before the steady part were slower or faster."""
    if start == series.lead:
        return "warm-up"
    before = np.median(series.y[series.lead : start])
    return "warm-up" if before > np.median(series.y[start:]) else "slow-down"


def statements(
    state: SteadyState, batches: int, warmup: int, unit: str
) -> list[Statement]:
    """Return what the times of a run's batches show.

    Args:
      state: What `analyse` found.
      batches: Number of batches, warm-up included.
      warmup: Batches that the rate of the run leaves out.
      unit: What the run counts, as in "words".
    """
    counts = {"batches": batches, "wanted": max(JUDGED, 2 * batches)}
    found = _without_steady_part(state, counts)
    if state.start is not None:
        found = _of_steady_part(state, counts, warmup, unit)
    if state.passing:
        found["steady-passing"] = {
            "first": state.passing[0],
            "last": state.passing[-1],
            "times": state.passing_times,
        }
    return [Statement(kind, values=values) for kind, values in found.items()]


Found = dict[str, Mapping[str, Any]]  # kind of a statement -> its values


def _without_steady_part(state: SteadyState, counts: Mapping[str, Any]) -> Found:
    if state.trend is None:
        return {"steady-too-few": counts}
    verdict = "steady-none" if state.kind == "no steady state" else "steady-not-yet"
    return {verdict: {**counts, "trend": state.trend}, "steady-run-more": counts}


def _of_steady_part(
    state: SteadyState, counts: Mapping[str, Any], warmup: int, unit: str
) -> Found:
    level = "steady-from-first"
    if state.start:
        level = "steady-slower" if state.kind == "slow-down" else "steady-warmed-up"
    rate = {"start": state.start, "rate": state.rate_steady, "unit": unit}
    found: Found = {level: rate}
    if state.period:
        found["steady-cycle"] = {"period": state.period}
    if state.half_width is not None:
        found["steady-width"] = {"width": state.half_width}
    if state.move is not None:
        is_same = abs(state.move) < LEAST_MOVE
        move = {"move": state.move, "warmup": warmup}
        found["steady-same" if is_same else "steady-moves"] = move
    if state.outliers:
        found["steady-outliers"] = {**counts, "outliers": len(state.outliers)}
    if counts["batches"] < JUDGED:
        found["steady-few"] = counts
    return found


def _rate(seconds: np.ndarray, work: np.ndarray) -> float:
    return float(work.sum() / seconds.sum())
