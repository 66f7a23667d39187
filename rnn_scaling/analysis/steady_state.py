"""Find the batches of a run whose times are steady.

Outliers are marked, but they stay in every rate. docs/statistics.md describes the
method, its sources and its simulated error.

`KnownRateRule` ends a run with --until_steady. Reports and imports call `analyse` or
`analyse_run`, and reports print the statements of `make_statements`.

y: Logarithm of the seconds of each batch [n], per item if the batches have different
numbers of items.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rnn_scaling.analysis import change_points
from rnn_scaling.analysis.confidence import compute_half_width_over_batches
from rnn_scaling.analysis.disturbance import select_counted_indices
from rnn_scaling.analysis.statements import Statement, Word
from rnn_scaling.records.record import RunRecord

_MIN_ANALYSED = 30  # a run with fewer batches is TOO_SHORT
# A run with fewer batches and without a steady part may still be warming up. So it is
# TOO_SHORT and not UNSTEADY.
_MIN_JUDGED = 60
_ANALYSES_IN_A_ROW = 2  # analyses that must agree before `KnownRateRule` ends a run
_ANALYSIS_GROWTH = 1.25  # factor of the batches between two analyses
TOLERANCE = 0.01  # levels that differ by less are one level
# A level that ends within the first 30 batches, or within the first tenth of a longer
# run, is warm-up.
_MIN_WARM_UP_BATCHES = 30
# The steady part has at least a quarter of the batches, and at least 30. In a run of
# fewer than 45 batches, two thirds are enough.
_MIN_STEADY_SHARE = 1 / 4
_MIN_STEADY_BATCHES = 30
_MIN_CHANGE = 0.0005  # a smaller relative change of the rate counts as none
_MAX_DISTURBED = 0.05  # largest share of the batches in one disturbance
# Slow batches: at least two in a row that take 25 % longer than usual, and longer by
# five standard deviations.
_MIN_SLOW_BATCHES = 2
_MIN_SLOW_LOG = math.log(1.25)
_MIN_SLOW_DEVIATIONS = 5

StatementValues = dict[str, Mapping[str, Any]]  # kind of a statement -> its values


class _StartUpRule(NamedTuple):
    """A batch at the beginning belongs to the start-up if it is slow enough."""

    window: int  # number of first batches that may belong to the start-up
    min_log: float  # log(time / usual time) of a batch of the start-up, at least
    ratio: float  # this log / the same of every later batch, at least


# For example, a batch among the first 20 belongs to the start-up if it takes at least
# twice as long as usual, and if no later batch is nearly as slow.
_START_UP_RULES = (
    _StartUpRule(20, math.log(2), 1.25),
    _StartUpRule(100, math.log(3), 1.5),
)


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

    Indices count the analysed batches from 0; the warm-up is included.

    Attributes:
      kind: The shape of the times.
      rate_default: Items per second after the default warm-up, or batches per second
        without items; None if no batches are left.
      start: Index of the first steady batch; None if the run has no steady part.
      outliers: Indices of batches far from their level.
      rate_steady: Items per second of the steady batches.
      change: rate_steady / rate_default - 1.
      half_width: Relative 95 % half-width of rate_steady over the steady batches. It
        does not cover the differences between runs.
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
    change: float | None = None
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
        _combine_rates(seconds[warmup:], work[warmup:]) if n > warmup else None
    )
    if n < _MIN_ANALYSED:
        return SteadyState(StateKind.TOO_SHORT, rate_default)
    series, cuts = _find_levels(_make_series(seconds, work))
    # The boundaries of all levels; the start-up counts as one.
    edges = [series.start_up_length, *cuts, n]
    if series.start_up_length:
        edges.insert(0, 0)
    start, disturbed = _find_steady_start(series, edges)
    slow_batches = _find_slow_batches(series, start)
    outliers = {*_find_outliers(series, edges, start, disturbed), *slow_batches}
    # `_complete_steady` and `_complete_unsteady` decide the kind.
    state = SteadyState(
        StateKind.UNSTEADY,
        rate_default,
        outliers=tuple(sorted(outliers)),
        period=series.period,
    )
    if slow_batches:
        usual = np.median(series.y[series.start_up_length :])
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
      The state. Its indices are numbers of batches of the record.
    """
    batches = record.batches
    batch_numbers = count_analysed_batches(record)
    state = analyse(
        [batches.seconds[number] for number in batch_numbers],
        [batches.items[number] for number in batch_numbers],
        batches.warmup,
    )
    return dataclasses.replace(
        state,
        start=None if state.start is None else batch_numbers[state.start],
        outliers=tuple(batch_numbers[index] for index in state.outliers),
        slow_batches=tuple(batch_numbers[index] for index in state.slow_batches),
    )


