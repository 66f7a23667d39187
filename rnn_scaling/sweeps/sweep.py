"""Make the runs of `sweep`: combinations of values, in rounds until they are precise.

`commands.sweep` and `rnn_scaling.sweep` call `run_sweep`.
"""

import dataclasses
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.records import script_certificate
from rnn_scaling.records.lock import BusyError
from rnn_scaling.records.script_certificate import (
    ScriptCertificate,
    ScriptCertificateError,
)
from rnn_scaling.sweeps import certifying_runs, folder, program_plan
from rnn_scaling.sweeps.axes import split_axes
from rnn_scaling.sweeps.conduct import ConductOptions, Conductor, SweepOutcome
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import Run, interleave, plan, split
from rnn_scaling.sweeps.program_options import TrainerOptions, check_without_program
from rnn_scaling.sweeps.program_trainer import ProgramTrainer
from rnn_scaling.sweeps.runs import AnyRun, Trainer
from rnn_scaling.sweeps.suite_trainer import SuiteTrainer
from rnn_scaling.sweeps.sweep_rounds import (
    MAX_ROUNDS,
    MIN_ROUNDS,
    PRECISION_GOAL,
    SweepRounds,
)
from rnn_scaling.sweeps.time_budget import (
    CALIBRATION_FOLDER,
    DEFAULT_MINUTES,
    MEASURED_BATCHES,
    Budget,
    calibrate,
    choose_budget,
    has_fixed_length,
)
from rnn_scaling.system import entry
from rnn_scaling.system.files.terminal import format_count
from rnn_scaling.system.machine.gpus import describe_machine_size


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """Sweep."""

    out: str = option("results/default", "folder of the records and the report")
    repeats: int = option(
        0,
        f"number of runs per combination; 0: {MIN_ROUNDS} to {MAX_ROUNDS} "
        "runs, until the answer is precise",
        minimum=0,
        maximum=1000,
    )
    minutes: float | None = option(
        None,
        "time limit for all runs in minutes; the most important runs come first, and "
        "the command for the others is printed at the end; 0: no limit (default: "
        f"{DEFAULT_MINUTES:g} for a sweep without flags of the trainer, else 0)",
        minimum=0.0,
    )
    history: Path | None = option(
        None,
        "add the results to the history in this folder (docs/history.md "
        "explains histories)",
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
    # The verdict on the user's program; None without --certificate.
    script_certificate: ScriptCertificate | None = None
    configurations: Sequence[AnyRun] = ()
    rounds: int = 0
    # Sentences about runs that were left out or repeated.
    remarks: Sequence[str] = ()

    @property
    def exit_status(self) -> int | None:
        """The status with which the command ends now; None if all runs are finished."""
        return self.outcome.exit_status

    def attach_certificates(self) -> None:
        """Write the certificate of each configuration into its records."""
        if self.certified is None and self.script_certificate is None:
            return
        try:
            with folder.lock(self.out):
                if self.script_certificate is not None:
                    certifying_runs.attach_script(
                        self.configurations,
                        self.out,
                        self.script_certificate,
                        self.rounds,
                    )
                if self.certified is not None:
                    certifying_runs.attach(
                        self.configurations,
                        self.out,
                        self.certified.records,
                        self.rounds,
                    )
        except BusyError as e:
            raise entry.Refusal(str(e)) from None

    def print_failures(self) -> bool:
        """Print failed runs and wrong configurations; return whether there is one."""
        has_failed = self.outcome.print_failures()
        script = self.script_certificate
        if script is not None and script.answer == script_certificate.WRONG:
            has_failed = True
            entry.fail(f"--certificate: {script.command}: WRONG: {script.cause}")
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
    words: Sequence[str],
    program: Sequence[str],
    verifier: Sequence[str],
    show_first_round: Callable[[Path], None] = lambda folder: None,
) -> SweepResult:
    """Run the sweep of a command line.

    Args:
      words: The command line.
      program: The command of one rank of this suite's trainer.
      verifier: The command of one rank that verifies a configuration.
      show_first_round: Prints the results of the first round of a sweep with a time
        budget, from the folder of its records.

    Raises:
      FlagErrors: If anything is wrong; it names everything.
    """
    axes, other_words = split_axes(words)
    (options, conduct_options, trainer_options), lists = split(other_words, GROUPS)
    result = SweepResult(Path(options.out), options.history)
    resume_words = ["sweep", *words]
    is_default = not lists and not trainer_options.trainer
    budget = choose_budget(options.minutes, options.repeats, is_default)
    calibration = _Calibration()
    trainer: Trainer[Any]
    if trainer_options.trainer:
        require_no_suite_options(conduct_options, certify=options.certify)
        _plan_program(trainer_options, axes, lists, result)
        trainer = ProgramTrainer()
    else:
        if lines := check_without_program(trainer_options, axes):
            raise flags.FlagErrors(lines)
        trainer = SuiteTrainer(program, conduct_options.launch)
        plan(
            lists, **describe_machine_size()
        )  # all conflicts are reported before any run
        if budget.is_limited and not has_fixed_length(lists):
            calibration = _calibrate(
                lists,
                options=conduct_options,
                trainer=trainer,
                resume_words=resume_words,
                result=result,
            )
            if calibration.num_batches is None:
                return result
            lists["num_batches"] = [calibration.num_batches]
        runs = plan(lists, **describe_machine_size())
        result.configurations = runs
        if options.certify:
            _certify(
                runs,
                verifier=verifier,
                options=conduct_options,
                resume_words=resume_words,
                result=result,
            )
    is_listed = conduct_options.dry_run and result.exit_status == entry.EXIT_OK
    if result.exit_status is None or is_listed:
        minutes_left = budget.minutes - calibration.seconds / 60
        conductor = Conductor(
            result.out, conduct_options, trainer, resume_words, minutes_left
        )
        result.outcome = conductor.outcome
        continue_words = budget.continue_words(words, calibration.num_batches)
        sweep_run = _SweepRun(conductor, budget, continue_words, show_first_round)
        sweep_run.run(result, options.repeats, conduct_options.dry_run)
    if result.exit_status is None:
        entry.note(*trainer.notes)
    return result


