"""Test rankings of candidates whose true order is known."""

import math
import random

import pytest

from benchmarks.recommendation import Noise, simulate_ranking
from rnn_scaling.analysis.ranking import (
    NEGLIGIBLE_DIFFERENCE,
    OPEN,
    SLOWER,
    rank,
    select_for_another_round,
)
from rnn_scaling.analysis.student import range_quantile, t_quantile


@pytest.mark.parametrize(
    "count, degrees, table",
    [(3, 10, 3.877), (5, 5, 5.673), (6, 6, 5.628), (10, 20, 5.008), (4, 3, 6.825)],
)
def test_range_quantiles_equal_published_tables(count, degrees, table):
    """Compare with Harter, Annals of Mathematical Statistics 31, 1960."""
    quantile = range_quantile(0.95, count, degrees)
    assert quantile * math.sqrt(2) == pytest.approx(table, rel=1e-3)
    assert range_quantile(0.95, 2, 7) == t_quantile(0.975, 7)


def share(repetitions, truth, scatter, condition):
    """Return the share of simulated rankings that fulfil a condition."""
    rng = random.Random(1)
    count = 0
    for _ in range(repetitions):
        count += condition(simulate_ranking(truth, Noise(scatter, 0.0), rng))
    return count / repetitions


def test_the_fastest_candidate_is_found():
    truth = {"a": 1.0, "best": 1.1, "c": 1.0, "d": 0.9}
    assert (
        share(150, truth, 0.01, lambda ranking: ranking.contenders == ["best"]) > 0.98
    )
    assert (
        share(150, truth, 0.03, lambda ranking: ranking.contenders == ["best"]) > 0.25
    )
    assert share(150, truth, 0.03, lambda ranking: "best" in ranking.contenders) > 0.98


@pytest.mark.parametrize("count, repetitions", [(2, 600), (3, 300), (6, 100)])
def test_equal_candidates_are_all_contenders(count, repetitions):
    tied = dict.fromkeys(range(count), 1.0)
    assert share(repetitions, tied, 0.02, lambda r: len(r.contenders) == count) >= 0.95
    slow = dict.fromkeys(range(count, 2 * count), 0.7)
    assert share(80, tied | slow, 0.02, lambda r: {0, 1} <= {*r.contenders}) >= 0.95


def test_the_largest_possible_difference_covers_the_true_one():
    def is_too_small(ranking):
        bounds = [ranking.standings[name].max_difference for name in ranking.undecided]
        return any(bound is not None and bound < 0.04 for bound in bounds)

    assert share(150, {"a": 1.0, "b": 0.96}, 0.01, is_too_small) <= 0.05
    close = rank({"a": [100.0, 100.2], "b": [100.3, 99.9], "c": [80.0, 80.1]})
    assert close.standings["c"].verdict == SLOWER
    [name] = close.undecided
    assert close.standings[name].max_difference < NEGLIGIBLE_DIFFERENCE


def test_one_round_decides_nothing():
    once = rank({"a": [100.0], "b": [50.0]})
    assert once.standings["b"].verdict == OPEN
    assert once.standings["b"].max_difference is None
    assert select_for_another_round(once, ["b"]) == ["b"]


def test_a_third_round_is_useful_only_if_it_may_decide():
    noisy = rank({"a": [100.0, 140.0], "b": [101.0, 139.0]})
    assert noisy.undecided
    assert select_for_another_round(noisy, noisy.undecided) == []
    near = rank({"a": [100.0, 101.0], "b": [96.0, 97.0], "c": [60.0, 61.0]})
    assert near.undecided == ["b"]
    assert select_for_another_round(near, ["b", "c"]) == ["b"]
    decided = rank({"a": [100.0, 101.0], "b": [80.0, 81.0], "c": [60.0, 61.0]})
    assert select_for_another_round(decided, ["b", "c"]) == []