def count_analysed_batches(record: RunRecord) -> Sequence[int]:
    """Return the numbers of the batches that `analyse_run` uses, with the warm-up."""
    return [*range(record.batches.warmup), *select_counted_indices(record)]


class KnownRateRule:
    """Decide when a run may end, because the rate of its batches is known.

    Several analyses in a row must find a half-width within the target. Each analysis
    may succeed by chance, so there are few: the first one with _MIN_JUDGED batches, and
    another one whenever the number of batches has grown by _ANALYSIS_GROWTH.
    """

    def __init__(self, target: float) -> None:
        """target: Relative half-width to reach, such as 0.02 for 2 %."""
        self._target = target
        self._next_analysis = _MIN_JUDGED  # number of batches
        self._num_passed = 0  # latest analyses in a row that met the target

    def is_due(self, batches: int) -> bool:
        """Return whether `update` would analyse now, which takes some milliseconds."""
        is_open = self._num_passed < _ANALYSES_IN_A_ROW
        return is_open and batches >= self._next_analysis

    def update(
        self, step_s: Sequence[float], items: Sequence[float] | None = None
    ) -> bool:
        """Analyse the batches if that is due; return whether the rate is known.

        Args:
          step_s: Seconds of the batches so far, warm-up included.
          items: Items of the same batches.
        """
        if self.is_due(len(step_s)):
            self._next_analysis = math.ceil(len(step_s) * _ANALYSIS_GROWTH)
            width = analyse(step_s, items).half_width
            is_within_target = width is not None and width <= self._target
            self._num_passed = self._num_passed + 1 if is_within_target else 0
        return self._num_passed >= _ANALYSES_IN_A_ROW


@dataclasses.dataclass(frozen=True)
class _Series:
    """The times in which levels are searched.

    Attributes:
      y: Log seconds without the effects of items and of the cycle.
      clipped: y with outliers at their bounds.
      start_up_length: Number of batches of the start-up.
      period: Number of batches of the cycle; None without one.
      noise_variance: Long-run variance of clipped.
    """

    y: np.ndarray
    clipped: np.ndarray
    start_up_length: int
    period: int | None
    noise_variance: float


def _make_series(seconds: np.ndarray, work: np.ndarray) -> _Series:
    """Remove the effects of items and of a cycle from the times of all batches.

    The cycle is found after the start-up and the outliers are removed: both would hide
    it.
    """
    log_s = np.log(seconds)
    has_equal_items = work.min() == work.max()
    y = (
        log_s
        if has_equal_items
        else change_points.compute_item_cost(log_s, np.log(work))
    )
    n = len(y)
    lead = _count_start_up_batches(y)
    half = lead + (n - lead) // 2
    low, high = change_points.compute_outlier_bounds(y[lead:])
    clipped = np.concatenate([y[:lead], np.clip(y[lead:], low, high)])
    period = change_points.find_cycle_length(clipped[half:])
    if period:
        y = change_points.remove_cycle(y, period, half)
        clipped = change_points.remove_cycle(clipped, period, half)
    if not has_equal_items:
        # A cycle of the items, such as sentences in a fixed order, makes a cycle of
        # times even if the time per item has none. The rate must cover complete cycles
        # of it.
        low, high = change_points.compute_outlier_bounds(log_s)
        length_period = change_points.find_cycle_length(
            np.clip(log_s, low, high)[lead:]
        )
        period = length_period or period
    return _Series(
        y,
        clipped=clipped,
        start_up_length=lead,
        period=period,
        noise_variance=change_points.estimate_noise(clipped[lead:]),
    )


def _find_levels(series: _Series) -> tuple[_Series, list[int]]:
    """Return the series with its final noise, and the batches where levels change.

    If the noise around the first levels is larger than assumed, the search is repeated.
    """
    y = series.clipped[series.start_up_length :]
    noise = series.noise_variance
    cuts = change_points.find_change_points(y, noise)
    noise_of_levels = change_points.estimate_noise_of_levels(y, cuts)
    if cuts and noise_of_levels > noise:
        noise = noise_of_levels
        cuts = change_points.find_change_points(y, noise)
    series = dataclasses.replace(series, noise_variance=noise)
    return series, [series.start_up_length + cut for cut in cuts]


