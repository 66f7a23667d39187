"""Calibration finds the system behind simulated rates and recorded runs of netlab."""

import dataclasses
import math

import pytest

from benchmarks import simulation as benchmark
from rnn_scaling.analysis.prediction.curves import (
    WEAK,
    CannotPredict,
    Curve,
    Knowledge,
    Link,
    MeasuredPoint,
)
from rnn_scaling.analysis.simulation.calibration import calibrate, simulate_curve
from rnn_scaling.analysis.simulation.simulating import System, simulate_job_efficiencies
from tests.support.paths import ROOT

LINKS = (Link(1e-5, 1e9),)
TIMES = (0.09, 0.1, 0.1, 0.11)
TRUTH = System(0.1, "ring", 5e7, 1e6, LINKS, step_times=TIMES)
KNOWN = Knowledge(
    step_s=0.1,
    summed_bytes=5e7,
    gathered_bytes=1e6,
    algorithm="ring",
    step_times=TIMES,
    links=LINKS,
)


def make_curve(system, known, counts=(1, 2, 16)):
    points = tuple(
        MeasuredPoint(
            n, n * 10 * float(simulate_job_efficiencies(system, n, 400, 5).mean())
        )
        for n in counts
    )
    return Curve("a", "words", WEAK, points, known)


def find_error(curve, devices=16):
    system, (statement,) = calibrate(curve, seed=1)
    efficiency = float(simulate_job_efficiencies(system, devices, 400, 2).mean())
    rate = devices * curve.points[0].rate * efficiency
    return rate / curve.points[-1].rate - 1, statement


@pytest.mark.parametrize(
    "truth, links, kind",
    [
        (
            dataclasses.replace(TRUTH, links=(Link(3e-5, 3e8),)),
            LINKS,
            "simulation-slower",
        ),
        (dataclasses.replace(TRUTH, links=(Link(1e-6, 3e9),)), (), "simulation-fitted"),
        (dataclasses.replace(TRUTH, overlap_s=0.02), LINKS, "simulation-overlap"),
    ],
)
def test_the_system_behind_a_curve_is_found(truth, links, kind):
    known = dataclasses.replace(KNOWN, links=links, algorithm=truth.algorithm)
    error, statement = find_error(make_curve(truth, known))
    assert abs(error) < 0.02
    assert statement.kind == kind


def test_gradients_that_are_late_slow_the_computation():
    slow = dataclasses.replace(
        TRUTH, exchange_slowdown=1.2, slowdown={1: 1.0, 2: 1.0, 16: 4.0}
    )
    points = make_curve(slow, KNOWN).points
    replicas = (MeasuredPoint(2, 20.0), MeasuredPoint(16, 160 / 4))

    def error(gradients_s):
        known = dataclasses.replace(
            KNOWN, independent=replicas, gradients_s=gradients_s
        )
        return find_error(Curve("a", "words", WEAK, points, known))[0]

    assert abs(error({2: 0.12})) < 0.02
    assert error({}) > 0.04


def test_unknown_bytes_need_no_links():
    known = Knowledge(step_s=0.1, step_times=TIMES, algorithm="ring")
    truth = dataclasses.replace(TRUTH, gathered_bytes=0.0)
    error, _ = find_error(make_curve(truth, known))
    assert abs(error) < 0.02


@pytest.mark.parametrize(
    "known, counts, kind",
    [
        (Knowledge(), (1, 2), "simulation-no-base"),
        (
            Knowledge(step_s=0.1, links=(Link(0.0, math.inf, 8), *LINKS)),
            (1, 2),
            "simulation-unknown-exchange",
        ),
        (dataclasses.replace(KNOWN, links=()), (1,), "simulation-unknown-exchange"),
    ],
)
def test_unknown_systems_are_refused(known, counts, kind):
    curve = make_curve(TRUTH, known, counts)
    with pytest.raises(CannotPredict) as caught:
        simulate_curve(curve, {}, (8,), steps=20, seed=1)
    assert caught.value.statement.kind == kind


def test_four_recorded_workers_follow_from_one_and_two():
    """Compare rings and parameter servers at 50, 200 and 1000 Mbit/s."""
    errors = benchmark.measure_netlab_errors(ROOT / "docs/results/netlab", steps=100)
    at_four = {name: error for (name, workers), error in errors.items() if workers == 4}
    assert len(at_four) == 9
    assert max(map(abs, at_four.values())) <= 0.1, at_four
