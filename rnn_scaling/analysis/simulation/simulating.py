"""A discrete-event simulation of training steps: the rate of n devices, and the parts of what they lose.

The events of a step are when each device has computed and when it has exchanged; all devices are one array, and steps
follow each other. Every random number depends on the seed alone, so that runs without a cause differ by that cause.

With links of one speed, every device of a ring, tree or hierarchy waits for every other one (after n-1 of the rounds of
a ring, at the root of a tree), so all finish an exchange at the latest start + the closed form of `prediction.costs`.
Two cases differ: rings with links of two speeds, where waiting spreads device by device, and the queue of a parameter
server. Letters: n devices in the order of a ring; arrays of starts and finishes are `[n]`, in seconds.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction.costs import exchange_s, joined_groups
from rnn_scaling.analysis.prediction.curves import Knowledge, PredictedPoint

JOBS = 20  # parts of a run, each with other stragglers, whose rates give the standard error
BLOCK = 1 << 20  # random numbers that are drawn at once
LINK_SHARING = 0.75  # of a server's link that answers: 0 first come first served, 1 all get the same share
Exchange = Callable[[np.ndarray], np.ndarray]  # start -> finish
PARTS = (
    "contention",
    "jitter",
    "stragglers",
    "failures",
    "exchange latency",
    "exchange bandwidth",
)
KIND = "no interval: the standard error is that of the random numbers, and says nothing about what was assumed"


@dataclasses.dataclass(frozen=True)
class System(Knowledge):
    """A training run on any number of devices: what is known of it, and what disturbs it."""

    step_s: float = 0.0
    algorithm: str = "ring"
    summed_bytes: float = 0.0
    gathered_bytes: float = 0.0
    is_strong: bool = False  # constant total work: n devices compute an n-th of it each
    slowdown: Mapping[int, float] = dataclasses.field(
        default_factory=lambda: {1: 1.0}
    )  # of computing, by devices
    exchange_slowdown: float = 1.0  # of computing where devices exchange
    exchange_every: int = 1  # local SGD: steps between two exchanges
    overlap_s: float = (
        0.0  # by how much an exchange begins before the computation of its step ends
    )
    jitter: float = 0.0  # of lognormal step times, if there are no `step_times`: standard deviation over mean
    stragglers: float = 0.0  # share of the devices
    straggler_factor: float = 1.0  # by which a straggler computes longer
    link_failures: float = 0.0  # share of the working links that fail in an exchange
    failure_s: float = 1.0  # that a failed link is down
    retry_s: float = 0.2  # after which a message that did not arrive is sent again

    def ideal_s(self, devices: int) -> float:
        """Return the seconds of a step without any loss."""
        return self.step_s / (devices if self.is_strong else 1)

    def computing_s(self, devices: int) -> float:
        """Return the mean time that each of n devices computes, which share a machine.

        Between measured numbers of devices the slowdown is interpolated. Beyond them it stays, or grows with the
        devices of each core if there are more devices than cores.
        """
        counts = sorted(self.slowdown)
        inside = devices
        if devices > counts[-1]:
            inside = min(devices, self.devices_per_machine or devices)
        slowdowns = [self.slowdown[count] for count in counts]
        factor = float(np.interp(inside, counts, slowdowns))
        if self.cores:
            factor *= max(1.0, inside / max(counts[-1], self.cores))
        if devices > 1:
            factor *= self.exchange_slowdown
        return self.ideal_s(devices) * factor


# Cause of a loss -> the fields of a system without it.
WITHOUT: dict[str, Callable[[System], dict[str, Any]]] = {
    "failures": lambda system: {"link_failures": 0.0},
    "stragglers": lambda system: {"stragglers": 0.0},
    "jitter": lambda system: {"jitter": 0.0, "step_times": ()},
    "exchange latency": lambda system: {
        "links": tuple(dataclasses.replace(link, alpha_s=0.0) for link in system.links)
    },
}


def simulate(
    system: System, devices: int, steps: int, seed: int, one_rate: float = 1.0
) -> PredictedPoint:
    """Simulate a run of n devices, and again without one more cause of loss after the other.

    Args:
      system: What runs.
      devices: n.
      steps: Steps of a run.
      seed: Of the random numbers.
      one_rate: Rate of one device, which is the ideal of each of n.
    """
    efficiencies = job_efficiencies(system, devices, steps, seed)
    mean = float(efficiencies.mean())
    reached = mean
    parts = dict.fromkeys(PARTS, 0.0)
    for cause, fields in WITHOUT.items():
        better_system = dataclasses.replace(system, **fields(system))
        if better_system != system:
            system = better_system
            better = float(job_efficiencies(system, devices, steps, seed).mean())
            parts[cause] = better - reached
            reached = better
    computing = system.ideal_s(devices) / system.computing_s(devices)
    parts["contention"] = 1 - computing
    parts["exchange bandwidth"] = computing - reached
    error = float(efficiencies.std(ddof=1)) / math.sqrt(len(efficiencies))
    efficiency = Interval(mean, mean, mean, KIND, error)
    rate = efficiency.scaled(devices * one_rate)
    return PredictedPoint(devices, rate, efficiency, parts)


def job_efficiencies(system: System, devices: int, steps: int, seed: int) -> np.ndarray:
    """Return the efficiency in each of at most JOBS equal parts of a run, `[jobs]`.

    The remaining steps are not simulated.
    """
    every = system.exchange_every
    jobs = max(2, min(JOBS, steps // every))
    length = max(1, steps // every // jobs) * every
    exchange = exchange_of(system, devices)
    clock = np.zeros(devices)
    passed = np.zeros((jobs + 1, devices))
    failed_until = np.zeros(devices)
    failing = np.random.default_rng([seed, 3])
    computing = _computing(system, devices, jobs, length, seed)
    for number, computing_s in enumerate(computing, start=1):
        done = clock + computing_s
        if exchange is None or number % every:
            clock = done
        else:
            start = np.maximum(clock, done - system.overlap_s)
            start = _with_failures(system, start, failed_until, failing)
            clock = np.maximum(done, exchange(start))
        if number % length == 0:
            passed[number // length] = clock
    seconds = np.diff(passed, axis=0)
    return np.asarray(length * system.ideal_s(devices) * (1 / seconds).mean(axis=1))


def _computing(
    system: System, devices: int, jobs: int, length: int, seed: int
) -> Iterator[np.ndarray]:
    """Yield the seconds that each device computes, `[devices]`, step by step."""
    draws = np.random.default_rng([seed, 1])
    lots = np.random.default_rng([seed, 2])
    mean = system.computing_s(devices)
    times = np.asarray(system.step_times, float)
    deviation = math.sqrt(math.log1p(system.jitter**2))
    block = max(1, BLOCK // devices)
    for _ in range(jobs):
        is_slow = lots.random(devices) < system.stragglers
        factor = np.where(is_slow, system.straggler_factor, 1.0) * mean
        for first in range(0, length, block):
            shape = (min(block, length - first), devices)
            if len(times):
                jitter = (times / times.mean())[draws.integers(len(times), size=shape)]
            else:
                normal = draws.standard_normal(shape)
                jitter = np.exp(deviation * normal - deviation**2 / 2)
            yield from factor * jitter


def _with_failures(
    system: System, start: np.ndarray, until: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """Return the starts of an exchange, those behind failed links after retries.

    Updates `until`, when each link works again.
    """
    if not system.link_failures:
        return start
    new = (random.random(len(start)) < system.link_failures) & (until <= start)
    until[new] = start[new] + system.failure_s
    # Not one more for a rounding error.
    waits = np.maximum(0.0, until - start) / system.retry_s - 1e-6
    return np.asarray(start + np.ceil(waits) * system.retry_s)


def exchange_of(
    known: Knowledge, devices: int, sharing: float = LINK_SHARING
) -> Exchange | None:
    """Return the exchange of n devices; None if there is none, or bytes or links are unknown."""
    summed = known.summed_bytes or 0.0
    gathered = known.gathered_bytes or 0.0
    links = known.links
    is_alone = devices == 1 and not known.servers
    if known.algorithm == "none" or is_alone or not links or not summed + gathered:
        return None
    if known.algorithm == "parameter_server":
        link = links[-1] if known.servers else joined_groups(devices, links)[-1][0]
        own_s = (summed + gathered) / link.bytes_per_s
        return lambda start: _served(start, own_s, link.alpha_s, known.servers, sharing)
    if known.algorithm == "ring":
        # 2(n-1) rounds that sum and n-1 that gather, of the same mean size.
        sums = 2 * (summed > 0)
        passes = sums + (gathered > 0)
        num_bytes = (sums * summed / devices + gathered) / passes
        message_s = np.zeros(devices)
        inside = 1
        for link, groups in joined_groups(devices, links):
            # The outermost link from the device before each one.
            message_s[::inside] = link.message_s(num_bytes)
            inside *= groups
        return lambda start: ring_finish(start, message_s, passes * (devices - 1))
    seconds = exchange_s(known.algorithm, devices, summed, gathered, links)
    return lambda start: np.full(devices, start.max() + seconds)


def ring_finish(start: np.ndarray, message_s: np.ndarray, rounds: int) -> np.ndarray:
    """Return when each device of a ring has finished all rounds of messages.

    A round of device i takes `message_s[i]` and begins when i and the device before it have finished the round before:
    t[i, k] = max(t[i, k-1], t[i-1, k-1]) + message_s[i]. So t[i, rounds] is the longest path from a start around the
    ring to i. The rounds suffice to pass one of the slowest links, so the longest path stays there for all rounds that
    it does not need for moving on.

    Args:
      start: [n].
      message_s: [n], at most two different times.
      rounds: At least 2(n-1).
    """
    n = len(start)
    slowest = message_s.max()
    if message_s.min() == slowest:
        return np.full(n, start.max() + rounds * slowest)
    saved = np.cumsum(np.tile(message_s - slowest, 3))
    latest = np.maximum.accumulate(np.tile(start, 3) - saved)
    is_slowest = np.tile(message_s == slowest, 3)
    stay = np.maximum.accumulate(np.where(is_slowest, np.arange(3 * n), 0))
    return (latest[stay] + saved)[2 * n :] + rounds * slowest


def queue_finish(arrival: np.ndarray, service_s: float) -> np.ndarray:
    """Return when a queue, first come first served, has finished each one (Lindley)."""
    order = np.argsort(arrival, kind="stable")
    served = service_s * np.arange(len(arrival))
    finish = np.empty_like(arrival)
    finish[order] = np.maximum.accumulate(arrival[order] - served) + served + service_s
    return finish


def _served(
    start: np.ndarray, own_s: float, alpha_s: float, servers: int, sharing: float
) -> np.ndarray:
    """Return when each device has the new values of the parameter servers.

    Gradients queue at the link of each server; then every device gets the new values over the same link. Without
    servers of their own, the first device is the server. All messages are in the queue of the outermost link, which
    takes `own_s` for those of one device.
    """
    service_s = own_s / max(1, servers)
    here = slice(0 if servers else 1, None)
    arrival = start[here]
    finish = np.maximum(queue_finish(arrival, service_s), arrival + own_s)
    summed = finish.max() + alpha_s
    turn = np.arange(1, len(arrival) + 1)
    shared = sharing * len(turn) + (1 - sharing) * turn
    back = np.zeros(len(start))
    back[here] = alpha_s + np.maximum(service_s * shared, own_s)
    return np.asarray(max(start.max(), summed) + back)
