"""Rankings of candidates whose true order is known."""

from __future__ import annotations

import math
import random

import pytest

from benchmarks.recommendation import simulated
from rnn_scaling.analysis.ranking import EQUAL, OPEN, SLOWER, rank, worth_a_round
from rnn_scaling.analysis.student import range_quantile, t_quantile


def test_the_range_of_equal_means_is_that_of_published_tables():
    """Studentized range at 5 % (Harter, Annals of Mathematical Statistics 31, 1960), over the root of two."""
    for count, degrees, table in [
        (3, 10, 3.877),
        (5, 5, 5.673),
        (6, 6, 5.628),
        (10, 20, 5.008),
        (4, 3, 6.825),
    ]:
        assert range_quantile(0.95, count, degrees) * math.sqrt(2) == pytest.approx(
            table, rel=1e-3
        )
    assert range_quantile(0.95, 2, 7) == t_quantile(0.975, 7)


def share(repetitions, truth, scatter, happens):
    """In which share of simulated rankings something happens."""
    rng = random.Random(1)
    return (
        sum(happens(simulated(truth, scatter, 0.0, rng)) for _ in range(repetitions))
        / repetitions
    )


def test_a_known_best_is_named_and_a_wrong_one_hardly_ever():
    truth = {"a": 1.0, "best": 1.1, "c": 1.0, "d": 0.9}
    assert share(300, truth, 0.01, lambda found: found.contenders == ["best"]) > 0.98
    assert share(300, truth, 0.03, lambda found: found.contenders == ["best"]) > 0.25
    assert share(300, truth, 0.03, lambda found: "best" in found.contenders) > 0.98


@pytest.mark.parametrize("count, repetitions", [(2, 2000), (3, 500), (6, 200)])
def test_ties_are_said_as_ties(count, repetitions):
    tied = dict.fromkeys(range(count), 1.0)
    nothing_is_slower = lambda found: len(found.contenders) == count  # noqa: E731
    assert share(repetitions, tied, 0.02, nothing_is_slower) >= 0.95
    beside_slow = {
        **dict.fromkeys(range(2), 1.0),
        **dict.fromkeys(range(2, 2 + count), 0.7),
    }
    assert (
        share(150, beside_slow, 0.02, lambda found: {0, 1} <= set(found.contenders))
        >= 0.95
    )


def test_equal_within_a_few_per_cent_is_said_only_of_what_differs_by_less():
    def says_too_little(found):
        return any(
            abs(0.96 - 1) > (found.standings[name].within or 1)
            for name in found.undecided
        )

    assert share(300, {"a": 1.0, "b": 0.96}, 0.01, says_too_little) <= 0.05
    close = rank({"a": [100.0, 100.2], "b": [100.3, 99.9], "c": [80.0, 80.1]})
    assert close.undecided and close.standings["c"].verdict == SLOWER
    assert all((close.standings[name].within or 1) < EQUAL for name in close.undecided)


def test_one_round_tells_nothing_and_nothing_at_all_is_an_error():
    once = rank({"a": [100.0], "b": [50.0]})
    assert once.standings["b"].verdict == OPEN and once.standings["b"].within is None
    assert worth_a_round(once, ["b"]) == ["b"]


def test_a_third_round_is_made_where_it_could_tell():
    noisy = rank({"a": [100.0, 140.0], "b": [101.0, 139.0]})
    assert (
        noisy.undecided and worth_a_round(noisy, noisy.undecided) == []
    )  # three rounds of such would show nothing
    near = rank({"a": [100.0, 101.0], "b": [96.0, 97.0], "c": [60.0, 61.0]})
    assert near.undecided == ["b"] and worth_a_round(near, ["b", "c"]) == ["b"]
    told = rank({"a": [100.0, 101.0], "b": [80.0, 81.0], "c": [60.0, 61.0]})
    assert worth_a_round(told, ["b", "c"]) == []
