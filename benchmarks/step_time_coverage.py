"""How often the intervals of analysis/comparison/step_times.py contain the true change of p50, p95 and p99, simulated.

    python -m benchmarks.step_time_coverage [--repetitions=500] [--seed=1]

Processes differ by 3 % or 0.3 % (standard deviation of the logarithm). Batches have a log time with first-order
autoregressive noise (5 %); "slow": 1 % of the batches take three times as long; "bursts": three batches in a row take
twice as long, 1.2 % of all. Both sides are alike, so the true change is none. docs/statistics.md has the result.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
from absl import app, flags

from benchmarks.simulated import batches
from rnn_scaling.analysis.comparison import step_times
from rnn_scaling.analysis.metrics import PERCENTILE_BATCHES

FLAGS = flags.FLAGS
DESIGNS = (
    (2, 200, 0.5),
    (3, 100, 0.5),
    (3, 200, 0.8),
    (5, 100, 0.5),
    (5, 1000, 0.5),
    (10, 200, 0.5),
)
HEAD = [
    "tail",
    "between",
    "processes",
    "batches",
    "correlation",
    "covered: p50",
    "p95",
    "p99",
]
HEAD += ["±: p50", "p95", "p99", "plain bootstrap: p50", "p95", "p99"]
RESAMPLES = 200


def side(
    rng: np.random.Generator,
    tail: str,
    between: float,
    k: int,
    n: int,
    correlation: float,
) -> list[np.ndarray]:
    """Seconds of k processes."""
    seconds = batches(rng, (k, n), correlation) * np.exp(
        between * rng.normal(size=(k, 1))
    )
    if tail == "slow":
        seconds *= 3.0 ** (rng.random((k, n)) < 0.01)
    if tail == "bursts":
        begins = rng.random((k, n)) < 0.004
        seconds *= 2.0 ** (
            begins | np.roll(begins, 1, axis=1) | np.roll(begins, 2, axis=1)
        )
    return [*seconds]


def plain(rng: np.random.Generator, processes: list[np.ndarray]) -> np.ndarray:
    """Log percentiles `[RESAMPLES, 3]` of a bootstrap of processes and, inside them, of blocks of batches."""
    n = len(processes[0])
    length = max(1, round(2 * n ** (1 / 3)))
    found = []
    for process in processes:
        starts = rng.integers(n, size=(RESAMPLES, math.ceil(n / length), 1))
        indices = ((starts + np.arange(length)) % n).reshape(RESAMPLES, -1)[:, :n]
        found.append(
            np.log(np.percentile(process[indices], [*PERCENTILE_BATCHES], axis=-1)).T
        )
    chosen = rng.integers(len(processes), size=(len(processes), RESAMPLES))
    return np.array(found)[chosen, np.arange(RESAMPLES)].mean(axis=0)


def row(tail: str, between: float, k: int, n: int, correlation: float) -> list[str]:
    rng = np.random.default_rng(
        [FLAGS.seed, len(tail), int(1e4 * between), k, n, int(10 * correlation)]
    )
    hits, plain_hits, widths = np.zeros(3), np.zeros(3), []
    for _ in range(FLAGS.repetitions):
        sides = [side(rng, tail, between, k, n, correlation) for _ in range(2)]
        ratios = [
            change.ratio
            for change in step_times.compare_percentiles(*sides, False, False)
        ]
        hits += [ratio.low <= 1 <= ratio.high for ratio in ratios]
        widths.append([ratio.half_width for ratio in ratios])
        low, high = np.quantile(
            plain(rng, sides[1]) - plain(rng, sides[0]), [0.025, 0.975], axis=0
        )
        plain_hits += (low <= 0) & (high >= 0)
    shares = [
        [f"{hit / FLAGS.repetitions:.1%}" for hit in method]
        for method in (hits, plain_hits)
    ]
    width = [f"{median:.1%}" for median in np.median(widths, axis=0)]
    return [
        tail,
        f"{between:.1%}",
        str(k),
        str(n),
        f"{correlation:g}",
        *shares[0],
        *width,
        *shares[1],
    ]


def main(argv: list[str]) -> None:
    del argv
    print(
        f"{FLAGS.repetitions} repetitions, seed {FLAGS.seed}\n\n| "
        + " | ".join(HEAD)
        + " |\n|"
        + "---|" * len(HEAD)
    )
    for tail, between, design in itertools.product(
        ("none", "slow", "bursts"), (0.03, 0.003), DESIGNS
    ):
        print("| " + " | ".join(row(tail, between, *design)) + " |", flush=True)


if (
    __name__ == "__main__"
):  # flags are defined here: the tests import several benchmarks in one process
    flags.DEFINE_integer(
        "repetitions", 500, "number of repetitions of each row", lower_bound=1
    )
    flags.DEFINE_integer("seed", 1, "seed of the random numbers")
    app.run(main)
