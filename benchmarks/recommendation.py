"""How often the statements of recommend are right, in simulation (docs/methods/measurements.md).

    python -m benchmarks.recommendation [--repetitions=1000] [--seed=1]

Candidates run in two rounds, and in a third if `select_for_another_round` asks for it.
A process has a log rate that is normal about the truth. On a machine that drifts, each
round adds a log rate.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping

from absl import app, flags

from rnn_scaling.analysis.ranking import SLOWER, Ranking, rank, select_for_another_round
from rnn_scaling.sweeps.mode_search import MAX_ROUNDS, MIN_ROUNDS
from rnn_scaling.system.files.markdown import format_table

FLAGS = flags.FLAGS
TRUTHS = {
    "2 equal": [1.0, 1.0],
    "4 equal": [1.0] * 4,
    "8 equal": [1.0] * 8,
    "2 equal, 3 slower by 20 %": [1.0, 1.0, 0.8, 0.8, 0.8],
    "best by 5 %, of 4": [1.05, 1.0, 1.0, 0.9],
    "best by 10 %, of 4": [1.1, 1.0, 1.0, 0.9],
    "best by 20 %, of 4": [1.2, 1.0, 1.0, 0.9],
}
NOISE = [(0.01, 0.0), (0.03, 0.0), (0.03, 0.03)]  # of processes, of rounds


def simulated(
    truth: Mapping[int, float], scatter: float, drift: float, rng: random.Random
) -> Ranking[int]:
    """A ranking as recommend makes it.

    Args:
      truth: the rate of each candidate.
      scatter: standard deviation of a process's log rate.
      drift: of a round's.
      rng: where chance comes from.
    """
    rounds = [rng.gauss(0, drift) for _ in range(MAX_ROUNDS)]
    draw = lambda name, k: truth[name] * math.exp(rng.gauss(0, scatter) + rounds[k])  # noqa: E731
    rates = {name: [draw(name, k) for k in range(MIN_ROUNDS)] for name in truth}
    ranking = rank(rates)
    if further := select_for_another_round(ranking, ranking.contenders):
        for name in dict.fromkeys([ranking.reference, *further]):
            rates[name].append(draw(name, MIN_ROUNDS))
    return rank(rates)


def line(
    truth: Mapping[int, float],
    scatter: float,
    drift: float,
    repetitions: int,
    seed: int,
) -> list[str]:
    """Shares of rankings.

    Args:
      truth: the rate of each candidate.
      scatter: standard deviation of a process's log rate.
      drift: of a round's.
      repetitions: rankings.
      seed: of chance.
    """
    rng = random.Random(seed)
    counts = dict.fromkeys(("alone", "among", "false", "third"), 0)
    best = {name for name, rate in truth.items() if rate == max(truth.values())}
    for _ in range(repetitions):
        ranking = simulated(truth, scatter, drift, rng)
        slower = [
            name for name, each in ranking.standings.items() if each.verdict == SLOWER
        ]
        counts["alone"] += (
            len(ranking.contenders) == 1 and ranking.contenders[0] in best
        )
        counts["among"] += best <= set(ranking.contenders)
        counts["false"] += any(
            truth[name] >= truth[ranking.reference] for name in slower
        )
        counts["third"] += (
            max(each.rate.run_counts[0] for each in ranking.standings.values())
            == MAX_ROUNDS
        )
    return [f"{100 * count / repetitions:.1f} %" for count in counts.values()]


def rows() -> Iterator[list[str]]:
    for scatter, drift in NOISE:
        for name, rates in TRUTHS.items():
            of = f"{100 * scatter:.0f} %" + (
                f", rounds by {100 * drift:.0f} %" if drift else ""
            )
            yield [
                name,
                of,
                *line(
                    dict(enumerate(rates)),
                    scatter,
                    drift,
                    FLAGS.repetitions,
                    FLAGS.seed,
                ),
            ]


def main(argv: list[str]) -> None:
    head = [
        "candidates",
        "scatter",
        "one named, rightly",
        "all best among those named",
        "a false statement",
        "3 rounds",
    ]
    print(format_table(head, list(rows()), padded=False))


if __name__ == "__main__":
    flags.DEFINE_integer("repetitions", 1000, "number of rankings per line")
    flags.DEFINE_integer("seed", 1, "seed of the random numbers")
    app.run(main)
