"""Simulated steps: known limits, monotony, parts that add up, determinism."""

import dataclasses
import math
from statistics import NormalDist

import numpy as np
import pytest

from rnn_scaling.analysis.prediction.costs import exchange_s
from rnn_scaling.analysis.prediction.curves import Link
from rnn_scaling.analysis.simulation.simulating import (
    PARTS,
    System,
    simulate,
    simulate_job_efficiencies,
)

LINKS = (Link(1e-5, 1e9),)
QUIET = System(0.1, "ring", 2e7, 0.0, LINKS)
# Devices wait, and the exchange takes no time.
BARRIER = System(1.0, "ring", 1.0, 0.0, (Link(0.0, math.inf),))
NOISY = dataclasses.replace(
    QUIET,
    jitter=0.1,
    stragglers=0.1,
    straggler_factor=1.5,
    link_failures=0.01,
    failure_s=0.05,
    retry_s=0.02,
)


def efficiency(system, devices=16, steps=200, seed=1):
    return float(simulate_job_efficiencies(system, devices, steps, seed).mean())


@pytest.mark.parametrize("algorithm", ["ring", "tree", "hierarchical", "none"])
@pytest.mark.parametrize("devices", [1, 2, 64])
def test_without_jitter_a_step_is_computing_and_the_closed_form(algorithm, devices):
    system = dataclasses.replace(QUIET, algorithm=algorithm)
    expected_s = 0.1 + exchange_s(algorithm, devices, 2e7, 0.0, LINKS)
    assert 0.1 / efficiency(system, devices) == pytest.approx(expected_s, rel=1e-9)


def test_the_longest_of_n_lognormal_steps():
    """E max = integral of 1 - F(x)^n."""
    cv = 0.2
    n = 32
    deviation = math.sqrt(math.log1p(cv**2))
    x = np.linspace(1e-6, 5, 20001)
    normal = NormalDist(-(deviation**2) / 2, deviation)
    cumulative = np.array(list(map(normal.cdf, np.log(x))))
    expected = np.trapezoid(1 - cumulative**n, x)
    measured = 1 / efficiency(dataclasses.replace(BARRIER, jitter=cv), n, steps=4000)
    assert measured == pytest.approx(expected, rel=0.005)


def test_measured_step_times_are_drawn_with_their_mean_and_spread():
    times = (1.0, 1.0, 1.0, 2.0)
    system = dataclasses.replace(BARRIER, step_times=times)
    n = 3
    mean = 1.25
    longest = 2 - 0.75**n  # the chance that no device draws the 2 is 0.75**n
    step_s = 1 / efficiency(system, n, steps=20000)
    assert step_s == pytest.approx(longest / mean, rel=0.01)
    replicas = dataclasses.replace(system, algorithm="none")
    assert efficiency(replicas, n, steps=20000) == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize(
    "name, values",
    [
        ("jitter", (0.0, 0.02, 0.1, 0.3)),
        ("stragglers", (0.0, 0.05, 0.3)),
        ("summed_bytes", (1e6, 1e7, 1e8)),
        ("link_failures", (0.0, 0.01, 0.1)),
    ],
)
def test_more_of_a_cause_costs_more(name, values):
    base = dataclasses.replace(QUIET, straggler_factor=1.5, failure_s=0.05)
    systems = [dataclasses.replace(base, **{name: value}) for value in values]
    efficiencies = list(map(efficiency, systems))
    assert efficiencies == sorted(efficiencies, reverse=True)
    assert efficiencies[0] > efficiencies[-1] + 0.01


def test_local_sgd_waits_less_with_fewer_exchanges():
    efficiencies = [
        efficiency(dataclasses.replace(NOISY, exchange_every=every), 8, 320)
        for every in (1, 2, 4, 16)
    ]
    assert efficiencies == sorted(efficiencies)
    quiet = dataclasses.replace(QUIET, exchange_every=5)
    expected_s = 0.1 + exchange_s("ring", 8, 2e7, 0.0, LINKS) / 5
    assert 0.1 / efficiency(quiet, 8) == pytest.approx(expected_s, rel=1e-9)


def test_a_link_that_drops_out_delays_by_whole_timeouts():
    failing = dataclasses.replace(QUIET, link_failures=1.0, failure_s=0.25, retry_s=0.1)
    expected_s = 0.1 / efficiency(QUIET, 4) + 0.3
    assert 0.1 / efficiency(failing, 4) == pytest.approx(expected_s, rel=1e-9)


def test_links_fail_as_often_as_stated():
    """Each exchange with any failure waits for one timeout."""
    failing = dataclasses.replace(QUIET, link_failures=0.05, failure_s=0.1, retry_s=0.1)
    lost_s = 0.1 / efficiency(failing, 8, steps=4000) - 0.1 / efficiency(QUIET, 8)
    assert lost_s == pytest.approx(0.1 * (1 - 0.95**8), rel=0.1)


def test_overlap_hides_the_exchange_until_it_is_longer():
    exchange = exchange_s("ring", 4, 2e7, 0.0, LINKS)
    for overlap_s in (0.0, exchange / 2, 2 * exchange):
        step_s = 0.1 / efficiency(dataclasses.replace(QUIET, overlap_s=overlap_s), 4)
        assert step_s == pytest.approx(0.1 + max(0.0, exchange - overlap_s), rel=1e-9)


@pytest.mark.parametrize(
    "algorithm", ["ring", "tree", "hierarchical", "parameter_server", "none"]
)
def test_parts_add_up_and_are_deterministic(algorithm):
    system = dataclasses.replace(
        NOISY, algorithm=algorithm, slowdown={1: 1.0, 16: 1.25}
    )
    point = simulate(system, 16, 100, seed=7)
    assert tuple(point.parts) == PARTS
    assert math.fsum(point.parts.values()) == pytest.approx(1 - point.efficiency.value)
    assert point.parts["contention"] == pytest.approx(0.2)
    assert simulate(system, 16, 100, seed=7) == point
    assert simulate(system, 16, 100, seed=8).efficiency != point.efficiency


def test_each_part_is_lost_to_its_cause():
    lost = simulate(NOISY, 16, 200, seed=1).parts
    assert all(lost[part] > 1e-4 for part in PARTS[1:])
    quiet = simulate(QUIET, 16, 200, seed=1).parts
    parts = {part for part in PARTS if quiet[part]}
    assert parts == {"exchange latency", "exchange bandwidth"}


def test_strong_scaling_shares_the_work():
    strong = dataclasses.replace(QUIET, is_strong=True)
    expected_s = 0.025 + exchange_s("ring", 4, 2e7, 0, LINKS)
    assert strong.ideal_s(4) / efficiency(strong, 4) == pytest.approx(expected_s)


def test_devices_beyond_the_cores_of_a_machine_take_turns():
    system = System(1.0, slowdown={1: 1.0, 2: 1.1}, cores=2)
    assert [system.computing_s(count) for count in (1, 2, 4)] == pytest.approx(
        [1.0, 1.1, 2.2]
    )
    in_machines = dataclasses.replace(system, devices_per_machine=2)
    assert in_machines.computing_s(64) == pytest.approx(1.1)
    assert dataclasses.replace(system, cores=None).computing_s(64) == pytest.approx(1.1)
