"""sweep: every combination of some flags' values, in rounds until the answer is precise enough."""

import dataclasses
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.records.lock import BusyError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps import certificates, command_plan, folder
from rnn_scaling.sweeps.command_plan import TrainerOptions
from rnn_scaling.sweeps.command_trainer import CommandTrainer
from rnn_scaling.sweeps.conduct import (
    ConductOptions,
    SweepOutcome,
    conduct,
    conduct_sweep,
)
from rnn_scaling.sweeps.plan import Run, interleave, plan, split
from rnn_scaling.sweeps.runs import AnyRun, Trainer
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer
from rnn_scaling.system import entry
from rnn_scaling.system.machine.gpus import machine_size

FEWEST, MOST = 2, 3  # rounds without --repeats
ENOUGH = 5  # half-width of an efficiency's interval, in points, that ends the rounds


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """Sweep."""

    out: str = option("results/default", "folder of the records and the report")
    repeats: int = option(
        0,
        f"runs of each combination; 0: {FEWEST} to {MOST}, until the answer is precise",
        minimum=0,
        maximum=1000,
    )
    history: Path | None = option(
        None,
        "add the results to the history in this folder (docs/history.md)",
        shown="DIR",
    )
    certify: bool = option(
        False,
        "first compare each configuration with serial training, and show the verdict next to its speed",
    )


GROUPS = (SweepOptions, ConductOptions, TrainerOptions)


@dataclasses.dataclass
class Made:
    out: Path
    outcome: SweepOutcome
    history: Path | None = None
    exit_status: int | None = None  # None: every run is finished
    certified: SweepOutcome | None = (
        None  # the verification of each configuration; None: not requested
    )
    configurations: Sequence[AnyRun] = ()
    rounds: int = 0

    def attach_certificates(self) -> None:
        if self.certified is None:
            return
        try:
            with folder.lock(self.out):
                certificates.attach(
                    self.configurations, self.out, self.certified.records, self.rounds
                )
        except BusyError as e:
            raise entry.Refusal(str(e)) from None

    def print_failures(self) -> bool:
        """Prints failed runs and configurations that train wrong on stderr; returns whether there is one."""
        has_failed = self.outcome.print_failures()
        if self.certified is None:
            return has_failed
        has_failed = self.certified.print_failures() or has_failed
        wrong = {
            name: record.certificate
            for name, record in self.certified.records.items()
            if record.certificate
        }
        for name, certificate in wrong.items():
            if not certificate.holds:
                has_failed = True
                entry.fail(f"{name}: WRONG: {certificate.verdict}")
        return has_failed


def make(words: Sequence[str], program: Sequence[str], verifier: Sequence[str]) -> Made:
    """Makes the runs of a command line. Raises FlagErrors naming everything that is wrong."""
    axes, other_words = command_plan.split_axes(words)
    (options, how, command_options), lists = split(other_words, GROUPS)
    made = Made(Path(options.out), SweepOutcome(), options.history)
    runs: Sequence[AnyRun]
    trainer: Trainer[Any]
    if command_options.trainer:
        require_no_suite_options(how, certify=options.certify)
        runs, trainer = (
            command_plan.plan(command_options, axes, lists, **machine_size()),
            CommandTrainer(),
        )
    else:
        if lines := command_plan.missing_trainer(command_options, axes):
            raise flags.FlagErrors(lines)
        runs = planned = plan(lists, **machine_size())
        trainer = SuiteTrainer(program, how.launch)
        if options.certify:
            made.certified = _certify(planned, made.out, how, words, verifier)
            made.exit_status = made.certified.exit_status
            if made.exit_status is not None and not (
                how.dry_run and made.exit_status == entry.EXIT_OK
            ):
                return made
    made.configurations = runs
    _make_rounds(trainer, options, how, words, made)
    if made.exit_status is None:
        entry.note(*trainer.notes)
    return made


def require_no_suite_options(how: ConductOptions, certify: bool = False) -> None:
    """Raises FlagErrors for options that a trainer of the user's own does not have."""
    lines = (
        ["--certify compares this suite's trainer; leave it out with --trainer"]
        if certify
        else []
    )
    lines += (
        ["--launch is for this suite's trainer; write the launcher into --trainer"]
        if how.launch
        else []
    )
    if lines:
        raise flags.FlagErrors(lines)


def _certify(
    runs: Sequence[Run],
    out: Path,
    how: ConductOptions,
    words: Sequence[str],
    verifier: Sequence[str],
) -> SweepOutcome:
    jobs = certificates.jobs(runs, out)
    print(
        f"certifying {len(jobs)} configuration{'s' if len(jobs) > 1 else ''}",
        file=sys.stderr,
    )
    place = out / certificates.FOLDER
    return conduct(
        jobs,
        place,
        how,
        again=["sweep", *words],
        trainer=SuiteTrainer(verifier, how.launch),
    )


def _make_rounds(
    trainer: Trainer[Any],
    options: SweepOptions,
    how: ConductOptions,
    words: Sequence[str],
    made: Made,
) -> None:
    """Makes the runs of `made.configurations` round by round."""
    records: dict[str, RunRecord] = {}
    runs = made.configurations
    for rounds in (
        [options.repeats]
        if options.repeats
        else range(_begun(runs, made.out), MOST + 1)
    ):
        made.outcome = conduct_sweep(
            runs, rounds, made.out, how, again=["sweep", *words], trainer=trainer
        )
        made.exit_status = made.outcome.exit_status
        if made.exit_status is not None:
            if (
                how.dry_run
                and made.exit_status == entry.EXIT_OK
                and rounds < MOST
                and not options.repeats
            ):
                print(
                    f"a further round follows while an efficiency is not known to ±{ENOUGH} %: at most {MOST} rounds"
                )
            return
        records |= made.outcome.records
        if (
            rounds in (options.repeats, MOST)
            or (precision := _precision(records.values())) <= ENOUGH
        ):
            break
        # What failed will fail again.
        failed = {
            run.name
            for run in interleave(runs, rounds)
            if records[run.label].status != "ok"
        }
        runs = [run for run in runs if run.name not in failed]
        if not runs:
            break
        so_far = f"±{precision:.0f} %" if precision < 100 else "unknown"
        print(
            f"round {rounds + 1} of at most {MOST}: precision {so_far}, goal ±{ENOUGH} %",
            file=sys.stderr,
        )
    made.outcome.records, made.rounds = records, rounds


def _begun(runs: Sequence[AnyRun], out: Path) -> int:
    """The first number of rounds to make: FEWEST, or more if the folder has runs of a later round."""
    further = [
        run.repeat
        for run in interleave(runs, MOST)
        if (out / f"{run.label}.json").exists()
    ]
    return max([FEWEST, *further])


def _precision(records: Iterable[RunRecord]) -> float:
    """Half the widest interval of an efficiency in points, or of a rate in % if there is none; inf: one is unknown."""
    from rnn_scaling.analysis import (
        machines,
        metrics,
        rows,
    )  # here: --help does not wait for numpy

    of_machines = machines.by_machine(list(records)).values()
    table = [row for group in of_machines for row in rows.with_baselines(group)]
    efficiencies = [
        value
        for row in table
        if row.num_devices > 1 and (value := row.metric(metrics.EFFICIENCY))
    ]
    rates = [row.rate.scaled(1 / row.rate.value) for row in table if row.rate]
    widths = [interval.half_width for interval in efficiencies or rates]
    return max(
        (math.inf if width is None else 100 * width for width in widths), default=0.0
    )
