"""Find the batches of a run whose times are steady.

Outliers are marked, but they stay in every rate. docs/statistics.md has the method, its
sources and its simulated error.
y: log seconds [n], per item if the batches have different numbers of items.

Runs end by it with --until_steady, and reports state what it found.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnn_scaling.analysis import change_points
from rnn_scaling.analysis.confidence import half_width_over_batches
from rnn_scaling.analysis.disturbance import counted_indices
from rnn_scaling.analysis.statements import Statement, Word
from rnn_scaling.records.record import RunRecord

_MIN_ANALYSED = 30  # fewer batches are not analysed
_MIN_JUDGED = 60  # with fewer batches, a run without a steady state may still warm up
_ANALYSES_IN_A_ROW = 2  # analyses that must agree before `UntilKnown` ends a run
_ANALYSIS_GROWTH = 1.25  # factor of the batches between two analyses
TOLERANCE = 0.01  # levels that differ by less are one level
# (batches, log, ratio): within this many first batches, a batch belongs to the start-up
# if it takes longer than usual by this log, and by this ratio of any later excess.
_START_UPS = ((20, math.log(2), 1.25), (100, math.log(3), 1.5))
# A separate level within this many first batches, or a tenth of the run, is warm-up.
_MIN_SETTLING = 30
_MIN_MOVE = 0.0005  # a smaller change of the rate counts as none
_MAX_DISTURBED = 0.05  # largest share of the batches in one disturbance
# Slow batches: at least this many in a row, longer by this log and by this many standard
# deviations.
_MIN_SLOW_BATCHES = 2
_MIN_SLOW_LOG = math.log(1.25)
_MIN_SLOW_DEVIATIONS = 5


class StateKind(Word):
    """The shape of a run's batch times."""

    FLAT = "flat"
    WARM_UP = "warm-up"
    SLOW_DOWN = "slow-down"
    CYCLIC = "cyclic"
    UNSTEADY = "no steady state"
    TOO_SHORT = "too short"


@dataclasses.dataclass(frozen=True)
class SteadyState:
    """The steady part of a run, and its rate.

    Indices count the batches that were analysed, from 0 with the warm-up.

    Attributes:
      kind: The shape of the times.
      rate_default: Items per second after the default warm-up, or batches per second
        without items; None if no batches are left.
      start: Index of the first steady batch; None if the run has no steady part.
      outliers: Indices of batches far from their level.
      rate_steady: Items per second of the steady batches.
      move: rate_steady / rate_default - 1.
      half_width: Relative 95 % half-width of rate_steady over the steady batches. It does
        not cover the differences between runs.
      period: Number of batches after which times repeat; None if they do not.
      trend: Relative change of the time over the last half of the batches, for a run
        without a steady part.
      slow_batches: Indices of the longest sequence of slow batches.
      slow_ratio: The time of the slow batches / the usual time.
    """

    kind: StateKind
    rate_default: float | None
    start: int | None = None
    outliers: tuple[int, ...] = ()
    rate_steady: float | None = None
    move: float | None = None
    half_width: float | None = None
    period: int | None = None
    trend: float | None = None
    slow_batches: tuple[int, ...] = ()
    slow_ratio: float | None = None


def analyse(
    step_s: Sequence[float],
    items: Sequence[float] | None = None,
    warmup: int = 10,
) -> SteadyState:
    """Find the steady part of a run.

    Args:
      step_s: Seconds of every batch from the first, warm-up included.
      items: Items of the same batches. If they differ, seconds per item are analysed.
      warmup: Batches that the default rate leaves out.
    """
    seconds = np.asarray(step_s, float)
    work = np.ones(len(seconds)) if items is None else np.asarray(items, float)
    n = len(seconds)
    rate_default = (
        _combined_rate(seconds[warmup:], work[warmup:]) if n > warmup else None
    )
    if n < _MIN_ANALYSED:
        return SteadyState(StateKind.TOO_SHORT, rate_default)
    series, cuts = _find_levels(_prepare(seconds, work))
    edges = [series.lead, *cuts, n]
    if series.lead:
        edges.insert(0, 0)
    start, disturbed = _find_steady_start(series, edges)
    slow_batches = _find_slow_batches(series, start)
    outliers = {*_find_outliers(series, edges, start, disturbed), *slow_batches}
    state = SteadyState(
        StateKind.TOO_SHORT,
        rate_default,
        outliers=tuple(sorted(outliers)),
        period=series.period,
    )
    if slow_batches:
        usual = np.median(series.y[series.lead :])
        excess = float(np.mean(series.y[slow_batches])) - usual
        state = dataclasses.replace(
            state, slow_batches=tuple(slow_batches), slow_ratio=math.exp(excess)
        )
    if start is None:
        return _complete_unsteady(state, series)
    return _complete_steady(
        state, series=series, start=start, seconds=seconds, work=work
    )


