"""When every device has finished an exchange, from when each one starts it.

Letters: n devices in the order of a ring; every array is `[n]`, in seconds. With links of one speed, every device of a
ring, tree or hierarchy waits for every other one (after n-1 of the rounds of a ring, at the root of a tree), so all
finish at the latest start + the closed form of `prediction.costs`. Two cases differ: rings with links of two speeds,
where waiting spreads device by device, and the queue of a parameter server.
"""

from collections.abc import Callable

import numpy as np

from rnn_scaling.analysis.prediction.costs import exchange_s, joined_groups
from rnn_scaling.analysis.prediction.curves import Link
from rnn_scaling.analysis.simulation.system import System

Exchange = Callable[[np.ndarray], np.ndarray]  # start -> finish


def exchange_of(system: System, devices: int) -> Exchange | None:
    """The exchange of a system; None if its devices exchange nothing."""
    total = system.summed_bytes + system.gathered_bytes
    if system.algorithm == "none" or not total or not system.links or (devices == 1 and not system.servers):
        return None
    if system.algorithm == "parameter_server":
        link = system.links[-1] if system.servers else joined_groups(devices, system.links)[-1][0]
        return lambda start: _served(system, link, start)
    if system.algorithm == "ring":
        rounds, message_s = _ring(system, devices)
        return lambda start: ring_finish(start, message_s, rounds)
    seconds = exchange_s(system.algorithm, devices, system.summed_bytes, system.gathered_bytes, system.links)
    return lambda start: np.full(devices, start.max() + seconds)


def ring_finish(start: np.ndarray, message_s: np.ndarray, rounds: int) -> np.ndarray:
    """When each device of a ring has finished at least 2(n-1) rounds of messages with at most two different times.

    A round of device i takes `message_s[i]` and begins when i and the device before it have finished the round before:
    t[i, k] = max(t[i, k-1], t[i-1, k-1]) + message_s[i]. So t[i, rounds] is the longest path from a start around the
    ring to i. The rounds suffice to pass one of the slowest links, so the longest path stays there for all rounds that
    it does not need for moving on.
    """
    n, slowest = len(start), message_s.max()
    if message_s.min() == slowest:
        return np.full(n, start.max() + rounds * slowest)
    saved = np.cumsum(np.tile(message_s - slowest, 3))
    latest = np.maximum.accumulate(np.tile(start, 3) - saved)
    stay = np.maximum.accumulate(np.where(np.tile(message_s == slowest, 3), np.arange(3 * n), 0))
    return (latest[stay] + saved)[2 * n :] + rounds * slowest


def _ring(system: System, devices: int) -> tuple[int, np.ndarray]:
    """(rounds, seconds of a message to each device): 2(n-1) rounds that sum and n-1 that gather, of the same mean size.

    The link from the device before each one is the outermost that lies between them.
    """
    sums, gathers = 2 * (system.summed_bytes > 0), int(system.gathered_bytes > 0)
    num_bytes = (sums * system.summed_bytes / devices + gathers * system.gathered_bytes) / (sums + gathers)
    message_s, inside = np.zeros(devices), 1
    for link, groups in joined_groups(devices, system.links):
        message_s[::inside] = link.alpha_s + num_bytes / link.bytes_per_s
        inside *= groups
    return (sums + gathers) * (devices - 1), message_s


def queue_finish(arrival: np.ndarray, service_s: float) -> np.ndarray:
    """When a queue that serves one after the other, first come first served, has finished each one (Lindley)."""
    order, served = np.argsort(arrival, kind="stable"), service_s * np.arange(len(arrival))
    finish = np.empty_like(arrival)
    finish[order] = np.maximum.accumulate(arrival[order] - served) + served + service_s
    return finish


def _served(system: System, link: Link, start: np.ndarray) -> np.ndarray:
    """Gradients queue at the link of each server; then every device gets the new values over the same link.

    Without servers of their own, the first device is the server. All messages are in the queue of the outermost link.
    """
    back, here = np.zeros(len(start)), slice(0 if system.servers else 1, None)
    own_s = (system.summed_bytes + system.gathered_bytes) / link.bytes_per_s
    service_s = own_s / max(1, system.servers)
    summed = np.maximum(queue_finish(start[here], service_s), start[here] + own_s).max() + link.alpha_s
    turn = np.arange(1, len(start[here]) + 1)
    shared = service_s * (system.link_sharing * len(turn) + (1 - system.link_sharing) * turn)
    back[here] = link.alpha_s + np.maximum(shared, own_s)
    return np.asarray(max(start.max(), summed) + back)
