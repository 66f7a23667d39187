"""Makes runs one after the other, each in its own process, so that no end of a process loses a result.

lock the folders -> find finished runs -> for each other run: placeholder, process, record
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
from rnn_scaling.sweeps.estimate import LEAST_S, TIMES, Limit, limit_of
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import interleave, round_order
from rnn_scaling.sweeps.runs import AnyRun, Trainer
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import write_text
from rnn_scaling.system.files.terminal import counted
from rnn_scaling.system.processes import alive

Records = Mapping[str, RunRecord]


@dataclasses.dataclass(frozen=True)
class ConductOptions(flags.FileOptions):
    """Runs: time limit, launcher, dry run."""

    run_timeout: float | None = option(
        None,
        f"time limit of a run in seconds; 0: none (default: {TIMES:g} times the duration of finished runs or "
        f"the estimate, at least {LEAST_S:g})",
        minimum=0.0,
    )
    retry_failed: bool = option(False, "repeat failed runs")
    force: bool = option(False, "overwrite records of other flags")
    dry_run: bool = option(
        False,
        "list the runs and their estimated duration; run nothing and write nothing",
    )
    launch: str = option(
        "",
        "a launcher with its flags, which starts each run as LAUNCHER -n PROCESSES trainer (default: processes on this "
        "machine)",
        parse=ranks.launcher,
        shown='"srun -K"',
        whole=True,
    )


@dataclasses.dataclass
class SweepOutcome:
    """What the runs of a command left."""

    # The command must end now (a dry run, bad input, Ctrl-C); None: all is finished.
    exit_status: int | None = None
    records: dict[str, RunRecord] = dataclasses.field(default_factory=dict)  # by label

    def print_failures(self) -> bool:
        """Name every failed run on stderr; return whether there is one."""
        failed = [
            label for label, result in self.records.items() if result.status != "ok"
        ]
        for label in failed:
            entry.fail(f"{label}: {reason_of(self.records[label])}")
        if failed:
            print("--retry_failed repeats failed runs", file=sys.stderr)
        return bool(failed)


def reason_of(result: RunRecord) -> str:
    """Return why a run failed."""
    return result.error.message if result.error else result.status


class Rounds(Protocol):
    """What a search knows when it chooses the runs of the next round."""

    @property
    def records(self) -> Records:
        """The finished runs by label."""

    def has_time_for(self, runs: Sequence[AnyRun]) -> bool:
        """Return whether the time that is left suffices for these runs."""


class Conductor:
    """Makes the runs of one command, round by round."""

    def __init__(
        self,
        out: Path,
        options: ConductOptions,
        trainer: Trainer[Any],
        again: Sequence[str],
        minutes: float = math.inf,
    ) -> None:
        """Make a conductor that has made nothing.

        Args:
          out: The folder that messages name.
          options: How runs are made.
          trainer: Makes them.
          again: The words that continue this command.
          minutes: Time limit for new rounds.
        """
        input_files.allow(options.max_file_mb)
        self.outcome = SweepOutcome()
        self._out = out
        self._options = options
        self._trainer = trainer
        self._again = again
        self._end_s = time.monotonic() + 60 * minutes
        self._estimator = trainer.estimator()
        self._jobs: list[Job] = []  # of all rounds so far

    @property
    def records(self) -> dict[str, RunRecord]:
        """The finished runs by label."""
        return self.outcome.records

    def has_time_for(self, runs: Sequence[AnyRun]) -> bool:
        """Return whether the time that is left suffices for these runs."""
        needed_s = 0.0
        for run in runs:
            if not (self._out / f"{run.label}.json").exists():
                needed_s += self._estimator.seconds(run.identity)
        return needed_s <= self._end_s - time.monotonic()

    def make(self, jobs: Sequence[Job]) -> bool:
        """Make the jobs of a round that are not finished; print on stderr what stops it.

        Returns:
          Whether the command goes on; otherwise the outcome has its exit status.
        """
        outcome = self.outcome
        earlier = len(self._jobs)
        self._jobs += jobs
        try:
            with contextlib.ExitStack() as locks:
                places = dict.fromkeys([self._out, *(job.folder for job in jobs)])
                if self._options.dry_run:
                    places = {}
                holds = [locks.enter_context(folder.lock(place)) for place in places]
                outcome.exit_status = self._make(jobs, earlier, holds)
        except BusyError as e:
            outcome.exit_status = entry.fail(str(e), status=entry.EXIT_USAGE)
        except folder.GoneError as e:
            outcome.exit_status = entry.fail(str(e))
        except BrokenPipeError:  # of what is printed
            raise
        except OSError as e:
            outcome.exit_status = entry.fail(self._lost_folder(e))
        except KeyboardInterrupt:
            print(self._interrupted(), file=sys.stderr)
            outcome.exit_status = entry.EXIT_INTERRUPTED
        outcome.records = {
            job.label: self.records[job.label]
            for job in self._jobs
            if job.label in self.records
        }
        return outcome.exit_status is None

    def make_rounds(self, choose: "Callable[[Rounds], Sequence[AnyRun]]") -> None:
        """Ask for the runs of a round and make them, until there are none.

        An interruption keeps what is measured.
        """
        while runs := choose(self):
            order = round_order(runs, runs[0].repeat)
            if not self.make([Job(run, self._out) for run in order]):
                return

    def _lost_folder(self, error: OSError) -> str:
        line = f"--out={self._out}: {error.strerror or error}"
        if error.filename:
            line += f" ({error.filename})"
        if self.records:
            kept = f"{len(self.records)} finished runs are kept"
            line += f"; {kept}, the same command continues"
        return line

    def _interrupted(self) -> str:
        finished = f"{len(self.records)} of {len(self._jobs)} runs are finished"
        command = f"{entry.program()} {shlex.join(self._again)}"
        return f"\ninterrupted: {finished} in {self._out}; to continue:\n  {command}"

    def _make(
        self, jobs: Sequence[Job], earlier: int, holds: Sequence[Hold]
    ) -> int | None:
        """Run what is not finished; return the exit status, None to go on."""
        options = self._options
        survey = folder.survey(
            jobs,
            retry_failed=options.retry_failed,
            force=options.force,
            before=self._jobs[:earlier],
        )
        self.records.update(survey.finished)
        for job in jobs:
            if job.label in survey.finished:
                self._learn(job)
        for path, reason in survey.unreadable:
            done = "would be renamed"
            if not options.dry_run:
                done = f"renamed to {folder.set_aside(path).name}"
            entry.warn(f"{reason}; {done}")
        if not options.dry_run:
            folder.remove_leftovers(jobs)
        if survey.conflicts:
            return entry.fail(*survey.conflicts, status=entry.EXIT_USAGE)
        pending = survey.pending
        if pending and not earlier:  # other rounds do not repeat these warnings
            runs = [job.run for job in pending]
            entry.warn(*self._trainer.warnings(runs, options.dry_run))
        if options.dry_run:
            print("\n".join(self._listing(jobs, pending)), flush=True)
            return entry.EXIT_OK
        if pending:
            self._run(pending, earlier, len(survey.finished), holds)
        elif not earlier:
            print(
                f"nothing left to run: all {len(jobs)} runs are finished; another --out starts again",
                file=sys.stderr,
            )
        return None

    def _learn(self, job: Job) -> None:
        self._estimator.learn(job.run.identity, self.records[job.label])

    def _listing(self, jobs: Sequence[Job], pending: Sequence[Job]) -> Iterator[str]:
        """Yield the lines of a dry run: a table of the jobs, and how long they take."""
        width = max(len(job.label) for job in jobs)
        yield f"{'run':>4}  {'state':<8}  {'name':<{width}}  command"
        for number, job in enumerate(jobs, 1):
            state = "to run"
            if job.label in self.records:
                is_ok = self.records[job.label].status == "ok"
                state = "finished" if is_ok else "failed"
            command = self._trainer.shown(job.run, job.path)
            yield f"{number:>4}  {state:<8}  {job.label:<{width}}  {command}"
        yield ""
        counts = f"{len(jobs) - len(pending)} finished, {len(pending)} to run"
        about = f": {self._about(pending)}" if pending else ""
        yield f"{len(jobs)} runs, {counts}{about}"

    def _about(self, jobs: Sequence[Job]) -> str:
        return self._estimator.in_words([job.run.identity for job in jobs])

    def _run(
        self, pending: Sequence[Job], earlier: int, finished: int, holds: Sequence[Hold]
    ) -> None:
        """Run the jobs of a round in turn, with a display of the whole command."""
        shown = display.SweepDisplay(len(self._jobs), finished, begun=earlier)
        shown.board.line(f"{counted(len(pending), 'run')} left: {self._about(pending)}")
        try:
            for index, job in enumerate(pending):
                left = [later.run.identity for later in pending[index:]]
                shown.start(job.label, self._estimator.total_s(left))
                self._require_whole(holds)
                limit = limit_of(
                    job.run.identity, self._estimator, self._options.run_timeout
                )
                following = next(iter(pending[index + 1 :]), None)
                result = run_job(job, limit, self._trainer, shown.output, following)
                self.records[job.label] = result
                self._learn(job)
                shown.end(job.label, result, self._estimator.total_s(left[1:]))
                self._require_whole(holds)
        finally:
            self._trainer.close()
            shown.close()

    def _require_whole(self, holds: Sequence[Hold]) -> None:
        """Raise GoneError if a folder is not the one that was locked."""
        gone = [str(hold.folder) for hold in holds if not hold.is_whole()]
        if gone:
            made = [job for job in self._jobs if job.label in self.records]
            left = sum(job.path.exists() for job in made)
            raise folder.GoneError(
                f"{', '.join(gone)}: removed or replaced during the sweep; {len(made) - left} of {len(made)} records "
                "are lost, and the same command makes them again"
            )


def conduct(
    jobs: Sequence[Job],
    out: Path,
    options: ConductOptions,
    *,
    again: Sequence[str],
    trainer: Trainer[Any],
) -> SweepOutcome:
    """Make the jobs that are not finished."""
    conductor = Conductor(out, options, trainer, again)
    conductor.make(jobs)
    return conductor.outcome


def conduct_sweep(
    runs: Sequence[AnyRun],
    repeats: int,
    out: Path,
    options: ConductOptions,
    *,
    again: Sequence[str],
    trainer: Trainer[Any],
) -> SweepOutcome:
    """Make interleaved rounds of runs."""
    jobs = [Job(run, out) for run in interleave(runs, repeats)]
    return conduct(jobs, out, options, again=again, trainer=trainer)


def run_job(
    job: Job,
    limit: Limit,
    trainer: Trainer[Any],
    on_line: Callable[[str | None], None] = lambda line: None,
    following: Job | None = None,
) -> RunRecord:
    """Run one job to its record, which is on disk when this returns; a failure is a record, too.

    Args:
      job: What to run.
      limit: Its time limit.
      trainer: Makes the run.
      on_line: Called with each line of output, and with None if only time has passed.
      following: The job that this trainer runs next; its process may start now.

    Raises:
      OSError: If the record cannot be written, by the trainer or here, or no process be started.
      KeyboardInterrupt: Ctrl-C; the record on disk is then that of an unfinished run.
    """
    placeholder = RunError(
        type=failure.PLACEHOLDER,
        message="the sweep ended during this run",
        process=alive.this_process(),
    )
    unfinished = RunRecord(
        "failed", placeholder, Options(job.run.options), unit=job.run.unit
    )
    # Before the process starts, so that an older record cannot pass for this run's
    # result, and a full disk is noticed.
    record.write(unfinished, job.path)
    next_run = (following.run, following.path) if following else None
    ended = trainer.run(job.run, job.path, limit, on_line, next_run)
    folder.remove_leftovers([job])
    # Through a link nothing could be written below.
    written = None if job.path.is_symlink() else record.find(job.path)
    if written is None and os.path.lexists(job.path):  # also a folder, for example
        folder.set_aside(job.path)
    result = trainer.result(job.run, job.path, written, ended)
    if result is None:
        # A full disk is not the run's failure: the placeholder stays, so that the run
        # is made again.
        if lost := failure.unwritten(ended.lines):
            raise OSError(lost)
        # The batches and phases of an interrupted run stay, its rate does not. A user's
        # command may not write all options that identify the run.
        half = written or unfinished
        identity = {
            name: value for name, value in job.run.identity if value is not None
        }
        result = dataclasses.replace(
            half,
            status="failed",
            error=trainer.reason(job.run, ended, limit),
            options=Options({**half.config, **identity}),
            throughput=None,
        )
    if result is not written:
        record.write(result, job.path)
    _keep_stderr(job.path, ended.lines if result.status != "ok" else [])
    return result


def _keep_stderr(path: Path, lines: Sequence[str]) -> None:
    """Write the last lines of a failed run next to its record; remove those of an earlier try."""
    text_path = path.with_name(f"{path.stem}.stderr.txt")
    if lines:
        write_text("\n".join(lines) + "\n", text_path)
    else:
        text_path.unlink(missing_ok=True)