def analyse_run(record: RunRecord) -> SteadyState:
    """Find the steady part of a recorded run, without the batches that do not count.

    Returns:
      The state, with the record's numbers of batches.
    """
    batches = record.batches
    numbers = analysed_batches(record)
    state = analyse(
        [batches.seconds[i] for i in numbers],
        [batches.items[i] for i in numbers],
        batches.warmup,
    )
    return dataclasses.replace(
        state,
        start=None if state.start is None else numbers[state.start],
        outliers=tuple(numbers[i] for i in state.outliers),
        slow_batches=tuple(numbers[i] for i in state.slow_batches),
    )


def analysed_batches(record: RunRecord) -> Sequence[int]:
    """Return the numbers of the batches that `analyse_run` uses, with the warm-up."""
    return [*range(record.batches.warmup), *counted_indices(record)]


class UntilKnown:
    """Decide when a run may end, because the rate of its batches is known.

    Several analyses in a row must find a half-width within the target. Each analysis
    may succeed by chance, so there are few: the first with _MIN_JUDGED batches, each
    further one when the batches have grown by a quarter.
    """

    def __init__(self, target: float) -> None:
        """target: Relative half-width to reach, such as 0.02 for 2 %."""
        self._target = target
        self._next = _MIN_JUDGED
        self._passed = 0

    def is_due(self, batches: int) -> bool:
        """Return whether `reached` would analyse now, which takes some milliseconds."""
        return self._passed < _ANALYSES_IN_A_ROW and batches >= self._next

    def reached(
        self, step_s: Sequence[float], items: Sequence[float] | None = None
    ) -> bool:
        """Return whether the rate is known to the target.

        Args:
          step_s: Seconds of the batches so far, warm-up included.
          items: Items of the same batches.
        """
        if self.is_due(len(step_s)):
            self._next = math.ceil(len(step_s) * _ANALYSIS_GROWTH)
            width = analyse(step_s, items).half_width
            is_known = width is not None and width <= self._target
            self._passed = self._passed + 1 if is_known else 0
        return self._passed >= _ANALYSES_IN_A_ROW


@dataclasses.dataclass(frozen=True)
class _Series:
    """The series in which levels are searched.

    Attributes:
      y: Log seconds without the effects of items and of the cycle.
      clipped: y with outliers at their bounds.
      lead: Number of batches of the start-up.
      period: Number of batches of the cycle; None without one.
      noise: Long-run variance of clipped.
    """

    y: np.ndarray
    clipped: np.ndarray
    lead: int
    period: int | None
    noise: float


def _prepare(seconds: np.ndarray, work: np.ndarray) -> _Series:
    """Remove the effects of items and of a cycle from the times of all batches.

    The order matters: a cycle is only looked for after the start-up, which would hide
    it, and with outliers at their bounds.
    """
    log_s = np.log(seconds)
    varies = work.min() != work.max()
    y = change_points.item_cost(log_s, np.log(work)) if varies else log_s
    n = len(y)
    lead = _start_up(y)
    half = lead + (n - lead) // 2
    low, high = change_points.outlier_bounds(y[lead:])
    clipped = np.concatenate([y[:lead], np.clip(y[lead:], low, high)])
    period = change_points.find_cycle_length(clipped[half:])
    if period:
        y = change_points.remove_cycle(y, period, half)
        clipped = change_points.remove_cycle(clipped, period, half)
    if varies:
        # Lengths may repeat although the time per item does not.
        low, high = change_points.outlier_bounds(log_s)
        length_period = change_points.find_cycle_length(
            np.clip(log_s, low, high)[lead:]
        )
        period = length_period or period
    return _Series(
        y,
        clipped=clipped,
        lead=lead,
        period=period,
        noise=change_points.estimate_noise(clipped[lead:]),
    )


def _find_levels(series: _Series) -> tuple[_Series, list[int]]:
    """Return the changes of level, and the series with its final noise.

    If the noise around the first levels is larger than assumed, the search is repeated.
    """
    y = series.clipped[series.lead :]
    noise = series.noise
    cuts = change_points.find_change_points(y, noise)
    noise_of_levels = change_points.estimate_noise_of_levels(y, cuts)
    if cuts and noise_of_levels > noise:
        noise = noise_of_levels
        cuts = change_points.find_change_points(y, noise)
    return dataclasses.replace(series, noise=noise), [series.lead + cut for cut in cuts]


