"""Run the jobs of a command one after the other, each in its own process.

The folders are locked, and finished runs are found. Each other run gets a placeholder,
a process and then its record, so that no end of a process loses a result.

`sweep`, `ab`, `recommend` and `inspect` decide which runs to make; a `Conductor` makes
them. Users may end it at any moment: every state on disk must be one that `folder` can
read.
"""

import contextlib
import dataclasses
import math
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.records import record
from rnn_scaling.records.lock import BusyError, Hold
from rnn_scaling.records.options import Options
from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps import display, failure, folder, ranks
from rnn_scaling.sweeps.estimate import LIMIT_FACTOR, MIN_LIMIT_S, Limit, choose_limit
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import interleave, shuffle_round
from rnn_scaling.sweeps.runs import AnyRun, Trainer
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import write_text
from rnn_scaling.system.files.terminal import format_count
from rnn_scaling.system.processes import alive
from rnn_scaling.system.processes.process import ProcessOutcome

Records = Mapping[str, RunRecord]


@dataclasses.dataclass(frozen=True)
class ConductOptions(flags.FileOptions):
    """Runs: time limit, launcher, dry run."""

    run_timeout: float | None = option(
        None,
        f"time limit of a run in seconds; 0: no limit (default: {LIMIT_FACTOR:g} "
        "times the duration of finished runs, or of the estimate, and at "
        f"least {MIN_LIMIT_S:g})",
        minimum=0.0,
    )
    retry_failed: bool = option(False, "repeat the failed runs of the folder")
    force: bool = option(
        False, "overwrite records of runs with other flags, instead of stopping"
    )
    dry_run: bool = option(
        False,
        "list the runs and their estimated duration; run nothing and write nothing",
    )
    launch: str = option(
        "",
        "launcher and its flags; each run is started with LAUNCHER -n PROCESSES "
        "TRAINER (default: all processes run on this machine)",
        parse=ranks.check_launcher,
        shown='"srun -K"',
        whole=True,
    )


@dataclasses.dataclass
class SweepOutcome:
    """The results of a command's runs."""

    # Set if the command must end now (a dry run, bad input, Ctrl-C); None if all runs
    # are finished.
    exit_status: int | None = None
    records: dict[str, RunRecord] = dataclasses.field(
        default_factory=dict
    )  # records by label

    def list_failures(self) -> dict[str, str]:
        """Return the error of each failed run by label."""
        messages = {}
        for label, result in self.records.items():
            if result.status != "ok":
                messages[label] = format_failure(result)
        return messages

    def print_failures(self) -> bool:
        """Print every failed run on stderr; return whether there is one."""
        messages = self.list_failures()
        for label, message in messages.items():
            entry.fail(f"{label}: {message}")
        if messages:
            print("--retry_failed repeats failed runs", file=sys.stderr)
        return bool(messages)


def format_failure(result: RunRecord) -> str:
    """Describe why a run failed, in one line."""
    return result.error.message if result.error else result.status


class SweepProgress(Protocol):
    """The finished runs and the remaining time, which decide the next round."""

    @property
    def records(self) -> Records:
        """The finished runs by label."""

    def has_time_for(self, runs: Sequence[AnyRun]) -> bool:
        """Return whether the remaining time suffices for these runs."""


