"""Simulate how often the intervals of analysis/confidence.py contain the truth.

    python -m benchmarks.coverage [--repetitions=4000] [--seed=1]
        [--parts=process,rate,pooled,ratio,...]

The log rate of a process is normal around the truth, with a standard deviation of 3 %
unless a table states another one. The log times of its batches have first-order
autoregressive noise of 5 %. Monte-Carlo errors are printed.

docs/methods/measurements.md summarises the tables. benchmarks/comparison_coverage.py
simulates comparisons.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from unittest import mock

import numpy as np
from absl import app, flags

from benchmarks.simulated import (
    BETWEEN,
    compute_coverage,
    process_rates,
    simulate_batches,
)
from rnn_scaling.analysis import confidence, steady_state
from rnn_scaling.analysis.confidence import (
    Interval,
    combine,
    compute_interval_over_runs,
    compute_shared_scatters,
    divide_rates,
    t_quantile,
)
from rnn_scaling.analysis.correlation import (
    compute_rank_correlation,
    compute_rank_correlation_with_errors,
)
from rnn_scaling.analysis.steps.straggler import judge_ranks
from rnn_scaling.records.workers import Rank, Workers

FLAGS = flags.FLAGS

# Standard deviations between the processes of six configurations.
SPREADS = {
    "3 % each": [0.03] * 6,
    "one 9 %, the others 3 %": [0.09, *[0.03] * 5],
    "1, 2, 3, 3, 4, 6 %": [0.01, 0.02, 0.03, 0.03, 0.04, 0.06],
}


class Design(NamedTuple):
    """How often six configurations are measured.

    Attributes:
      runs: Runs of each configuration.
      common: Standard deviation that the runs of a round have in common.
    """

    runs: Sequence[int]
    common: float = 0.0


DESIGNS = {
    "2 of each": Design([2] * 6),
    "3 of each": Design([3] * 6),
    "5 of each": Design([5] * 6),
    "1 beside five of 3": Design([1, *[3] * 5]),
    "2 of each, rounds differ by 3 %": Design([2] * 6, common=0.03),
    "3 of each, rounds differ by 3 %": Design([3] * 6, common=0.03),
}


def simulate_processes(repetitions: int, seed: int) -> Iterator[list[str]]:
    """One process: its own long-run rate by three intervals, and that of another one."""
    for correlation in (0.0, 0.5, 0.8):
        for count in (20, 50, 200, 1000):
            random = np.random.default_rng([seed, count, int(10 * correlation)])
            # By the interval in use, by blocks, by single batches; another process.
            hits = np.zeros(4)
            half_widths = []
            for step_s in simulate_batches(random, (repetitions, count), correlation):
                half_width = confidence.compute_half_width_over_batches(
                    step_s, np.ones(count)
                )
                half_width = half_width or math.inf
                half_widths.append(half_width)
                error = math.log(step_s.mean())
                block_size = max(2, math.ceil(count ** (1 / 3)))
                hits += [
                    abs(error) <= half_width,
                    abs(error) <= compute_half_width_of_blocks(step_s, block_size),
                    abs(error) <= compute_half_width_of_blocks(step_s, 1),
                    abs(error + BETWEEN * random.normal()) <= half_width,
                ]
            shares = [f"{hit / repetitions:.1%}" for hit in hits]
            median = f"{np.median(half_widths):.2%}"
            yield [f"{correlation:g}", str(count), *shares, median]


def compute_half_width_of_blocks(step_s: np.ndarray, size: int) -> float:
    """Return the relative half-width by the means of blocks and Student's t.

    Args:
      step_s: Seconds of batches.
      size: Batches of a block.
    """
    blocks = step_s[len(step_s) % size :].reshape(-1, size)
    means = blocks.mean(axis=1) / step_s.mean()
    quantile = t_quantile(0.975, len(means) - 1)
    return quantile * means.std(ddof=1) / math.sqrt(len(means))


def simulate_rates(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Several processes: the rate."""
    for label, between, tails in (
        ("normal 3 %", 0.03, 0),
        ("normal 0.3 %", 0.003, 0),
        ("t, 3 degrees, 3 %", 0.03, 3),
    ):
        for count in (2, 3, 5, 10):
            random = np.random.default_rng([seed, count, int(1e4 * between), tails])
            intervals = []
            for rates in process_rates(
                random, repetitions, count, between=between, tails=tails
            ):
                intervals.append(compute_interval_over_runs(rates))
            width = format_half_width(intervals)
            yield [label, str(count), format_coverage(intervals, 1.0), width]


