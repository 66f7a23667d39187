"""Calibration: it finds the system behind simulated rates, and holds on netlab's recorded runs."""

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
from rnn_scaling.analysis.simulation.calibration import calibrated, simulated
from rnn_scaling.analysis.simulation.simulating import System, job_efficiencies
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


def curve_of(system, known, counts=(1, 2, 16)):
    points = tuple(
        MeasuredPoint(n, n * 10 * float(job_efficiencies(system, n, 400, 5).mean()))
        for n in counts
    )
    return Curve("a", "words", WEAK, points, known)


def error_at(curve, devices=16):
    system, (statement,) = calibrated(curve, seed=1)
    rate = (
        devices
        * curve.points[0].rate
        * float(job_efficiencies(system, devices, 400, 2).mean())
    )
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
        (
            dataclasses.replace(TRUTH, algorithm="parameter_server"),
            LINKS,
            "simulation-slower",
        ),
    ],
)
def test_the_system_behind_a_curve_is_found(truth, links, kind):
    known = dataclasses.replace(KNOWN, links=links, algorithm=truth.algorithm)
    error, statement = error_at(curve_of(truth, known))
    assert abs(error) < 0.02 and statement.kind == kind


def test_gradients_that_are_late_slow_the_computation():
    slow = dataclasses.replace(
        TRUTH, exchange_slowdown=1.2, slowdown={1: 1.0, 2: 1.0, 16: 4.0}
    )
    points = curve_of(slow, KNOWN).points
    alone = (MeasuredPoint(2, 20.0), MeasuredPoint(16, 160 / 4))
    found = []
    for gradients_s in ({2: 0.12}, {}):
        known = dataclasses.replace(KNOWN, independent=alone, gradients_s=gradients_s)
        found.append(error_at(Curve("a", "words", WEAK, points, known))[0])
    assert abs(found[0]) < 0.02 < 0.04 < found[1]


def test_unknown_bytes_need_no_links():
    known = Knowledge(step_s=0.1, step_times=TIMES, algorithm="ring")
    assert (
        abs(
            error_at(curve_of(dataclasses.replace(TRUTH, gathered_bytes=0.0), known))[0]
        )
        < 0.02
    )


@pytest.mark.parametrize(
    "known, counts, kind",
    [
        (Knowledge(), (1, 2), "simulation-no-base"),
        (KNOWN, (2, 4), "simulation-no-base"),
        (
            Knowledge(step_s=0.1, links=(Link(0.0, math.inf, 8), *LINKS)),
            (1, 2),
            "simulation-unknown-exchange",
        ),
        (dataclasses.replace(KNOWN, links=()), (1,), "simulation-unknown-exchange"),
        (
            dataclasses.replace(KNOWN, summed_bytes=None, gathered_bytes=None),
            (1,),
            "simulation-unknown-exchange",
        ),
    ],
)
def test_what_is_not_known_is_refused(known, counts, kind):
    curve = curve_of(TRUTH, known, counts)
    with pytest.raises(CannotPredict) as caught:
        simulated(curve, {}, (8,), steps=20, seed=1)
    assert caught.value.statement.kind == kind


def test_four_recorded_workers_follow_from_one_and_two():
    """Rings, one and two parameter servers at 50, 200 and 1000 Mbit/s."""
    errors = benchmark.netlab_errors(ROOT / "docs" / "results" / "netlab", steps=100)
    at_four = {name: error for (name, workers), error in errors.items() if workers == 4}
    assert len(at_four) == 9
    assert not {name: error for name, error in at_four.items() if abs(error) > 0.1}
