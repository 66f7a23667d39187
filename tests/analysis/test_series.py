"""The command that measures intervals on real processes judges series whose truth is known rightly."""

import math

import numpy as np
import pytest

from benchmarks import series
from rnn_scaling.analysis.confidence import compute_interval_over_runs
from tests.support.records import change_record
from tests.support.scaling_runs import run


def make_recorded_sweep(rounds=12, drift=0.0, seed=1):
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
                change_record(
                    run(n, rate, variable_update=mode), environment={"started": started}
                )
            )
    return records


def test_a_part_is_judged_as_if_the_whole_did_not_hold_it():
    rng, hits = np.random.default_rng(1), []
    for _ in range(2000):
        rates = np.exp(0.03 * rng.normal(size=8))
        hits.append(
            series.holds(
                compute_interval_over_runs(rates[:4]),
                compute_interval_over_runs(rates),
                0.5,
            )
        )
    assert np.mean(hits) == pytest.approx(0.95, abs=0.015)
    assert not series.holds(
        compute_interval_over_runs([1.0]), compute_interval_over_runs([1.0, 1.1]), 0.5
    )


def test_processes_that_do_not_drift_are_covered():
    table = list(
        series.list_coverage(
            series.build_series(make_recorded_sweep(rounds=16)), seed=1, draws=20
        )
    )
    shares = {
        (what, count, how): int(held.rstrip("%"))
        for what, count, how, held, _ in table
        if count in ("3", "5")
    }
    assert {what for what, *_ in shares} == {"rate", "efficiency"}
    assert min(shares.values()) >= 85
