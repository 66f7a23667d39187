"""Online change-point search in a curve of entries, each the mean log rate of its processes.

Entries of the same code differ more than their processes explain, because a machine has better and worse days. Entries
are processed in order, so a step that was found stays. docs/history.md describes the search and its error rates.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np

from rnn_scaling.analysis.change_points import robust_scale
from rnn_scaling.analysis.confidence import LEVEL, Interval
from rnn_scaling.analysis.student import t_quantile

FALSE_ALARMS = 0.01  # probability of any false alarm in 100 entries of unchanged code, over all curves
# Divides FALSE_ALARMS: 100 entries need 5,000 correlated tests.
TESTS = 1000
FEWEST = 2  # entries on each side of a step, so that a single outlier is not a step
SETTLING = 3  # entries that may still move a step after it was found
FAR = 5  # standard deviations from its neighbours beyond which an entry is an outlier, and is left out
FLOOR = 0.0005  # smallest standard deviation of an entry


@dataclasses.dataclass(frozen=True)
class Levels:
    """A curve, divided into parts of constant level."""

    values: np.ndarray  # mean log rate of each entry
    weights: np.ndarray  # of each entry: 1 / variance, 1 for the average entry
    cuts: tuple[int, ...]  # the first entry of each new level
    found: tuple[int, ...]  # the entry that revealed each step
    bad: np.ndarray  # whether an entry is left out as an outlier
    least_variance: float  # of the average entry: the part that its processes explain

    def level(self, start: int, stop: int) -> tuple[float, float]:
        """(mean log rate, sum of the weights) of these entries."""
        weights = self.weights[start:stop]
        return float(weights @ self.values[start:stop] / weights.sum()), float(
            weights.sum()
        )

    def error(self, stop: int | None = None) -> tuple[float, int]:
        """(standard deviation of the average entry, degrees of freedom), from the entries before `stop`."""
        stop = len(self.values) if stop is None else stop
        edges = [0, *(cut for cut in self.cuts if cut < stop), stop]
        free = int((~self.bad[:stop]).sum()) - len(edges) + 1
        squares = math.fsum(
            _squares(self.values[a:b], self.weights[a:b])
            for a, b in itertools.pairwise(edges)
        )
        return math.sqrt(max(squares / max(free, 1), self.least_variance)), free

    def rate(self, entries: tuple[int, int], stop: int | None = None) -> Interval:
        """The mean rate of these entries; its interval uses all entries before `stop`."""
        mean, weight = self.level(*entries)
        return _interval(mean, self.error(stop), 1 / weight)

    def change(
        self, before: tuple[int, int], after: tuple[int, int], stop: int | None = None
    ) -> Interval:
        """The rate of the entries `after` / that of `before`; its interval uses all entries before `stop`."""
        (a, weight_a), (b, weight_b) = self.level(*before), self.level(*after)
        return _interval(b - a, self.error(stop), 1 / weight_a + 1 / weight_b)


def _interval(log_value: float, error: tuple[float, int], share: float) -> Interval:
    """The interval of exp(log_value), whose variance is `share` of that of the average entry."""
    value, (deviation, free) = math.exp(log_value), error
    if free < 1:
        return Interval(value, kind="too few entries")
    made = Interval(
        value, standard_error=value * deviation * math.sqrt(share), degrees=free
    )
    margin = t_quantile((1 + LEVEL) / 2, free) * deviation * math.sqrt(share)
    return made.with_margin(margin, "95 % CI over entries")


def levels(
    values: Sequence[float],
    processes: Sequence[int],
    process_deviation: float,
    num_curves: int = 1,
) -> Levels:
    """Finds the steps of a curve.

    Args:
      values: mean log rate of each entry.
      processes: number of processes of each entry.
      process_deviation: standard deviation of the log rates of one entry's processes.
      num_curves: curves of the history, over which FALSE_ALARMS holds.
    """
    y = np.asarray(values, float)
    of_processes = process_deviation**2 / np.asarray(processes, float)
    differences = np.diff(y)
    centred = differences - np.median(differences) if len(differences) else differences
    of_entries = max(robust_scale(centred) ** 2 / 2 - of_processes.mean(), FLOOR**2)
    weights = 1 / (of_entries + of_processes)
    bad = _bad_days(y, math.sqrt(of_entries + of_processes.mean()))
    weights = np.where(bad, 1e-9, weights / weights[~bad].mean())
    least = max(float((weights * of_processes)[~bad].mean()), FLOOR**2)
    probability = 1 - FALSE_ALARMS / num_curves / TESTS / 2
    cuts: list[int] = []
    found: list[int] = []
    closed = 0.0
    for stop in range(2 * FEWEST, len(y) + 1):
        if cuts and stop <= found[-1] + 1 + SETTLING:
            start = cuts[-2] if len(cuts) > 1 else 0
            cuts[-1] = start + _best_cut(y[start:stop], weights[start:stop])[0]
            edges = [0, *cuts]
            closed = math.fsum(
                _squares(y[a:b], weights[a:b]) for a, b in itertools.pairwise(edges)
            )
        start = cuts[-1] if cuts else 0
        free = int((~bad[:stop]).sum()) - len(cuts) - 2
        if stop - start < 2 * FEWEST or free < 1:
            continue
        cut, gain, squares = _best_cut(y[start:stop], weights[start:stop])
        is_seen = (
            gain
            > max((closed + squares) / free, least) * t_quantile(probability, free) ** 2
        )
        parts = [
            y[a:b][~bad[a:b]] for a, b in ((start, start + cut), (start + cut, stop))
        ]
        if is_seen and _holds_without_one(*parts):
            closed += _squares(y[start : start + cut], weights[start : start + cut])
            cuts.append(start + cut)
            found.append(stop - 1)
    return Levels(y, weights, tuple(cuts), tuple(found), bad, least)


def _bad_days(y: np.ndarray, deviation: float) -> np.ndarray:
    """Whether each entry is far from the median of the three before it and from both after it, on the same side."""
    bad = np.zeros(len(y), bool)
    if len(y) > 5:
        neighbours = [np.median([y[:-5], y[1:-4], y[2:-3]], axis=0), y[4:-1], y[5:]]
        apart = y[3:-2] - np.array(neighbours)
        bad[3:-2] = (np.abs(apart).min(axis=0) > FAR * deviation) & (
            np.abs(np.sign(apart).sum(axis=0)) == 3
        )
    return bad


def _holds_without_one(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether half of a change remains without the entry on each side that supports it most."""
    if min(len(left), len(right)) < FEWEST:
        return False
    change = right.mean() - left.mean()
    left = np.sort(left * np.sign(change))
    right = np.sort(right * np.sign(change))
    return bool(right[:-1].mean() - left[1:].mean() > abs(change) / 2)


def _squares(y: np.ndarray, weights: np.ndarray) -> float:
    """Weighted sum of squares about the mean."""
    return float(weights @ (y - weights @ y / weights.sum()) ** 2)


def _best_cut(y: np.ndarray, weights: np.ndarray) -> tuple[int, float, float]:
    """The best cut of y: (index, explained sum of squares, residual sum of squares)."""
    cuts = np.arange(FEWEST, len(y) - FEWEST + 1)
    weight = weights.cumsum()
    total = (weights * (y - y.mean())).cumsum()
    left = weight[cuts - 1]
    right = weight[-1] - weight[cuts - 1]
    gains = (total[cuts - 1] / left - (total[-1] - total[cuts - 1]) / right) ** 2 / (
        1 / left + 1 / right
    )
    best = int(gains.argmax())
    return (
        int(cuts[best]),
        float(gains[best]),
        max(_squares(y, weights) - float(gains[best]), 0.0),
    )
