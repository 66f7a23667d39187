"""A discrete-event simulation of training steps: the rate of n devices, and the parts of what they lose.

The events of a step are when each device has computed and when it has exchanged; all devices are one array, and steps
follow each other. Every random number depends on the seed alone, so that runs without a cause differ by that cause.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction.curves import Knowledge, PredictedPoint
from rnn_scaling.analysis.simulation.exchanges import exchange_of

JOBS = 20  # parts of a run, each with other stragglers, whose rates give the standard error
BLOCK = 1 << 20  # random numbers that are drawn at once
PARTS = ("contention", "jitter", "stragglers", "failures", "exchange latency", "exchange bandwidth")
KIND = "no interval: the standard error is that of the random numbers, and says nothing about what was assumed"


@dataclasses.dataclass(frozen=True)
class System(Knowledge):
    """A training run on any number of devices: what is known of it, and what disturbs it."""

    step_s: float = 0.0
    algorithm: str = "ring"
    summed_bytes: float = 0.0
    gathered_bytes: float = 0.0
    is_strong: bool = False  # constant total work: n devices compute an n-th of it each
    slowdown: Mapping[int, float] = dataclasses.field(default_factory=lambda: {1: 1.0})  # of computing, by devices
    exchange_slowdown: float = 1.0  # of computing where devices exchange
    exchange_every: int = 1  # local SGD: steps between two exchanges
    overlap_s: float = 0.0  # by how much an exchange begins before the computation of its step ends
    jitter: float = 0.0  # of lognormal step times, if there are no `step_times`: standard deviation over mean
    stragglers: float = 0.0  # share of the devices
    straggler_factor: float = 1.0  # by which a straggler computes longer
    link_failures: float = 0.0  # share of the working links that fail in an exchange
    failure_s: float = 1.0  # that a failed link is down
    retry_s: float = 0.2  # after which a message that did not arrive is sent again

    def ideal_s(self, devices: int) -> float:
        return self.step_s / (devices if self.is_strong else 1)

    def computing_s(self, devices: int) -> float:
        """Mean time that each of n devices computes, which share the memory and cores of a machine.

        Between measured numbers of devices the slowdown is interpolated. Beyond them it stays, or grows with the
        devices of each core where there are more devices than cores.
        """
        counts = sorted(self.slowdown)
        inside = devices if devices <= counts[-1] else min(devices, self.devices_per_machine or devices)
        factor = float(np.interp(inside, counts, [self.slowdown[count] for count in counts]))
        crowded = max(1.0, inside / max(counts[-1], self.cores)) if self.cores else 1.0
        return self.ideal_s(devices) * factor * crowded * (self.exchange_slowdown if devices > 1 else 1.0)


def simulate(system: System, devices: int, steps: int, seed: int, one_rate: float = 1.0) -> PredictedPoint:
    """Simulates a run of n devices, and again without one more cause of loss after the other.

    `one_rate`: of one device, which is the ideal of each of n.
    """
    efficiencies = job_efficiencies(system, devices, steps, seed)
    mean = reached = float(efficiencies.mean())
    parts = dict.fromkeys(PARTS, 0.0)
    without: dict[str, dict[str, Any]] = {
        "failures": {"link_failures": 0.0},
        "stragglers": {"stragglers": 0.0},
        "jitter": {"jitter": 0.0, "step_times": ()},
        "exchange latency": {"links": tuple(dataclasses.replace(link, alpha_s=0.0) for link in system.links)},
    }
    for cause, changes in without.items():
        before, system = system, dataclasses.replace(system, **changes)
        if system != before:
            better = float(job_efficiencies(system, devices, steps, seed).mean())
            parts[cause], reached = better - reached, better
    computing = system.ideal_s(devices) / system.computing_s(devices)
    parts |= {"contention": 1 - computing, "exchange bandwidth": computing - reached}
    error = float(efficiencies.std(ddof=1)) / math.sqrt(len(efficiencies))
    efficiency = Interval(mean, mean, mean, KIND, error)
    return PredictedPoint(devices, efficiency.scaled(devices * one_rate), efficiency, parts)


def job_efficiencies(system: System, devices: int, steps: int, seed: int) -> np.ndarray:
    """Efficiency in each of at most JOBS equal parts of a run, `[jobs]`; the remaining steps are not simulated."""
    every = system.exchange_every
    jobs = max(2, min(JOBS, steps // every))
    length = max(1, steps // every // jobs) * every
    clock, passed = np.zeros(devices), np.zeros((jobs + 1, devices))
    exchange, failed_until = exchange_of(system, devices), np.zeros(devices)
    failing = np.random.default_rng([seed, 3])
    for number, computing_s in enumerate(_computing(system, devices, jobs, length, seed), start=1):
        done = clock + computing_s
        if exchange is None or number % every:
            clock = done
        else:
            start = _with_failures(system, np.maximum(clock, done - system.overlap_s), failed_until, failing)
            clock = np.maximum(done, exchange(start))
        if number % length == 0:
            passed[number // length] = clock
    return np.asarray(length * system.ideal_s(devices) * (1 / np.diff(passed, axis=0)).mean(axis=1))


def _computing(system: System, devices: int, jobs: int, length: int, seed: int) -> Iterator[np.ndarray]:
    """Seconds that each device computes, `[devices]`, step by step."""
    draws, lots = (np.random.default_rng([seed, stream]) for stream in (1, 2))
    mean, times = system.computing_s(devices), np.asarray(system.step_times, float)
    deviation = math.sqrt(math.log1p(system.jitter**2))
    block = max(1, BLOCK // devices)
    for _ in range(jobs):
        factor = np.where(lots.random(devices) < system.stragglers, system.straggler_factor, 1.0) * mean
        for first in range(0, length, block):
            shape = (min(block, length - first), devices)
            if len(times):
                yield from factor * (times / times.mean())[draws.integers(len(times), size=shape)]
            else:
                yield from factor * np.exp(deviation * draws.standard_normal(shape) - deviation**2 / 2)


def _with_failures(system: System, start: np.ndarray, until: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The starts of an exchange, those behind failed links after retries. Updates `until`, when each works again."""
    if not system.link_failures:
        return start
    new = (random.random(len(start)) < system.link_failures) & (until <= start)
    until[new] = start[new] + system.failure_s
    retries = np.ceil(np.maximum(0.0, until - start) / system.retry_s - 1e-6)  # not one more for a rounding error
    return np.asarray(start + retries * system.retry_s)
