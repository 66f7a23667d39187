"""A folder in numbers: speedups, and what stands before them: load, differences, settings made by hand."""

from __future__ import annotations

import pytest

from tests.support.records import changed as altered
from tests.support.scaling_runs import attributed, of, timed


def test_load_and_differences_stand_before_the_numbers():
    quiet, busy = ({"load": {"others": share, "steal": 0.0, "seconds": 9.0}} for share in (0.01, 0.4))
    runs = attributed()
    known = [altered(r, environment={**quiet, "cpu": "X"}) for r in runs[:-1]]
    other = altered(runs[-1], environment={**busy, "cpu": "Y"})
    said = " ".join(of([*known, other]).cautions)
    assert "load of other processes" in said and "40.0%" in said
    assert "CPU model (X; Y)" in said
    assert "load" not in " ".join(of(known).cautions)


def test_load_of_all_runs_is_said_of_all_runs():
    load = {"load": {"others": 0.4, "steal": 0.0, "seconds": 9.0}}
    (line,) = [c for c in of([altered(r, environment=load) for r in attributed()]).cautions if "Load" in c]
    assert line.startswith("Load of other processes (all runs: 40.0%") and "0 runs" not in line


def test_the_three_speedups_differ_by_what_is_spent_once():
    made = of(attributed())
    found = made.series[0].largest.speedups
    assert found.steady.value == pytest.approx(1.8, rel=1e-3)
    train = (40 * 2000 / (60 + 39 * 2000 / 180)) / (40 * 1000 / (60 + 39 * 10))
    assert found.train.value == pytest.approx(train, rel=1e-3)
    whole = [60 + 4.5 + 39 * 1000 * n / rate for n, rate in ((1, 100), (2, 180))]
    assert found.total.value == pytest.approx(2 * whole[0] / whole[1], rel=1e-3)
    once = 60 + 4.5
    words = 39_000  # the first batch is in what is spent once
    assert found.same_work == pytest.approx((once + words / 100) / (once + words / 180), rel=1e-3)
    assert 1 < found.same_work < found.steady.value


def test_strong_scaling_made_by_hand_is_pointed_to_its_option():
    runs = [timed(n, 100 * n, batch_size=64 // n) for n in (1, 2, 4)]
    (line,) = of(runs).hand_made
    assert "--batch_size=16 on 4 devices" in line and "--global_batch_size=64" in line and line in of(runs).cautions
    assert not of([*runs, timed(1, 100, batch_size=32)]).hand_made, "a sweep over batch sizes is no such thing"
    assert not of(runs[1:2]).hand_made
