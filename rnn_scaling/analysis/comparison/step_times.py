"""Changes of step-time percentiles, with their intervals.

The interval is Student's t over the logarithms of the runs' percentiles. With two
or three runs, their standard deviation may be too small by chance, so a block
bootstrap of the batches of each process is its lower bound. docs/statistics.md has the
simulated coverage.

k: runs, n: batches, P: percentiles.

`judgement` asks for the changes, and `verdicts` includes them in Holm's correction.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_scaling.analysis import confidence, significance
from rnn_scaling.analysis.comparison.matching import Configuration, start_time
from rnn_scaling.analysis.confidence import Interval, Scatter
from rnn_scaling.analysis.disturbance import has_disturbed_run
from rnn_scaling.analysis.metrics import PERCENTILE_BATCHES, list_step_times

_SEED = 1
_MIN_RESAMPLES = 20  # resamples of a long run
_MAX_RESAMPLES = 200  # resamples of a short run
_MAX_NUMBERS = 5_000_000  # numbers in all resamples of a run
_MIN_CHANGE = 0.01  # a share; a smaller change is not stated


@dataclasses.dataclass(frozen=True)
class StepTimeChange:
    """The change of a percentile between the runs before and after."""

    percentile: int
    ratio: Interval | None = None  # after / before; None if a run has too few batches
    # p-value after Holm's correction over all configurations and percentiles.
    p_adjusted: float | None = None

    @property
    def is_shown(self) -> bool:
        """Whether the change is significant and large enough to be stated."""
        if self.ratio is None or self.p_adjusted is None:
            return False
        is_large = abs(self.ratio.value - 1) >= _MIN_CHANGE
        return is_large and self.p_adjusted < 1 - confidence.LEVEL

    @property
    def p_value(self) -> float | None:
        """p-value of this percentile, not corrected."""
        return significance.judge_ratio(self.ratio).p_value if self.ratio else None


def compare_step_times(
    configuration: Configuration,
    paired: bool,
    has_drift: bool,
    drift: Scatter | None = None,
) -> tuple[StepTimeChange, ...]:
    """Return the changes of all percentiles; () if a run has no step times.

    Args:
      configuration: The configuration, with good runs on both sides.
      paired: Whether runs with the same repeat number are compared in pairs.
      has_drift: Whether the sides were measured one after the other, which
        `confidence.compute_drifting_scatter` allows for.
      drift: The scatter of log rates between sessions; None if it is not included.
    """
    runs_before, runs_after = [list(side.good_runs) for side in configuration.sides]
    if paired:
        by_repeat_before = {configuration.repeat(run): run for run in runs_before}
        by_repeat_after = {configuration.repeat(run): run for run in runs_after}
        repeats = sorted(by_repeat_before.keys() & by_repeat_after.keys())
        runs_before = [by_repeat_before[repeat] for repeat in repeats]
        runs_after = [by_repeat_after[repeat] for repeat in repeats]
    elif has_drift:
        runs_before.sort(key=start_time)
        runs_after.sort(key=start_time)
    all_batches = has_disturbed_run([*runs_before, *runs_after])
    return compare_percentiles(
        [np.asarray(list_step_times(run, all_batches), float) for run in runs_before],
        step_s_after=[
            np.asarray(list_step_times(run, all_batches), float) for run in runs_after
        ],
        paired=paired,
        has_drift=has_drift,
        drift=drift,
    )


def compare_percentiles(
    step_s_before: Sequence[np.ndarray],
    step_s_after: Sequence[np.ndarray],
    paired: bool,
    has_drift: bool,
    drift: Scatter | None = None,
) -> tuple[StepTimeChange, ...]:
    """Return the changes of all percentiles; () if a process has no batch.

    Args:
      step_s_before: Seconds of the batches of each process, [k][n].
      step_s_after: The same of the other side.
      paired: Whether runs are compared in pairs.
      has_drift: Whether the sides were measured one after the other.
      drift: The scatter of log rates between sessions; None if it is not included.
    """
    num_batches = min(map(len, (*step_s_before, *step_s_after)))
    if not num_batches:
        return ()
    percentiles = [
        percentile
        for percentile, min_batches in PERCENTILE_BATCHES.items()
        if num_batches >= min_batches
    ]
    random = np.random.default_rng(_SEED)
    logs_before, variances_before = _estimate(step_s_before, percentiles, random)
    logs_after, variances_after = _estimate(step_s_after, percentiles, random)
    if paired:
        # The logarithm of a ratio is a difference, so the variances add up.
        variances = variances_before + variances_after
        ratios = _average_runs(logs_after - logs_before, variances, has_drift)
    else:
        means_before = _average_runs(logs_before, variances_before, has_drift)
        means_after = _average_runs(logs_after, variances_after, has_drift)
        ratios = [
            confidence.divide_rates(mean_after, mean_before, drift)
            for mean_before, mean_after in zip(means_before, means_after)
        ]
    ratios_by_percentile = dict(zip(percentiles, ratios))
    return tuple(
        [StepTimeChange(p, ratios_by_percentile.get(p)) for p in PERCENTILE_BATCHES]
    )


def _estimate(
    side: Sequence[np.ndarray], percentiles: Sequence[int], random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return log percentiles [k, P], and their variances [k, P]."""
    logs = [_compute_log_percentiles(seconds, percentiles) for seconds in side]
    variances = [
        _compute_percentile_variances(seconds, percentiles, random) for seconds in side
    ]
    return np.array(logs), np.array(variances)


def _average_runs(
    logs: np.ndarray, variances: np.ndarray, has_drift: bool
) -> list[Interval]:
    """Return the geometric mean over the runs of each percentile.

    Args:
      logs: Logarithms, [k, P].
      variances: Variances within the runs, [k, P]. Their mean is the least variance.
      has_drift: Whether the interval includes drift.
    """
    intervals = []
    for column, least_variance in zip(logs.T, variances.T):
        values = np.exp(column).tolist()
        scatter = None
        if has_drift:
            scatter = confidence.compute_drifting_scatter(values)
        elif len(values) > 1:
            deviation = confidence.compute_standard_deviation(column.tolist())
            scatter = Scatter(deviation, len(values) - 1)
        if scatter is not None:
            least_deviation = math.sqrt(least_variance.mean())
            deviation = max(scatter.deviation, least_deviation)
            scatter = dataclasses.replace(scatter, deviation=deviation)
        intervals.append(confidence.compute_interval_over_runs(values, scatter))
    return intervals


def _compute_log_percentiles(seconds: np.ndarray, percentiles: Sequence[int]) -> Any:
    """Return log percentiles [P, ...] of seconds [..., n]."""
    return np.log(np.percentile(seconds, percentiles, axis=-1))


def _compute_percentile_variances(
    seconds: np.ndarray, percentiles: Sequence[int], random: np.random.Generator
) -> np.ndarray:
    """Return the variances [P] of a process's log percentiles.

    They are from a block bootstrap, because neighbouring batches correlate.

    Source: Politis and Romano, "A Circular Block-Resampling Procedure for Stationary
    Data", 1992.
    """
    n = len(seconds)
    num_resamples = min(max(_MAX_NUMBERS // n, _MIN_RESAMPLES), _MAX_RESAMPLES)
    length = max(1, round(2 * n ** (1 / 3)))
    starts = random.integers(n, size=(num_resamples, math.ceil(n / length), 1))
    batches = ((starts + np.arange(length)) % n).reshape(num_resamples, -1)[:, :n]
    logs = _compute_log_percentiles(seconds[batches], percentiles)
    return np.asarray(logs.var(axis=-1, ddof=1))
