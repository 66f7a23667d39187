"""Test whether rates changed, and compute which changes such data can show.

docs/statistics.md has the formulas. Comparisons, attribution, rankings and reports all
test with these functions, so that they agree about what is noise.
"""

import bisect
import dataclasses
import math
from collections.abc import Sequence

from rnn_scaling.analysis.confidence import (
    LEVEL,
    Interval,
    compute_interval_over_runs,
    compute_paired_ratio,
    divide_rates,
)
from rnn_scaling.analysis.interval_kinds import Basis, IntervalKind
from rnn_scaling.analysis.statements import Word
from rnn_scaling.analysis.student import t_cdf, t_detectable, t_foreseeable, t_quantile

_POWER = 0.80  # probability that a test finds a true effect
# Values of --repeats that are proposed if the existing runs cannot decide.
REPEATS = (3, 5, 10, 20, 40)
MAX_REPEATS = 100  # a difference that needs more repeats is not worth them
NOISE = 0.1  # two single runs whose rates differ by less are not called different


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
    """A change of rates, and what it shows.

    Attributes:
      ratio: Rate after / before.
      detectable: The smallest relative slow-down that such data show in 80 of 100
        repetitions; None without an interval.
      paired: Whether the runs were interleaved.
    """

    ratio: Interval
    p_value: float | None
    detectable: float | None
    paired: bool
    verdict: Verdict


def compare(
    before: Sequence[float], after: Sequence[float], paired: bool = False
) -> Comparison:
    """Test whether rates of runs changed, with 5 % false alarms.

    The test is Student's t over pairs, or Welch's t.
    """
    if paired:
        return judge_ratio(compute_paired_ratio(before, after), paired)
    return judge_ratio(
        divide_rates(
            compute_interval_over_runs(after), compute_interval_over_runs(before)
        )
    )


def judge_ratio(change: Interval, paired: bool = False) -> Comparison:
    """Test whether a ratio after / before is 1, with 5 % false alarms.

    Returns:
      A comparison that is UNJUDGED if a side has a single run.
    """
    error = change.relative_error
    if error is None or min(change.run_counts) < 2:
        return Comparison(
            change,
            p_value=None,
            detectable=None,
            paired=paired,
            verdict=Verdict.UNJUDGED,
        )
    distance = max(0.0, abs(math.log(change.value)) - change.rounding)
    p_value = float(distance == 0)
    if error:
        p_value = 2 * (1 - t_cdf(distance / error, change.degrees))
    verdict = Verdict.SAME if p_value >= 1 - LEVEL else Verdict.from_ratio(change)
    effect = compute_detectable_effect(error, change.degrees) + change.rounding
    return Comparison(
        change,
        p_value=p_value,
        detectable=-math.expm1(-effect),
        paired=paired,
        verdict=verdict,
    )


def gate(comparison: Comparison, max_regression: float) -> Gate:
    """Judge a change against the largest slow-down that passes, such as 0.05."""
    low, high = comparison.ratio.ends or (0.0, math.inf)
    if low >= 1 - max_regression:
        return Gate.PASSED
    return Gate.REGRESSION if high < 1 - max_regression else Gate.UNJUDGED


def compute_joint_ratio(a: Interval, b: Interval, num_compared: int) -> Interval:
    """Return a / b, with an interval that holds together with all pairs' intervals.

    Args:
      a: The numerator.
      b: The denominator.
      num_compared: The number of rates that are compared with each other.
    """
    change = divide_rates(a, b)
    if change.relative_error is None:
        return change
    # An efficiency does not have the scatter that it shares with another one, so the
    # degrees of both are not added.
    degrees = change.degrees if a.scatter and b.scatter else min(a.degrees, b.degrees)
    quantile = t_quantile(_compute_pair_quantile(num_compared), degrees)
    margin = quantile * change.relative_error + change.rounding
    kind = IntervalKind(Basis.RANKING, (num_compared,), change.kind.inherited_notes)
    return dataclasses.replace(change.with_margin(margin, kind), degrees=degrees)


def is_above(a: Interval, b: Interval, num_compared: int = 2) -> bool:
    """Return whether a is larger than b; see `compute_joint_ratio`."""
    low = compute_joint_ratio(a, b, num_compared).low
    return low is not None and low > 1


def find_peak(rates: Sequence[Interval]) -> int | None:
    """Return the index of the highest rate, or None if the last rate may be as high."""
    if not rates:
        return None
    index = max(range(len(rates)), key=lambda i: rates[i].value)
    high = rates[index]
    last = rates[-1]
    if index == len(rates) - 1:
        return None
    is_higher = last.value < (1 - NOISE) * high.value
    if high.ends is not None and last.ends is not None:
        is_higher = is_above(high, last, len(rates))
    return index if is_higher else None


def _compute_pair_quantile(num_compared: int) -> float:
    """Return the quantile level of one pair in a comparison of all pairs.

    With it, all pairs together have at most 5 % false alarms (Bonferroni).
    """
    return 1 - (1 - LEVEL) / 2 / math.comb(num_compared, 2)


def propose_repeats(values: Sequence[Interval]) -> tuple[int, int]:
    """Return the number of runs so far, and the number of repeats to propose.

    Returns:
      The smallest number of runs of a value, and at least twice as many repeats.
    """
    smallest_counts = [min(value.run_counts) for value in values if value.run_counts]
    num_runs = max(1, min(smallest_counts, default=1))
    for repeats in REPEATS:
        if repeats >= 2 * num_runs:
            return num_runs, repeats
    return num_runs, 2 * num_runs


def estimate_foreseen_effect(
    error: float, degrees: float, num_runs: int, repeats: int, num_compared: int = 2
) -> float:
    """Return the true effect that a number of repeats shows with the power _POWER.

    Args:
      error: Standard error with `num_runs` runs of each configuration; the unit of the
        result.
      degrees: Degrees of freedom of that estimate.
      num_runs: Runs of each configuration so far.
      repeats: Runs of each configuration in the future.
      num_compared: The number of rates that are compared with each other.
    """
    growth = (repeats - 1) / (num_runs - 1) if num_runs > 1 else repeats / num_runs
    effect = t_foreseeable(
        _compute_pair_quantile(num_compared), _POWER, degrees, degrees * growth
    )
    return error * math.sqrt(num_runs / repeats) * effect


def compute_needed_repeats(
    effect: float, error: float, degrees: float, num_runs: int, num_compared: int
) -> int | None:
    """Return the fewest repeats that show a true effect in 80 of 100 cases.

    Args:
      effect: The effect, above 0.
      error: Standard error with `num_runs` runs of each configuration; the unit of the
        effect.
      degrees: Degrees of freedom of that estimate.
      num_runs: Runs of each configuration so far.
      num_compared: The number of rates that are compared with each other.

    Returns:
      None if more than MAX_REPEATS are needed.
    """

    def is_shown(repeats: int) -> bool:
        return (
            estimate_foreseen_effect(
                error,
                degrees=degrees,
                num_runs=num_runs,
                repeats=repeats,
                num_compared=num_compared,
            )
            <= effect
        )

    candidates = range(num_runs + 1, MAX_REPEATS + 1)
    # The smallest effect that is shown falls as the repeats grow.
    index = bisect.bisect_left(candidates, True, key=is_shown)
    return candidates[index] if index < len(candidates) else None


def compute_detectable_effect(error: float, degrees: float) -> float:
    """Return the true effect that a two-sided 5 % t test finds with the power _POWER.

    Args:
      error: Standard error; the unit of the result.
    """
    return error * t_detectable((1 + LEVEL) / 2, _POWER, degrees)
