"""Simulate how often `compare` passes, reports a regression or cannot judge.

    python -m benchmarks.gate [--repetitions=2000] [--seed=1]

Processes have log-normal rates, and the limit is that of `compare --max_regression=5%`.
A second table shows what Holm's method changes. docs/methods/measurements.md has some
rows of both tables.
"""

from __future__ import annotations

import collections
import random

from absl import app, flags

from rnn_scaling.analysis import significance
from rnn_scaling.analysis.comparison import verdicts
from rnn_scaling.analysis.comparison.verdicts import Result
from rnn_scaling.system.files.markdown import format_table

FLAGS = flags.FLAGS

RATE = 1000
LIMIT = 0.05
CHANGES = (0.0, -0.02, -0.05, -0.08)
# Runs of each side, and the standard deviation of log rates between runs.
SIDES = ((3, 0.01), (5, 0.02), (10, 0.02), (5, 0.03), (10, 0.03), (20, 0.03))
# Configurations that are compared at once, their runs, and the change to be found.
FAMILY_SIZES = (1, 4, 8, 24)
FAMILY_SIDE = (5, 0.02)
FAMILY_CHANGE = -0.04


def main(argv: list[str]) -> None:
    """Print both tables."""
    del argv
    generator = random.Random(FLAGS.seed)
    head = [
        "runs a side",
        "between runs",
        "true change",
        "passes (0)",
        "regression (1)",
        "cannot judge (2)",
    ]
    rows = []
    for runs, spread in SIDES:
        for change in CHANGES:
            shares = share_of_answers(generator, runs, spread, change)
            rows.append([str(runs), f"{spread:.0%}", f"{change:+.0%}", *shares])
    print(format_table(head, rows))
    head = [
        "configurations",
        "any false alarm",
        "without Holm",
        "change of -4 % found",
        "without Holm",
    ]
    rows = []
    for size in FAMILY_SIZES:
        alarms = share_of_alarms(generator, size, 0.0)
        found = share_of_alarms(generator, size, FAMILY_CHANGE)
        rows.append([str(size), *alarms, *found])
    print(format_table(head, rows))


def share_of_answers(
    generator: random.Random, runs: int, spread: float, change: float
) -> list[str]:
    """Return how often each of the three answers is given for one configuration."""
    counts: collections.Counter[str] = collections.Counter()
    for _ in range(FLAGS.repetitions):
        result = simulate_result(generator, runs, spread, change)
        [conclusion] = verdicts.conclude([result], LIMIT)
        counts[conclusion.gate] += 1
    shares = []
    for answer in ("ok", "regression", "cannot judge"):
        shares.append(f"{counts[answer] / FLAGS.repetitions:.1%}")
    return shares


def share_of_alarms(generator: random.Random, size: int, change: float) -> list[str]:
    """Return how often a difference is seen in a family, with Holm's method and without.

    Returns:
      Without a true change, the share of families with any difference; otherwise the
      share of configurations whose difference is seen.
    """
    repetitions = FLAGS.repetitions // 4
    with_holm = 0.0
    without_holm = 0.0
    for _ in range(repetitions):
        results = []
        for _ in range(size):
            results.append(simulate_result(generator, *FAMILY_SIDE, change))
        seen_with = 0
        seen_without = 0
        for result in verdicts.conclude(results, LIMIT):
            seen_with += result.verdict != "no difference seen"
            seen_without += result.comparison.p_value < verdicts.ALPHA
        with_holm += seen_with / size if change else seen_with > 0
        without_holm += seen_without / size if change else seen_without > 0
    return [f"{with_holm / repetitions:.1%}", f"{without_holm / repetitions:.1%}"]


def simulate_result(
    generator: random.Random, runs: int, spread: float, change: float
) -> Result:
    """Return the result of one configuration.

    Args:
      generator: Source of random numbers.
      runs: Runs of each side.
      spread: Standard deviation of log rates between runs.
      change: True change of the rate, as a share.
    """
    sides = []
    for rate in (RATE, RATE * (1 + change)):
        sides.append([rate * generator.lognormvariate(0, spread) for _ in range(runs)])
    comparison = significance.compare(*sides)
    return Result("", (runs, runs), None, None, comparison)


if __name__ == "__main__":
    flags.DEFINE_integer(
        "repetitions",
        2000,
        "number of comparisons per row; the number of families is a quarter of it",
        lower_bound=4,
    )
    flags.DEFINE_integer("seed", 1, "seed of the simulation")
    app.run(main)
