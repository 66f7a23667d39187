"""How well `rnn_scaling.analysis.steady_state` finds the steady part of simulated series with a known truth.

    python -m benchmarks.steady_state [--repetitions=1000] [--seed=1] [--noise=0.01,0.05] [--batches=200]

For every series: how often each kind is found, and the bias of the rate. The bias is the median over repetitions of the
relative error against the noise-free steady level of the same batches, with the 95th percentile of its magnitude. It is
printed for the detector, for skipping ten batches and for MSER-5. docs/methods/measurements.md summarises the tables.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import Counter
from collections.abc import Callable

import numpy as np
from absl import app, flags

from rnn_scaling.analysis import steady_state

FLAGS = flags.FLAGS

BUCKETS = np.array([640, 1280, 1920, 2560, 3200])  # words of a batch, by bucket
BUCKET_S = (
    0.3 + 0.7 * BUCKETS / BUCKETS.mean()
)  # a step has costs that its words do not change


@dataclasses.dataclass(frozen=True)
class Case:
    """A noise-free series. seconds, buckets: batches `[n]` -> an entry each; level_s: seconds of a steady batch."""

    right: str
    seconds: Callable[[np.ndarray], np.ndarray]
    level_s: float | None = 1.0
    buckets: Callable[[np.ndarray], np.ndarray] | None = None


def compile_and_plateaus(t: np.ndarray) -> np.ndarray:
    """One compile step, then two plateaus, steady from batch 30."""
    return np.select([t == 0, t < 12, t < 30], [5.0, 1.30, 1.15], 1.0)


def late(change: float, share: float) -> Callable[[np.ndarray], np.ndarray]:
    """A change of level after a share of the series."""
    return lambda t: np.where(t < share * len(t), 1.0, change)


def in_turn(t: np.ndarray) -> np.ndarray:
    """Buckets 0 1 2 3 4 0 1 ..."""
    return t % len(BUCKETS)


def at_random(t: np.ndarray) -> np.ndarray:
    """Buckets drawn with one seed."""
    return np.random.default_rng(1).integers(0, len(BUCKETS), len(t))


CASES: dict[str, Case] = {
    "flat": Case("flat", lambda t: np.ones(len(t))),
    "compile step, then flat": Case("warm-up", lambda t: np.where(t == 0, 50.0, 1.0)),
    "compile step, two plateaus": Case("warm-up", compile_and_plateaus),
    "exponential": Case("warm-up", lambda t: 1 + 0.5 * np.exp(-t / 20)),
    "late slow-down": Case("slow-down", late(1.25, 0.7), 1.25),
    "period 2": Case("cyclic", lambda t: np.where(t % 2 == 0, 0.8, 1.2)),
    "compile step, period 7": Case(
        "cyclic", lambda t: np.where(t == 0, 30.0, 1 + 0.05 * (t % 7 - 3))
    ),
    "buckets in turn": Case("cyclic", lambda t: np.ones(len(t)), 1.0, in_turn),
    "buckets at random": Case("flat", lambda t: np.ones(len(t)), 1.0, at_random),
    "buckets at random, two plateaus": Case(
        "warm-up", compile_and_plateaus, 1.0, at_random
    ),
    "buckets at random, late slow-down": Case(
        "slow-down", late(1.25, 0.7), 1.25, at_random
    ),
    "drift of 20 %": Case("no steady state", lambda t: 1 + 0.2 * t / len(t), None),
    "drift of 5 %": Case("no steady state", lambda t: 1 + 0.05 * t / len(t), None),
    "step at 90 %": Case("no steady state", late(1.2, 0.9), None),
}
NOISES: dict[str, tuple[float, float]] = {
    # name: (autocorrelation of neighbours, share of outliers)
    "white": (0.0, 0.0),
    "AR(1) 0.5": (0.5, 0.0),
    "AR(1) 0.8": (0.8, 0.0),
    "outliers 2 %": (0.0, 0.02),
}


def mser5_cut(y: np.ndarray) -> int | None:
    """The cut of MSER-5: batch means of 5, the truncation of least standard error; None if it lies in the second half.

    Source: White, "An Effective Truncation Heuristic for Bias Reduction in Simulation Output", Simulation 69(6), 1997.
    """
    means = y[: len(y) - len(y) % 5].reshape(-1, 5).mean(axis=1)
    kept = np.arange(len(means), 0, -1)  # means from each candidate to the end
    sums, squares = np.cumsum(means[::-1])[::-1], np.cumsum(means[::-1] ** 2)[::-1]
    error = (squares - sums**2 / kept) / kept**2
    cut = int(np.argmin(error[: max(1, len(means) - 3)]))
    return 5 * cut if cut <= len(means) // 2 else None


def draw(
    rng: np.random.Generator, n: int, sigma: float, correlation: float, outliers: float
) -> np.ndarray:
    """Log noise `[n]`: first-order autoregressive, and a share of batches up to twice as long (Pareto, clipped)."""
    white = rng.normal(size=n + 50)
    noise = np.zeros(n + 50)
    for t in range(1, n + 50):
        noise[t] = correlation * noise[t - 1] + white[t] * np.sqrt(1 - correlation**2)
    late_batches = rng.random(n) < outliers
    return sigma * noise[50:] + late_batches * np.minimum(
        0.1 * rng.pareto(1.5, n) + 0.05, np.log(2)
    )


def judge(
    name: str, noise: str, sigma: float, n: int, repetitions: int, seed: int
) -> list[str]:
    """One row of the table."""
    case, (correlation, outliers) = CASES[name], NOISES[noise]
    rng = np.random.default_rng([seed, n, *name.encode(), *noise.encode()])
    t = np.arange(n)
    clean, words, steady_s = (
        case.seconds(t),
        np.full(n, BUCKETS.mean()),
        np.full(n, case.level_s or np.nan),
    )
    if case.buckets is not None:
        lengths = case.buckets(t)
        clean, words, steady_s = (
            clean * BUCKET_S[lengths],
            BUCKETS[lengths],
            steady_s * BUCKET_S[lengths],
        )
    # A rate is words over the mean time, so the truth holds the noise's mean.
    noise_mean = float(np.exp(draw(rng, 200_000, sigma, 0.0, outliers)).mean())
    kinds: Counter[str] = Counter()
    errors: dict[str, list[float]] = {"found": [], "skip 10": [], "MSER-5": []}
    for _ in range(repetitions):
        step_s = clean * np.exp(draw(rng, n, sigma, correlation, outliers))
        state = steady_state.analyse(step_s, words)
        kinds[state.kind] += 1
        cuts = {
            "found": state.start,
            "skip 10": 10,
            "MSER-5": mser5_cut(np.log(step_s / words)) or 0,
        }
        for method, cut in cuts.items():
            if case.level_s is not None and cut is not None:
                errors[method].append(
                    steady_s[cut:].sum() * noise_mean / step_s[cut:].sum() - 1
                )
    answered = ", ".join(
        f"{kind} {count / repetitions:.1%}" for kind, count in kinds.most_common()
    )
    cells = [name, noise, f"{sigma:.0%}", case.right, answered]
    if not errors["found"]:
        return [*cells, "none", "none", "none", "none"]
    bias = {method: f"{np.median(each):+.2%}" for method, each in errors.items()}
    worst = f"{np.percentile(np.abs(errors['found']), 95):.2%}"
    return [*cells, bias["found"], worst, bias["skip 10"], bias["MSER-5"]]


def main(argv: list[str]) -> None:
    del argv
    head = [
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
    print(
        f"{FLAGS.batches} batches, {FLAGS.repetitions} repetitions, seed {FLAGS.seed}\n"
    )
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for sigma in FLAGS.noise:
        for name in CASES:
            for noise in NOISES if name == "flat" else ["white", "AR(1) 0.5"]:
                row = judge(
                    name,
                    noise,
                    float(sigma),
                    FLAGS.batches,
                    FLAGS.repetitions,
                    FLAGS.seed,
                )
                print("| " + " | ".join(row) + " |", flush=True)
    long = np.exp(draw(np.random.default_rng(FLAGS.seed), 5000, 0.01, 0.0, 0.0))
    times = []
    for _ in range(5):
        start = time.perf_counter()
        steady_state.analyse(long)
        times.append(time.perf_counter() - start)
    print(f"5,000 batches: {min(times) * 1e3:.0f} ms (best of 5)", file=sys.stderr)


if (
    __name__ == "__main__"
):  # flags are defined here: the tests import several benchmarks in one process
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
