"""Runs that are chosen round by round from what was measured, until nothing is left to choose or the time is over."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps.conduct import ConductOptions, Made, SweepOutcome, conduct
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import Run, round_order
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer

Records = Mapping[str, RunRecord]
Seconds = Callable[[Run], float]


def conduct_rounds(
    choose: Callable[[Records, float, Seconds], Sequence[Run]],
    out: Path,
    how: ConductOptions,
    minutes: float,
    again: Sequence[str],
    trainer: Sequence[str],
) -> SweepOutcome:
    """Asks for runs and makes them, again and again; an interruption keeps what is measured.

    `choose`: records so far, seconds that are left, and what a run takes -> the runs of the next round, or none.
    """
    rounds, before, began, ours = SweepOutcome(), list[Made](), time.monotonic(), SuiteTrainer(trainer, how.launch)
    estimator = ours.estimator()

    def seconds(run: Run) -> float:
        is_there = (out / f"{run.label}.json").exists()
        return 0.0 if is_there else estimator.seconds(run.identity)

    while runs := choose(rounds.records, began + 60 * minutes - time.monotonic(), seconds):
        jobs = [Job(run, out, run.label) for run in round_order(runs, runs[0].repeat)]
        done = conduct(jobs, out, how, again=again, trainer=ours, before=before)
        rounds.records |= done.records
        made = [(job, done.records[job.label]) for job in jobs if job.label in done.records]
        for job, result in made:
            estimator.learn(job.run.identity, result)
        before += made
        if done.exit_status is not None:
            rounds.exit_status = done.exit_status
            break
    return rounds
