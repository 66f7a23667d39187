"""Simulate how often the statements of `recommend` are right.

    python -m benchmarks.recommendation [--repetitions=1000] [--seed=1]

Candidates run in two rounds, and in a third if `select_for_another_round` asks for it.
A run has a log rate that is normal about the truth. On a machine that drifts, each
round adds a log rate. docs/methods/measurements.md has the table.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import NamedTuple

from absl import app, flags

from rnn_scaling.analysis.ranking import SLOWER, Ranking, rank, select_for_another_round
from rnn_scaling.sweeps.mode_search import MAX_ROUNDS, MIN_ROUNDS
from rnn_scaling.system.files.markdown import format_table

FLAGS = flags.FLAGS
# True rates of the candidates.
TRUTHS = {
    "2 equal": [1.0, 1.0],
    "4 equal": [1.0] * 4,
    "8 equal": [1.0] * 8,
    "2 equal, 3 slower by 20 %": [1.0, 1.0, 0.8, 0.8, 0.8],
    "best by 5 %, of 4": [1.05, 1.0, 1.0, 0.9],
    "best by 10 %, of 4": [1.1, 1.0, 1.0, 0.9],
    "best by 20 %, of 4": [1.2, 1.0, 1.0, 0.9],
}
HEAD = (
    "candidates",
    "scatter",
    "one named, rightly",
    "all best among those named",
    "a false statement",
    "3 rounds",
)


class Noise(NamedTuple):
    """Standard deviations of log rates.

    Attributes:
      run: Between runs of one round.
      round: Between rounds.
    """

    run: float
    round: float


NOISES = (Noise(0.01, 0.0), Noise(0.03, 0.0), Noise(0.03, 0.03))


def simulate_ranking(
    true_rates: Mapping[int, float], noise: Noise, rng: random.Random
) -> Ranking[int]:
    """Return a ranking like the one that `recommend` makes."""
    round_effects = [rng.gauss(0, noise.round) for _ in range(MAX_ROUNDS)]

    def draw_rate(name: int, number: int) -> float:
        run_effect = rng.gauss(0, noise.run)
        return true_rates[name] * math.exp(run_effect + round_effects[number])

    rates = {}
    for name in true_rates:
        rates[name] = [draw_rate(name, number) for number in range(MIN_ROUNDS)]
    ranking = rank(rates)
    further = select_for_another_round(ranking, ranking.contenders)
    if further:
        for name in dict.fromkeys([ranking.reference, *further]):
            rates[name].append(draw_rate(name, MIN_ROUNDS))
    return rank(rates)


def count_statements(
    true_rates: Mapping[int, float], noise: Noise, repetitions: int, seed: int
) -> list[int]:
    """Simulate rankings.

    Returns:
      The number of rankings for each of the last four columns of HEAD.
    """
    rng = random.Random(seed)
    num_right = 0
    num_complete = 0
    num_false = 0
    num_third = 0
    highest = max(true_rates.values())
    best = {name for name, rate in true_rates.items() if rate == highest}
    for _ in range(repetitions):
        ranking = simulate_ranking(true_rates, noise, rng)
        named = ranking.contenders
        num_right += len(named) == 1 and named[0] in best
        num_complete += best <= set(named)
        num_false += has_false_statement(ranking, true_rates)
        standings = ranking.standings.values()
        num_rounds = max(standing.rate.run_counts[0] for standing in standings)
        num_third += num_rounds == MAX_ROUNDS
    return [num_right, num_complete, num_false, num_third]


def has_false_statement(ranking: Ranking[int], true_rates: Mapping[int, float]) -> bool:
    """Return whether a candidate that is not slower is called slower."""
    for name, standing in ranking.standings.items():
        is_slower = true_rates[name] < true_rates[ranking.reference]
        if standing.verdict == SLOWER and not is_slower:
            return True
    return False


def make_table_row(
    name: str, rates: list[float], noise: Noise, repetitions: int, seed: int
) -> list[str]:
    """Return the row of some candidates."""
    scatter = f"{100 * noise.run:.0f} %"
    if noise.round:
        scatter += f", rounds by {100 * noise.round:.0f} %"
    counts = count_statements(dict(enumerate(rates)), noise, repetitions, seed)
    shares = [f"{100 * count / repetitions:.1f} %" for count in counts]
    return [name, scatter, *shares]


def main(argv: list[str]) -> None:
    rows = []
    for noise in NOISES:
        for name, rates in TRUTHS.items():
            row = make_table_row(name, rates, noise, FLAGS.repetitions, FLAGS.seed)
            rows.append(row)
    print(format_table(HEAD, rows, padded=False))


if __name__ == "__main__":
    flags.DEFINE_integer("repetitions", 1000, "number of rankings per line")
    flags.DEFINE_integer("seed", 1, "seed of the random numbers")
    app.run(main)
