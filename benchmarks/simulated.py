"""Simulated noise of processes and their batches, which several benchmarks share."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from rnn_scaling.analysis.confidence import Interval

BETWEEN = 0.03  # standard deviation of a process's log rate
WITHIN = 0.05  # standard deviation of a batch's log time


def simulate_autoregressive(
    rng: np.random.Generator, shape: tuple[int, ...], correlation: float
) -> np.ndarray:
    """Return standard normal numbers [..., n], each like the one before it."""
    values = rng.normal(size=shape)
    for t in range(1, shape[-1]):
        values[..., t] = (
            correlation * values[..., t - 1]
            + math.sqrt(1 - correlation**2) * values[..., t]
        )
    return values


def simulate_batches(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    correlation: float,
    sigma: float = WITHIN,
) -> np.ndarray:
    """Return seconds [..., n] with mean 1 and autoregressive log noise."""
    return np.exp(
        sigma * simulate_autoregressive(rng, shape, correlation) - sigma**2 / 2
    )


def process_rates(
    rng: np.random.Generator,
    repetitions: int,
    k: int,
    truth: float = 1.0,
    between: float = BETWEEN,
    tails: int = 0,
) -> np.ndarray:
    """Return rates [repetitions, k] of processes of 20 batches.

    Args:
      rng: Source of random numbers.
      repetitions: Number of experiments.
      k: Processes of each.
      truth: The true rate.
      between: Standard deviation of log rates between processes.
      tails: Degrees of freedom of a t distribution that replaces the normal one.
    """
    effect = rng.normal(size=(repetitions, k))
    if tails:
        effect = rng.standard_t(tails, size=(repetitions, k)) / math.sqrt(
            tails / (tails - 2)
        )
    mean_s = simulate_batches(rng, (repetitions, k, 20), 0.5).mean(axis=-1)
    return truth * np.exp(between * effect) / mean_s


def compute_coverage(intervals: Iterable[Interval], truth: float) -> float:
    """Return the share of intervals that contain the truth."""
    hits = []
    for each in intervals:
        hits.append(each.low is not None and each.low <= truth <= (each.high or 0.0))
    return float(np.mean(hits))
