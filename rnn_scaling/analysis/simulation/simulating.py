"""A discrete-event simulation of training steps: the rate of n devices, and the parts of what they lose.

The events of a step are when each device has computed and when it has exchanged; all devices are one array, and steps
follow each other. Every random number depends on the seed alone, so that runs without a cause differ by that cause.
"""

import math
from collections.abc import Iterator

import numpy as np

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction.curves import PredictedPoint
from rnn_scaling.analysis.simulation.exchanges import exchange_of
from rnn_scaling.analysis.simulation.system import Failures, System

JOBS = 20  # parts of a run, each with other stragglers, whose rates give the standard error
BLOCK = 1 << 20  # random numbers that are drawn at once
PARTS = ("contention", "jitter", "stragglers", "failures", "exchange latency", "exchange bandwidth")
SWITCHED_OFF = ("failures", "stragglers", "jitter", "exchange latency")  # in this order; then the exchange
KIND = "no interval: the standard error is that of the random numbers, and says nothing about what was assumed"


def simulate(system: System, devices: int, steps: int, seed: int, one_rate: float = 1.0) -> PredictedPoint:
    """Simulates a run of n devices, and again without one more cause of loss after the other.

    `one_rate`: of one device, which is the ideal of each of n.
    """
    efficiencies = job_efficiencies(system, devices, steps, seed)
    mean = float(efficiencies.mean())
    parts, reached, left = dict.fromkeys(PARTS, 0.0), mean, system
    for cause in SWITCHED_OFF:
        before, left = left, left.without(cause)
        if left != before:
            better = float(job_efficiencies(left, devices, steps, seed).mean())
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
            start = _with_failures(system.failures, np.maximum(clock, done - system.overlap_s), failed_until, failing)
            clock = np.maximum(done, exchange(start))
        if number % length == 0:
            passed[number // length] = clock
    return np.asarray(length * system.ideal_s(devices) * (1 / np.diff(passed, axis=0)).mean(axis=1))


def _computing(system: System, devices: int, jobs: int, length: int, seed: int) -> Iterator[np.ndarray]:
    """Seconds that each device computes, `[devices]`, step by step."""
    draws, lots = (np.random.default_rng([seed, stream]) for stream in (1, 2))
    mean, times = system.computing_s(devices), np.asarray(system.step_times, float)
    deviation = math.sqrt(math.log1p(system.jitter_cv**2))
    block = max(1, BLOCK // devices)
    for _ in range(jobs):
        factor = np.where(lots.random(devices) < system.straggler_share, system.straggler_factor, 1.0) * mean
        for first in range(0, length, block):
            shape = (min(block, length - first), devices)
            if len(times):
                yield from factor * (times / times.mean())[draws.integers(len(times), size=shape)]
            elif deviation:
                yield from factor * np.exp(deviation * draws.standard_normal(shape) - deviation**2 / 2)
            else:
                yield from (factor for _ in range(shape[0]))


def _with_failures(failures: Failures, start: np.ndarray, until: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The starts of an exchange, those behind failed links after retries. Updates `until`, when each works again."""
    if not failures.probability:
        return start
    new = (random.random(len(start)) < failures.probability) & (until <= start)
    until[new] = start[new] + failures.duration_s
    retries = np.ceil(np.maximum(0.0, until - start) / failures.retry_s - 1e-6)  # not one more for a rounding error
    return np.asarray(start + retries * failures.retry_s)
