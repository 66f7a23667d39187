"""What a comparison concludes of numbers alone: Holm's correction, false alarms, how many runs would tell."""

from __future__ import annotations

import random

import pytest

from rnn_scaling.analysis.comparison import verdicts


def test_holm():
    assert verdicts.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert verdicts.holm([0.5, 0.9]) == [1.0, 1.0]
    assert verdicts.holm([]) == [] and verdicts.holm([0.2]) == [0.2]


def family(rng, size, factor=1.0):
    """Two sides of five processes a configuration, 2 % between processes."""

    def measured(label):
        before, after = (
            [rng.lognormvariate(0, 0.02) * f for _ in range(5)]
            for f in (1000.0, 1000.0 * factor)
        )
        held = verdicts.significance.compare(before, after)
        return verdicts.Result(label, (5, 5), None, None, held)

    return verdicts.conclude([measured(str(i)) for i in range(size)], 0.0)


def test_false_alarms_of_a_family_stay_at_five_percent():
    rng = random.Random(1)
    families = [family(rng, 8) for _ in range(200)]
    alarms = sum(
        any(r.verdict in ("slower", "faster") for r in results) for results in families
    )
    assert (
        alarms <= 18
    )  # 10 expected of 200 at most; more than 18 has a chance of 0.5 %; without Holm it is 65
    found = [family(rng, 8, factor=0.85) for _ in range(10)]
    assert all(r.gate == "regression" for results in found for r in results)


def test_runs_needed_are_enough():
    rng = random.Random(2)
    needed = verdicts.runs_for_spread(0.03, 0.05)
    assert (
        verdicts.runs_for_spread(0.01, 0.05)
        < needed
        < verdicts.runs_for_spread(0.05, 0.05)
    )
    assert verdicts.runs_for_spread(0.03, 0.0) is None
    seen = 0
    for _ in range(400):
        before, after = (
            [rng.lognormvariate(0, 0.03) * f for _ in range(needed)]
            for f in (1.0, 0.95)
        )
        seen += verdicts.significance.compare(before, after).verdict == "slower"
    assert 0.74 < seen / 400 < 0.92
    rates = [[1000.0, 1030.0, 970.0], [1000.0, 1030.0, 970.0]]
    more = verdicts.runs_needed(verdicts.significance.compare(*rates), 0.05)
    assert 6 <= more <= 9  # judged by the spread of these, 3 %
    assert verdicts.runs_needed(verdicts.significance.compare(*rates), 0.1) == 3
