"""Search for change points in a curve of entries, each the mean log rate of its runs.

Entries of the same code differ more than their runs explain, because a machine has
better and worse days. Entries are processed in order, so a change point that was found
stays. docs/history.md describes the search and its error rates.

`history.curves` and `history.sessions` call `find_levels`.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from rnn_scaling.analysis.change_points import compute_robust_scale
from rnn_scaling.analysis.confidence import LEVEL, Interval
from rnn_scaling.analysis.interval_kinds import Basis, IntervalKind
from rnn_scaling.analysis.student import t_quantile

# Probability of any false alarm in 100 entries of unchanged code, over all curves.
_FALSE_ALARMS = 0.01
# Divides _FALSE_ALARMS: 100 entries need 5,000 correlated tests.
_TESTS = 1000
_MIN_ENTRIES = 2  # entries on each side, so that one outlier is not a change point
_SETTLING = 3  # later entries that may still move a change point
# An entry this many standard deviations from its neighbours is an outlier.
_OUTLIER_DEVIATIONS = 5
_MIN_DEVIATION = 0.0005  # least standard deviation of an entry
_OUTLIER_WEIGHT = 1e-9

Entries = tuple[int, int]  # index of the first entry, index after the last one


@dataclasses.dataclass(frozen=True)
class Levels:
    """A curve, divided into parts of constant level.

    Attributes:
      values: Mean log rate of each entry.
      weights: 1 / variance of each entry; 1 for the average entry.
      cuts: Index of the first entry of each new level.
      found: Index of the entry that revealed each change point.
      is_outlier: Whether each entry is left out.
      least_variance: The part of the average entry's variance that its runs explain.
    """

    values: np.ndarray
    weights: np.ndarray
    cuts: tuple[int, ...]
    found: tuple[int, ...]
    is_outlier: np.ndarray
    least_variance: float

    def level(self, start: int, stop: int) -> tuple[float, float]:
        """Return the mean log rate of entries, and the sum of their weights."""
        weights = self.weights[start:stop]
        total = weights.sum()
        return float(weights @ self.values[start:stop] / total), float(total)

    def error(self, stop: int | None = None) -> tuple[float, int]:
        """Return the standard deviation of the average entry, and its degrees of freedom.

        Args:
          stop: Only entries before this one count.
        """
        if stop is None:
            stop = len(self.values)
        cuts = [cut for cut in self.cuts if cut < stop]
        squares = _sum_squares_around_levels(
            self.values[:stop], self.weights[:stop], cuts
        )
        degrees = int((~self.is_outlier[:stop]).sum()) - len(cuts) - 1
        variance = max(squares / max(degrees, 1), self.least_variance)
        return math.sqrt(variance), degrees

    def rate(self, entries: Entries, stop: int | None = None) -> Interval:
        """Return the mean rate of entries; all entries before `stop` give its interval."""
        mean, weight = self.level(*entries)
        return self._make_interval(mean, 1 / weight, stop)

    def change(
        self, before: Entries, after: Entries, stop: int | None = None
    ) -> Interval:
        """Return the rate after / the rate before, with an interval like `rate`."""
        mean_before, weight_before = self.level(*before)
        mean_after, weight_after = self.level(*after)
        share = 1 / weight_before + 1 / weight_after
        return self._make_interval(mean_after - mean_before, share, stop)

    def _make_interval(
        self, log_value: float, share: float, stop: int | None
    ) -> Interval:
        """Return exp(log_value) with its interval.

        Args:
          log_value: The logarithm.
          share: Its variance / the variance of the average entry.
          stop: Only entries before this one count.
        """
        value = math.exp(log_value)
        deviation, degrees = self.error(stop)
        if degrees < 1:
            return Interval(value, kind=IntervalKind(Basis.FEW_ENTRIES))
        error = deviation * math.sqrt(share)
        interval = Interval(value, standard_error=value * error, degrees=degrees)
        margin = t_quantile((1 + LEVEL) / 2, degrees) * error
        return interval.with_margin(margin, IntervalKind(Basis.HISTORY))


def find_levels(
    values: Sequence[float],
    num_runs: Sequence[int],
    run_deviation: float,
    num_curves: int = 1,
) -> Levels:
    """Return the levels between the change points of a curve.

    Args:
      values: Mean log rate of each entry.
      num_runs: Number of runs of each entry.
      run_deviation: Standard deviation of the log rates of one entry's runs.
      num_curves: Curves of the history, over which _FALSE_ALARMS holds.
    """
    y = np.asarray(values, float)
    if not len(y):
        no_outliers = np.zeros(0, bool)
        return Levels(
            y,
            weights=y,
            cuts=(),
            found=(),
            is_outlier=no_outliers,
            least_variance=_MIN_DEVIATION**2,
        )
    run_variances = run_deviation**2 / np.asarray(num_runs, float)
    differences = np.diff(y)
    if len(differences):
        differences = differences - np.median(differences)
    entry_variance = max(
        compute_robust_scale(differences) ** 2 / 2 - run_variances.mean(),
        _MIN_DEVIATION**2,
    )
    weights = 1 / (entry_variance + run_variances)
    is_outlier = _find_outliers(y, math.sqrt(entry_variance + run_variances.mean()))
    weights = np.where(
        is_outlier, _OUTLIER_WEIGHT, weights / weights[~is_outlier].mean()
    )
    explained = float((weights * run_variances)[~is_outlier].mean())
    least_variance = max(explained, _MIN_DEVIATION**2)
    probability = 1 - _FALSE_ALARMS / num_curves / _TESTS / 2
    cuts: list[int] = []
    found_cuts: list[int] = []
    closed_squares = 0.0  # sum of squares of the levels before the last one
    for stop in range(2 * _MIN_ENTRIES, len(y) + 1):
        if cuts and stop <= found_cuts[-1] + 1 + _SETTLING:
            start = cuts[-2] if len(cuts) > 1 else 0
            cuts[-1] = start + _find_best_cut(y[start:stop], weights[start:stop])[0]
            closed_squares = _sum_squares_around_levels(
                y[: cuts[-1]], weights[: cuts[-1]], cuts[:-1]
            )
        start = cuts[-1] if cuts else 0
        degrees = int((~is_outlier[:stop]).sum()) - len(cuts) - 2
        if stop - start < 2 * _MIN_ENTRIES or degrees < 1:
            continue
        length, gain, squares = _find_best_cut(y[start:stop], weights[start:stop])
        variance = max((closed_squares + squares) / degrees, least_variance)
        if gain <= variance * t_quantile(probability, degrees) ** 2:
            continue
        cut = start + length
        left = y[start:cut][~is_outlier[start:cut]]
        right = y[cut:stop][~is_outlier[cut:stop]]
        if _holds_without_one(left, right):
            closed_squares += _sum_weighted_squares(y[start:cut], weights[start:cut])
            cuts.append(cut)
            found_cuts.append(stop - 1)
    return Levels(
        y,
        weights=weights,
        cuts=tuple(cuts),
        found=tuple(found_cuts),
        is_outlier=is_outlier,
        least_variance=least_variance,
    )


def _find_outliers(y: np.ndarray, deviation: float) -> np.ndarray:
    """Return whether each entry is an outlier.

    It is far, on the same side, from the median of the three entries before it and from
    both entries after it. The first three entries have their neighbours after them, in
    reverse order, before them, too.
    """
    is_outlier = np.zeros(len(y), bool)
    if len(y) > 5:
        before = np.concatenate([y[3:0:-1], y])
        neighbours = [
            np.median([before[:-5], before[1:-4], before[2:-3]], axis=0),
            y[1:-1],
            y[2:],
        ]
        distances = y[:-2] - np.array(neighbours)
        is_far = np.abs(distances).min(axis=0) > _OUTLIER_DEVIATIONS * deviation
        is_one_sided = np.abs(np.sign(distances).sum(axis=0)) == 3
        is_outlier[:-2] = is_far & is_one_sided
    return is_outlier


def _holds_without_one(left: np.ndarray, right: np.ndarray) -> bool:
    """Return whether half of a change remains without its strongest entries.

    These are the one entry on each side that supports the change most.
    """
    if min(len(left), len(right)) < _MIN_ENTRIES:
        return False
    change = right.mean() - left.mean()
    left = np.sort(left * np.sign(change))
    right = np.sort(right * np.sign(change))
    return bool(right[:-1].mean() - left[1:].mean() > abs(change) / 2)


def _sum_weighted_squares(y: np.ndarray, weights: np.ndarray) -> float:
    """Return the weighted sum of squares around the mean; 0.0 for no numbers."""
    if not len(y):
        return 0.0
    return float(weights @ (y - weights @ y / weights.sum()) ** 2)


def _sum_squares_around_levels(
    y: np.ndarray, weights: np.ndarray, cuts: Sequence[int]
) -> float:
    """Return the weighted sum of squares around the mean of each level."""
    edges = [0, *cuts, len(y)]
    return math.fsum(
        _sum_weighted_squares(y[start:stop], weights[start:stop])
        for start, stop in itertools.pairwise(edges)
    )


def _find_best_cut(y: np.ndarray, weights: np.ndarray) -> tuple[int, float, float]:
    """Return the best cut: its index, the explained and the residual sum of squares."""
    cuts = np.arange(_MIN_ENTRIES, len(y) - _MIN_ENTRIES + 1)
    weight = weights.cumsum()
    total = (weights * (y - y.mean())).cumsum()
    weight_before = weight[cuts - 1]
    weight_after = weight[-1] - weight_before
    total_before = total[cuts - 1]
    total_after = total[-1] - total_before
    changes = total_before / weight_before - total_after / weight_after
    gains = changes**2 / (1 / weight_before + 1 / weight_after)
    best = int(gains.argmax())
    gain = float(gains[best])
    return int(cuts[best]), gain, max(_sum_weighted_squares(y, weights) - gain, 0.0)
