"""Simulate how certain the answer of a sweep is, depending on its design.

    python -m benchmarks.sweep_design [--repetitions=400] [--seed=1]

Six configurations run on one and on two devices in the order of `sweep`. Their processes
vary by 3 % (and 6 % on two devices). The speed of the machine drifts from run to run by
a first-order autoregressive process. The log time of a batch varies by 5 % with a
correlation of 0.5, so that 20 batches estimate their process as well as in real series.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import app, flags

from benchmarks.simulated import compute_coverage, simulate_batches
from rnn_scaling.analysis.confidence import (
    Interval,
    compute_interval_over_batches,
    compute_interval_over_runs,
    compute_shared_scatters,
    divide_rates,
)
from rnn_scaling.config import registry
from rnn_scaling.models import encoder_table
from rnn_scaling.sweeps import plan
from rnn_scaling.sweeps.sweep import MAX_ROUNDS, MIN_ROUNDS, PRECISION_GOAL
from rnn_scaling.system.files.markdown import format_table

FLAGS = flags.FLAGS

NUM_BATCHES = 20
NUM_CONFIGURATIONS = 6
HEAD = [
    "between processes",
    "drift",
    "rounds asked",
    "made",
    "efficiency covered",
    "± points",
    "its standard deviation",
    "sweeps agree",
    "rate covered",
]


class Drift(NamedTuple):
    """How the log speed of the machine changes.

    Attributes:
      deviation: Its standard deviation.
      correlation: Its correlation from one run to the next.
    """

    deviation: float
    correlation: float


DRIFTS = {
    "none": Drift(0.0, 0.0),
    "3 %, over 5 runs": Drift(0.03, math.exp(-1 / 5)),
    "3 %, over 50 runs": Drift(0.03, math.exp(-1 / 50)),
}
# Standard deviation of log rates between processes on one device, and on two.
BETWEEN = {"3 % and 3 %": (0.03, 0.03), "3 % and 6 %": (0.03, 0.06)}


@dataclasses.dataclass(frozen=True)
class Answer:
    """One sweep. Every truth is 1.

    Attributes:
      rounds: Rounds that were made.
      rates: Rate of each configuration on one device.
      efficiencies: Efficiency of each configuration on two devices.
    """

    rounds: int
    rates: list[Interval]
    efficiencies: list[Interval]


def sweep(
    random: np.random.Generator,
    between: tuple[float, float],
    drift: Drift,
    rounds: int,
) -> Answer:
    """Simulate a sweep.

    Args:
      random: Source of random numbers.
      between: Standard deviation between processes on one device, and on two.
      drift: Drift of the machine.
      rounds: Rounds to make; 0: as many as the command makes.
    """
    runs = plan.plan({}, num_gpus=0, num_cores=2)
    machine = drift.deviation * random.normal()
    innovation = drift.deviation * math.sqrt(1 - drift.correlation**2)
    logs: dict[str, list[float]] = {run.name: [] for run in runs}
    rates_of_one_run: dict[str, Interval] = {}
    ordered = plan.interleave(runs, rounds or MAX_ROUNDS)
    for number, run in enumerate(ordered, start=1):
        machine = drift.correlation * machine + innovation * random.normal()
        step_s = simulate_batches(random, (NUM_BATCHES,), 0.5)
        log_rate = between[run.flags["num_devices"] - 1] * random.normal() + machine
        logs[run.name].append(log_rate - math.log(step_s.mean()))
        rates_of_one_run[run.name] = compute_interval_over_batches(
            step_s * math.exp(-log_rate), np.ones(NUM_BATCHES)
        )
        made, rest = divmod(number, len(runs))
        if rest or made < (rounds or MIN_ROUNDS):
            continue
        answer = make_answer(logs, rates_of_one_run, made)
        half_widths = [100 * (each.half_width or 0.0) for each in answer.efficiencies]
        if rounds or max(half_widths) <= PRECISION_GOAL:
            break
    return answer


def make_answer(
    logs: Mapping[str, Sequence[float]],
    rates_of_one_run: Mapping[str, Interval],
    rounds: int,
) -> Answer:
    """Return the intervals of a report.

    Args:
      logs: Log rates of the runs of each configuration and number of devices.
      rates_of_one_run: Their rates over the batches of one process, which a report of
        one round had before.
      rounds: Rounds that were made.
    """
    sides: list[list[Interval]] = []
    for devices in (1, 2):
        names = [name for name in logs if name.endswith(f"-{devices}")]
        if rounds == 1:
            sides.append([rates_of_one_run[name] for name in names])
            continue
        rates = [np.exp(logs[name]).tolist() for name in names]
        pairs = zip(rates, compute_shared_scatters(rates))
        sides.append([compute_interval_over_runs(*pair) for pair in pairs])
    efficiencies = [divide_rates(two, one) for one, two in zip(*sides)]
    return Answer(rounds, sides[0], efficiencies)


def judge(
    between: str, drift: str, rounds: int, repetitions: int, seed: int
) -> list[str]:
    """Return one row of the table."""
    random = np.random.default_rng([seed, rounds, *between.encode(), *drift.encode()])
    answers = []
    rates: list[Interval] = []
    efficiencies: list[Interval] = []
    for _ in range(repetitions):
        answer = sweep(random, BETWEEN[between], DRIFTS[drift], rounds)
        answers.append(answer)
        rates += answer.rates
        efficiencies += answer.efficiencies
    # Two sweeps agree if the interval of their difference contains 0.
    differences = []
    for one, other in itertools.pairwise(answers):
        for pair in zip(one.efficiencies, other.efficiencies):
            differences.append(divide_rates(*pair))
    half_width = np.median([each.half_width for each in efficiencies])
    deviation = np.std([each.value for each in efficiencies])
    return [
        between,
        drift,
        str(rounds) if rounds else f"{MIN_ROUNDS} to {MAX_ROUNDS}",
        f"{np.mean([answer.rounds for answer in answers]):.1f}",
        f"{compute_coverage(efficiencies, 1.0):.0%}",
        f"{100 * half_width:.1f}",
        f"{100 * deviation:.1f}",
        f"{compute_coverage(differences, 1.0):.0%}",
        f"{compute_coverage(rates, 1.0):.0%}",
    ]


def main(argv: list[str]) -> None:
    """Print the table."""
    del argv
    assert (
        len(encoder_table.list_encoders("lstm")) * len(registry.list_swept_modes())
        == NUM_CONFIGURATIONS
    )
    rows = []
    for between, drift, rounds in itertools.product(BETWEEN, DRIFTS, (1, 2, 3, 0)):
        rows.append(judge(between, drift, rounds, FLAGS.repetitions, FLAGS.seed))
    print(format_table(HEAD, rows))


# Tests import several benchmarks into one process, so flags are defined only here.
if __name__ == "__main__":
    flags.DEFINE_integer(
        "repetitions", 400, "number of sweeps of each kind", lower_bound=2
    )
    flags.DEFINE_integer("seed", 1, "seed of the random numbers")
    app.run(main)
