"""python -m benchmarks.gate: how often compare passes, reports a regression or cannot judge, and the effect of Holm.

Processes have log-normal rates, and the gate is that of compare with --max_regression=5%.
docs/methods/measurements.md has some rows of its tables.
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

LIMIT = 0.05
CHANGES = (0.0, -0.02, -0.05, -0.08)
SIDES = ((3, 0.01), (5, 0.02), (10, 0.02), (5, 0.03), (10, 0.03), (20, 0.03))
FAMILIES = (1, 4, 8, 24)


def main(argv: list[str]) -> None:
    """Prints both tables."""
    rng, repetitions = random.Random(FLAGS.seed), FLAGS.repetitions
    head = [
        "runs a side",
        "between runs",
        "true change",
        "passes (0)",
        "regression (1)",
        "cannot judge (2)",
    ]
    rows = [
        [
            str(runs),
            f"{spread:.0%}",
            f"{change:+.0%}",
            *gates(rng, runs, spread, change, repetitions),
        ]
        for runs, spread in SIDES
        for change in CHANGES
    ]
    print(format_table(head, rows))
    head = [
        "configurations",
        "any false alarm",
        "without Holm",
        "change of -4 % found",
        "without Holm",
    ]
    print(
        format_table(
            head,
            [[str(size), *alarms(rng, size, repetitions // 4)] for size in FAMILIES],
        )
    )


def gates(
    rng: random.Random, runs: int, spread: float, change: float, repetitions: int
) -> list[str]:
    """Shares of the three answers for one configuration."""
    seen = collections.Counter(
        verdicts.conclude([measured(rng, runs, spread, change)], LIMIT)[0].gate
        for _ in range(repetitions)
    )
    return [
        f"{seen[answer] / repetitions:.1%}"
        for answer in ("ok", "regression", "cannot judge")
    ]


def alarms(rng: random.Random, size: int, repetitions: int) -> list[str]:
    """Of families of five runs a side, 2 % between runs: any false alarm, and the share of changes that is found."""
    shares = []
    for change in (0.0, -0.04):
        with_holm = without = 0
        for _ in range(repetitions):
            results = verdicts.conclude(
                [measured(rng, 5, 0.02, change) for _ in range(size)], LIMIT
            )
            real = [r.verdict != "no difference seen" for r in results]
            alone = [r.comparison.p_value < verdicts.ALPHA for r in results]
            with_holm += any(real) if not change else sum(real) / size
            without += any(alone) if not change else sum(alone) / size
        shares += [f"{with_holm / repetitions:.1%}", f"{without / repetitions:.1%}"]
    return shares


def measured(rng: random.Random, runs: int, spread: float, change: float) -> Result:
    """One configuration: rates of `runs` processes a side."""
    before, after = (
        [f * rng.lognormvariate(0, spread) for _ in range(runs)]
        for f in (1000, 1000 * (1 + change))
    )
    return Result("", (runs, runs), None, None, significance.compare(before, after))


if __name__ == "__main__":
    flags.DEFINE_integer(
        "repetitions",
        2000,
        "number of comparisons per row; the number of families is a quarter of it",
        lower_bound=4,
    )
    flags.DEFINE_integer("seed", 1, "seed of the simulation")
    app.run(main)
