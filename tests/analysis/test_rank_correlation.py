"""Spearman's correlation of known ranks, its interval against published values, and what follows from both."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from rnn_scaling.analysis.significance import (
    FEWEST_PAIRS,
    rank_correlation,
    state_efficiency_trend,
)

# The example of ci.spear in the R package statpsych, by an author of the interval.
Y = [21, 4, 9, 12, 35, 18, 10, 22, 24, 1, 6, 8, 13, 16, 19]
X = [67, 28, 30, 28, 52, 40, 25, 37, 44, 10, 14, 20, 28, 40, 51]


def test_the_published_example_has_its_correlation_and_interval():
    found = rank_correlation(X, Y)
    assert found.value == pytest.approx(0.8699639, abs=1e-7)
    assert found.ends == pytest.approx((0.5840951, 0.9638297), abs=1e-5)


def test_without_ties_it_is_the_formula_of_squared_differences():
    for order in itertools.islice(itertools.permutations(range(6)), 0, 720, 37):
        squares = sum((place - k) ** 2 for k, place in enumerate(order))
        found = rank_correlation([0.1, 2, 3, 400, 5e3, 6e9], order)
        assert found.value == pytest.approx(1 - 6 * squares / (6 * 35))
        assert -1 <= found.low <= found.value <= found.high <= 1


def test_ties_have_their_mean_rank_and_equal_numbers_tell_nothing():
    ranks = [[1.5, 1.5, 3, 4, 5, 6], [1, 2, 4, 4, 4, 6]]
    assert rank_correlation(
        [2, 2, 3, 4, 5, 6], [10, 20, 30, 30, 30, 40]
    ).value == pytest.approx(float(np.corrcoef(ranks)[0, 1]))
    constant = rank_correlation([1.0] * 6, range(6))
    assert constant.value == 0 and constant.low == -constant.high < -0.8


@pytest.mark.parametrize(
    "order, kind",
    [
        ([1, 2, 3, 4, 5, 6], "efficiency-follows"),
        ([6, 5, 4, 3, 2, 1], "efficiency-falls"),
        (
            [2, 1, 4, 3, 6, 5],
            "efficiency-does-not-follow",
        ),  # 0.83: 5.8 % of all orders are as near to one of the two
        ([1, 2, 3, 4, 5], "too-few-models"),
        ([], "too-few-models"),
    ],
)
def test_what_follows(order, kind):
    made = state_efficiency_trend(
        [10.0**k for k in range(len(order))], [float(place) for place in order]
    )
    assert (made.kind, made.values["models"]) == (kind, len(order))
    if len(order) < FEWEST_PAIRS:
        assert made.values["fewest"] == FEWEST_PAIRS
    else:
        assert made.values["low"] <= made.values["value"] <= made.values["high"]


def test_with_fewer_models_even_a_perfect_order_would_tell_nothing():
    n = FEWEST_PAIRS - 1
    most = 1 - 0.5 / n
    assert math.atanh(most) < 1.96 * math.sqrt((1 + most**2 / 2) / (n - 3))