def _start_up(y: np.ndarray) -> int:
    """Return the number of batches of the start-up.

    It ends with the last early batch that took far longer than usual, and than any
    later batch.
    """
    excess = y - np.median(y[len(y) // 2 :])
    end = 0
    for window, min_log, ratio in _START_UPS:
        early = min(window, len(y) // 3)
        limit = max(min_log, ratio * float(excess[early:].max()))
        large = np.flatnonzero(excess[:early] > limit)
        if len(large):
            end = max(end, int(large[-1]) + 1)
    return end


def _find_steady_start(
    series: _Series, edges: Sequence[int]
) -> tuple[int | None, list[int]]:
    """Return the first steady batch, and the disturbed batches after it.

    The steady part has at least 30 batches, or two thirds of a run below 45 batches,
    and a quarter of all.

    Returns:
      (None, []) without a steady part.
    """
    n = len(series.y)
    min_steady = max(min(30, 2 * n // 3), math.ceil(n / 4))
    start, disturbed = _find_last_level(series, edges, max(_MIN_SETTLING, n // 10))
    if n - start < min_steady:
        start, disturbed = _find_last_level(series, edges, 0)
    y = series.clipped.copy()
    y[disturbed] = np.median(np.delete(y[start:], [i - start for i in disturbed]))
    for cut in range(start, n - min_steady + 1, max(1, (n - start) // 20)):
        if not change_points.has_drift(y[cut:], series.noise, TOLERANCE):
            break
    else:
        return None, []
    for first in {max(series.lead, cut - (n - cut)), series.lead}:
        if cut - first < change_points.MIN_SIZE:
            continue
        drifts = change_points.has_drift(y[first:], series.noise, TOLERANCE)
        if drifts and change_points.may_continue(y[first:], cut - first, series.noise):
            return None, []
    return cut, [i for i in disturbed if i >= cut]


def _find_last_level(
    series: _Series, edges: Sequence[int], settling: int
) -> tuple[int, list[int]]:
    """Return the start of the last level, and the disturbed batches within it.

    Segments are joined from the last one backwards as long as their medians agree.
    Short disturbances are skipped if they begin after `settling` batches.
    """
    y = series.clipped
    first = edges[-2]
    disturbed: list[int] = []
    gap: list[int] = []
    for i in range(len(edges) - 3, -1, -1):
        start = edges[i]
        stop = edges[i + 1]
        if start < series.lead:
            break
        steady = np.delete(y[first:], [j - first for j in disturbed])
        error = math.sqrt(series.noise * (1 / (stop - start) + 1 / len(steady)))
        distance = abs(np.median(y[start:stop]) - np.median(steady))
        if distance <= max(TOLERANCE, 3 * error):
            first = start
            disturbed = gap + disturbed
            gap = []
        elif start >= settling and stop - start + len(gap) <= _MAX_DISTURBED * len(y):
            gap = [*range(start, stop), *gap]
        else:
            break
    return first, disturbed


def _find_outliers(
    series: _Series, edges: Sequence[int], start: int | None, disturbed: Sequence[int]
) -> set[int]:
    """Return the batches far from their level, and the disturbed ones."""
    bounds = {edges[-1]}
    if start is None:
        bounds.update(edges)
    else:
        bounds.add(start)
        bounds.update(edge for edge in edges if edge <= start)
    ends = sorted(bounds)
    residual = np.zeros(len(series.y))
    for a, b in zip(ends, ends[1:]):
        residual[a:b] = series.y[a:b] - np.median(series.y[a:b])
    low, high = change_points.outlier_bounds(residual)
    far_batches = np.flatnonzero((residual < low) | (residual > high))
    return {*far_batches[far_batches >= series.lead].tolist(), *disturbed}


def _find_slow_batches(series: _Series, start: int | None) -> list[int]:
    """Return the batches in a row that took longest, beyond noise; [] without any.

    They are searched in the steady part, or after the start-up of a run without one. A
    longer sequence is a level and not a disturbance.
    """
    first = max(series.lead, start or 0)
    residual = series.y - np.median(series.y[first:])
    sigma = change_points.robust_scale(residual[first:])
    limit = max(_MIN_SLOW_LOG, _MIN_SLOW_DEVIATIONS * sigma)
    sequences: list[list[int]] = []
    for i in np.flatnonzero(residual > limit).tolist():
        if i < first:
            continue
        if not sequences or sequences[-1][-1] != i - 1:
            sequences.append([])
        sequences[-1].append(i)
    max_length = max(5, _MAX_DISTURBED * len(series.y))
    short_runs = [
        batches
        for batches in sequences
        if _MIN_SLOW_BATCHES <= len(batches) <= max_length
    ]
    return max(
        short_runs, key=lambda batches: float(residual[batches].sum()), default=[]
    )


def _complete_unsteady(state: SteadyState, series: _Series) -> SteadyState:
    n = len(series.y)
    return dataclasses.replace(
        state,
        kind=StateKind.UNSTEADY if n >= _MIN_JUDGED else StateKind.TOO_SHORT,
        trend=math.expm1(change_points.find_trend(series.clipped[n // 2 :])),
    )


def _complete_steady(
    state: SteadyState,
    series: _Series,
    start: int,
    seconds: np.ndarray,
    work: np.ndarray,
) -> SteadyState:
    n = len(seconds)
    period = state.period
    if period:  # the rate covers complete periods
        complete_start = start + (n - start) % period
        if n - complete_start >= period:
            start = complete_start
    kind = _classify_start(series, start)
    if period:
        kind = StateKind.CYCLIC
    rate = _combined_rate(seconds[start:], work[start:])
    return dataclasses.replace(
        state,
        kind=kind,
        start=start,
        rate_steady=rate,
        move=None if state.rate_default is None else rate / state.rate_default - 1,
        half_width=half_width_over_batches(seconds[start:], work[start:]),
    )


def _classify_start(series: _Series, start: int) -> StateKind:
    """Compare the batches before the steady part with it."""
    if start == 0:
        return StateKind.FLAT
    if start == series.lead:
        return StateKind.WARM_UP
    early = np.median(series.y[series.lead : start])
    is_slower = early > np.median(series.y[start:])
    return StateKind.WARM_UP if is_slower else StateKind.SLOW_DOWN


StatementValues = dict[str, Mapping[str, Any]]  # kind of a statement -> its values


def make_statements(
    state: SteadyState, batches: int, warmup: int, unit: str
) -> list[Statement]:
    """Return what the times of a run's batches show.

    Args:
      state: The result of `analyse`.
      batches: Number of batches, warm-up included.
      warmup: Batches that the rate of the run leaves out.
      unit: The items that the run counts, such as "words".
    """
    counts = {"batches": batches, "wanted": max(_MIN_JUDGED, 2 * batches)}
    values = _unsteady_values(state, counts)
    if state.start is not None:
        values = _steady_values(state, counts, warmup, unit)
    if state.slow_batches:
        values["steady-passing"] = {
            "first": state.slow_batches[0],
            "last": state.slow_batches[-1],
            "times": state.slow_ratio,
        }
    return [Statement(kind, values=fields) for kind, fields in values.items()]


def _unsteady_values(state: SteadyState, counts: Mapping[str, Any]) -> StatementValues:
    if state.trend is None:
        return {"steady-too-few": counts}
    is_unsteady = state.kind == StateKind.UNSTEADY
    verdict = "steady-none" if is_unsteady else "steady-not-yet"
    return {verdict: {**counts, "trend": state.trend}, "steady-run-more": counts}


def _steady_values(
    state: SteadyState, counts: Mapping[str, Any], warmup: int, unit: str
) -> StatementValues:
    level = "steady-from-first"
    if state.start:
        is_slower = state.kind == StateKind.SLOW_DOWN
        level = "steady-slower" if is_slower else "steady-warmed-up"
    rate = {"start": state.start, "rate": state.rate_steady, "unit": unit}
    values: StatementValues = {level: rate}
    if state.period:
        values["steady-cycle"] = {"period": state.period}
    if state.half_width is not None:
        values["steady-width"] = {"width": state.half_width}
    if state.move is not None:
        is_same = abs(state.move) < _MIN_MOVE
        move = {"move": state.move, "warmup": warmup}
        values["steady-same" if is_same else "steady-moves"] = move
    if state.outliers:
        values["steady-outliers"] = {**counts, "outliers": len(state.outliers)}
    if counts["batches"] < _MIN_JUDGED:
        values["steady-few"] = counts
    return values


def _combined_rate(seconds: np.ndarray, work: np.ndarray) -> float:
    """Return the work per second of several batches together."""
    return float(work.sum() / seconds.sum())
