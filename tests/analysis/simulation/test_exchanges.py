"""Exchanges against closed forms and against one event after the other."""

import heapq

import numpy as np
import pytest

from rnn_scaling.analysis.prediction.costs import exchange_s
from rnn_scaling.analysis.prediction.curves import Knowledge, Link
from rnn_scaling.analysis.simulation.simulating import (
    exchange_of,
    queue_finish,
    ring_finish,
)

ONE = (Link(1e-5, 1e9),)
TWO = (Link(1e-6, 1e10, 8), Link(1e-5, 1e9))


def rounds_one_by_one(start, message_s, rounds):
    at = start.copy()
    for _ in range(rounds):
        at = np.maximum(at, np.roll(at, 1)) + message_s
    return at


@pytest.mark.parametrize("seed", range(5))
def test_a_ring_is_its_rounds(seed):
    """Also with links of two speeds, in any order, and however late a device starts."""
    random = np.random.default_rng(seed)
    for _ in range(60):
        n = int(random.integers(1, 12))
        start = random.random(n) * random.choice([0.1, 1.0, 100.0])
        message_s = random.choice(random.random(2), size=n)
        rounds = int(random.integers(2 * (n - 1), 4 * n))
        by_rounds = rounds_one_by_one(start, message_s, rounds)
        np.testing.assert_allclose(
            ring_finish(start, message_s, rounds), by_rounds, rtol=1e-12
        )


def test_a_ring_of_machines_hides_a_part_of_the_waiting():
    start, message_s = np.zeros(16), np.where(np.arange(16) % 8, 0.1, 1.0)
    start[4] = 3.0
    late = ring_finish(start, message_s, 30).max()
    assert late < 3.0 + ring_finish(np.zeros(16), message_s, 30).max() == 33.0


@pytest.mark.parametrize(
    "algorithm", ["ring", "tree", "hierarchical", "parameter_server"]
)
@pytest.mark.parametrize("devices", [1, 2, 3, 5, 8, 12, 16, 100])
@pytest.mark.parametrize("links", [ONE, TWO])
@pytest.mark.parametrize("summed, gathered", [(1e8, 0.0), (1e8, 1e4), (0.0, 1e4)])
def test_without_waiting_it_is_the_closed_form(
    algorithm, devices, links, summed, gathered
):
    if algorithm == "parameter_server" and devices > 8 and links == TWO:
        pytest.skip("one queue, not one for each level")
    exchange = exchange_of(
        Knowledge(1.0, algorithm, summed, gathered, links), devices, sharing=1.0
    )
    finish = exchange(np.zeros(devices)).max() if exchange else 0.0
    assert finish == pytest.approx(
        exchange_s(algorithm, devices, summed, gathered, links), rel=1e-9
    )


@pytest.mark.parametrize(
    "algorithm", ["ring", "tree", "hierarchical", "parameter_server"]
)
@pytest.mark.parametrize("links", [ONE, TWO])
def test_later_starts_make_no_device_earlier(algorithm, links):
    start = np.random.default_rng(1).random(20)
    exchange = exchange_of(Knowledge(1.0, algorithm, 1e6, 1e4, links), 20)
    finish = exchange(start)
    np.testing.assert_allclose(exchange(start + 3), finish + 3)
    start[7] += 2
    later = exchange(start)
    assert (later >= finish - 1e-12).all() and later.max() > finish.max() + 0.5


def hierarchy_one_by_one(start, links, num_bytes):
    """Rings of machines of two: local sums of halves, a ring between machines, and back."""
    inner_s = links[0].alpha_s + num_bytes / 2 / links[0].bytes_per_s
    machines = start.reshape(-1, 2).max(axis=1) + inner_s
    rounds = 2 * (len(machines) - 1)
    outer_s = links[1].alpha_s + num_bytes / len(machines) / links[1].bytes_per_s
    return np.repeat(
        rounds_one_by_one(machines, np.full(len(machines), outer_s), rounds) + inner_s,
        2,
    )


def tree_one_by_one(start, link, num_bytes):
    at, width = start.copy(), 1
    message_s = link.alpha_s + num_bytes / link.bytes_per_s
    while width < len(at):
        for parent in range(0, len(at), 2 * width):
            at[parent] = max(at[parent], at[parent + width]) + message_s
        width *= 2
    while width > 1:
        width //= 2
        for parent in range(0, len(at), 2 * width):
            at[parent] = at[parent + width] = at[parent] + message_s
    return at


def test_trees_and_hierarchies_are_their_messages():
    links = (Link(0.5, 1.0, 2), Link(0.1, 0.5))
    for seed in range(20):
        start = np.random.default_rng(seed).random(8) * 5
        hierarchy = exchange_of(Knowledge(1.0, "hierarchical", 4.0, 0.0, links), 8)
        np.testing.assert_allclose(
            hierarchy(start), hierarchy_one_by_one(start, links, 4.0)
        )
        tree = exchange_of(Knowledge(1.0, "tree", 4.0, 0.0, links[1:]), 8)
        np.testing.assert_allclose(tree(start), tree_one_by_one(start, links[1], 4.0))


def events_of_a_server(arrivals, service_s):
    """A single server, by an event queue."""
    events = [(at, number) for number, at in enumerate(arrivals)]
    heapq.heapify(events)
    free, done = 0.0, [0.0] * len(arrivals)
    while events:
        at, number = heapq.heappop(events)
        free = max(free, at) + service_s
        done[number] = free
    return done


def test_a_queue_is_its_events():
    random = np.random.default_rng(3)
    for _ in range(30):
        n = int(random.integers(1, 10))
        arrivals, service_s = random.random(n) * 4, random.random()
        np.testing.assert_allclose(
            queue_finish(arrivals, service_s), events_of_a_server(arrivals, service_s)
        )


def test_servers_share_the_bytes_until_a_device_s_own_link_limits():
    def seconds(servers):
        known = Knowledge(
            1.0, "parameter_server", 1e9, 0.0, (Link(0.0, 1e9),), servers=servers
        )
        return exchange_of(known, 4, sharing=1.0)(np.zeros(4)).max()

    assert [seconds(servers) for servers in (1, 2, 4, 8)] == pytest.approx(
        [8.0, 4.0, 2.0, 2.0]
    )


def test_no_exchange():
    assert exchange_of(Knowledge(1.0, "none", 1e6, 0.0, ONE), 8) is None
    assert exchange_of(Knowledge(1.0, "ring", 0.0, 0.0, ONE), 8) is None
    assert exchange_of(Knowledge(1.0, "ring", 1e6, 0.0, ONE), 1) is None