@dataclasses.dataclass(frozen=True)
class SimulatedRow:
    """The intervals of one configuration. Each truth is 1.

    Attributes:
      rate: Its rate on one device.
      speedup: Its speedup, with a scatter that the configurations share.
      own_speedup: Its speedup from the scatter of its own runs.
    """

    rate: Interval
    speedup: Interval
    own_speedup: Interval


def simulate_reports(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Six configurations on one and several devices, with and without one scatter."""
    for spreads_title, spreads in SPREADS.items():
        for title, design in DESIGNS.items():
            if design.common and spreads_title != "3 % each":
                continue
            random = np.random.default_rng(
                [seed, *title.encode(), *spreads_title.encode()]
            )
            # Which report, which configuration.
            hits = []
            speedups = []
            own_speedups = []
            for _ in range(repetitions // 5):
                rows = simulate_report(random, spreads, design)
                hits.append([compute_coverage([row.rate], 1.0) for row in rows])
                speedups += [row.speedup for row in rows]
                own_speedups += [row.own_speedup for row in rows]
            own_speedups = [each for each in own_speedups if each.half_width]
            yield [
                spreads_title,
                title,
                f"{np.mean(hits):.1%}",
                f"{np.mean(hits, axis=0).min():.1%}",
                format_coverage(speedups, 1.0),
                format_half_width(speedups),
                format_coverage(own_speedups, 1.0),
                format_half_width(own_speedups),
            ]


def simulate_report(
    random: np.random.Generator, spreads: Sequence[float], design: Design
) -> list[SimulatedRow]:
    """Return the intervals of the six configurations of one report.

    Args:
      random: Source of random numbers.
      spreads: Standard deviation of each configuration's log rates.
      design: Runs of each configuration.
    """
    rounds = design.common * random.normal(size=max(design.runs))
    sides = []
    for _ in ("one device", "several devices"):
        side = []
        for spread, count in zip(spreads, design.runs):
            logs = spread * random.normal(size=count) + rounds[:count]
            side.append(np.exp(logs).tolist())
        sides.append(side)
    rows = []
    for rates, scatter, many_rates, many_scatter in zip(
        sides[0],
        compute_shared_scatters(sides[0]),
        sides[1],
        compute_shared_scatters(sides[1]),
    ):
        rate = compute_interval_over_runs(rates, scatter)
        many_rate = compute_interval_over_runs(many_rates, many_scatter)
        rows.append(
            SimulatedRow(
                rate=rate,
                speedup=divide_rates(many_rate, rate),
                own_speedup=divide_rates(
                    compute_interval_over_runs(many_rates),
                    compute_interval_over_runs(rates),
                ),
            )
        )
    return rows


def simulate_speedups(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Speedup 3.2 on 4 devices: Welch's t of logarithms, and Fieller's interval."""
    speedup = 3.2
    # Processes on one device, on four devices, and how much more the latter scatter.
    sizes = [(count, count, more) for more in (1, 3) for count in (3, 5, 10)]
    sizes += [(3, 10, 3), (10, 3, 3)]
    for count, count_on_four, more in sizes:
        random = np.random.default_rng([seed, count, count_on_four, more])
        ones = process_rates(random, repetitions, count)
        fours = process_rates(
            random, repetitions, count_on_four, speedup, BETWEEN * more
        )
        speedups = []
        fieller_hits = []
        for one, four in zip(ones, fours):
            speedups.append(
                divide_rates(
                    compute_interval_over_runs(four), compute_interval_over_runs(one)
                )
            )
            low, high = compute_fieller_interval(four, one)
            fieller_hits.append(low <= speedup <= high)
        efficiencies = [each.scaled(1 / 4) for each in speedups]
        half_widths = [each.half_width for each in speedups]
        yield [
            f"{count}, {count_on_four}",
            f"{BETWEEN:.0%}, {BETWEEN * more:.0%}",
            format_coverage(speedups, speedup),
            format_coverage(efficiencies, speedup / 4),
            f"{np.mean(fieller_hits):.1%}",
            f"{np.median(half_widths) / speedup:.1%}",
        ]


def compute_fieller_interval(
    top: np.ndarray, bottom: np.ndarray
) -> tuple[float, float]:
    """Return the ends of Fieller's interval of mean(top) / mean(bottom).

    The two sides have one variance, with len(top) + len(bottom) - 2 degrees of freedom.
    """
    a = top.mean()
    b = bottom.mean()
    variance_of_a = top.var(ddof=1) / len(top)
    variance_of_b = bottom.var(ddof=1) / len(bottom)
    t_squared = t_quantile(0.975, len(top) + len(bottom) - 2) ** 2
    g = t_squared * variance_of_b / b**2
    if g >= 1:
        return -math.inf, math.inf
    variance = variance_of_a * (1 - g) + variance_of_b * (a / b) ** 2
    root = math.sqrt(t_squared * variance) / b
    return (a / b - root) / (1 - g), (a / b + root) / (1 - g)


# The parts of the efficiency loss on four devices, as in analysis/attribution.py. r1 and
# r4 are rates with --variable_update=replicated on one and four devices, i1 and i4 with
# independent.


def compute_lost_rate(r1: float, r4: float) -> float:
    """Return the loss."""
    return 4 * r1 - r4


def compute_contention(r1: float, i1: float, i4: float) -> float:
    """Return the loss that independent towers have, too."""
    return 4 * r1 - r1 / i1 * i4


def exchange(r1: float, r4: float, i1: float, i4: float) -> float:
    """Return the rest of the loss."""
    return r1 / i1 * i4 - r4


def share_of_exchange(r1: float, r4: float, i1: float, i4: float) -> float:
    """Return the exchange as a share of the ideal rate."""
    return (i4 / i1 - r4 / r1) / 4


# Name, function, true rates of its arguments.
PARTS_OF_LOSS: list[tuple[str, Callable[..., float], tuple[float, ...]]] = [
    ("loss 4 r1 - r4", compute_lost_rate, (1.0, 2.6)),
    ("contention 4 r1 (1 - i4 / 4 i1)", compute_contention, (1.0, 1.1, 3.7)),
    ("exchange r1 i4 / i1 - r4", exchange, (1.0, 2.6, 1.1, 3.7)),
    ("share of the exchange in the ideal", share_of_exchange, (1.0, 2.6, 1.1, 3.7)),
]


def simulate_parts_of_loss(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Sums, differences and shares: propagated errors, and draws from each input's t."""
    for name, compute, true_rates in PARTS_OF_LOSS:
        # A rate over processes is their geometric mean, so that its truth is that of
        # the processes' log rates.
        truth = compute(*true_rates)
        for count in (2, 3, 5, 10):
            random = np.random.default_rng([seed, count, *name.encode()])
            samples = []
            for true_rate in true_rates:
                samples.append(process_rates(random, repetitions, count, true_rate))
            intervals = []
            hits_of_draws = []
            for number, rates in enumerate(zip(*samples)):
                inputs = [compute_interval_over_runs(each) for each in rates]
                intervals.append(combine(compute, inputs))
                if number < repetitions // 5:
                    low, high = compute_interval_of_draws(random, compute, inputs)
                    hits_of_draws.append(low <= truth <= high)
            half_widths = [each.half_width for each in intervals]
            yield [
                name,
                str(count),
                format_coverage(intervals, truth),
                f"{np.mean(hits_of_draws):.1%}",
                f"{np.median(half_widths):.2f}",
            ]


def compute_interval_of_draws(
    random: np.random.Generator,
    compute: Callable[..., float],
    inputs: Sequence[Interval],
) -> tuple[float, float]:
    """Return quantiles of a function over 1,000 draws of each input's log rate."""
    # Draws from a t distribution with one degree of freedom overflow.
    with np.errstate(all="ignore"):
        draws = []
        for each in inputs:
            relative_error = (each.standard_error or 0.0) / each.value
            errors = relative_error * random.standard_t(each.degrees, 1000)
            draws.append(each.value * np.exp(errors))
        low, high = np.percentile(compute(*draws), [2.5, 97.5])
    return float(low), float(high)


class StoppingRule(NamedTuple):
    """When a trainer looks whether its rate is known well enough.

    Attributes:
      first: Batches before the first look.
      growth: How many times more batches each next look has.
      in_a_row: Looks that must agree.
    """

    first: int
    growth: float
    in_a_row: int


STOPPING_RULES = {
    "30, a tenth, 1": StoppingRule(30, 1.1, 1),
    "60, a quarter, 2": StoppingRule(60, 1.25, 2),
}


def simulate_stopping(repetitions: int, seed: int) -> Iterator[list[str]]:
    """A trainer that stops at a half-width of 2 %: its last interval."""
    settings = itertools.product((0.0, 0.5), (0.05, 0.10), STOPPING_RULES.items())
    for correlation, sigma, (title, rule) in settings:
        random = np.random.default_rng([seed, int(10 * correlation), int(100 * sigma)])
        hits = []
        lengths = []
        with mock.patch.multiple(
            steady_state,
            _MIN_JUDGED=rule.first,
            _ANALYSIS_GROWTH=rule.growth,
            _ANALYSES_IN_A_ROW=rule.in_a_row,
        ):
            for _ in range(max(1, repetitions // 10)):
                step_s = simulate_batches(random, (3000,), correlation, sigma)
                is_covered, length = simulate_trainer(step_s, rule.first)
                hits.append(is_covered)
                lengths.append(length)
        yield [
            f"{correlation:g}",
            f"{sigma:.0%}",
            title,
            f"{np.mean(hits):.1%}",
            f"{np.median(lengths):.0f}",
        ]


def simulate_trainer(step_s: np.ndarray, first: int) -> tuple[bool, int]:
    """Return whether the interval at the end contains the truth, and the batches.

    Args:
      step_s: Seconds of the batches that could be trained.
      first: Batches before the first look.
    """
    watch = steady_state.KnownRateRule(0.02)
    length = first
    while length < len(step_s) and not watch.update(step_s[:length]):
        length += 1
    state = steady_state.analyse(step_s[:length])
    if state.rate_steady is None or state.half_width is None:
        return False, length
    return abs(math.log(state.rate_steady)) <= state.half_width, length


def simulate_correlations(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Models: rank correlation of normal pairs, and of an efficiency that saturates."""
    yield from simulate_normal_pairs(repetitions, seed)
    yield from simulate_saturating_efficiencies(repetitions, seed)
    yield from simulate_families_with_errors(repetitions // 10, seed)


def simulate_normal_pairs(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Yield the rows of normal pairs with a known rank correlation."""
    truths = (0.0, 0.3, 0.6, 0.8, 0.9, 0.95)
    for count, truth in itertools.product((6, 8, 10, 20), truths):
        random = np.random.default_rng([seed, count, int(100 * truth)])
        x, noise = random.normal(size=(2, repetitions, count))
        y = correlate(x, noise, truth)
        found = [compute_rank_correlation(*pair) for pair in zip(x, y)]
        yield ["normal", str(count), f"{truth:.2f}", *format_correlations(found, truth)]


def simulate_saturating_efficiencies(
    repetitions: int, seed: int
) -> Iterator[list[str]]:
    """Yield the rows of efficiencies that saturate with the logarithm of the ratio."""
    for count, sigma in itertools.product((6, 10), (0.6, 0.2, 0.05)):
        random = np.random.default_rng([seed, count, int(100 * sigma)])
        # The true rank correlation is that of a large population.
        in_population = 200_000 // count
        x = random.uniform(-2, 3, size=(repetitions + in_population, count))
        y = 1 / (1 + np.exp(-x)) + sigma * random.normal(size=x.shape)
        ranks = []
        for values in (x, y):
            ranks.append(values[repetitions:].ravel().argsort().argsort())
        truth = float(np.corrcoef(ranks)[0, 1])
        pairs = zip(x[:repetitions], y[:repetitions])
        found = [compute_rank_correlation(*pair) for pair in pairs]
        shares = format_correlations(found, truth)
        yield ["saturating", str(count), f"{truth:.2f}", *shares]


def simulate_families_with_errors(repetitions: int, seed: int) -> Iterator[list[str]]:
    """Yield the rows of families of models, whose efficiencies have errors."""
    settings = itertools.product((6, 8, 12), (0.0, 0.9), (0.0, 0.5, 1.0))
    for families, truth, error in settings:
        random = np.random.default_rng(
            [seed, families, int(100 * truth), int(10 * error)]
        )
        found = []
        for _ in range(repetitions):
            family = np.repeat(np.arange(families), random.integers(1, 5, families))
            own, noise = random.normal(size=(2, families))
            deviations = 0.1 * random.normal(size=(2, family.size))
            x = own[family] + deviations[0]
            y = correlate(own, noise, truth)[family] + deviations[1]
            y += error * random.normal(size=y.size)
            # The logarithms of such numbers vary as much as y does.
            ratios = []
            for value in np.exp(x):
                ratios.append(Interval(value, standard_error=0.0, degrees=math.inf))
            efficiencies = []
            for value in np.exp(y):
                efficiencies.append(
                    Interval(value, standard_error=error * value, degrees=100.0)
                )
            found.append(
                compute_rank_correlation_with_errors(ratios, efficiencies, families)
            )
        yield [
            f"errors of {error:g} spread",
            f"{families} families",
            f"{truth:.2f}",
            *format_correlations(found, truth),
        ]


def correlate(x: np.ndarray, noise: np.ndarray, truth: float) -> np.ndarray:
    """Return normal numbers with a rank correlation with x.

    Args:
      x: Standard normal numbers.
      noise: Standard normal numbers that are independent of x.
      truth: The rank correlation.
    """
    r = 2 * math.sin(math.pi * truth / 6)
    return r * x + math.sqrt(1 - r * r) * noise


def format_correlations(found: Sequence[Interval], truth: float) -> list[str]:
    """Return the shares of intervals that contain the truth, and that lie above 0."""
    above_zero = np.mean([(each.low or 0.0) > 0 for each in found])
    return [format_coverage(found, truth), f"{above_zero:.1%}"]


def simulate_late_ranks(repetitions: int, seed: int) -> Iterator[list[str]]:
    """How often a rank is called late if no rank is, and if the first one is."""
    settings = itertools.product((2, 4, 16, 256), (10, 30), (0.0, 0.5, 0.9))
    for num_ranks, num_batches, correlation in settings:
        random = np.random.default_rng(seed)
        count = max(1, repetitions // (10 if num_ranks > 100 else 2))
        shares = []
        for delay in (0.0, 0.1, 0.15, 0.25):
            hits = 0
            for _ in range(count):
                ready = simulate_batches(
                    random, (num_ranks, num_batches), correlation, 0.05
                )
                late_ranks = find_late_ranks(ready, delay)
                hits += late_ranks == (0,) if delay else bool(late_ranks)
            shares.append(f"{hits / count:.1%}")
        yield [str(num_ranks), str(num_batches), f"{correlation:g}", *shares]


def find_late_ranks(ready: np.ndarray, delay: float) -> tuple[int, ...]:
    """Return the ranks that are called late if the first one is late.

    Args:
      ready: When each rank is ready in each batch, [ranks, batches], in batches.
      delay: How much later the first rank is, in batches.
    """
    ready[0] += delay
    ones = (1,) * ready.shape[1]
    ranks = []
    for number, times in enumerate(ready.tolist()):
        ranks.append(Rank(rank=number, seconds=ones, items=ones, ready=tuple(times)))
    judged = judge_ranks(Workers(ranks=tuple(ranks)), 0, exchanges=True)
    return judged.late_ranks if judged else ()


def format_coverage(intervals: Sequence[Interval], truth: float) -> str:
    """Return the share of intervals that contain the truth."""
    return f"{compute_coverage(intervals, truth):.1%}"


def format_half_width(intervals: Sequence[Interval]) -> str:
    """Return the median of the half-widths."""
    return f"{np.median([each.half_width for each in intervals]):.1%}"


class Table(NamedTuple):
    """A table that `--parts` can choose.

    Attributes:
      simulate: Yields the rows for a number of repetitions and a seed. Its docstring is
        the title.
      head: The headings.
    """

    simulate: Callable[[int, int], Iterator[list[str]]]
    head: Sequence[str]


TABLES = {
    "process": Table(
        simulate_processes,
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
    "rate": Table(simulate_rates, ["between processes", "processes", "covered", "±"]),
    "pooled": Table(
        simulate_reports,
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
    "ratio": Table(
        simulate_speedups,
        [
            "processes",
            "between",
            "speedup covered",
            "efficiency covered",
            "Fieller",
            "±",
        ],
    ),
    "combine": Table(
        simulate_parts_of_loss, ["part", "processes", "covered", "by draws", "±"]
    ),
    "late_ranks": Table(
        simulate_late_ranks,
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
    "correlation": Table(
        simulate_correlations,
        ["pairs", "models", "rank correlation", "covered", "called following"],
    ),
    "stopping": Table(
        simulate_stopping,
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
    """Print the tables of --parts."""
    del argv
    monte_carlo_error = math.sqrt(0.95 * 0.05 / FLAGS.repetitions)
    print(f"{FLAGS.repetitions} repetitions, seed {FLAGS.seed}")
    print(f"Monte-Carlo standard error of a share near 95 %: {monte_carlo_error:.2%}")
    for part in FLAGS.parts:
        table = TABLES[part]
        print(f"\n{table.simulate.__doc__}\n")
        print("| " + " | ".join(table.head) + " |")
        print("|" + "---|" * len(table.head))
        for row in table.simulate(FLAGS.repetitions, FLAGS.seed):
            print("| " + " | ".join(row) + " |", flush=True)


# Tests import several benchmarks into one process, so flags are defined only here.
if __name__ == "__main__":
    flags.DEFINE_integer(
        "repetitions", 4000, "number of repetitions of each row", lower_bound=1
    )
    flags.DEFINE_integer("seed", 1, "seed of the random numbers")
    flags.DEFINE_list("parts", list(TABLES), "tables to make, separated by commas")
    app.run(main)