def _count_start_up_batches(y: np.ndarray) -> int:
    """Return the number of batches of the start-up.

    It ends with the last early batch that took far longer than usual, and longer than
    all later batches (_START_UP_RULES).
    """
    excess = y - np.median(y[len(y) // 2 :])
    end = 0
    for rule in _START_UP_RULES:
        early = min(rule.window, len(y) // 3)
        limit = max(rule.min_log, rule.ratio * float(excess[early:].max()))
        large = np.flatnonzero(excess[:early] > limit)
        if len(large):
            end = max(end, int(large[-1]) + 1)
    return end


def _find_steady_start(
    series: _Series, edges: Sequence[int]
) -> tuple[int | None, list[int]]:
    """Return the first steady batch, and the disturbed batches after it.

    Returns:
      (None, []) without a steady part.
    """
    n = len(series.y)
    min_steady = max(
        min(_MIN_STEADY_BATCHES, 2 * n // 3), math.ceil(n * _MIN_STEADY_SHARE)
    )
    warm_up = max(_MIN_WARM_UP_BATCHES, n // 10)
    start, disturbed = _find_last_level(series, edges, warm_up)
    if n - start < min_steady:
        start, disturbed = _find_last_level(series, edges, 0)
    y = _fill_disturbed(series.clipped, start, disturbed)
    steady_start = _find_end_of_drift(y, series, start, min_steady)
    if steady_start is None or _is_within_longer_drift(y, series, steady_start):
        return None, []
    return steady_start, [index for index in disturbed if index >= steady_start]


def _fill_disturbed(y: np.ndarray, start: int, disturbed: Sequence[int]) -> np.ndarray:
    """Return y with the median of the level from `start` in place of a disturbance."""
    filled = y.copy()
    quiet = np.delete(y[start:], [index - start for index in disturbed])
    filled[disturbed] = np.median(quiet)
    return filled


def _find_end_of_drift(
    y: np.ndarray, series: _Series, start: int, min_steady: int
) -> int | None:
    """Return the first of some batches after which the times do not drift.

    Returns:
      None if fewer than `min_steady` batches follow each such batch.
    """
    n = len(y)
    interval = max(1, (n - start) // 20)
    for first in range(start, n - min_steady + 1, interval):
        if not change_points.has_drift(y[first:], series.noise_variance, TOLERANCE):
            return first
    return None


def _is_within_longer_drift(y: np.ndarray, series: _Series, steady_start: int) -> bool:
    """Return whether the part from `steady_start` continues a drift before it.

    A slow drift looks steady in a short part. So a part that is twice as long is
    tested, and everything after the start-up.
    """
    twice_as_long = steady_start - (len(y) - steady_start)
    for first in (max(series.start_up_length, twice_as_long), series.start_up_length):
        num_before = steady_start - first
        if num_before < change_points.MIN_SIZE:
            continue
        drifts = change_points.has_drift(y[first:], series.noise_variance, TOLERANCE)
        if drifts and change_points.may_continue(
            y[first:], num_before, series.noise_variance
        ):
            return True
    return False


def _find_last_level(
    series: _Series, edges: Sequence[int], warm_up: int
) -> tuple[int, list[int]]:
    """Return the start of the last level, and the disturbed batches within it.

    Segments are joined from the last one backwards as long as their medians agree. A
    short segment that differs is skipped if an earlier one agrees again: it is a
    disturbance. In the first `warm_up` batches, it is not skipped.
    """
    y = series.clipped
    first = edges[-2]
    disturbed: list[int] = []
    skipped: list[int] = []
    segments = list(zip(edges, edges[1:]))
    for start, stop in reversed(segments[:-1]):
        if start < series.start_up_length:
            break
        steady = np.delete(y[first:], [index - first for index in disturbed])
        variance = series.noise_variance * (1 / (stop - start) + 1 / len(steady))
        distance = abs(np.median(y[start:stop]) - np.median(steady))
        num_skipped = stop - start + len(skipped)
        if distance <= max(TOLERANCE, 3 * math.sqrt(variance)):
            first = start
            disturbed = skipped + disturbed
            skipped = []
        elif start >= warm_up and num_skipped <= _MAX_DISTURBED * len(y):
            skipped = [*range(start, stop), *skipped]
        else:
            break
    return first, disturbed


def _find_outliers(
    series: _Series, edges: Sequence[int], start: int | None, disturbed: Sequence[int]
) -> set[int]:
    """Return the batches far from their level, and the disturbed ones."""
    # The steady part counts as one level.
    bounds = {edges[-1]}
    if start is None:
        bounds.update(edges)
    else:
        bounds.add(start)
        bounds.update(edge for edge in edges if edge <= start)
    sorted_bounds = sorted(bounds)
    residual = np.zeros(len(series.y))
    for first, stop in zip(sorted_bounds, sorted_bounds[1:]):
        level = series.y[first:stop]
        residual[first:stop] = level - np.median(level)
    low, high = change_points.compute_outlier_bounds(residual)
    far_batches = np.flatnonzero((residual < low) | (residual > high))
    after_start_up = far_batches[far_batches >= series.start_up_length]
    return {*after_start_up.tolist(), *disturbed}


def _find_slow_batches(series: _Series, start: int | None) -> list[int]:
    """Return the batches in a row that took longest, beyond noise; [] without any.

    They are searched in the steady part, or after the start-up of a run without one. A
    longer sequence is a level and not a disturbance.
    """
    first = max(series.start_up_length, start or 0)
    residual = series.y - np.median(series.y[first:])
    sigma = change_points.compute_robust_scale(residual[first:])
    limit = max(_MIN_SLOW_LOG, _MIN_SLOW_DEVIATIONS * sigma)
    sequences: list[list[int]] = []
    for i in np.flatnonzero(residual > limit).tolist():
        if i < first:
            continue
        if not sequences or sequences[-1][-1] != i - 1:
            sequences.append([])
        sequences[-1].append(i)
    max_length = max(5, _MAX_DISTURBED * len(series.y))
    short_sequences = [
        batches
        for batches in sequences
        if _MIN_SLOW_BATCHES <= len(batches) <= max_length
    ]
    return max(
        short_sequences, key=lambda batches: float(residual[batches].sum()), default=[]
    )


def _complete_unsteady(state: SteadyState, series: _Series) -> SteadyState:
    """Return the state of a run without a steady part."""
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
    """Return the state of a run with a steady part from batch `start`."""
    n = len(seconds)
    period = state.period
    if period:  # the rate covers complete periods
        complete_start = start + (n - start) % period
        if n - complete_start >= period:
            start = complete_start
    kind = StateKind.CYCLIC if period else _classify_start(series, start)
    rate = _combine_rates(seconds[start:], work[start:])
    return dataclasses.replace(
        state,
        kind=kind,
        start=start,
        rate_steady=rate,
        change=None if state.rate_default is None else rate / state.rate_default - 1,
        half_width=compute_half_width_over_batches(seconds[start:], work[start:]),
    )


def _classify_start(series: _Series, start: int) -> StateKind:
    """Compare the batches before the steady part with it."""
    if start == 0:
        return StateKind.FLAT
    if start == series.start_up_length:
        return StateKind.WARM_UP
    early = np.median(series.y[series.start_up_length : start])
    is_slower = early > np.median(series.y[start:])
    return StateKind.WARM_UP if is_slower else StateKind.SLOW_DOWN


def make_statements(
    state: SteadyState, batches: int, warmup: int, unit: str
) -> list[Statement]:
    """State what the times of a run's batches show.

    Args:
      state: The result of `analyse`.
      batches: Number of batches, warm-up included.
      warmup: Batches that the rate of the run leaves out.
      unit: The items that the run counts, such as "words".
    """
    counts = {"batches": batches, "wanted": max(_MIN_JUDGED, 2 * batches)}
    if state.start is None:
        values = _list_unsteady_values(state, counts)
    else:
        values = _list_steady_values(state, counts, warmup, unit)
    if state.slow_batches:
        values["steady-passing"] = {
            "first": state.slow_batches[0],
            "last": state.slow_batches[-1],
            "times": state.slow_ratio,
        }
    return [Statement(kind, values=fields) for kind, fields in values.items()]


def _list_unsteady_values(
    state: SteadyState, counts: Mapping[str, Any]
) -> StatementValues:
    """Return the values of each statement, in the order of the statements."""
    if state.trend is None:
        return {"steady-too-few": counts}
    is_unsteady = state.kind == StateKind.UNSTEADY
    verdict = "steady-none" if is_unsteady else "steady-not-yet"
    return {verdict: {**counts, "trend": state.trend}, "steady-run-more": counts}


def _list_steady_values(
    state: SteadyState, counts: Mapping[str, Any], warmup: int, unit: str
) -> StatementValues:
    """Return the values of each statement, in the order of the statements."""
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
    if state.change is not None:
        is_same = abs(state.change) < _MIN_CHANGE
        change = {"move": state.change, "warmup": warmup}
        values["steady-same" if is_same else "steady-moves"] = change
    if state.outliers:
        values["steady-outliers"] = {**counts, "outliers": len(state.outliers)}
    if counts["batches"] < _MIN_JUDGED:
        values["steady-few"] = counts
    return values


def _combine_rates(seconds: np.ndarray, work: np.ndarray) -> float:
    """Return the work per second of several batches together."""
    return float(work.sum() / seconds.sum())
