"""How often the intervals of analysis/confidence.py contain the truth, in simulation.

    python -m benchmarks.coverage [--repetitions=4000] [--seed=1] [--parts=process,rate,pooled,ratio,...]

A process has a log rate that is normal about the truth (3 % unless stated). Its batches have a log time with
first-order autoregressive noise (5 %). Monte-Carlo errors are printed.
docs/methods/measurements.md summarises the tables. benchmarks/comparison_coverage.py simulates comparisons.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from unittest import mock

import numpy as np
from absl import app, flags

from benchmarks.simulated import BETWEEN, batches, covered, process_rates
from rnn_scaling.analysis import confidence, steady_state
from rnn_scaling.analysis.confidence import (
    Interval,
    combine,
    divide_rates,
    interval_over_runs,
    shared_scatters,
    t_quantile,
)
from rnn_scaling.analysis.correlation import (
    rank_correlation,
    rank_correlation_with_errors,
)
from rnn_scaling.analysis.steps.straggler import judge_ranks
from rnn_scaling.records.workers import Rank, Workers

FLAGS = flags.FLAGS


def within_process(repetitions: int, seed: int) -> Iterator[list[str]]:
    """One process: its own long-run rate, by the interval used and by two others; and the rate of other processes."""
    for correlation in (0.0, 0.5, 0.8):
        for n in (20, 50, 200, 1000):
            rng = np.random.default_rng([seed, n, int(10 * correlation)])
            hits = np.zeros(4)
            widths = []
            for step_s in batches(rng, (repetitions, n), correlation):
                width = (
                    confidence.half_width_over_batches(step_s, np.ones(n)) or math.inf
                )
                widths.append(width)
                off = abs(math.log(step_s.mean()))
                other = abs(math.log(step_s.mean()) + BETWEEN * rng.normal())
                size = max(2, math.ceil(n ** (1 / 3)))
                hits += [
                    off <= width,
                    off <= block_width(step_s, size),
                    off <= block_width(step_s, 1),
                    other <= width,
                ]
            share = [f"{hit / repetitions:.1%}" for hit in hits]
            yield [f"{correlation:g}", str(n), *share, f"{np.median(widths):.2%}"]


def block_width(step_s: np.ndarray, size: int) -> float:
    """Relative half-width by the means of blocks of `size` batches and Student's t."""
    means = step_s[len(step_s) % size :].reshape(-1, size).mean(axis=1) / step_s.mean()
    return t_quantile(0.975, len(means) - 1) * means.std(ddof=1) / math.sqrt(len(means))


