"""Whether rates changed: the test of a ratio after / before, and what such data could have shown.

Also Spearman's rank correlation with its 95 % interval: docs/statistics.md has its formula and simulated coverage.
"""

import dataclasses
import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from rnn_scaling.analysis.confidence import (
    LEVEL,
    Interval,
    interval_over_runs,
    paired_ratio,
    ratio,
)
from rnn_scaling.analysis.statements import Statement, Word, interval_values
from rnn_scaling.analysis.student import t_cdf, t_detectable, t_foreseeable, t_quantile

POWER = 0.80
REPEATS = (3, 5, 10, 20, 40)  # that are proposed where the runs there are do not tell
FEWEST_PAIRS = (
    6  # of a rank correlation: with five, the interval of a perfect order contains 0
)
NOISE = (
    0.1  # share by which two single runs differ at least before they are said to differ
)


class Verdict(Word):
    """Whether a rate changed."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no difference seen"
    UNJUDGED = "cannot judge"

    @classmethod
    def from_ratio(cls, change: Interval) -> "Verdict":
        """Return the direction of a change that is not noise."""
        return cls.FASTER if change.value > 1 else cls.SLOWER


class Gate(Word):
    """Whether a change passes."""

    PASSED = "ok"
    REGRESSION = "regression"
    UNJUDGED = "cannot judge"


@dataclasses.dataclass(frozen=True)
class Comparison:
    ratio: Interval  # rate after / before
    p_value: float | None
    # The smallest relative slow-down that data like these show in 80 of 100 repetitions, None without an interval.
    detectable: float | None
    paired: bool  # the processes ran interleaved
    verdict: Verdict


def compare(
    before: Sequence[float], after: Sequence[float], paired: bool = False
) -> Comparison:
    """Tests whether rates of processes changed, at 5 % false alarms, by Student's t over pairs or Welch's t."""
    change = (
        paired_ratio(before, after)
        if paired
        else ratio(interval_over_runs(after), interval_over_runs(before))
    )
    return judge_ratio(change, paired)


def judge_ratio(change: Interval, paired: bool = False) -> Comparison:
    """Tests whether a ratio after / before is 1, at 5 % false alarms; UNJUDGED with a single process."""
    error = change.relative_error
    if error is None or min(change.run_counts) < 2:
        return Comparison(change, None, None, paired, Verdict.UNJUDGED)
    distance = max(0.0, abs(math.log(change.value)) - change.rounding)
    p_value = (
        2 * (1 - t_cdf(distance / error, change.degrees))
        if error
        else float(distance == 0)
    )
    verdict = Verdict.SAME if p_value >= 1 - LEVEL else Verdict.from_ratio(change)
    least = detectable_effect(error, change.degrees) + change.rounding
    return Comparison(change, p_value, -math.expm1(-least), paired, verdict)


def gate(comparison: Comparison, max_regression: float) -> Gate:
    """Judge a change; `max_regression`: the largest slow-down that passes (0.05: 5 %)."""
    low, high = comparison.ratio.ends or (0.0, math.inf)
    if low >= 1 - max_regression:
        return Gate.PASSED
    return Gate.REGRESSION if high < 1 - max_regression else Gate.UNJUDGED


def is_above(a: Interval, b: Interval, among: int = 2) -> bool:
    """Whether `a` is above `b`: the interval of their ratio, as `confidence.ratio` gives it, lies above 1."""
    change = ratio(a, b)
    if change.relative_error is None:
        return False
    # An efficiency does not tell what it shares with another one, so the degrees of both are never added.
    degrees = change.degrees if a.scatter and b.scatter else min(a.degrees, b.degrees)
    margin = t_quantile(pair_quantile(among), degrees) * change.relative_error
    return math.log(change.value) > margin + change.rounding


def find_peak(rates: Sequence[Interval]) -> int | None:
    """Which of these rates is above the last one, beyond noise, and the highest; None where the last one is."""
    k = max(range(len(rates)), key=lambda i: rates[i].value, default=None)
    if k is None or k == len(rates) - 1:
        return None
    high = rates[k]
    low = rates[-1]
    if high.ends is None or low.ends is None:
        return k if low.value < (1 - NOISE) * high.value else None
    return k if is_above(high, low, len(rates)) else None


def pair_quantile(among: int) -> float:
    """The probability of Student's t at which all pairs of so many numbers together have 5 % false alarms."""
    return 1 - (1 - LEVEL) / 2 / math.comb(among, 2)


def more_repeats(values: Sequence[Interval]) -> tuple[int, int]:
    """(smallest number of processes of a value, useful number of repeats)."""
    now = max(
        1, min((count for value in values for count in value.run_counts), default=1)
    )
    return now, next((count for count in REPEATS if count >= 2 * now), 2 * now)


def foreseen_effect(
    error: float, degrees: float, now: int, repeats: int, among: int = 2
) -> float:
    """The true effect, in the unit of `error`, that `repeats` processes each most likely show (POWER).

    `error`: the standard error with `now` processes each, an estimate with these `degrees` of freedom.
    """
    later = degrees * ((repeats - 1) / (now - 1) if now > 1 else repeats / now)
    return (
        error
        * math.sqrt(now / repeats)
        * t_foreseeable(pair_quantile(among), POWER, degrees, later)
    )


def detectable_effect(error: float, degrees: float) -> float:
    """The true effect, in the unit of `error`, that a two-sided 5 % t test finds with 80 % power."""
    return error * t_detectable((1 + LEVEL) / 2, POWER, degrees)


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> Interval:
    """The correlation of the ranks of pairs, ties with their mean rank; 0 where all x or all y are equal.

    The interval is Fisher's z with the standard error of Bonett and Wright. A perfect order would have no width, so it
    is taken as 1 - 1/(2n). x, y: FEWEST_PAIRS or more.

    Source: Bonett, Wright, Psychometrika 65(1), 2000, doi:10.1007/BF02294183.
    """
    n = len(x)
    ranks = [_ranks(values) for values in (x, y)]
    is_constant = any(np.ptp(values) == 0 for values in ranks)
    value = 0.0 if is_constant else float(np.corrcoef(ranks)[0, 1])
    most = 1 - 0.5 / n
    within = min(max(value, -most), most)
    margin = NormalDist().inv_cdf((1 + LEVEL) / 2) * math.sqrt(
        (1 + within**2 / 2) / (n - 3)
    )
    low, high = (math.tanh(math.atanh(within) + sign * margin) for sign in (-1, 1))
    return Interval(
        value, min(low, value), max(high, value), "95 % CI of a rank correlation"
    )


def _ranks(values: Sequence[float]) -> np.ndarray:
    _, groups, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[groups]


def state_efficiency_trend(x: Sequence[float], y: Sequence[float]) -> Statement:
    """Whether the efficiency `y` of models follows their ratio `x` of work to exchanged data."""
    if len(x) < FEWEST_PAIRS:
        return Statement(
            "too-few-models", values={"models": len(x), "fewest": FEWEST_PAIRS}
        )
    correlation = rank_correlation(x, y)
    low, high = correlation.ends or (-1.0, 1.0)
    kind = (
        "efficiency-follows"
        if low > 0
        else "efficiency-falls"
        if high < 0
        else "efficiency-does-not-follow"
    )
    return Statement(kind, values={"models": len(x), **interval_values(correlation)})
