"""When every device has finished an exchange, from when each one starts it.

Letters: n devices in the order of a ring; every array is `[n]`, in seconds. With links of one speed, every device of a
ring, tree or hierarchy waits for every other one (after n-1 of the rounds of a ring, at the root of a tree), so all
finish at the latest start + the closed form of `prediction.costs`. Two cases differ: rings with links of two speeds,
where waiting spreads device by device, and the queue of a parameter server.
"""

from collections.abc import Callable

import numpy as np

from rnn_scaling.analysis.prediction.costs import exchange_s, joined_groups
from rnn_scaling.analysis.prediction.curves import Knowledge

LINK_SHARING = 0.75  # of a server's link that answers: 0 first come first served, 1 all get the same share
Exchange = Callable[[np.ndarray], np.ndarray]  # start -> finish


def exchange_of(known: Knowledge, devices: int, sharing: float = LINK_SHARING) -> Exchange | None:
    """The exchange of n devices; None if they exchange nothing, or if bytes or links are unknown."""
    summed, gathered, links = known.summed_bytes or 0.0, known.gathered_bytes or 0.0, known.links
    if known.algorithm == "none" or not summed + gathered or not links or (devices == 1 and not known.servers):
        return None
    if known.algorithm == "parameter_server":
        link = links[-1] if known.servers else joined_groups(devices, links)[-1][0]
        own_s = (summed + gathered) / link.bytes_per_s
        return lambda start: _served(start, own_s, link.alpha_s, known.servers, sharing)
    if known.algorithm == "ring":  # 2(n-1) rounds that sum and n-1 that gather, of the same mean size
        sums, gathers, inside = 2 * (summed > 0), int(gathered > 0), 1
        num_bytes, message_s = (sums * summed / devices + gathers * gathered) / (sums + gathers), np.zeros(devices)
        for link, groups in joined_groups(devices, links):
            message_s[::inside] = link.message_s(num_bytes)  # the outermost link from the device before each one
            inside *= groups
        return lambda start: ring_finish(start, message_s, (sums + gathers) * (devices - 1))
    seconds = exchange_s(known.algorithm, devices, summed, gathered, links)
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


def queue_finish(arrival: np.ndarray, service_s: float) -> np.ndarray:
    """When a queue that serves one after the other, first come first served, has finished each one (Lindley)."""
    order, served = np.argsort(arrival, kind="stable"), service_s * np.arange(len(arrival))
    finish = np.empty_like(arrival)
    finish[order] = np.maximum.accumulate(arrival[order] - served) + served + service_s
    return finish


def _served(start: np.ndarray, own_s: float, alpha_s: float, servers: int, sharing: float) -> np.ndarray:
    """Gradients queue at the link of each server; then every device gets the new values over the same link.

    Without servers of their own, the first device is the server. All messages are in the queue of the outermost link,
    which takes `own_s` for those of one device.
    """
    back, here = np.zeros(len(start)), slice(0 if servers else 1, None)
    service_s = own_s / max(1, servers)
    summed = np.maximum(queue_finish(start[here], service_s), start[here] + own_s).max() + alpha_s
    turn = np.arange(1, len(start[here]) + 1)
    back[here] = alpha_s + np.maximum(service_s * (sharing * len(turn) + (1 - sharing) * turn), own_s)
    return np.asarray(max(start.max(), summed) + back)
