"""Simulate how well `rnn_scaling.analysis.steady_state` finds the steady part.

    python -m benchmarks.steady_state [--repetitions=1000] [--seed=1]
        [--noise=0.01,0.05] [--batches=200]

Prints, for every series with a known truth, how often each kind is found and the bias of
the rate. The bias is the median over repetitions of the relative error against the
noise-free steady level of the same batches, with the 95th percentile of its magnitude.
It is printed for the detector, for skipping ten batches and for MSER-5.

docs/methods/measurements.md summarises the tables.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from absl import app, flags

from rnn_scaling.analysis import steady_state

FLAGS = flags.FLAGS

# Words of a batch by bucket, and its seconds: a step has costs that do not depend on
# the words.
BUCKETS = np.array([640, 1280, 1920, 2560, 3200])
BUCKET_S = 0.3 + 0.7 * BUCKETS / BUCKETS.mean()
NUM_SKIPPED = 10
NUM_TIMED_BATCHES = 5000
HEAD = [
    "series",
    "noise",
    "sigma",
    "right",
    "answered",
    "bias",
    "95 % of errors below",
    "skip 10",
    "MSER-5",
]


@dataclasses.dataclass(frozen=True)
class Case:
    """A noise-free series.

    Attributes:
      right: The right kind.
      seconds: Maps the numbers of batches, [n], to their seconds.
      level_s: Seconds of a steady batch; None if there is no steady state.
      buckets: Maps the numbers of batches to their buckets; None if all batches have
        the same number of words.
    """

    right: str
    seconds: Callable[[np.ndarray], np.ndarray]
    level_s: float | None = 1.0
    buckets: Callable[[np.ndarray], np.ndarray] | None = None


def stay_flat(t: np.ndarray) -> np.ndarray:
    """Return one second for each batch."""
    return np.ones(len(t))


def start_with_plateaus(t: np.ndarray) -> np.ndarray:
    """Return a compile step and two plateaus. The series is steady from batch 30."""
    return np.select([t == 0, t < 12, t < 30], [5.0, 1.30, 1.15], 1.0)


def slow_down(t: np.ndarray) -> np.ndarray:
    """Return batches of which the last 30 % take 1.25 times as long."""
    return np.where(t < 0.7 * len(t), 1.0, 1.25)


def take_in_turn(t: np.ndarray) -> np.ndarray:
    """Return buckets 0 1 2 3 4 0 1 ..."""
    return t % len(BUCKETS)


def take_at_random(t: np.ndarray) -> np.ndarray:
    """Return buckets drawn with one seed."""
    return np.random.default_rng(1).integers(0, len(BUCKETS), len(t))


CASES: dict[str, Case] = {
    "flat": Case("flat", stay_flat),
    "compile step, then flat": Case("warm-up", lambda t: np.where(t == 0, 50.0, 1.0)),
    "compile step, two plateaus": Case("warm-up", start_with_plateaus),
    "exponential": Case("warm-up", lambda t: 1 + 0.5 * np.exp(-t / 20)),
    "late slow-down": Case("slow-down", slow_down, 1.25),
    "period 2": Case("cyclic", lambda t: np.where(t % 2 == 0, 0.8, 1.2)),
    "compile step, period 7": Case(
        "cyclic", lambda t: np.where(t == 0, 30.0, 1 + 0.05 * (t % 7 - 3))
    ),
    "buckets in turn": Case("cyclic", stay_flat, buckets=take_in_turn),
    "buckets at random": Case("flat", stay_flat, buckets=take_at_random),
    "buckets at random, two plateaus": Case(
        "warm-up", start_with_plateaus, buckets=take_at_random
    ),
    "buckets at random, late slow-down": Case(
        "slow-down", slow_down, 1.25, buckets=take_at_random
    ),
    "drift of 20 %": Case(
        "no steady state", lambda t: 1 + 0.2 * t / len(t), level_s=None
    ),
    "drift of 5 %": Case(
        "no steady state", lambda t: 1 + 0.05 * t / len(t), level_s=None
    ),
    "step at 90 %": Case(
        "no steady state",
        lambda t: np.where(t < 0.9 * len(t), 1.0, 1.2),
        level_s=None,
    ),
}


class Noise(NamedTuple):
    """Noise of the log times of batches.

    Attributes:
      correlation: Autocorrelation of neighbours.
      outliers: Share of batches that are up to twice as long.
    """

    correlation: float
    outliers: float


NOISES: dict[str, Noise] = {
    "white": Noise(0.0, 0.0),
    "AR(1) 0.5": Noise(0.5, 0.0),
    "AR(1) 0.8": Noise(0.8, 0.0),
    "outliers 2 %": Noise(0.0, 0.02),
}
NOISES_OF_OTHER_SERIES = ("white", "AR(1) 0.5")


def find_mser5_cut(y: np.ndarray) -> int | None:
    """Return the cut of MSER-5: the one of least standard error of means of 5 batches.

    Source: White, "An Effective Truncation Heuristic for Bias Reduction in Simulation
    Output", Simulation 69(6), 1997.

    Returns:
      None if the cut lies in the second half.
    """
    means = y[: len(y) - len(y) % 5].reshape(-1, 5).mean(axis=1)
    # Of the means from each candidate to the end.
    counts = np.arange(len(means), 0, -1)
    sums = np.cumsum(means[::-1])[::-1]
    sums_of_squares = np.cumsum(means[::-1] ** 2)[::-1]
    error = (sums_of_squares - sums**2 / counts) / counts**2
    cut = int(np.argmin(error[: max(1, len(means) - 3)]))
    return 5 * cut if cut <= len(means) // 2 else None


def draw_noise(
    random: np.random.Generator, n: int, sigma: float, noise: Noise
) -> np.ndarray:
    """Draw first-order autoregressive log noise, [n], with outliers (clipped Pareto).

    Args:
      random: Source of random numbers.
      n: Number of batches.
      sigma: Standard deviation without outliers.
      noise: The kind of noise.
    """
    num_unused = 50
    white = random.normal(size=n + num_unused)
    values = np.zeros(n + num_unused)
    innovation = np.sqrt(1 - noise.correlation**2)
    for t in range(1, n + num_unused):
        values[t] = noise.correlation * values[t - 1] + innovation * white[t]
    is_outlier = random.random(n) < noise.outliers
    delays = np.minimum(0.1 * random.pareto(1.5, n) + 0.05, np.log(2))
    return sigma * values[num_unused:] + is_outlier * delays


def judge(
    name: str, noise_name: str, sigma: float, n: int, repetitions: int, seed: int
) -> list[str]:
    """Return one row of the table.

    Args:
      name: Name of a series of CASES.
      noise_name: Name of a noise of NOISES.
      sigma: Standard deviation of log times.
      n: Number of batches.
      repetitions: Number of series.
      seed: Seed of the noise.
    """
    case = CASES[name]
    noise = NOISES[noise_name]
    random = np.random.default_rng([seed, n, *name.encode(), *noise_name.encode()])
    t = np.arange(n)
    clean_s = case.seconds(t)
    steady_s = np.full(n, case.level_s or np.nan)
    words = np.full(n, BUCKETS.mean())
    if case.buckets is not None:
        buckets = case.buckets(t)
        clean_s = clean_s * BUCKET_S[buckets]
        steady_s = steady_s * BUCKET_S[buckets]
        words = BUCKETS[buckets]
    # A rate is words over the mean time, so the truth contains the noise's mean.
    white = noise._replace(correlation=0.0)
    noise_mean = float(np.exp(draw_noise(random, 200_000, sigma, white)).mean())
    kinds: Counter[str] = Counter()
    errors: dict[str, list[float]] = {"found": [], "skip 10": [], "MSER-5": []}
    for _ in range(repetitions):
        step_s = clean_s * np.exp(draw_noise(random, n, sigma, noise))
        state = steady_state.analyse(step_s, words)
        kinds[state.kind] += 1
        cuts = {
            "found": state.start,
            "skip 10": NUM_SKIPPED,
            "MSER-5": find_mser5_cut(np.log(step_s / words)) or 0,
        }
        for method, cut in cuts.items():
            if case.level_s is not None and cut is not None:
                true_s = steady_s[cut:].sum() * noise_mean
                errors[method].append(true_s / step_s[cut:].sum() - 1)
    answers = []
    for kind, count in kinds.most_common():
        answers.append(f"{kind} {count / repetitions:.1%}")
    cells = [name, noise_name, f"{sigma:.0%}", case.right, ", ".join(answers)]
    if not errors["found"]:
        return [*cells, "none", "none", "none", "none"]
    biases = {method: f"{np.median(each):+.2%}" for method, each in errors.items()}
    largest = f"{np.percentile(np.abs(errors['found']), 95):.2%}"
    return [*cells, biases["found"], largest, biases["skip 10"], biases["MSER-5"]]


def measure_analysis() -> float:
    """Return the seconds of an analysis of a long series, the best of 5."""
    random = np.random.default_rng(FLAGS.seed)
    step_s = np.exp(draw_noise(random, NUM_TIMED_BATCHES, 0.01, NOISES["white"]))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        steady_state.analyse(step_s)
        times.append(time.perf_counter() - start)
    return min(times)


def main(argv: list[str]) -> None:
    """Print the table, and to stderr the time of an analysis."""
    del argv
    print(
        f"{FLAGS.batches} batches, {FLAGS.repetitions} repetitions, seed {FLAGS.seed}"
    )
    print("\n| " + " | ".join(HEAD) + " |")
    print("|" + "---|" * len(HEAD))
    size = (FLAGS.batches, FLAGS.repetitions, FLAGS.seed)
    for sigma in map(float, FLAGS.noise):
        for name in CASES:
            for noise in NOISES if name == "flat" else NOISES_OF_OTHER_SERIES:
                row = judge(name, noise, sigma, *size)
                print("| " + " | ".join(row) + " |", flush=True)
    milliseconds = 1e3 * measure_analysis()
    print(
        f"{NUM_TIMED_BATCHES:,} batches: {milliseconds:.0f} ms (best of 5)",
        file=sys.stderr,
    )


# Tests import several benchmarks into one process, so flags are defined only here.
if __name__ == "__main__":
    flags.DEFINE_integer(
        "repetitions", 1000, "number of series of each kind", lower_bound=1
    )
    flags.DEFINE_integer("seed", 1, "seed of the noise")
    flags.DEFINE_list(
        "noise",
        ["0.01", "0.05"],
        "standard deviations of the logarithm of a batch's time, separated by commas",
    )
    flags.DEFINE_integer("batches", 200, "number of batches in a series", lower_bound=1)
    app.run(main)