class Conductor:
    """Runs the jobs of one command, round by round, and keeps their records.

    Each of `sweep`, `ab`, `recommend` and `inspect` makes one. A search calls
    `run_rounds` with the function that chooses its runs; a fixed plan calls `run` or
    `run_repeats`.
    """

    def __init__(
        self,
        out: Path,
        options: ConductOptions,
        trainer: Trainer[Any],
        resume_words: Sequence[str],
        minutes: float = math.inf,
        has_notes: bool = True,
    ) -> None:
        """Make a conductor without jobs.

        Args:
          out: The folder that messages name.
          options: The options of all runs.
          trainer: Makes the runs.
          resume_words: The words that continue this command.
          minutes: Time limit for new rounds.
          has_notes: Whether warnings of the trainer are printed, and whether it is
            noted that all runs are finished.
        """
        input_files.allow(options.max_file_mb)
        self.outcome = SweepOutcome()
        self._out = out
        self._options = options
        self._trainer = trainer
        self._resume_words = resume_words
        self._end_s = time.monotonic() + 60 * minutes
        self._has_notes = has_notes
        self.num_made = 0  # runs that were not finished before
        self._estimator = trainer.make_estimator()
        self._jobs: list[Job] = []  # jobs of all rounds so far

    @property
    def records(self) -> dict[str, RunRecord]:
        """The finished runs by label."""
        return self.outcome.records

    def has_time_for(self, runs: Sequence[AnyRun]) -> bool:
        """Return whether the remaining time suffices for these runs."""
        needed_s = 0.0
        for run in runs:
            if not (self._out / f"{run.label}.json").exists():
                needed_s += self._estimator.seconds(run.identity)
        return needed_s <= self._end_s - time.monotonic()

    def describe_duration(self, runs: Sequence[AnyRun]) -> str:
        """Return how long runs will take, and the source of the estimate."""
        return self._estimator.describe([run.identity for run in runs])

    def run(self, jobs: Sequence[Job]) -> bool:
        """Run the jobs of a round that are not finished.

        Returns:
          Whether the command continues. If not, the reason is on stderr, and the
          outcome has the exit status.
        """
        outcome = self.outcome
        num_earlier = len(self._jobs)
        self._jobs += jobs
        folders = dict.fromkeys([self._out, *(job.folder for job in jobs)])
        if self._options.dry_run:
            folders = {}
        try:
            with contextlib.ExitStack() as locks:
                holds = [locks.enter_context(folder.lock(path)) for path in folders]
                outcome.exit_status = self._run_round(jobs, num_earlier, holds)
        except BusyError as e:
            outcome.exit_status = entry.fail(str(e), status=entry.EXIT_USAGE)
        except folder.GoneError as e:
            outcome.exit_status = entry.fail(str(e))
        except BrokenPipeError:  # stdout or stderr is closed
            raise
        except OSError as e:
            outcome.exit_status = entry.fail(self._describe_lost_folder(e))
        except KeyboardInterrupt:
            print(self._describe_interruption(), file=sys.stderr)
            outcome.exit_status = entry.EXIT_INTERRUPTED
        ordered = {}
        for job in self._jobs:
            if job.label in self.records:
                ordered[job.label] = self.records[job.label]
        outcome.records = ordered
        return outcome.exit_status is None

    def run_repeats(self, runs: Sequence[AnyRun], repeats: int) -> SweepOutcome:
        """Run interleaved rounds of the same runs; return their outcome."""
        if self.run([Job(run, self._out) for run in interleave(runs, repeats)]):
            self.note_nothing_to_run()
        return self.outcome

    def run_rounds(self, choose: "Callable[[SweepProgress], Sequence[AnyRun]]") -> None:
        """Run the rounds that a search chooses, until it chooses no run.

        An interruption keeps the measured runs.
        """
        while runs := choose(self):
            order = shuffle_round(runs, runs[0].repeat)
            if not self.run([Job(run, self._out) for run in order]):
                return
        self.note_nothing_to_run()

    def _describe_lost_folder(self, error: OSError) -> str:
        line = f"--out={self._out}: {error.strerror or error}"
        if error.filename:
            line += f" ({error.filename})"
        if self.records:
            line += (
                f"; finished runs are kept ({len(self.records)}), and the same "
                "command continues"
            )
        return line

    def _describe_interruption(self) -> str:
        finished = f"{len(self.records)} of {len(self._jobs)} runs are finished"
        command = f"{entry.get_program_name()} {shlex.join(self._resume_words)}"
        return f"\ninterrupted: {finished} in {self._out}; to continue:\n  {command}"

    def _run_round(
        self, jobs: Sequence[Job], num_earlier: int, holds: Sequence[Hold]
    ) -> int | None:
        """Run the jobs that are not finished.

        Returns:
          The exit status of the command, or None if it continues.
        """
        options = self._options
        survey = folder.survey(
            jobs,
            retry_failed=options.retry_failed,
            force=options.force,
            earlier_jobs=self._jobs[:num_earlier],
        )
        self.records.update(survey.finished)
        for job in jobs:
            if job.label in survey.finished:
                self._learn(job)
        for path, reason in survey.unreadable:
            action = "would be renamed"
            if not options.dry_run:
                action = f"renamed to {folder.set_aside(path).name}"
            entry.warn(f"{reason}; {action}")
        if not options.dry_run:
            folder.remove_leftovers(jobs)
        if survey.conflicts:
            return entry.fail(*survey.conflicts, status=entry.EXIT_USAGE)

        pending_jobs = survey.pending
        # Later rounds do not repeat these warnings.
        if pending_jobs and not num_earlier and self._has_notes:
            runs = [job.run for job in pending_jobs]
            entry.warn(*self._trainer.list_warnings(runs, options.dry_run))
        if options.dry_run:
            print("\n".join(self._list_jobs(jobs, pending_jobs)), flush=True)
            return entry.EXIT_OK
        if pending_jobs:
            self._run_pending(pending_jobs, num_earlier, len(survey.finished), holds)
        return None

    def note_nothing_to_run(self) -> None:
        """Print on stderr that all runs were finished before, if they were."""
        if self._has_notes and not self.num_made:
            print(
                f"nothing left to run: {len(self._jobs)} of {len(self._jobs)} "
                "runs are finished; another --out starts again",
                file=sys.stderr,
            )

    def _learn(self, job: Job) -> None:
        self._estimator.learn(job.run.identity, self.records[job.label])

    def _list_jobs(
        self, jobs: Sequence[Job], pending_jobs: Sequence[Job]
    ) -> Iterator[str]:
        """Yield the lines of a dry run: a table of the jobs, and their duration."""
        width = max(len(job.label) for job in jobs)
        yield f"{'run':>4}  {'state':<8}  {'name':<{width}}  command"
        for number, job in enumerate(jobs, 1):
            state = "to run"
            if job.label in self.records:
                is_ok = self.records[job.label].status == "ok"
                state = "finished" if is_ok else "failed"
            command = self._trainer.build_command(job.run, job.path).text
            yield f"{number:>4}  {state:<8}  {job.label:<{width}}  {command}"
        yield ""
        line = f"{len(jobs)} runs, {len(jobs) - len(pending_jobs)} finished, "
        line += f"{len(pending_jobs)} to run"
        if pending_jobs:
            runs = [job.run for job in pending_jobs]
            line += f": {self.describe_duration(runs)}"
        yield line

    def _run_pending(
        self,
        pending_jobs: Sequence[Job],
        num_earlier: int,
        num_finished: int,
        holds: Sequence[Hold],
    ) -> None:
        """Run the jobs of a round in turn, with a display of the whole command."""
        progress = display.SweepDisplay(
            len(self._jobs), num_finished, num_begun=num_earlier
        )
        runs_left = format_count(len(pending_jobs), "run")
        duration = self.describe_duration([job.run for job in pending_jobs])
        progress.board.print_line(f"{runs_left} left: {duration}")
        try:
            for index, job in enumerate(pending_jobs):
                remaining_identities = [
                    later.run.identity for later in pending_jobs[index:]
                ]
                progress.start(job.label, self._estimator.total_s(remaining_identities))
                self._require_folders(holds)
                limit = choose_limit(
                    job.run.identity, self._estimator, self._options.run_timeout
                )
                following = next(iter(pending_jobs[index + 1 :]), None)
                result = run_job(
                    job,
                    limit=limit,
                    trainer=self._trainer,
                    on_line=progress.show_output,
                    following=following,
                )
                self.records[job.label] = result
                self.num_made += 1
                self._learn(job)
                progress.end(
                    job.label, result, self._estimator.total_s(remaining_identities[1:])
                )
                self._require_folders(holds)
        finally:
            self._trainer.close()
            progress.close()

    def _require_folders(self, holds: Sequence[Hold]) -> None:
        """Raise GoneError if a folder is not the one that was locked."""
        lost_folders = [str(hold.folder) for hold in holds if not hold.is_valid()]
        if not lost_folders:
            return
        recorded = [job for job in self._jobs if job.label in self.records]
        lost = [job for job in recorded if not job.path.exists()]
        raise folder.GoneError(
            f"{', '.join(lost_folders)}: the folder was removed or replaced during the "
            f"sweep; {len(lost)} of {len(recorded)} records are lost; the same command "
            "repeats their runs"
        )


