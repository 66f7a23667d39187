"""The command that measures intervals on real processes judges series whose truth is known rightly."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import series
from rnn_scaling.analysis.confidence import interval_over_runs
from tests.support.records import changed
from tests.support.scaling_runs import run


def recorded(rounds=12, drift=0.0, seed=1):
    """Two modes on one and two devices in turns: 3 % between processes, and what the machine loses from run to run."""
    rng, records = np.random.default_rng(seed), []
    for number in range(rounds):
        for place, (mode, n) in enumerate(
            (mode, n) for mode in ("independent", "replicated") for n in (1, 2)
        ):
            rate = (
                1e5 * n * math.exp(0.03 * rng.normal() - drift * (4 * number + place))
            )
            started = (
                f"2026-01-01T{number // 60:02d}:{number % 60:02d}:{place:02d}+00:00"
            )
            records.append(
                changed(
                    run(n, rate, variable_update=mode), environment={"started": started}
                )
            )
    return records


def test_a_part_is_judged_as_if_the_whole_did_not_hold_it():
    rng, hits = np.random.default_rng(1), []
    for _ in range(2000):
        rates = np.exp(0.03 * rng.normal(size=8))
        hits.append(
            series.holds(interval_over_runs(rates[:4]), interval_over_runs(rates), 0.5)
        )
    assert np.mean(hits) == pytest.approx(0.95, abs=0.015)
    assert not series.holds(
        interval_over_runs([1.0]), interval_over_runs([1.0, 1.1]), 0.5
    )


def test_runs_count_in_the_order_of_their_start_and_drift_is_seen():
    found = series.series_of(recorded(drift=0.01)[::-1])
    first = found.rows[0]
    assert [r.environment.started for r in first.good_runs] == sorted(
        r.environment.started for r in first.good_runs
    )
    assert found.rounds == 12
    assert all(float(line[-1]) > 0.5 for line in series.drift(found))
    (line,) = [line for line in series.alarms(found) if line[0] == "5"]
    assert int(line[2].rstrip("%")) <= 8, "drift between sessions is in the interval"


def test_processes_that_do_not_drift_are_covered():
    table = list(
        series.coverage(series.series_of(recorded(rounds=16)), seed=1, draws=20)
    )
    shares = {
        (what, count, how): int(held.rstrip("%"))
        for what, count, how, held, _ in table
        if count in ("3", "5")
    }
    assert {what for what, *_ in shares} == {"rate", "efficiency"} and min(
        shares.values()
    ) >= 85


def test_sweeps_are_held_against_each_other():
    sweeps = [series.series_of(recorded(rounds=3, seed=seed)) for seed in range(4)]
    lines = {line[0]: line for line in series.agreement(sweeps)}
    assert lines["rate"][1] == "24" and lines["efficiency"][1] == "12"
    assert int(lines["rate"][2].rstrip("%")) >= 85
    assert [line[0] for line in series.values(sweeps)] == [
        "cudnn_lstm-independent-2",
        "cudnn_lstm-replicated-2",
    ]
