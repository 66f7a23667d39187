"""Changes of step-time percentiles, with intervals that cover the variation between processes and between batches.

The interval is Student's t over the log percentiles of the processes. With two or three processes, their standard
deviation may be too small by chance. A block bootstrap of the batches of each process gives its lower bound.
docs/statistics.md has the simulated coverage.
k: processes, n: batches, P: percentiles, R: resamples.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_scaling.analysis import confidence, significance
from rnn_scaling.analysis.comparison.matching import Configuration
from rnn_scaling.analysis.confidence import Interval, Scatter
from rnn_scaling.analysis.metrics import BATCHES_NEEDED, step_times

SEED = 1
RESAMPLES = (20, 200)  # of a long and of a short process
MOST_NUMBERS = 5_000_000  # in all resamples of a process
LEAST_CHANGE = 0.01  # a share; a smaller change is not stated


@dataclasses.dataclass(frozen=True)
class StepTimeChange:
    percentile: int
    ratio: Interval | None = None  # after / before; None if a run has too few batches
    p_adjusted: float | None = (
        None  # p-value after Holm's correction over all configurations and percentiles
    )

    @property
    def is_shown(self) -> bool:
        """Whether the change is significant and large enough to be stated."""
        is_large = self.ratio is not None and abs(self.ratio.value - 1) >= LEAST_CHANGE
        return (
            is_large
            and self.p_adjusted is not None
            and self.p_adjusted < 1 - confidence.LEVEL
        )

    @property
    def p_value(self) -> float | None:
        """p-value of this percentile, not corrected."""
        return significance.judge_ratio(self.ratio).p_value if self.ratio else None


def of_configuration(
    configuration: Configuration, paired: bool, drifting: bool
) -> tuple[StepTimeChange, ...]:
    """The changes of all percentiles; empty if a run has no step times.

    Args:
      paired: compare pairs of runs with the same repeat number.
      drifting: the sides were measured one after the other, as `confidence.drifting_scatter` allows for.
    """
    sides = [list(side.good_runs) for side in configuration.sides]
    if paired:
        numbered = [{configuration.repeat(run): run for run in side} for side in sides]
        both = sorted(numbered[0].keys() & numbered[1].keys())
        sides = [[side[number] for number in both] for side in numbered]
    elif drifting:
        sides = [
            sorted(side, key=lambda run: run.environment.started or "")
            for side in sides
        ]
    seconds = [[np.asarray(step_times(run), float) for run in side] for side in sides]
    return changes(seconds, paired, drifting)


def changes(
    seconds: Sequence[Sequence[np.ndarray]], paired: bool, drifting: bool
) -> tuple[StepTimeChange, ...]:
    """The changes of all percentiles from seconds `[2][k][n]`, before and after."""
    fewest = min(len(process) for side in seconds for process in side)
    known = [
        percentile for percentile, needed in BATCHES_NEEDED.items() if fewest >= needed
    ]
    if not fewest:
        return ()
    random = np.random.default_rng(SEED)
    logs = [
        np.array([_log_percentiles(process, known) for process in side])
        for side in seconds
    ]  # [2][k, P]
    within = [
        np.array([_variances(process, known, random) for process in side])
        for side in seconds
    ]
    if (
        paired
    ):  # the logarithm of a pair's ratio is one number, whose variance is that of both
        logs = [logs[1] - logs[0]]
        within = [within[0] + within[1]]
    found = {}
    for i, percentile in enumerate(known):
        sides = [
            _over_processes(log[:, i], float(var[:, i].mean()), drifting)
            for log, var in zip(logs, within)
        ]
        found[percentile] = sides[0] if paired else confidence.ratio(sides[1], sides[0])
    return tuple(
        StepTimeChange(percentile, found.get(percentile))
        for percentile in BATCHES_NEEDED
    )


def _over_processes(logs: np.ndarray, within: float, drifting: bool) -> Interval:
    """The geometric mean over processes `[k]`; within: the variance within a process, a lower bound."""
    values = np.exp(logs).tolist()
    k = len(logs)
    between = (
        Scatter(confidence.standard_deviation(logs.tolist()), k - 1) if k > 1 else None
    )
    if drifting:
        between = confidence.drifting_scatter(values)
    scatter = between and dataclasses.replace(
        between, deviation=max(between.deviation, math.sqrt(within))
    )
    return confidence.interval_over_runs(values, scatter)


def _log_percentiles(seconds: np.ndarray, percentiles: Sequence[int]) -> Any:
    """Log percentiles `[P, ...]` of seconds `[..., n]`."""
    return np.log(np.percentile(seconds, percentiles, axis=-1))


def _variances(
    seconds: np.ndarray, percentiles: Sequence[int], random: np.random.Generator
) -> np.ndarray:
    """Variances `[P]` of a process's log percentiles, by a block bootstrap, because neighbouring batches correlate.

    Source: Politis and Romano, "A Circular Block-Resampling Procedure for Stationary Data", 1992.
    """
    n = len(seconds)
    resamples = min(max(MOST_NUMBERS // n, RESAMPLES[0]), RESAMPLES[1])
    length = max(1, round(2 * n ** (1 / 3)))
    starts = random.integers(n, size=(resamples, math.ceil(n / length), 1))
    batches = ((starts + np.arange(length)) % n).reshape(resamples, -1)[:, :n]
    return np.asarray(
        _log_percentiles(seconds[batches], percentiles).var(axis=-1, ddof=1)
    )
