"""Holm's correction, its false alarms, and the number of runs that a comparison needs."""

import random

import pytest

from rnn_scaling.analysis import significance
from rnn_scaling.analysis.comparison import verdicts


@pytest.mark.parametrize(
    "p_values, adjusted", [([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]), ([], [])]
)
def test_holm_adjusts_p_values(p_values, adjusted):
    result = verdicts.adjust_p_values(dict(enumerate(p_values)))
    assert result == pytest.approx(dict(enumerate(adjusted)))


def rates(rng, runs, spread, mean):
    return [rng.lognormvariate(0, spread) * mean for _ in range(runs)]


def conclude_family(rng, size, factor=1.0):
    """Conclude configurations of five processes per side with 2 % between processes."""
    results = []
    for number in range(size):
        comparison = significance.compare(
            rates(rng, 5, 0.02, 1000.0), rates(rng, 5, 0.02, 1000.0 * factor)
        )
        results.append(verdicts.Result(str(number), (5, 5), comparison=comparison))
    return verdicts.conclude(results, 0.0)


def test_false_alarms_of_a_family_stay_at_five_percent():
    rng = random.Random(1)
    alarms = 0
    for _ in range(200):
        changes = [result.verdict for result in conclude_family(rng, 8)]
        alarms += "slower" in changes or "faster" in changes
    # At most 10 are expected; more than 18 has a probability of 0.5 %. It is 65 without
    # the correction.
    assert alarms <= 18
    for _ in range(10):
        assert {result.gate for result in conclude_family(rng, 8, 0.85)} == {
            "regression"
        }


def test_runs_for_a_spread_grow_with_it_and_are_enough():
    needed = verdicts.runs_for_spread(0.03, 0.05)
    assert verdicts.runs_for_spread(0.01, 0.05) < needed
    assert needed < verdicts.runs_for_spread(0.05, 0.05)
    assert verdicts.runs_for_spread(0.03, 0.0) is None
    rng = random.Random(2)
    slower = 0
    for _ in range(400):
        comparison = significance.compare(
            rates(rng, needed, 0.03, 1.0), rates(rng, needed, 0.03, 0.95)
        )
        slower += comparison.verdict == "slower"
    assert 0.74 < slower / 400 < 0.92


def test_runs_needed_use_the_spread_of_the_runs():
    same = [1000.0, 1030.0, 970.0]
    comparison = significance.compare(same, same)
    assert 6 <= verdicts.count_needed_runs(comparison, 0.05) <= 9
    assert verdicts.count_needed_runs(comparison, 0.1) == 3
