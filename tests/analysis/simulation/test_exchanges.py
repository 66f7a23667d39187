"""Exchanges against closed forms and against one event after the other."""

import heapq

import numpy as np
import pytest

from rnn_scaling.analysis.prediction.costs import exchange_s
from rnn_scaling.analysis.prediction.curves import Knowledge, Link
from rnn_scaling.analysis.simulation.simulating import (
    finish_ring,
    make_exchange,
    queue_finish,
)

ONE = (Link(1e-5, 1e9),)
TWO = (Link(1e-6, 1e10, 8), Link(1e-5, 1e9))


def simulate_rounds_one_by_one(start, message_s, rounds):
    at = start.copy()
    for _ in range(rounds):
        at = np.maximum(at, np.roll(at, 1)) + message_s
    return at


@pytest.mark.parametrize("seed", range(5))
def test_a_ring_is_its_rounds(seed):
    """Compare rings over links of two speeds, in any order, with late devices."""
    random = np.random.default_rng(seed)
    for _ in range(60):
        n = int(random.integers(1, 12))
        start = random.random(n) * random.choice([0.1, 1.0, 100.0])
        message_s = random.choice(random.random(2), size=n)
        rounds = int(random.integers(2 * (n - 1), 4 * n))
        by_rounds = simulate_rounds_one_by_one(start, message_s, rounds)
        np.testing.assert_allclose(
            finish_ring(start, message_s, rounds), by_rounds, rtol=1e-12
        )


@pytest.mark.parametrize(
    "algorithm", ["ring", "tree", "hierarchical", "parameter_server"]
)
@pytest.mark.parametrize("devices", [1, 2, 12, 100])
@pytest.mark.parametrize("links", [ONE, TWO])
@pytest.mark.parametrize("summed, gathered", [(1e8, 0.0), (1e8, 1e4), (0.0, 1e4)])
def test_without_waiting_it_is_the_closed_form(
    algorithm, devices, links, summed, gathered
):
    if algorithm == "parameter_server" and devices > 8 and links == TWO:
        pytest.skip("one queue, not one for each level")
    knowledge = Knowledge(1.0, algorithm, summed, gathered, links)
    exchange = make_exchange(knowledge, devices, sharing=1.0)
    finish = exchange(np.zeros(devices)).max() if exchange else 0.0
    closed_form = exchange_s(algorithm, devices, summed, gathered, links)
    assert finish == pytest.approx(closed_form, rel=1e-9)


@pytest.mark.parametrize(
    "algorithm", ["ring", "tree", "hierarchical", "parameter_server"]
)
@pytest.mark.parametrize("links", [ONE, TWO])
def test_later_starts_make_no_device_earlier(algorithm, links):
    start = np.random.default_rng(1).random(20)
    exchange = make_exchange(Knowledge(1.0, algorithm, 1e6, 1e4, links), 20)
    finish = exchange(start)
    np.testing.assert_allclose(exchange(start + 3), finish + 3)
    start[7] += 2
    later = exchange(start)
    assert (later >= finish - 1e-12).all() and later.max() > finish.max() + 0.5


def simulate_server_events(arrivals, service_s):
    """Return when a single server has finished, by an event queue."""
    events = [(at, number) for number, at in enumerate(arrivals)]
    heapq.heapify(events)
    free = 0.0
    done = [0.0] * len(arrivals)
    while events:
        at, number = heapq.heappop(events)
        free = max(free, at) + service_s
        done[number] = free
    return done


def test_a_queue_is_its_events():
    random = np.random.default_rng(3)
    for _ in range(30):
        n = int(random.integers(1, 10))
        arrivals = random.random(n) * 4
        service_s = random.random()
        np.testing.assert_allclose(
            queue_finish(arrivals, service_s),
            simulate_server_events(arrivals, service_s),
        )


def test_servers_share_the_bytes_until_a_device_s_own_link_limits():
    def seconds(servers):
        link = Link(0.0, 1e9)
        known = Knowledge(1.0, "parameter_server", 1e9, 0.0, (link,), servers=servers)
        return make_exchange(known, 4, sharing=1.0)(np.zeros(4)).max()

    assert list(map(seconds, (1, 2, 4, 8))) == pytest.approx([8.0, 4.0, 2.0, 2.0])
