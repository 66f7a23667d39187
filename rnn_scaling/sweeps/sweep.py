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
    Conductor,
    SweepOutcome,
    conduct,
)
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import Run, interleave, plan, split
from rnn_scaling.sweeps.runs import AnyRun, Trainer
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer
from rnn_scaling.system import entry
from rnn_scaling.system.machine.gpus import machine_size

FEWEST = 2  # rounds without --repeats
MOST = 3
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
    """What a sweep has made."""

    out: Path
    history: Path | None = None
    outcome: SweepOutcome = dataclasses.field(default_factory=SweepOutcome)
    # The verification of each configuration; None: not requested.
    certified: SweepOutcome | None = None
    configurations: Sequence[AnyRun] = ()
    rounds: int = 0

    @property
    def exit_status(self) -> int | None:
        """The status with which the command ends now; None: every run is finished."""
        return self.outcome.exit_status

    def attach_certificates(self) -> None:
        """Write the certificate of each configuration into its records."""
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
        """Print failed runs and configurations that train wrong; return whether there is one."""
        has_failed = self.outcome.print_failures()
        if self.certified is None:
            return has_failed
        has_failed = self.certified.print_failures() or has_failed
        for name, record in self.certified.records.items():
            certificate = record.certificate
            if certificate and not certificate.holds:
                has_failed = True
                entry.fail(f"{name}: WRONG: {certificate.verdict}")
        return has_failed


def make(words: Sequence[str], program: Sequence[str], verifier: Sequence[str]) -> Made:
    """Make the runs of a command line. Raises FlagErrors naming everything that is wrong."""
    axes, other_words = command_plan.split_axes(words)
    (options, how, command_options), lists = split(other_words, GROUPS)
    made = Made(Path(options.out), options.history)
    again = ["sweep", *words]
    trainer: Trainer[Any]
    if command_options.trainer:
        require_no_suite_options(how, certify=options.certify)
        made.configurations = command_plan.plan(
            command_options, axes, lists, **machine_size()
        )
        trainer = CommandTrainer()
    else:
        if lines := command_plan.missing_trainer(command_options, axes):
            raise flags.FlagErrors(lines)
        planned = plan(lists, **machine_size())
        made.configurations = planned
        trainer = SuiteTrainer(program, how.launch)
        if options.certify:
            made.certified = _certify(planned, made.out, how, again, verifier)
            made.outcome.exit_status = made.certified.exit_status
    is_listed = how.dry_run and made.exit_status == entry.EXIT_OK
    if made.exit_status is None or is_listed:
        conductor = Conductor(made.out, how, trainer, again)
        made.outcome = conductor.outcome
        _make_rounds(conductor, options, how, made)
    if made.exit_status is None:
        entry.note(*trainer.notes)
    return made


def require_no_suite_options(how: ConductOptions, certify: bool = False) -> None:
    """Raise FlagErrors for options that a trainer of the user's own does not have."""
    lines = []
    if certify:
        lines.append(
            "--certify compares this suite's trainer; leave it out with --trainer"
        )
    if how.launch:
        lines.append(
            "--launch is for this suite's trainer; write the launcher into --trainer"
        )
    if lines:
        raise flags.FlagErrors(lines)


def _certify(
    runs: Sequence[Run],
    out: Path,
    how: ConductOptions,
    again: Sequence[str],
    verifier: Sequence[str],
) -> SweepOutcome:
    """Verify each configuration."""
    jobs = certificates.jobs(runs, out)
    plural = "s" if len(jobs) > 1 else ""
    print(f"certifying {len(jobs)} configuration{plural}", file=sys.stderr)
    place = out / certificates.FOLDER
    trainer = SuiteTrainer(verifier, how.launch)
    return conduct(jobs, place, how, again=again, trainer=trainer)


def _make_rounds(
    conductor: Conductor, options: SweepOptions, how: ConductOptions, made: Made
) -> None:
    """Make the configurations round by round, until the answer is precise enough."""
    runs = made.configurations
    rounds = options.repeats or _begun(runs, made.out)
    most = options.repeats or MOST
    new_runs = interleave(runs, rounds)
    while conductor.make([Job(run, made.out) for run in new_runs]):
        made.rounds = rounds
        if rounds >= most:
            return
        precision = _precision(conductor.records.values())
        # What failed will fail again.
        failed = set()
        for run in interleave(runs, rounds):
            if conductor.records[run.label].status != "ok":
                failed.add(run.name)
        runs = [run for run in runs if run.name not in failed]
        if precision <= ENOUGH or not runs:
            return
        rounds += 1
        so_far = f"±{precision:.0f} %" if precision < 100 else "unknown"
        print(
            f"round {rounds} of at most {MOST}: precision {so_far}, goal ±{ENOUGH} %",
            file=sys.stderr,
        )
        new_runs = [run for run in interleave(runs, rounds) if run.repeat == rounds]
    if how.dry_run and made.exit_status == entry.EXIT_OK and rounds < most:
        print(
            f"a further round follows while an efficiency is not known to ±{ENOUGH} %: at most {MOST} rounds"
        )


def _begun(runs: Sequence[AnyRun], out: Path) -> int:
    """Return the first number of rounds: FEWEST, or more if the folder has runs of a later round."""
    repeats = [FEWEST]
    for run in interleave(runs, MOST):
        if (out / f"{run.label}.json").exists():
            repeats.append(run.repeat)
    return max(repeats)


def _precision(records: Iterable[RunRecord]) -> float:
    """Return how well the answer is known.

    Returns:
      Half the widest interval of an efficiency in points, or of a rate in % if there is
      none; infinite if one is unknown.
    """
    # Imported here, because --help does not wait for numpy.
    from rnn_scaling.analysis import machines, metrics, rows

    efficiencies = []
    rates = []
    for group in machines.group_by_machine(list(records)).values():
        for row in rows.build_rows(group):
            value = row.metric(metrics.EFFICIENCY)
            if row.num_devices > 1 and value:
                efficiencies.append(value)
            if row.rate:
                rates.append(row.rate.scaled(1 / row.rate.value))
    widths = [interval.half_width for interval in efficiencies or rates]
    return max(
        (math.inf if width is None else 100 * width for width in widths), default=0.0
    )