def run_job(
    job: Job,
    limit: Limit,
    trainer: Trainer[Any],
    on_line: Callable[[str | None], None] = lambda line: None,
    following: Job | None = None,
) -> RunRecord:
    """Run one job to its record, which is on disk when this returns.

    A failed run also has a record.

    Args:
      job: The job to run.
      limit: The time limit of the run.
      trainer: Makes the run.
      on_line: Called with each line of output, and with None if only time has passed.
      following: The job that this trainer runs next; its process may start now.

    Raises:
      OSError: If the trainer or this function cannot write the record, or no process
        can start.
      KeyboardInterrupt: For Ctrl-C; the record on disk is then a placeholder.
    """
    placeholder = RunError(
        type=failure.PLACEHOLDER,
        message="the sweep ended during this run",
        process=alive.identify_this_process(),
    )
    unfinished = RunRecord(
        "failed", placeholder, Options(job.run.options), unit=job.run.unit
    )
    # Before the process starts, so that an older record cannot pass for this run's
    # result, and a full disk is noticed.
    record.write(unfinished, job.path)
    next_run = (following.run, following.path) if following else None
    outcome = trainer.run(job.run, job.path, limit, on_line, next_run)
    folder.remove_leftovers([job])
    # Through a link nothing could be written below.
    written = None if job.path.is_symlink() else record.find(job.path)
    if written is None and os.path.lexists(
        job.path
    ):  # The path may be a folder, for example.
        folder.set_aside(job.path)
    result = trainer.judge(job.run, job.path, written, outcome)
    if result is None:
        error = trainer.explain(job.run, outcome, limit)
        result = _make_failed_record(job, written or unfinished, outcome, error)
    if result is not written:
        record.write(result, job.path)
    _keep_stderr(job.path, outcome.lines if result.status != "ok" else [])
    return result


def _make_failed_record(
    job: Job, written: RunRecord, outcome: ProcessOutcome, error: RunError
) -> RunRecord:
    """Return the record of a run without a result.

    It keeps the batches and phases of an interrupted run, but not its rate.

    Raises:
      OSError: If the trainer could not write its record. A full disk is not the run's
        failure: its placeholder stays, so that the run is repeated.
    """
    if write_error := failure.find_write_error(outcome.lines):
        raise OSError(write_error)
    # A user's command may not write all options that identify the run.
    options = dict(written.config)
    for name, value in job.run.identity:
        if value is not None:
            options[name] = value
    return dataclasses.replace(
        written,
        status="failed",
        error=error,
        options=Options(options),
        throughput=None,
    )


def _keep_stderr(path: Path, lines: Sequence[str]) -> None:
    """Write the last lines of a failed run next to its record.

    Without lines, remove the lines of an earlier try.
    """
    text_path = path.with_name(f"{path.stem}.stderr.txt")
    if lines:
        write_text("\n".join(lines) + "\n", text_path)
    else:
        text_path.unlink(missing_ok=True)
