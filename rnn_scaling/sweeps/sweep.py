"""The runs of `sweep`: combinations of values, in rounds until the answer is precise."""

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
from rnn_scaling.sweeps import certificates, folder, program_plan
from rnn_scaling.sweeps.axes import split_axes
from rnn_scaling.sweeps.conduct import ConductOptions, Conductor, SweepOutcome
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import Run, interleave, plan, split
from rnn_scaling.sweeps.program_options import TrainerOptions, check_without_program
from rnn_scaling.sweeps.program_trainer import ProgramTrainer
from rnn_scaling.sweeps.runs import AnyRun, Trainer
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer
from rnn_scaling.system import entry
from rnn_scaling.system.machine.gpus import machine_size

# Rounds without --repeats.
MIN_ROUNDS = 2
MAX_ROUNDS = 3
# Half-width of an efficiency's interval, in points, that ends the rounds.
PRECISION_GOAL = 5


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """Sweep."""

    out: str = option("results/default", "folder of the records and the report")
    repeats: int = option(
        0,
        f"runs of each combination; 0: {MIN_ROUNDS} to {MAX_ROUNDS}, until the answer is "
        "precise",
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
        "first compare each configuration with serial training, and show the verdict "
        "next to its speed",
    )


GROUPS = (SweepOptions, ConductOptions, TrainerOptions)


@dataclasses.dataclass
class SweepResult:
    """The runs of a sweep."""

    out: Path
    history: Path | None = None
    outcome: SweepOutcome = dataclasses.field(default_factory=SweepOutcome)
    # The verification of each configuration; None if it was not requested.
    certified: SweepOutcome | None = None
    configurations: Sequence[AnyRun] = ()
    rounds: int = 0

    @property
    def exit_status(self) -> int | None:
        """The status with which the command ends now; None if all runs are finished."""
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
        """Print failed runs and wrong configurations; return whether there is one."""
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


def run_sweep(
    words: Sequence[str], program: Sequence[str], verifier: Sequence[str]
) -> SweepResult:
    """Make the runs of a command line.

    Args:
      words: The command line.
      program: The command of one rank of this suite's trainer.
      verifier: The command of one rank that verifies a configuration.

    Raises:
      FlagErrors: If anything is wrong; it names everything.
    """
    axes, other_words = split_axes(words)
    (options, conduct_options, trainer_options), lists = split(other_words, GROUPS)
    result = SweepResult(Path(options.out), options.history)
    resume_words = ["sweep", *words]
    trainer: Trainer[Any]
    if trainer_options.trainer:
        require_no_suite_options(conduct_options, certify=options.certify)
        result.configurations = program_plan.plan(
            trainer_options, axes, lists, **machine_size()
        )
        trainer = ProgramTrainer()
    else:
        if lines := check_without_program(trainer_options, axes):
            raise flags.FlagErrors(lines)
        runs = plan(lists, **machine_size())
        result.configurations = runs
        trainer = SuiteTrainer(program, conduct_options.launch)
        if options.certify:
            verifying_trainer = SuiteTrainer(verifier, conduct_options.launch)
            certifier = Conductor(
                result.out / certificates.FOLDER,
                conduct_options,
                verifying_trainer,
                resume_words,
            )
            result.certified = _certify(runs, result.out, certifier)
            result.outcome.exit_status = result.certified.exit_status
    is_listed = conduct_options.dry_run and result.exit_status == entry.EXIT_OK
    if result.exit_status is None or is_listed:
        conductor = Conductor(result.out, conduct_options, trainer, resume_words)
        result.outcome = conductor.outcome
        _run_rounds(conductor, options.repeats, conduct_options.dry_run, result)
    if result.exit_status is None:
        entry.note(*trainer.notes)
    return result


def require_no_suite_options(options: ConductOptions, certify: bool = False) -> None:
    """Raise FlagErrors for options that a user's program does not have."""
    lines = []
    if certify:
        lines.append(
            "--certify compares this suite's trainer; leave it out with --trainer"
        )
    if options.launch:
        lines.append(
            "--launch is for this suite's trainer; write the launcher into --trainer"
        )
    if lines:
        raise flags.FlagErrors(lines)


def _certify(runs: Sequence[Run], out: Path, conductor: Conductor) -> SweepOutcome:
    """Verify each configuration."""
    jobs = certificates.plan_jobs(runs, out)
    plural = "s" if len(jobs) > 1 else ""
    print(f"certifying {len(jobs)} configuration{plural}", file=sys.stderr)
    conductor.run(jobs)
    return conductor.outcome


def _run_rounds(
    conductor: Conductor, repeats: int, dry_run: bool, result: SweepResult
) -> None:
    """Run the configurations round by round, until the answer is precise enough.

    Args:
      conductor: Runs them.
      repeats: Number of rounds; 0 if the precision decides.
      dry_run: Whether the runs are only listed.
      result: The sweep, which gets the number of rounds.
    """
    runs = result.configurations
    rounds = repeats or _first_rounds(runs, result.out)
    max_rounds = repeats or MAX_ROUNDS
    new_runs = interleave(runs, rounds)
    while conductor.run([Job(run, result.out) for run in new_runs]):
        result.rounds = rounds
        if rounds >= max_rounds:
            return
        precision = _precision(conductor.records.values())
        # A failed configuration would fail again.
        failed = set()
        for run in interleave(runs, rounds):
            if conductor.records[run.label].status != "ok":
                failed.add(run.name)
        runs = [run for run in runs if run.name not in failed]
        if precision <= PRECISION_GOAL or not runs:
            return
        rounds += 1
        precision_text = f"±{precision:.0f} %" if precision < 100 else "unknown"
        print(
            f"round {rounds} of at most {MAX_ROUNDS}: precision {precision_text}, goal "
            f"±{PRECISION_GOAL} %",
            file=sys.stderr,
        )
        new_runs = [run for run in interleave(runs, rounds) if run.repeat == rounds]
    if dry_run and result.exit_status == entry.EXIT_OK and rounds < max_rounds:
        print(
            "a further round follows while an efficiency is not known to "
            f"±{PRECISION_GOAL} %: at most {MAX_ROUNDS} rounds"
        )


def _first_rounds(runs: Sequence[AnyRun], out: Path) -> int:
    """Return the number of rounds to begin with.

    It is more than MIN_ROUNDS if the folder has runs of a later round.
    """
    repeats = [MIN_ROUNDS]
    for run in interleave(runs, MAX_ROUNDS):
        if (out / f"{run.label}.json").exists():
            repeats.append(run.repeat)
    return max(repeats)


def _precision(records: Iterable[RunRecord]) -> float:
    """Return the uncertainty of the answer.

    Returns:
      Half the widest interval of an efficiency in points, or of a rate in % if no
      efficiency is known; infinite if one of them is unknown.
    """
    # Imported here, so that --help does not wait for numpy.
    from rnn_scaling.analysis import machines, metrics, rows

    efficiencies = []
    rates = []
    for group in machines.group_by_machine(list(records)).values():
        for row in rows.build_rows(group):
            efficiency = row.metric(metrics.EFFICIENCY)
            if row.num_devices > 1 and efficiency:
                efficiencies.append(efficiency)
            if row.rate:
                rates.append(row.rate.scaled(1 / row.rate.value))
    widest = 0.0
    for interval in efficiencies or rates:
        width = interval.half_width
        widest = max(widest, math.inf if width is None else 100 * width)
    return widest
