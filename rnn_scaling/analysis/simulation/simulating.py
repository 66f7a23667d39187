"""A discrete-event simulation of training steps: the rate of n devices, and their losses.

The events of a step are the ends of each device's computation and of its exchange. All
devices are one array, and steps follow each other. Every random number only depends on
the seed, so that a run without one cause of loss differs only by that cause.

With links of one speed, every device of a ring, tree or hierarchy waits for every other
one (after n-1 rounds of a ring, at the root of a tree), so all finish an exchange at
the latest start + the closed form of `prediction.costs`. Two cases differ: rings with
links of two speeds, in which waiting spreads device by device, and the queue of a
parameter server. Letters: n devices in the order of a ring; arrays of starts and
finishes are `[n]`, in seconds.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.interval_kinds import Basis, IntervalKind
from rnn_scaling.analysis.prediction.costs import add_groups_to_links, exchange_s
from rnn_scaling.analysis.prediction.curves import Knowledge, Link, PredictedPoint

# Jobs of a run, each with its own stragglers, whose rates give the standard error.
_MAX_JOBS = 20
_NUMBERS_PER_DRAW = 1 << 20  # random numbers that are in memory at once
# How a server's link is shared by its answers: 0 first come first served, 1 equally.
_LINK_SHARING = 0.75
Exchange = Callable[[np.ndarray], np.ndarray]  # start -> finish
PARTS = (
    "contention",
    "jitter",
    "stragglers",
    "failures",
    "exchange latency",
    "exchange bandwidth",
)


@dataclasses.dataclass(frozen=True)
class System(Knowledge):
    """A training run on any number of devices, with its disturbances."""

    step_s: float = 0.0
    algorithm: str = "ring"
    summed_bytes: float = 0.0
    gathered_bytes: float = 0.0
    is_strong: bool = False  # constant total work: each of n devices computes 1/n
    # Number of devices -> factor of the computing time.
    slowdown: Mapping[int, float] = dataclasses.field(default_factory=lambda: {1: 1.0})
    exchange_slowdown: float = 1.0  # factor of the computing time if devices exchange
    exchange_every: int = 1  # local SGD: steps between two exchanges
    # Seconds between the start of an exchange and the end of its step's computation.
    overlap_s: float = 0.0
    # Standard deviation over mean of lognormal step times; unused with `step_times`.
    jitter: float = 0.0
    stragglers: float = 0.0  # share of the devices
    straggler_factor: float = 1.0  # factor of a straggler's computing time
    link_failures: float = 0.0  # share of the working links that fail in an exchange
    failure_s: float = 1.0  # seconds that a failed link is down
    retry_s: float = 0.2  # seconds until a lost message is sent again

    def ideal_s(self, devices: int) -> float:
        """Return the seconds of a step without any loss."""
        return self.step_s / (devices if self.is_strong else 1)

    def computing_s(self, devices: int) -> float:
        """Return the mean seconds that each of n devices computes.

        Between measured numbers of devices on a machine the slowdown is interpolated.
        Beyond them it is constant, or grows with the devices per core if there are more
        devices than cores.
        """
        counts = sorted(self.slowdown)
        local_devices = devices
        if devices > counts[-1]:
            local_devices = min(devices, self.devices_per_machine or devices)
        slowdowns = [self.slowdown[count] for count in counts]
        factor = float(np.interp(local_devices, counts, slowdowns))
        if self.cores:
            factor *= max(1.0, local_devices / max(counts[-1], self.cores))
        if devices > 1:
            factor *= self.exchange_slowdown
        return self.ideal_s(devices) * factor


# Cause of a loss -> the fields of a system without it.
_WITHOUT: dict[str, Callable[[System], dict[str, Any]]] = {
    "failures": lambda system: {"link_failures": 0.0},
    "stragglers": lambda system: {"stragglers": 0.0},
    "jitter": lambda system: {"jitter": 0.0, "step_times": ()},
    "exchange latency": lambda system: {
        "links": tuple(dataclasses.replace(link, alpha_s=0.0) for link in system.links)
    },
}


def simulate(
    system: System, devices: int, steps: int, seed: int, single_rate: float = 1.0
) -> PredictedPoint:
    """Simulate a run of n devices, and repeat it without one cause of loss after another.

    Args:
      system: The training run.
      devices: n.
      steps: Steps of a run.
      seed: Seed of the random numbers.
      single_rate: Rate of one device, which is the ideal for each of n.
    """
    efficiencies = simulate_job_efficiencies(system, devices, steps, seed)
    mean = float(efficiencies.mean())
    parts = dict.fromkeys(PARTS, 0.0)
    last_mean = mean
    for cause, fields in _WITHOUT.items():
        better_system = dataclasses.replace(system, **fields(system))
        if better_system != system:
            system = better_system
            better_mean = float(
                simulate_job_efficiencies(system, devices, steps, seed).mean()
            )
            parts[cause] = better_mean - last_mean
            last_mean = better_mean
    computing_efficiency = system.ideal_s(devices) / system.computing_s(devices)
    parts["contention"] = 1 - computing_efficiency
    parts["exchange bandwidth"] = computing_efficiency - last_mean
    error = float(efficiencies.std(ddof=1)) / math.sqrt(len(efficiencies))
    efficiency = Interval(
        mean,
        low=mean,
        high=mean,
        kind=IntervalKind(Basis.SIMULATION),
        standard_error=error,
    )
    rate = efficiency.scaled(devices * single_rate)
    return PredictedPoint(devices, rate, efficiency, parts)


def simulate_job_efficiencies(
    system: System, devices: int, steps: int, seed: int
) -> np.ndarray:
    """Return the efficiency in each of at most _MAX_JOBS equal jobs of a run, `[jobs]`.

    The remaining steps are not simulated.
    """
    num_exchanges = steps // system.exchange_every
    jobs = max(2, min(_MAX_JOBS, num_exchanges))
    job_steps = max(1, num_exchanges // jobs) * system.exchange_every
    exchange = make_exchange(system, devices)
    clock = np.zeros(devices)
    job_ends = np.zeros((jobs + 1, devices))
    failed_until = np.zeros(devices)
    random = np.random.default_rng([seed, 3])
    computing = _draw_computing_times(
        system, devices=devices, jobs=jobs, job_steps=job_steps, seed=seed
    )
    for number, computing_s in enumerate(computing, start=1):
        computed_at = clock + computing_s
        if exchange is None or number % system.exchange_every:
            clock = computed_at
        else:
            start = np.maximum(clock, computed_at - system.overlap_s)
            start = _delay_by_failures(system, start, failed_until, random)
            clock = np.maximum(computed_at, exchange(start))
        if number % job_steps == 0:
            job_ends[number // job_steps] = clock
    seconds = np.diff(job_ends, axis=0)
    return np.asarray(job_steps * system.ideal_s(devices) * (1 / seconds).mean(axis=1))


def _draw_computing_times(
    system: System, devices: int, jobs: int, job_steps: int, seed: int
) -> Iterator[np.ndarray]:
    """Yield the seconds that each device computes, `[devices]`, step by step."""
    jitter_random = np.random.default_rng([seed, 1])
    straggler_random = np.random.default_rng([seed, 2])
    mean = system.computing_s(devices)
    times = np.asarray(system.step_times, float)
    deviation = math.sqrt(math.log1p(system.jitter**2))
    block_steps = max(1, _NUMBERS_PER_DRAW // devices)
    for _ in range(jobs):
        is_slow = straggler_random.random(devices) < system.stragglers
        factor = np.where(is_slow, system.straggler_factor, 1.0) * mean
        for first in range(0, job_steps, block_steps):
            shape = (min(block_steps, job_steps - first), devices)
            if len(times):
                indices = jitter_random.integers(len(times), size=shape)
                jitter = (times / times.mean())[indices]
            else:
                normal = jitter_random.standard_normal(shape)
                jitter = np.exp(deviation * normal - deviation**2 / 2)
            yield from factor * jitter


def _delay_by_failures(
    system: System,
    start: np.ndarray,
    failed_until: np.ndarray,
    random: np.random.Generator,
) -> np.ndarray:
    """Return the starts of an exchange, delayed by retries over failed links.

    Args:
      system: The training run.
      start: When each device would start, [n].
      failed_until: When the link of each device works again, [n]. It is updated.
      random: Draws the links that fail.
    """
    if not system.link_failures:
        return start
    fails = (random.random(len(start)) < system.link_failures) & (failed_until <= start)
    failed_until[fails] = start[fails] + system.failure_s
    # A rounding error must not add a retry.
    retries = np.maximum(0.0, failed_until - start) / system.retry_s - 1e-6
    return np.asarray(start + np.ceil(retries) * system.retry_s)


def make_exchange(
    knowledge: Knowledge, devices: int, sharing: float = _LINK_SHARING
) -> Exchange | None:
    """Return the function from starts to finishes of an exchange of n devices.

    Args:
      knowledge: The algorithm, its bytes, and the links.
      devices: n.
      sharing: How a parameter server's link is shared by its answers: 0 first come
        first served, 1 equally.

    Returns:
      None without an exchange, or if bytes or links are unknown.
    """
    summed = knowledge.summed_bytes or 0.0
    gathered = knowledge.gathered_bytes or 0.0
    links = knowledge.links
    is_single = devices == 1 and not knowledge.servers
    if knowledge.algorithm == "none" or is_single or not links or not summed + gathered:
        return None
    if knowledge.algorithm == "parameter_server":
        link = links[-1]
        if not knowledge.servers:
            link, _ = add_groups_to_links(devices, links)[-1]
        device_s = (summed + gathered) / link.bytes_per_s
        return lambda start: _finish_server(
            start,
            device_s=device_s,
            alpha_s=link.alpha_s,
            servers=knowledge.servers,
            sharing=sharing,
        )
    if knowledge.algorithm == "ring":
        return _make_ring(devices, summed, gathered, links)
    seconds = exchange_s(
        knowledge.algorithm,
        devices=devices,
        summed_bytes=summed,
        gathered_bytes=gathered,
        links=links,
    )
    return lambda start: np.full(devices, start.max() + seconds)


def _make_ring(
    devices: int, summed_bytes: float, gathered_bytes: float, links: Sequence[Link]
) -> Exchange:
    """Return the exchange over a ring: 2(n-1) rounds that sum and n-1 that gather.

    All rounds have messages of the same mean size.
    """
    sum_passes = 2 * (summed_bytes > 0)
    passes = sum_passes + (gathered_bytes > 0)
    num_bytes = (sum_passes * summed_bytes / devices + gathered_bytes) / passes
    message_s = np.zeros(devices)
    group_size = 1
    for link, groups in add_groups_to_links(devices, links):
        # Messages from one group to the next use the outer link.
        message_s[::group_size] = link.message_s(num_bytes)
        group_size *= groups
    return lambda start: finish_ring(start, message_s, passes * (devices - 1))


def finish_ring(start: np.ndarray, message_s: np.ndarray, rounds: int) -> np.ndarray:
    """Return when each device of a ring has finished all rounds of messages.

    A round of device i takes `message_s[i]` and begins when i and the device before it
    have finished the previous round: t[i, k] = max(t[i, k-1], t[i-1, k-1]) +
    message_s[i]. So t[i, rounds] is the longest path from a start around the ring to i.
    The rounds suffice to pass one of the slowest links, so the longest path spends all
    rounds there that it does not need for moving.

    Args:
      start: [n].
      message_s: [n], at most two different times.
      rounds: At least 2(n-1).
    """
    n = len(start)
    slowest = message_s.max()
    if message_s.min() == slowest:
        return np.full(n, start.max() + rounds * slowest)
    saved_s = np.cumsum(np.tile(message_s - slowest, 3))
    latest = np.maximum.accumulate(np.tile(start, 3) - saved_s)
    is_slowest = np.tile(message_s == slowest, 3)
    last_slowest = np.maximum.accumulate(np.where(is_slowest, np.arange(3 * n), 0))
    return (latest[last_slowest] + saved_s)[2 * n :] + rounds * slowest


def queue_finish(arrival: np.ndarray, service_s: float) -> np.ndarray:
    """Return when a queue has finished each arrival, first come, first served (Lindley).

    Args:
      arrival: [n].
      service_s: Seconds that each arrival takes.
    """
    order = np.argsort(arrival, kind="stable")
    service_before_s = service_s * np.arange(len(arrival))
    finish = np.empty_like(arrival)
    finish[order] = (
        np.maximum.accumulate(arrival[order] - service_before_s)
        + service_before_s
        + service_s
    )
    return finish


def _finish_server(
    start: np.ndarray, device_s: float, alpha_s: float, servers: int, sharing: float
) -> np.ndarray:
    """Return when each device has the new values of the parameter servers.

    Gradients queue at the link of each server; then every device gets the new values
    over the same link. All messages are in the queue of the outermost link.

    Args:
      start: [n].
      device_s: Seconds that the link needs for the messages of one device.
      alpha_s: Latency of the link.
      servers: Number of servers; 0 if the first device is the server.
      sharing: Like in `make_exchange`.
    """
    service_s = device_s / max(1, servers)
    clients = slice(0 if servers else 1, None)
    arrival = start[clients]
    finish = np.maximum(queue_finish(arrival, service_s), arrival + device_s)
    sum_end = finish.max() + alpha_s
    positions = np.arange(1, len(arrival) + 1)  # positions in the queue of the answers
    num_services = sharing * len(positions) + (1 - sharing) * positions
    answer_s = np.zeros(len(start))
    answer_s[clients] = alpha_s + np.maximum(service_s * num_services, device_s)
    return np.asarray(max(start.max(), sum_end) + answer_s)