def _plan_program(
    options: TrainerOptions,
    axes: Mapping[str, Sequence[str]],
    lists: Mapping[str, list[Any]],
    result: SweepResult,
) -> None:
    """Store the configurations of a user's program and its certificate in `result`."""
    result.configurations = program_plan.plan(
        options, axes, lists, **describe_machine_size()
    )
    if options.certificate:
        result.script_certificate = _read_certificate(options)


class _Calibration(NamedTuple):
    """The length of the runs of a sweep with a time limit.

    Attributes:
      num_batches: Measured batches of each run; None if it is not known.
      seconds: The time that the calibration took.
    """

    num_batches: int | None = None
    seconds: float = 0.0


def _calibrate(
    lists: Mapping[str, list[Any]],
    options: ConductOptions,
    trainer: Trainer[Any],
    resume_words: Sequence[str],
    result: SweepResult,
) -> _Calibration:
    """Choose the number of measured batches of each run by one short run.

    If the run could not be made, `result` has the exit status.
    """
    started_s = time.monotonic()
    if options.dry_run:
        return _Calibration(MEASURED_BATCHES[0])
    out = result.out / CALIBRATION_FOLDER
    conductor = Conductor(out, options, trainer, resume_words, has_notes=False)
    num_batches = calibrate(lists, conductor, out, describe_machine_size())
    result.outcome.exit_status = conductor.outcome.exit_status
    return _Calibration(num_batches, time.monotonic() - started_s)


def require_no_suite_options(options: ConductOptions, certify: bool = False) -> None:
    """Raise FlagErrors for options that a user's program does not have."""
    lines = []
    if certify:
        lines.append(
            "--certify checks only this suite's trainer; leave it out with --trainer"
        )
    if options.launch:
        lines.append(
            "--launch is for this suite's trainer; write the launcher into --trainer"
        )
    if lines:
        raise flags.FlagErrors(lines)


def _read_certificate(options: TrainerOptions) -> ScriptCertificate:
    """Return the certificate of the user's program.

    Raises:
      FlagErrors: If the file is not a certificate, or if it is of another script.
    """
    flag = f"--certificate={options.certificate}"
    try:
        certificate = script_certificate.read(Path(options.certificate))
    except OSError as e:
        raise flags.FlagErrors([f"{flag}: {e.strerror or e}"]) from None
    except ScriptCertificateError as e:
        rule = "give the file of ./run.sh verify --trainer --result_file=FILE"
        raise flags.FlagErrors([f"{flag}: {e}; {rule}"]) from None
    scripts = _find_script_names(certificate.command)
    if scripts and not scripts & _find_script_names(options.trainer):
        raise flags.FlagErrors(
            [
                f"{flag} certifies `{certificate.command}`, but "
                f"--trainer={options.trainer} starts another script; verify "
                "that script"
            ]
        )
    if certificate.answer == script_certificate.CANNOT_TELL:
        entry.warn(
            f"{flag}: the certificate says {certificate.answer}, so no verdict is shown"
        )
    return certificate


def _find_script_names(command: str) -> set[str]:
    """Return the names of the Python files in a command."""
    return {Path(word).name for word in command.split() if word.endswith(".py")}


