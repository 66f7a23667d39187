"""Spearman's rank correlation with its 95 % interval: docs/statistics.md has the formula and its simulated coverage."""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from rnn_scaling.analysis.confidence import LEVEL, Interval
from rnn_scaling.analysis.statements import Statement, interval_values

FEWEST = 6  # with five pairs, the interval of a perfect order contains 0


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> Interval:
    """The correlation of the ranks of pairs, ties with their mean rank; 0 where all x or all y are equal.

    The interval is Fisher's z with the standard error of Bonett and Wright. A perfect order would have no width, so it
    is taken as 1 - 1/(2n). A ValueError says that there are fewer than FEWEST pairs.

    Source: Bonett, Wright, Psychometrika 65(1), 2000, doi:10.1007/BF02294183.
    """
    n = len(x)
    if n < FEWEST or len(y) != n:
        raise ValueError(f"expected {FEWEST} pairs or more, got {n} and {len(y)} numbers")
    ranks = [_ranks(values) for values in (x, y)]
    is_constant = any(np.ptp(values) == 0 for values in ranks)
    value = 0.0 if is_constant else float(np.corrcoef(ranks)[0, 1])
    most = 1 - 0.5 / n
    within = min(max(value, -most), most)
    margin = NormalDist().inv_cdf((1 + LEVEL) / 2) * math.sqrt((1 + within**2 / 2) / (n - 3))
    low, high = (math.tanh(math.atanh(within) + sign * margin) for sign in (-1, 1))
    return Interval(value, min(low, value), max(high, value), "95 % CI of a rank correlation")


def _ranks(values: Sequence[float]) -> np.ndarray:
    _, groups, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[groups]


def follows(x: Sequence[float], y: Sequence[float]) -> Statement:
    """Whether the efficiency `y` of models follows their ratio `x` of work to exchanged data."""
    if len(x) < FEWEST:
        return Statement("too-few-models", values={"models": len(x), "fewest": FEWEST})
    correlation = rank_correlation(x, y)
    low, high = correlation.ends or (-1.0, 1.0)
    kind = "efficiency-follows" if low > 0 else "efficiency-falls" if high < 0 else "efficiency-does-not-follow"
    return Statement(kind, values={"models": len(x), **interval_values(correlation)})
