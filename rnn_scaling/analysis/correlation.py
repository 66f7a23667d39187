"""Does the efficiency of models follow the work that they do per exchanged MB?

Spearman's rank correlation answers it, with an interval that includes the errors of
both quantities. Networks of one family, such as a residual network with 20 and with 110
layers, are not independent, so families are counted and not models.
docs/statistics.md has the formulas, and docs/methods/measurements.md the coverage.

The conclusions of a report print `state_efficiency_trend`.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from rnn_scaling.analysis.confidence import LEVEL, Interval
from rnn_scaling.analysis.interval_kinds import Basis, IntervalKind
from rnn_scaling.analysis.statements import Statement, list_interval_values, state

# With five families, the interval of a perfect order contains 0.
MIN_FAMILIES = 6
# With three points, Fisher's z has no standard error.
MIN_POINTS_FOR_INTERVAL = 4
# With 2,000 draws, the ends of an interval depend on the seed by up to 0.07.
_NUM_DRAWS = 20_000
_NUM_BLOCKS = 20  # The ranks of a block of draws are in memory at the same time.
SEED = 1
_KIND = IntervalKind(Basis.RANK_CORRELATION)


def compute_rank_correlation(
    x: Sequence[float], y: Sequence[float], num_families: int | None = None
) -> Interval:
    """Return Spearman's rank correlation of numbers without errors.

    Ties have their mean rank. The correlation is 0 if all x or all y are equal. The
    interval is Fisher's z with the standard error of Bonett and Wright. For a perfect
    order it would have no width, so a correlation counts as at most 1 - 1/(2n).

    Args:
      x: One number of each model.
      y: Another number of each model.
      num_families: The number n of independent models, at least
        MIN_POINTS_FOR_INTERVAL. None counts every model.

    Source: Bonett, Wright, Psychometrika 65(1), 2000, doi:10.1007/BF02294183.
    """
    count = num_families or len(x)
    value = float(
        _compute_rank_correlations(np.asarray(x, float), np.asarray(y, float))
    )
    centre = float(_compute_fisher_z(value, count))
    margin = NormalDist().inv_cdf((1 + LEVEL) / 2) * _compute_fisher_error(value, count)
    low = math.tanh(centre - margin)
    high = math.tanh(centre + margin)
    return Interval(value, min(low, value), max(high, value), _KIND)


def compute_rank_correlation_with_errors(
    x: Sequence[Interval], y: Sequence[Interval], num_families: int
) -> Interval:
    """Return Spearman's rank correlation of numbers that have errors.

    In each of _NUM_DRAWS draws, every number moves by its error (Student's t of its
    logarithm), and Fisher's z of the correlation moves by the error of a sample of
    `num_families` models. The interval contains the middle 95 % of the draws, and the
    interval of `compute_rank_correlation`. It is never narrower than the latter,
    because further errors of the numbers can hide a relation, but cannot create one.

    Args:
      x: One number above 0 of each model; all have a standard error.
      y: Another number above 0 of each model; all have a standard error.
      num_families: The number of independent models, at least
        MIN_POINTS_FOR_INTERVAL.
    """
    without_errors = compute_rank_correlation(
        [number.value for number in x], [number.value for number in y], num_families
    )
    random = np.random.default_rng(SEED)
    x_blocks = np.array_split(_draw_logs(x, random), _NUM_BLOCKS)
    y_blocks = np.array_split(_draw_logs(y, random), _NUM_BLOCKS)
    values = np.concatenate([*map(_compute_rank_correlations, x_blocks, y_blocks)])
    errors = _compute_fisher_error(values, num_families)
    draws = _compute_fisher_z(values, num_families) + errors * random.normal(
        size=_NUM_DRAWS
    )
    tail_share = (1 - LEVEL) / 2
    low, high = np.tanh(np.quantile(draws, [tail_share, 1 - tail_share]))
    assert without_errors.ends is not None
    return Interval(
        without_errors.value,
        min(float(low), without_errors.ends[0]),
        max(float(high), without_errors.ends[1]),
        _KIND,
    )


def state_efficiency_trend(
    ratios: Sequence[Interval],
    efficiencies: Sequence[Interval],
    families: Sequence[str],
) -> Statement:
    """State whether efficiency depends on the ratio of work to exchanged data.

    Args:
      ratios: The ratio of each model.
      efficiencies: The efficiency of each model.
      families: The family of each model.
    """
    num_families = len(set(families))
    values: dict[str, Any] = {
        "models": len(ratios),
        "families": num_families,
        "fewest": MIN_FAMILIES,
    }
    if num_families < MIN_POINTS_FOR_INTERVAL:
        return state("too-few-models", **values)
    numbers = [*ratios, *efficiencies]
    if any(number.standard_error is None for number in numbers):
        return state("trend-of-single-runs", **values)
    correlation = compute_rank_correlation_with_errors(
        ratios, efficiencies, num_families
    )
    values |= list_interval_values(correlation)
    low, high = correlation.ends or (-1.0, 1.0)
    if low > 0:
        return state("efficiency-follows", **values)
    if high < 0:
        return state("efficiency-falls", **values)
    if num_families < MIN_FAMILIES:
        return state("too-few-families", **values)
    return state("efficiency-does-not-follow", **values)


def _draw_logs(numbers: Sequence[Interval], random: np.random.Generator) -> np.ndarray:
    """Return draws of the logarithms of numbers, [_NUM_DRAWS, len(numbers)]."""
    columns = []
    for number in numbers:
        column = np.full(_NUM_DRAWS, math.log(number.value))
        if number.relative_error:
            column += number.relative_error * random.standard_t(
                number.degrees, _NUM_DRAWS
            )
        columns.append(column)
    return np.stack(columns, axis=-1)


def _compute_rank_correlations(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return Spearman's rank correlation along the last axis; 0 if all are equal."""
    x_ranks = _compute_centred_ranks(x)
    y_ranks = _compute_centred_ranks(y)
    products = (x_ranks * y_ranks).sum(-1)
    scale = np.sqrt((x_ranks**2).sum(-1) * (y_ranks**2).sum(-1))
    return np.divide(products, scale, out=np.zeros_like(products), where=scale > 0)


def _compute_centred_ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks along the last axis minus their mean; ties have their mean rank."""
    differences = np.sign(values[..., :, None] - values[..., None, :])
    return differences.sum(-1) / 2


def _limit_correlation(value: Any, count: int) -> Any:
    """Return a correlation of at most 1 - 1/(2n), which has a finite Fisher's z."""
    limit = 1 - 0.5 / count
    return np.clip(value, -limit, limit)


def _compute_fisher_z(value: Any, count: int) -> Any:
    return np.arctanh(_limit_correlation(value, count))


def _compute_fisher_error(value: Any, count: int) -> Any:
    """Return the standard error of Fisher's z, by Bonett and Wright."""
    return np.sqrt((1 + _limit_correlation(value, count) ** 2 / 2) / (count - 3))