def _certify(
    runs: Sequence[Run],
    verifier: Sequence[str],
    options: ConductOptions,
    resume_words: Sequence[str],
    result: SweepResult,
) -> None:
    """Verify each configuration; `result` gets the verdicts and the exit status.

    Args:
      runs: The configurations.
      verifier: The command of one rank that verifies a configuration.
      options: The options of all runs.
      resume_words: The words of a command that makes the missing runs.
      result: The sweep.
    """
    conductor = Conductor(
        result.out / certifying_runs.FOLDER,
        options,
        SuiteTrainer(verifier, options.launch),
        resume_words,
    )
    jobs = certifying_runs.plan_jobs(runs, result.out)
    print(f"certifying {format_count(len(jobs), 'configuration')}", file=sys.stderr)
    conductor.run(jobs)
    result.certified = conductor.outcome
    result.outcome.exit_status = conductor.outcome.exit_status


@dataclasses.dataclass(frozen=True)
class _SweepRun:
    """The rounds of one sweep.

    Attributes:
      conductor: Runs the jobs.
      budget: The time for all runs.
      continue_words: The words of a command that makes all runs.
      show_first_round: Prints the results of the first round, if time is limited.
    """

    conductor: Conductor
    budget: Budget
    continue_words: Sequence[str]
    show_first_round: Callable[[Path], None]

    def run(self, result: SweepResult, repeats: int, is_dry_run: bool) -> None:
        """Run the configurations round by round.

        Args:
          result: The sweep, which gets the number of rounds and the remarks.
          repeats: Number of rounds; 0 if the precision decides.
          is_dry_run: Whether the runs are only listed.
        """
        runs = result.configurations
        result.rounds = repeats or self._count_first_rounds(runs, result.out)
        if not repeats and not is_dry_run:
            self._run_until_precise(result)
            return
        all_runs = interleave(runs, result.rounds)
        if self.conductor.run([Job(run, result.out) for run in all_runs]):
            self.conductor.note_nothing_to_run()
        if result.exit_status == entry.EXIT_OK and not repeats:
            print(self._describe_rounds())

    def _count_first_rounds(self, runs: Sequence[AnyRun], out: Path) -> int:
        """Return the number of rounds to begin with.

        Without a budget, it is more than MIN_ROUNDS if the folder has runs of a later
        round.
        """
        repeats = [MIN_ROUNDS]
        if not self.budget.is_limited:
            for run in interleave(runs, MAX_ROUNDS):
                if (out / f"{run.label}.json").exists():
                    repeats.append(run.repeat)
        return max(repeats)

    def _run_until_precise(self, result: SweepResult) -> None:
        rounds = SweepRounds(
            result.configurations, self.budget.is_limited, result.rounds
        )
        conductor = self.conductor
        is_first = self.budget.is_limited
        while chosen_runs := rounds.choose(conductor):
            if rounds.reason:
                print(rounds.reason, file=sys.stderr)
            if not conductor.run([Job(run, result.out) for run in chosen_runs]):
                return
            result.rounds = max(result.rounds, *(run.repeat for run in chosen_runs))
            if is_first and conductor.num_made:
                self.show_first_round(result.out)
            is_first = False
        conductor.note_nothing_to_run()
        result.remarks = self._list_remarks(rounds)

    def _describe_rounds(self) -> str:
        if self.budget.is_limited:
            return (
                "the most important runs come first, and only runs that are expected "
                f"to end within {self.budget.minutes:g} minutes start; --minutes=0 "
                "makes all runs"
            )
        return (
            f"rounds are added until each efficiency is known to ±{PRECISION_GOAL} points, "
            f"up to {MAX_ROUNDS} rounds"
        )

    def _list_remarks(self, rounds: SweepRounds) -> list[str]:
        """Describe the runs that were repeated or left out, with the remedy."""
        remarks = []
        if rounds.num_replaced:
            remarks.append(
                f"{format_count(rounds.num_replaced, 'further run')} replaced runs that "
                "other processes had disturbed"
            )
        if rounds.is_busy(self.conductor.records):
            busy = (
                "the latest repeats were disturbed as well, so no more runs are "
                "repeated"
            )
            if not rounds.num_replaced:
                busy = (
                    "other processes disturbed all runs, so none is repeated; on a "
                    "quiet machine, the same command repeats them"
                )
            remarks.append(f"the machine is still busy: {busy}")
        left_out = rounds.list_left_out(self.conductor.records)
        if left_out:
            command = shlex.join(self.continue_words)
            remarks.append(
                f"{format_count(len(left_out), 'run')} did not fit into "
                f"--minutes={self.budget.minutes:g}: "
                f"{self.conductor.describe_duration(left_out)}. To add them:\n"
                f"  {entry.get_program_name()} {command}"
            )
        return remarks
