"""Test rank correlations and their intervals against published values."""

import itertools

import numpy as np
import pytest

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.correlation import (
    MIN_FAMILIES,
    MIN_POINTS_FOR_INTERVAL,
    compute_rank_correlation,
    compute_rank_correlation_with_errors,
    state_efficiency_trend,
)
from rnn_scaling.analysis.interval_kinds import Basis

# The example of ci.spear in the R package statpsych, by an author of the interval.
Y = [21, 4, 9, 12, 35, 18, 10, 22, 24, 1, 6, 8, 13, 16, 19]
X = [67, 28, 30, 28, 52, 40, 25, 37, 44, 10, 14, 20, 28, 40, 51]


def test_the_published_example_has_its_correlation_and_interval():
    found = compute_rank_correlation(X, Y)
    assert found.value == pytest.approx(0.8699639, abs=1e-7)
    assert found.ends == pytest.approx((0.5840951, 0.9638297), abs=1e-5)


def test_without_ties_it_is_the_formula_of_squared_differences():
    for order in itertools.islice(itertools.permutations(range(6)), 0, 720, 37):
        squares = sum((rank - k) ** 2 for k, rank in enumerate(order))
        found = compute_rank_correlation([0.1, 2, 3, 400, 5e3, 6e9], order)
        assert found.value == pytest.approx(1 - 6 * squares / (6 * 35))
        assert -1 <= found.low <= found.value <= found.high <= 1


def test_ties_have_their_mean_rank():
    ranks = [[1.5, 1.5, 3, 4, 5, 6], [1, 2, 4, 4, 4, 6]]
    assert compute_rank_correlation(
        [2, 2, 3, 4, 5, 6], [10, 20, 30, 30, 30, 40]
    ).value == pytest.approx(float(np.corrcoef(ranks)[0, 1]))
    constant = compute_rank_correlation([1.0] * 6, range(6))
    assert constant.value == 0 and constant.low == -constant.high < -0.8


def make_counts(values):
    return [Interval.exact(float(value), Basis.COUNT) for value in values]


def make_measured_values(values, relative_error, degrees=20.0):
    return [
        Interval(value, standard_error=value * relative_error, degrees=degrees)
        for value in map(float, values)
    ]


RATIOS = make_counts(10.0**k for k in range(10))
RISING = [80 + 2 * k for k in range(10)]


def test_without_errors_the_interval_is_that_of_the_families():
    for num_families in (MIN_POINTS_FOR_INTERVAL, 7, 10):
        plain = compute_rank_correlation(range(10), RISING, num_families)
        drawn = compute_rank_correlation_with_errors(
            RATIOS, make_counts(RISING), num_families
        )
        assert drawn.value == plain.value == pytest.approx(1)
        # Draws have a Monte-Carlo error.
        assert drawn.low == pytest.approx(plain.low, abs=0.02)


def test_errors_of_either_quantity_widen_the_interval():
    exact = compute_rank_correlation_with_errors(RATIOS, make_counts(RISING), 10)
    small = compute_rank_correlation_with_errors(
        RATIOS, make_measured_values(RISING, 0.03), 10
    )
    large = compute_rank_correlation_with_errors(
        RATIOS, make_measured_values(RISING, 0.1), 10
    )
    assert large.low < small.low < exact.low
    assert large.value == exact.value and large.high >= exact.high
    wide_ratios = make_measured_values([10.0**k for k in range(10)], 3.0)
    other = compute_rank_correlation_with_errors(wide_ratios, make_counts(RISING), 10)
    assert other.low < exact.low


def test_a_relation_within_the_errors_is_not_shown():
    """Order ten efficiencies perfectly that errors of 7 % could have ordered."""
    efficiencies = [88, 89, 89.3, 89.5, 89.7, 90.9, 91.5, 94, 94.1, 96.2]
    families = [str(k) for k in range(10)]
    kinds = []
    for error in (0.001, 0.07):
        measured_ones = make_measured_values(efficiencies, error)
        kinds.append(state_efficiency_trend(RATIOS, measured_ones, families).kind)
    assert kinds == ["efficiency-follows", "efficiency-does-not-follow"]


def test_sizes_of_one_network_count_once():
    sizes = ["resnet"] * 5 + ["a", "b", "c", "d", "e"]
    six = state_efficiency_trend(RATIOS, make_counts(RISING), sizes)
    ten = state_efficiency_trend(RATIOS, make_counts(RISING), [*map(str, range(10))])
    assert six.values["models"] == 10
    assert six.values["families"] == 6
    assert six.values["low"] < ten.values["low"]
    four = ["recurrent"] * 3 + ["resnet"] * 5 + ["a", "b"]
    statement = state_efficiency_trend(RATIOS, make_counts(RISING), four)
    assert statement.kind == "too-few-families"
    assert statement.values["low"] < 0


def test_numbers_without_intervals_are_not_judged():
    single = [Interval(value) for value in RISING]
    statement = state_efficiency_trend(RATIOS, single, [*map(str, range(10))])
    assert statement.kind == "trend-of-single-runs"


@pytest.mark.parametrize(
    "order, kind",
    [
        ([1, 2, 3, 4, 5, 6], "efficiency-follows"),
        ([6, 5, 4, 3, 2, 1], "efficiency-falls"),
        # 0.83: 5.8 % of all orders are as close to a perfect one.
        ([2, 1, 4, 3, 6, 5], "efficiency-does-not-follow"),
        ([1, 2, 3, 4, 5], "too-few-families"),
        ([], "too-few-models"),
    ],
)
def test_the_kind_of_trend_depends_on_the_interval(order, kind):
    families = list(map(str, order))
    statement = state_efficiency_trend(
        RATIOS[: len(order)], make_counts(order), families
    )
    assert statement.kind == kind
    assert statement.values["models"] == len(order)
    assert statement.values["fewest"] == MIN_FAMILIES
    if len(order) >= MIN_POINTS_FOR_INTERVAL:
        values = statement.values
        assert values["low"] <= values["value"] <= values["high"]
