"""How certain the answer of a sweep is, depending on its design, in simulation.

    python -m benchmarks.sweep_design [--repetitions=400] [--seed=1]

Six configurations run on one and on two devices in the order of `sweep`. Their processes vary by 3 % (and 6 % on two
devices). The speed of the machine drifts from run to run by a first-order autoregressive process. The log time of a
batch varies by 5 % with a correlation of 0.5, so that 20 batches estimate their process as well as in real series.
"""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
from absl import app, flags

from benchmarks.simulated import batches
from rnn_scaling.analysis.confidence import (
    Interval,
    divide_rates,
    interval_over_batches,
    interval_over_runs,
    shared_scatters,
)
from rnn_scaling.config import registry
from rnn_scaling.models import kernels
from rnn_scaling.sweeps import plan
from rnn_scaling.sweeps.sweep import MAX_ROUNDS, MIN_ROUNDS, PRECISION_GOAL
from rnn_scaling.system.files.markdown import format_table

FLAGS = flags.FLAGS
BATCHES = 20
DRIFTS = {  # standard deviation of the machine's log speed, and its correlation from one run to the next
    "none": (0.0, 0.0),
    "3 %, over 5 runs": (0.03, math.exp(-1 / 5)),
    "3 %, over 50 runs": (0.03, math.exp(-1 / 50)),
}
BETWEEN = {"3 % and 3 %": (0.03, 0.03), "3 % and 6 %": (0.03, 0.06)}


@dataclasses.dataclass(frozen=True)
class Answer:
    """One sweep: rounds, rates on one device and efficiencies on two by configuration; every truth is 1."""

    rounds: int
    rates: list[Interval]
    efficiencies: list[Interval]


def sweep(
    rng: np.random.Generator,
    between: tuple[float, float],
    drift: tuple[float, float],
    rounds: int,
) -> Answer:
    """A sweep of so many rounds; 0: as many as the command makes."""
    runs = plan.plan({}, num_gpus=0, num_cores=2)
    most = rounds or MAX_ROUNDS
    ordered = plan.interleave(runs, most)
    machine = drift[0] * rng.normal()
    logs: dict[str, list[float]] = {run.name: [] for run in runs}
    one: dict[str, Interval] = {}
    for place, run in enumerate(ordered):
        machine = (
            drift[1] * machine + drift[0] * math.sqrt(1 - drift[1] ** 2) * rng.normal()
        )
        step_s = batches(rng, (BATCHES,), 0.5)
        own = between[run.flags["num_devices"] - 1] * rng.normal() + machine
        logs[run.name].append(own - math.log(step_s.mean()))
        one[run.name] = interval_over_batches(step_s * math.exp(-own), np.ones(BATCHES))
        if not (place + 1) % len(runs) and (made := (place + 1) // len(runs)) >= (
            rounds or MIN_ROUNDS
        ):
            answer = _answer(logs, one, made)
            widest = max(100 * (each.half_width or 0.0) for each in answer.efficiencies)
            if rounds or widest <= PRECISION_GOAL:
                break
    return answer


def _answer(
    logs: dict[str, list[float]], one: dict[str, Interval], rounds: int
) -> Answer:
    """The rates as a report has them; from one round, as it had them once: over the batches of each process."""
    sides: list[list[Interval]] = []
    for n in (1, 2):
        names = [name for name in logs if name.endswith(f"-{n}")]
        rates = [np.exp(logs[name]).tolist() for name in names]
        pooled = [
            interval_over_runs(*each) for each in zip(rates, shared_scatters(rates))
        ]
        sides.append(pooled if rounds > 1 else [one[name] for name in names])
    return Answer(
        rounds, sides[0], [divide_rates(many, alone) for alone, many in zip(*sides)]
    )


def _covered(intervals: list[Interval]) -> str:
    return f"{np.mean([bool(each.ends and each.ends[0] <= 1 <= each.ends[1]) for each in intervals]):.0%}"


def judge(
    between: str, drift: str, rounds: int, repetitions: int, seed: int
) -> list[str]:
    """One row of the table."""
    rng = np.random.default_rng([seed, rounds, *between.encode(), *drift.encode()])
    answers = [
        sweep(rng, BETWEEN[between], DRIFTS[drift], rounds) for _ in range(repetitions)
    ]
    efficiencies = [each for answer in answers for each in answer.efficiencies]
    width = np.median([each.half_width for each in efficiencies])
    spread = np.std([each.value for each in efficiencies])
    # Two sweeps agree where the difference of a configuration is within the interval of the difference.
    pairs = [
        divide_rates(a, b)
        for one, other in itertools.pairwise(answers)
        for a, b in zip(one.efficiencies, other.efficiencies)
    ]
    made = f"{np.mean([answer.rounds for answer in answers]):.1f}"
    rates = [each for answer in answers for each in answer.rates]
    cells = [
        _covered(efficiencies),
        f"{100 * width:.1f}",
        f"{100 * spread:.1f}",
        _covered(pairs),
        _covered(rates),
    ]
    return [
        between,
        drift,
        str(rounds) if rounds else f"{MIN_ROUNDS} to {MAX_ROUNDS}",
        made,
        *cells,
    ]


def main(argv: list[str]) -> None:
    """Prints the table."""
    del argv
    assert len(kernels.list_kernels("lstm")) * len(registry.swept_modes()) == 6
    head = [
        "between processes",
        "drift",
        "rounds asked",
        "made",
        "efficiency covered",
        "± points",
    ]
    head += ["its standard deviation", "sweeps agree", "rate covered"]
    rows = [
        judge(between, drift, rounds, FLAGS.repetitions, FLAGS.seed)
        for between in BETWEEN
        for drift in DRIFTS
        for rounds in (1, 2, 3, 0)
    ]
    print(format_table(head, rows))


if (
    __name__ == "__main__"
):  # flags are defined here: the tests import several benchmarks in one process
    flags.DEFINE_integer(
        "repetitions", 400, "number of sweeps of each kind", lower_bound=2
    )
    flags.DEFINE_integer("seed", 1, "seed of the random numbers")
    app.run(main)
