"""Simulate how often intervals of step times contain the true change.

    python -m benchmarks.step_time_coverage [--repetitions=500] [--seed=1]

The intervals are those of analysis/comparison/step_times.py, for p50, p95 and p99. Runs
differ by 3 % or 0.3 % (standard deviation of the logarithm). Batches have a log time
with first-order autoregressive noise (5 %). "slow": 1 % of the batches take three times
as long; "bursts": three batches in a row take twice as long, 1.2 % of all. Both sides
are alike, so there is no true change. docs/statistics.md has the result.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np
from absl import app, flags

from benchmarks.simulated import simulate_batches
from rnn_scaling.analysis.comparison import step_times
from rnn_scaling.analysis.metrics import PERCENTILE_BATCHES

FLAGS = flags.FLAGS


class Design(NamedTuple):
    """The runs of one side.

    Attributes:
      runs: Number of runs.
      batches: Batches per run.
      correlation: Correlation of one batch with the next.
    """

    runs: int
    batches: int
    correlation: float


DESIGNS = (
    Design(2, 200, 0.5),
    Design(3, 100, 0.5),
    Design(3, 200, 0.8),
    Design(5, 100, 0.5),
    Design(5, 1000, 0.5),
    Design(10, 200, 0.5),
)
TAILS = ("none", "slow", "bursts")
# Standard deviations of log seconds between runs.
BETWEEN_RUNS = (0.03, 0.003)
HEAD = (
    "tail",
    "between",
    "processes",
    "batches",
    "correlation",
    "covered: p50",
    "p95",
    "p99",
    "±: p50",
    "p95",
    "p99",
    "plain bootstrap: p50",
    "p95",
    "p99",
)
RESAMPLES = 200


def simulate_side(
    rng: np.random.Generator, tail: str, between: float, design: Design
) -> list[np.ndarray]:
    """Return the seconds of the batches of each run.

    Args:
      tail: One of TAILS.
      between: One of BETWEEN_RUNS.
    """
    shape = (design.runs, design.batches)
    seconds = simulate_batches(rng, shape, design.correlation)
    seconds = seconds * np.exp(between * rng.normal(size=(design.runs, 1)))
    if tail == "slow":
        seconds *= 3.0 ** (rng.random(shape) < 0.01)
    if tail == "bursts":
        is_first = rng.random(shape) < 0.004
        is_second = np.roll(is_first, 1, axis=1)
        is_third = np.roll(is_first, 2, axis=1)
        seconds *= 2.0 ** (is_first | is_second | is_third)
    return [*seconds]


def resample_percentiles(
    rng: np.random.Generator, runs: list[np.ndarray]
) -> np.ndarray:
    """Return log percentiles [RESAMPLES, 3] of a plain bootstrap.

    It resamples runs and, inside them, blocks of batches.
    """
    num_batches = len(runs[0])
    block = max(1, round(2 * num_batches ** (1 / 3)))
    num_blocks = math.ceil(num_batches / block)
    logs = []
    for seconds in runs:
        starts = rng.integers(num_batches, size=(RESAMPLES, num_blocks, 1))
        indices = (starts + np.arange(block)) % num_batches
        indices = indices.reshape(RESAMPLES, -1)[:, :num_batches]
        percentiles = np.percentile(seconds[indices], [*PERCENTILE_BATCHES], axis=-1)
        logs.append(np.log(percentiles).T)
    chosen = rng.integers(len(runs), size=(len(runs), RESAMPLES))
    return np.array(logs)[chosen, np.arange(RESAMPLES)].mean(axis=0)


def make_table_row(
    tail: str, between: float, design: Design, repetitions: int, seed: int
) -> list[str]:
    """Return the row of one tail and design."""
    rng = np.random.default_rng(
        [
            seed,
            len(tail),
            int(1e4 * between),
            design.runs,
            design.batches,
            int(10 * design.correlation),
        ]
    )
    hits = np.zeros(3)
    plain_hits = np.zeros(3)
    half_widths = []
    for _ in range(repetitions):
        before = simulate_side(rng, tail, between, design)
        after = simulate_side(rng, tail, between, design)
        changes = step_times.compare_percentiles(before, after, False, False)
        ratios = [change.ratio for change in changes]
        hits += [ratio.low <= 1 <= ratio.high for ratio in ratios]
        half_widths.append([ratio.half_width for ratio in ratios])
        log_after = resample_percentiles(rng, after)
        log_before = resample_percentiles(rng, before)
        low, high = np.quantile(log_after - log_before, [0.025, 0.975], axis=0)
        plain_hits += (low <= 0) & (high >= 0)
    return [
        tail,
        f"{between:.1%}",
        str(design.runs),
        str(design.batches),
        f"{design.correlation:g}",
        *[f"{hit / repetitions:.1%}" for hit in hits],
        *[f"{median:.1%}" for median in np.median(half_widths, axis=0)],
        *[f"{hit / repetitions:.1%}" for hit in plain_hits],
    ]


def main(argv: list[str]) -> None:
    del argv
    print(f"{FLAGS.repetitions} repetitions, seed {FLAGS.seed}\n")
    print(f"| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
    for tail, between, design in itertools.product(TAILS, BETWEEN_RUNS, DESIGNS):
        row = make_table_row(tail, between, design, FLAGS.repetitions, FLAGS.seed)
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    # Flags are defined here because tests import several benchmarks in one process.
    flags.DEFINE_integer(
        "repetitions", 500, "number of repetitions of each row", lower_bound=1
    )
    flags.DEFINE_integer("seed", 1, "seed of the random numbers")
    app.run(main)
