"""Step times before and after: how the percentiles changed, with an interval over processes and blocks of batches.

Each process has its percentiles. Their scatter over processes is what a bootstrap of processes finds, and Student's t
allows for few of them. With two or three processes, the scatter may be too small by luck: it is no smaller than a
bootstrap of blocks of batches inside the processes makes it. docs/statistics.md has the simulated coverage.
k: processes, n: batches, P: percentiles, R: resamples.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rnn_scaling.analysis import confidence, significance
from rnn_scaling.analysis.comparison import matching
from rnn_scaling.analysis.comparison.matching import Configuration
from rnn_scaling.analysis.confidence import Interval, Scatter
from rnn_scaling.analysis.metrics import BATCHES_NEEDED, step_times

SEED = 1
RESAMPLES = (20, 200)  # of a long and of a short process
MOST_NUMBERS = 5_000_000  # of the resamples of a process together
LEAST_CHANGE = 0.01  # a share; a smaller change is not stated


@dataclasses.dataclass(frozen=True)
class StepTimeChange:
    percentile: int
    ratio: Interval | None = None  # after / before; None: a run has fewer batches than it needs
    p_adjusted: float | None = None  # p-value after Holm's correction over all configurations and percentiles

    @property
    def is_shown(self) -> bool:
        """Whether the change is beyond the noise, and large enough to be stated."""
        is_large = self.ratio is not None and abs(self.ratio.value - 1) >= LEAST_CHANGE
        return is_large and self.p_adjusted is not None and self.p_adjusted < 1 - confidence.LEVEL

    @property
    def p_value(self) -> float | None:
        """Of this percentile alone."""
        return significance.judged(self.ratio).p_value if self.ratio else None


def of_configuration(configuration: Configuration, paired: bool, drifting: bool) -> tuple[StepTimeChange, ...]:
    """The changes of all percentiles; none where a run has no step times. drifting: one side ran after the other."""
    sides = [matching.good(side.files) for side in configuration.sides]
    if paired:
        numbered = [{matching.repeat(file.name): file for file in side} for side in sides]
        both = sorted(numbered[0].keys() & numbered[1].keys())
        sides = [[side[n] for n in both] for side in numbered]
    elif drifting:
        sides = [sorted(side, key=lambda file: file.record.environment.started or "") for side in sides]
    seconds = [[np.asarray(step_times(file.record), float) for file in side] for side in sides]
    return changes(seconds, paired, drifting)


def changes(seconds: Sequence[Sequence[np.ndarray]], paired: bool, drifting: bool) -> tuple[StepTimeChange, ...]:
    """The same of seconds `[2][k][n]`, before and after."""
    fewest = min(len(process) for side in seconds for process in side)
    known = [percentile for percentile, needed in BATCHES_NEEDED.items() if fewest >= needed]
    if not fewest:
        return ()
    random = np.random.default_rng(SEED)
    logs = [np.array([_log_percentiles(process, known) for process in side]) for side in seconds]  # [2][k, P]
    within = [np.array([_variances(process, known, random) for process in side]) for side in seconds]
    if paired:  # the logarithm of a pair's ratio is one number, whose variance is that of both
        logs, within = [logs[1] - logs[0]], [within[0] + within[1]]
    found = {}
    for i, percentile in enumerate(known):
        sides = [_over_processes(log[:, i], float(var[:, i].mean()), drifting) for log, var in zip(logs, within)]
        found[percentile] = sides[0] if paired else confidence.ratio(sides[1], sides[0])
    return tuple(StepTimeChange(percentile, found.get(percentile)) for percentile in BATCHES_NEEDED)


def _over_processes(logs: np.ndarray, within: float, drifting: bool) -> Interval:
    """The geometric mean of processes `[k]`; within: the variance of one of them by its batches."""
    values, k = np.exp(logs).tolist(), len(logs)
    own = Scatter(confidence.scatter(logs.tolist()), k - 1) if k > 1 else None
    if drifting:
        own = confidence.drifting_scatter(values)
    scatter = own and dataclasses.replace(own, deviation=max(own.deviation, math.sqrt(within)))
    return confidence.over_processes(values, scatter)


def _log_percentiles(seconds: np.ndarray, percentiles: Sequence[int]) -> Any:
    """Logarithms of percentiles `[P, ...]` of seconds `[..., n]`."""
    return np.log(np.percentile(seconds, percentiles, axis=-1))


def _variances(seconds: np.ndarray, percentiles: Sequence[int], random: np.random.Generator) -> np.ndarray:
    """Variances `[P]` of a process's log percentiles, by resampled blocks of batches, as neighbours correlate.

    Source: Politis and Romano, "A Circular Block-Resampling Procedure for Stationary Data", 1992.
    """
    n = len(seconds)
    resamples = min(max(MOST_NUMBERS // n, RESAMPLES[0]), RESAMPLES[1])
    length = max(1, round(2 * n ** (1 / 3)))
    starts = random.integers(n, size=(resamples, math.ceil(n / length), 1))
    batches = ((starts + np.arange(length)) % n).reshape(resamples, -1)[:, :n]
    return np.asarray(_log_percentiles(seconds[batches], percentiles).var(axis=-1, ddof=1))