def rates(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Several processes: the rate."""
    for label, between, tails in (
        ("normal 3 %", 0.03, 0),
        ("normal 0.3 %", 0.003, 0),
        ("t, 3 degrees, 3 %", 0.03, 3),
    ):
        for k in (2, 3, 5, 10):
            rng = np.random.default_rng([seed, k, int(1e4 * between), tails])
            intervals = [
                interval_over_runs(row)
                for row in process_rates(rng, repetitions, k, 1.0, between, tails)
            ]
            width = np.median([each.half_width for each in intervals])
            yield [label, str(k), f"{covered(intervals, 1.0):.1%}", f"{width:.1%}"]


ROWS = {  # standard deviations between the processes of six configurations
    "3 % each": [0.03] * 6,
    "one 9 %, the others 3 %": [0.09, *[0.03] * 5],
    "1, 2, 3, 3, 4, 6 %": [0.01, 0.02, 0.03, 0.03, 0.04, 0.06],
}
DESIGNS = {  # runs of the six configurations, and the standard deviation that a round has in common
    "2 of each": ([2] * 6, 0.0),
    "3 of each": ([3] * 6, 0.0),
    "5 of each": ([5] * 6, 0.0),
    "1 beside five of 3": ([1, *[3] * 5], 0.0),
    "2 of each, rounds differ by 3 %": ([2] * 6, 0.03),
    "3 of each, rounds differ by 3 %": ([3] * 6, 0.03),
}


def pooled(repetitions: int, seed: int) -> Iterator[list[str]]:
    """A report of six configurations on one and on several devices, whose processes share a scatter, or do not."""
    for spreads in ROWS:
        for design, (runs, common) in DESIGNS.items():
            if common and spreads != "3 % each":
                continue
            rng = np.random.default_rng([seed, *design.encode(), *spreads.encode()])
            made = [
                _report(rng, ROWS[spreads], runs, common)
                for _ in range(repetitions // 5)
            ]
            hits = [[covered([one], 1.0) for one, _, _ in report] for report in made]
            speedups = [speedup for report in made for _, speedup, _ in report]
            alone = [own for report in made for *_, own in report if own.half_width]
            widths = [
                f"{np.median([each.half_width for each in some]):.1%}"
                for some in (speedups, alone)
            ]
            worst = f"{np.mean(hits, axis=0).min():.1%}"
            rates = [
                f"{np.mean(hits):.1%}",
                worst,
                f"{covered(speedups, 1.0):.1%}",
                widths[0],
            ]
            yield [spreads, design, *rates, f"{covered(alone, 1.0):.1%}", widths[1]]


def _report(
    rng: np.random.Generator, spreads: list[float], runs: list[int], common: float
) -> list[tuple[Interval, Interval, Interval]]:
    """Rate and speedup of each configuration, and its speedup with no scatter shared; every truth is 1."""
    rounds = common * rng.normal(size=max(runs))
    sides = [
        [
            np.exp(s * rng.normal(size=k) + rounds[:k]).tolist()
            for s, k in zip(spreads, runs)
        ]
        for _ in range(2)
    ]
    ones, several = (
        [interval_over_runs(*each) for each in zip(side, shared_scatters(side))]
        for side in sides
    )
    own = [
        divide_rates(interval_over_runs(b), interval_over_runs(a))
        for a, b in zip(*sides)
    ]
    return [
        (one, divide_rates(many, one), alone)
        for one, many, alone in zip(ones, several, own)
    ]


def ratios(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Speedup 3.2 and efficiency 0.8 on 4 devices: Welch's t of logarithms, beside Fieller's with pooled degrees."""
    sizes = [(k, k, spread) for spread in (1, 3) for k in (3, 5, 10)] + [
        (3, 10, 3),
        (10, 3, 3),
    ]
    for k1, kn, spread in sizes:
        rng = np.random.default_rng([seed, k1, kn, spread])
        ones = process_rates(rng, repetitions, k1)
        fours = process_rates(rng, repetitions, kn, 3.2, BETWEEN * spread)
        found = [
            divide_rates(interval_over_runs(b), interval_over_runs(a))
            for a, b in zip(ones, fours)
        ]
        efficiencies = [each.scaled(1 / 4) for each in found]
        fieller = np.mean(
            [low <= 3.2 <= high for low, high in map(fieller_interval, fours, ones)]
        )
        width = np.median([each.half_width for each in found]) / 3.2
        shares = [
            f"{covered(found, 3.2):.1%}",
            f"{covered(efficiencies, 0.8):.1%}",
            f"{fieller:.1%}",
        ]
        yield [
            f"{k1}, {kn}",
            f"{BETWEEN:.0%}, {BETWEEN * spread:.0%}",
            *shares,
            f"{width:.1%}",
        ]


def fieller_interval(top: np.ndarray, bottom: np.ndarray) -> tuple[float, float]:
    """Fieller's interval of mean(top) / mean(bottom), len(top) + len(bottom) - 2 degrees."""
    a, b = top.mean(), bottom.mean()
    var_a, var_b = top.var(ddof=1) / len(top), bottom.var(ddof=1) / len(bottom)
    square = t_quantile(0.975, len(top) + len(bottom) - 2) ** 2
    g = square * var_b / b**2
    if g >= 1:
        return -math.inf, math.inf
    root = math.sqrt(square * (var_a * (1 - g) + var_b * (a / b) ** 2)) / b
    return (a / b - root) / (1 - g), (a / b + root) / (1 - g)


PARTS: dict[str, tuple[Callable[..., float], tuple[float, ...]]] = {
    # name: (function, true rates of its inputs), as in analysis/attribution.py; four devices. r1, r4: replicated on
    # one and four devices; i1, i4: independent
    "loss 4 r1 - r4": (lambda r1, r4: 4 * r1 - r4, (1.0, 2.6)),
    "contention 4 r1 (1 - i4 / 4 i1)": (
        lambda r1, i1, i4: 4 * r1 - r1 / i1 * i4,
        (1.0, 1.1, 3.7),
    ),
    "exchange r1 i4 / i1 - r4": (
        lambda r1, r4, i1, i4: r1 / i1 * i4 - r4,
        (1.0, 2.6, 1.1, 3.7),
    ),
    "share of the exchange in the ideal": (
        lambda r1, r4, i1, i4: (i4 / i1 - r4 / r1) / 4,
        (1.0, 2.6, 1.1, 3.7),
    ),
}


def combinations(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Sums, differences and shares: error propagation, beside draws from each input's t (the fiducial way)."""
    for name, (function, truths) in PARTS.items():
        for k in (2, 3, 5, 10):
            rng = np.random.default_rng([seed, k, *name.encode()])
            inputs = [process_rates(rng, repetitions, k, truth) for truth in truths]
            intervals, hits = [], []
            # A rate over processes is their geometric mean; its truth is that of the processes' log rates.
            truth = function(*truths)
            for i in range(repetitions):
                each = [interval_over_runs(samples[i]) for samples in inputs]
                intervals.append(combine(function, each))
                if i < repetitions // 5:
                    with np.errstate(
                        all="ignore"
                    ):  # draws from t with one degree reach 0 and beyond any number
                        low, high = drawn_interval(rng, function, each)
                    hits.append(low <= truth <= high)
            width = np.median([each.half_width for each in intervals])
            yield [
                name,
                str(k),
                f"{covered(intervals, truth):.1%}",
                f"{np.mean(hits):.1%}",
                f"{width:.2f}",
            ]


def drawn_interval(
    rng: np.random.Generator, function: Callable[..., float], inputs: list[Interval]
) -> tuple[float, float]:
    """Quantiles of the function over 1,000 draws of each input's log rate from its t."""
    draws = [
        each.value
        * np.exp(
            (each.standard_error or 0.0)
            / each.value
            * rng.standard_t(each.degrees, 1000)
        )
        for each in inputs
    ]
    low, high = np.percentile(function(*draws), [2.5, 97.5])
    return float(low), float(high)


def stopping(repetitions: int, seed: int) -> Iterator[list[str]]:
    """A trainer that goes on until the half-width is 2 %: coverage of its last interval, chosen in part by luck."""
    rules = {"30, a tenth, 1": (30, 1.1, 1), "60, a quarter, 2": (60, 1.25, 2)}
    settings = itertools.product((0.0, 0.5), (0.05, 0.10), rules.items())
    for correlation, sigma, (rule, (first, growth, in_a_row)) in settings:
        rng = np.random.default_rng([seed, int(10 * correlation), int(100 * sigma)])
        hits = []
        lengths = []
        with mock.patch.multiple(
            steady_state,
            _MIN_JUDGED=first,
            _ANALYSIS_GROWTH=growth,
            _ANALYSES_IN_A_ROW=in_a_row,
        ):
            for _ in range(max(1, repetitions // 10)):
                step_s = batches(rng, (3000,), correlation, sigma)
                is_covered, length = _stop(step_s, first)
                hits.append(is_covered)
                lengths.append(length)
        covered_share = f"{np.mean(hits):.1%}"
        median = f"{np.median(lengths):.0f}"
        yield [f"{correlation:g}", f"{sigma:.0%}", rule, covered_share, median]


def _stop(step_s: np.ndarray, first: int) -> tuple[bool, int]:
    """Return whether the interval at the end contains the truth, and the batches."""
    watch = steady_state.UntilKnown(0.02)
    length = first
    while length < len(step_s) and not watch.reached(step_s[:length]):
        length += 1
    state = steady_state.analyse(step_s[:length])
    if state.rate_steady is None or state.half_width is None:
        return False, length
    return abs(math.log(state.rate_steady)) <= state.half_width, length


def correlations(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Models: rank correlation of normal pairs, and of an efficiency that saturates with the logarithm of the ratio."""
    for n, truth in itertools.product((6, 8, 10, 20), (0.0, 0.3, 0.6, 0.8, 0.9, 0.95)):
        rng, r = (
            np.random.default_rng([seed, n, int(100 * truth)]),
            2 * math.sin(math.pi * truth / 6),
        )
        x, noise = rng.normal(size=(2, repetitions, n))
        yield [
            "normal",
            str(n),
            f"{truth:.2f}",
            *_correlated(x, r * x + math.sqrt(1 - r * r) * noise, truth),
        ]
    for n, sigma in itertools.product((6, 10), (0.6, 0.2, 0.05)):
        rng, many = np.random.default_rng([seed, n, int(100 * sigma)]), 200_000 // n
        x = rng.uniform(-2, 3, size=(repetitions + many, n))
        y = 1 / (1 + np.exp(-x)) + sigma * rng.normal(size=x.shape)
        population = [values[repetitions:].ravel() for values in (x, y)]
        ranks = [values.argsort().argsort() for values in population]
        truth = float(np.corrcoef(ranks)[0, 1])
        yield [
            "saturating",
            str(n),
            f"{truth:.2f}",
            *_correlated(x[:repetitions], y[:repetitions], truth),
        ]

    yield from _families_with_errors(repetitions // 10, seed)


def _families_with_errors(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Models of families, whose efficiencies have errors of some share of their spread."""
    for families, truth, error in itertools.product(
        (6, 8, 12), (0.0, 0.9), (0.0, 0.5, 1.0)
    ):
        rng = np.random.default_rng([seed, families, int(100 * truth), int(10 * error)])
        r = 2 * math.sin(math.pi * truth / 6)
        found = []
        for _ in range(repetitions):
            family = np.repeat(np.arange(families), rng.integers(1, 5, families))
            own, noise = rng.normal(size=(2, families))
            deviations = 0.1 * rng.normal(size=(2, family.size))
            x = own[family] + deviations[0]
            y = (r * own + math.sqrt(1 - r * r) * noise)[family] + deviations[1]
            y += error * rng.normal(size=y.size)
            # The logarithms of such numbers vary as much as y does.
            ratios = [
                Interval(value, standard_error=0.0, degrees=math.inf)
                for value in np.exp(x)
            ]
            efficiencies = [
                Interval(value, standard_error=error * value, degrees=100.0)
                for value in np.exp(y)
            ]
            found.append(rank_correlation_with_errors(ratios, efficiencies, families))
        yield [
            f"errors of {error:g} spread",
            f"{families} families",
            f"{truth:.2f}",
            *_shares(found, truth),
        ]


def _correlated(x: np.ndarray, y: np.ndarray, truth: float) -> list[str]:
    """Share of intervals that hold the truth, and of those above 0."""
    return _shares([rank_correlation(*pair) for pair in zip(x, y)], truth)


def _shares(found: list[Interval], truth: float) -> list[str]:
    return [
        f"{covered(found, truth):.1%}",
        f"{np.mean([(each.low or 0.0) > 0 for each in found]):.1%}",
    ]


def late_ranks(repetitions: int, seed: int) -> Iterator[list[str]]:
    """How often one of several ranks is called late: none is, or the first one is by some standard deviations."""
    for size, n, correlation in itertools.product(
        (2, 4, 16, 256), (10, 30), (0.0, 0.5, 0.9)
    ):
        rng, count = (
            np.random.default_rng(seed),
            max(1, repetitions // (10 if size > 100 else 2)),
        )
        named = [
            [
                _late(batches(rng, (size, n), correlation, 0.05), by)
                for _ in range(count)
            ]
            for by in (0.0, 0.1, 0.15, 0.25)
        ]
        shares = [
            np.mean([bool(late) for late in named[0]]),
            *(np.mean([late == (0,) for late in each]) for each in named[1:]),
        ]
        yield [
            str(size),
            str(n),
            f"{correlation:g}",
            *(f"{share:.1%}" for share in shares),
        ]


def _late(ready: np.ndarray, by: float) -> tuple[int, ...]:
    """The ranks that are named where the first of `[ranks, batches]` is ready later by this share of a batch."""
    ready[0] += by
    numbers = (1,) * ready.shape[1]
    ranks = (
        Rank(rank=k, seconds=numbers, items=numbers, ready=tuple(map(float, own)))
        for k, own in enumerate(ready)
    )
    judged = judge_ranks(Workers(ranks=tuple(ranks)), 0, exchanges=True)
    return judged.late_ranks if judged else ()


TABLES: dict[str, tuple[Callable[[int, int], Iterator[list[str]]], list[str]]] = {
    "process": (
        within_process,
        [
            "correlation",
            "batches",
            "covered",
            "blocks of n^(1/3)",
            "batches as independent",
            "other processes",
            "±",
        ],
    ),
    "rate": (rates, ["between processes", "processes", "covered", "±"]),
    "pooled": (
        pooled,
        [
            "between processes",
            "runs",
            "rate covered",
            "worst row",
            "speedup covered",
            "±",
            "own scatter",
            "±",
        ],
    ),
    "ratio": (
        ratios,
        [
            "processes",
            "between",
            "speedup covered",
            "efficiency covered",
            "Fieller",
            "±",
        ],
    ),
    "combine": (combinations, ["part", "processes", "covered", "by draws", "±"]),
    "late_ranks": (
        late_ranks,
        [
            "ranks",
            "batches",
            "correlation",
            "none is late: named",
            "late by 2 sigma: named",
            "by 3 sigma",
            "by 5 sigma",
        ],
    ),
    "correlation": (
        correlations,
        ["pairs", "models", "rank correlation", "covered", "called following"],
    ),
    "stopping": (
        stopping,
        [
            "correlation",
            "sigma",
            "first look, growth, in a row",
            "covered",
            "batches (median)",
        ],
    ),
}


def main(argv: list[str]) -> None:
    del argv
    print(f"{FLAGS.repetitions} repetitions, seed {FLAGS.seed}")
    print(
        f"Monte-Carlo standard error of a share near 95 %: {math.sqrt(0.95 * 0.05 / FLAGS.repetitions):.2%}"
    )
    for part in FLAGS.parts:
        make, head = TABLES[part]
        print(
            f"\n{make.__doc__}\n\n| " + " | ".join(head) + " |\n|" + "---|" * len(head)
        )
        for row in make(FLAGS.repetitions, FLAGS.seed):
            print("| " + " | ".join(row) + " |", flush=True)


if (
    __name__ == "__main__"
):  # flags are defined here: the tests import several benchmarks in one process
    flags.DEFINE_integer(
        "repetitions", 4000, "number of repetitions of each row", lower_bound=1
    )
    flags.DEFINE_integer("seed", 1, "seed of the random numbers")
    flags.DEFINE_list("parts", list(TABLES), "tables to make, separated by commas")
    app.run(main)
