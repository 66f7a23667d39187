"""Runs jobs one after the other, each in its own process, so that no end of a process loses a result.

lock the folders -> find finished runs -> for each other job: placeholder, process, record
"""

import contextlib
import dataclasses
import os
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.records import record
from rnn_scaling.records.lock import BusyError, Hold
from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps import display, failure, folder, ranks
from rnn_scaling.sweeps.estimate import LEAST_S, TIMES, Estimator, Limit, limit_of
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.plan import Run, interleave, round_order
from rnn_scaling.sweeps.runs import AnyRun, Trainer
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.output_files import write_text
from rnn_scaling.system.files.terminal import counted
from rnn_scaling.system.processes import alive

Made = tuple[Job, RunRecord]
Records = Mapping[str, RunRecord]
Seconds = Callable[[Run], float]


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
    # Set when the command must end now (a dry run, bad input, Ctrl-C); None when every job is finished.
    exit_status: int | None = None
    records: dict[str, RunRecord] = dataclasses.field(
        default_factory=dict
    )  # the finished jobs' records by label

    def print_failures(self) -> bool:
        """Names every failed run on stderr; returns whether there is one."""
        failed = {
            label: result
            for label, result in self.records.items()
            if result.status != "ok"
        }
        for label, result in failed.items():
            entry.fail(
                f"{label}: {result.error.message if result.error else result.status}"
            )
        if failed:
            print("--retry_failed repeats failed runs", file=sys.stderr)
        return bool(failed)


def conduct(
    jobs: Sequence[Job],
    out: Path,
    options: ConductOptions,
    *,
    again: Sequence[str],
    trainer: Trainer[Any],
    before: Sequence[Made] | None = None,
) -> SweepOutcome:
    """Runs the jobs that are not finished; prints on stderr what stops it.

    `before` are the runs of earlier rounds, or None for a command without rounds.
    """
    outcome = SweepOutcome()
    input_files.allow(options.max_file_mb)
    try:
        with contextlib.ExitStack() as locks:
            folders = (
                []
                if options.dry_run
                else dict.fromkeys([out, *(job.folder for job in jobs)])
            )
            holds = [locks.enter_context(folder.lock(place)) for place in folders]
            outcome.exit_status = _conduct(
                jobs, options, trainer, outcome.records, holds, before
            )
    except BusyError as e:
        outcome.exit_status = entry.fail(str(e), status=entry.EXIT_USAGE)
    except folder.GoneError as e:
        outcome.exit_status = entry.fail(str(e))
    except BrokenPipeError:  # of what is printed
        raise
    except OSError as e:
        count = len(outcome.records)
        kept = (
            f"; {count} finished runs are kept, the same command continues"
            if count
            else ""
        )
        place = f" ({e.filename})" if e.filename else ""
        outcome.exit_status = entry.fail(f"--out={out}: {e.strerror or e}{place}{kept}")
    except KeyboardInterrupt:
        earlier = len(before or ())
        finished = f"{earlier + len(outcome.records)} of {earlier + len(jobs)} runs are finished in {out}"
        command = f"{entry.program()} {shlex.join(again)}"
        print(f"\ninterrupted: {finished}; to continue:\n  {command}", file=sys.stderr)
        outcome.exit_status = entry.EXIT_INTERRUPTED
    return outcome


def conduct_sweep(
    runs: Sequence[AnyRun],
    repeats: int,
    out: Path,
    options: ConductOptions,
    *,
    again: Sequence[str],
    trainer: Trainer,
) -> SweepOutcome:
    """Makes interleaved rounds of runs, as `conduct` does; the records are in the order of the runs."""
    jobs = [Job(run, out, run.label) for run in interleave(runs, repeats)]
    outcome = conduct(jobs, out, options, again=again, trainer=trainer)
    outcome.records = {
        job.label: outcome.records[job.label]
        for job in jobs
        if job.label in outcome.records
    }
    return outcome


def conduct_rounds(
    choose: Callable[[Records, float, Seconds], Sequence[Run]],
    out: Path,
    how: ConductOptions,
    minutes: float,
    again: Sequence[str],
    trainer: Trainer[Any],
) -> SweepOutcome:
    """Asks for runs and makes them, again and again; an interruption keeps what is measured.

    `choose`: records so far, seconds that are left, and what a run takes -> the runs of the next round, or none.
    """
    rounds, before, began, estimator = (
        SweepOutcome(),
        list[Made](),
        time.monotonic(),
        trainer.estimator(),
    )

    def seconds(run: Run) -> float:
        is_there = (out / f"{run.label}.json").exists()
        return 0.0 if is_there else estimator.seconds(run.identity)

    while runs := choose(
        rounds.records, began + 60 * minutes - time.monotonic(), seconds
    ):
        jobs = [Job(run, out, run.label) for run in round_order(runs, runs[0].repeat)]
        done = conduct(jobs, out, how, again=again, trainer=trainer, before=before)
        rounds.records |= done.records
        made = [
            (job, done.records[job.label]) for job in jobs if job.label in done.records
        ]
        for job, result in made:
            estimator.learn(job.run.identity, result)
        before += made
        if done.exit_status is not None:
            rounds.exit_status = done.exit_status
            break
    return rounds


def _conduct(
    jobs: Sequence[Job],
    options: ConductOptions,
    trainer: Trainer[Any],
    records: dict[str, RunRecord],
    holds: Sequence[Hold],
    before: Sequence[Made] | None,
) -> int | None:
    """Runs what is not finished, and fills `records`; returns as `SweepOutcome.exit_status`."""
    earlier = [job for job, _ in before or ()]
    survey = folder.survey(
        jobs, retry_failed=options.retry_failed, force=options.force, before=earlier
    )
    records.update(survey.finished)
    for path, reason in survey.unreadable:
        done = (
            "would be renamed"
            if options.dry_run
            else f"renamed to {folder.set_aside(path).name}"
        )
        entry.warn(f"{reason}; {done}")
    if not options.dry_run:
        folder.remove_leftovers(jobs)
    if survey.conflicts:
        return entry.fail(*survey.conflicts, status=entry.EXIT_USAGE)
    if survey.pending and not before:  # earlier rounds have printed these warnings
        entry.warn(
            *trainer.warnings([job.run for job in survey.pending], options.dry_run)
        )
    if options.dry_run:
        print(listing(jobs, survey, trainer), end="", flush=True)
        return entry.EXIT_OK
    if not survey.pending and before is None:
        print(
            f"nothing left to run: all {len(jobs)} runs are finished; another --out starts again",
            file=sys.stderr,
        )
    _run_pending(
        jobs, survey, options.run_timeout, trainer, records, holds, before or ()
    )
    return None


def listing(jobs: Sequence[Job], survey: folder.Survey, trainer: Trainer[Any]) -> str:
    pending = {job.label for job in survey.pending}
    states = [
        "to run"
        if job.label in pending
        else "finished"
        if survey.finished[job.label].status == "ok"
        else "failed"
        for job in jobs
    ]
    width = max(len(job.label) for job in jobs)
    lines = [f"{'run':>4}  {'state':<8}  {'name':<{width}}  command"]
    for number, (job, state) in enumerate(zip(jobs, states), 1):
        lines.append(
            f"{number:>4}  {state:<8}  {job.label:<{width}}  {trainer.shown(job.run, job.path)}"
        )
    left = [job.run.identity for job in survey.pending]
    lines.append(
        f"\n{len(jobs)} runs, {len(survey.finished)} finished, {len(left)} to run"
    )
    if left:
        lines[-1] += f": {_estimator(jobs, survey, trainer).in_words(left)}"
    lines += trainer.remarks([job.run for job in jobs])
    return "\n".join(lines) + "\n"


def _run_pending(
    jobs: Sequence[Job],
    survey: folder.Survey,
    timeout_s: float | None,
    trainer: Trainer[Any],
    records: dict[str, RunRecord],
    holds: Sequence[Hold],
    before: Sequence[Made],
) -> None:
    if not survey.pending:
        return
    estimator = _estimator(jobs, survey, trainer)
    for job, result in before:
        estimator.learn(job.run.identity, result)
    shown = display.SweepDisplay(
        len(before) + len(jobs), len(survey.finished), begun=len(before)
    )
    pending = [job.run.identity for job in survey.pending]
    shown.board.line(
        f"{counted(len(pending), 'run')} left: {estimator.in_words(pending)}"
    )
    try:
        for index, job in enumerate(survey.pending):
            left = [later.run.identity for later in survey.pending[index:]]
            shown.start(job.label, estimator.total_s(left, follow=index > 0))
            _require_whole(holds, jobs, records)
            following = next(iter(survey.pending[index + 1 :]), None)
            limit = limit_of(job.run.identity, estimator, timeout_s)
            result = run_job(job, limit, trainer, shown.output, following)
            records[job.label] = result
            estimator.learn(job.run.identity, result)
            shown.end(job.label, result, estimator.total_s(left[1:], follow=True))
            _require_whole(holds, jobs, records)
    finally:
        trainer.close()
        shown.close()


def _require_whole(
    holds: Sequence[Hold], jobs: Sequence[Job], records: Mapping[str, RunRecord]
) -> None:
    gone = [str(hold.folder) for hold in holds if not hold.is_whole()]
    if gone:
        left = sum(job.label in records and job.path.exists() for job in jobs)
        raise folder.GoneError(
            f"{', '.join(gone)}: removed or replaced during the sweep; {len(records) - left} of {len(records)} records "
            "are lost, and the same command makes them again"
        )


def run_job(
    job: Job,
    limit: Limit,
    trainer: Trainer[Any],
    on_line: Callable[[str | None], None] = lambda line: None,
    following: Job | None = None,
) -> RunRecord:
    """Runs one job to its record, which is on disk when this returns; a failure is a record, too.

    following: the job that this trainer runs next; its process may start now.

    Raises:
      OSError: if the record cannot be written, by the trainer or here, or no process be started.
      KeyboardInterrupt: Ctrl-C; the record on disk is then that of an unfinished run.
    """
    message = "the sweep ended during this run"
    placeholder = RunError(
        type=failure.PLACEHOLDER, message=message, process=alive.this_process()
    )
    unfinished = RunRecord("failed", placeholder, job.run.options, unit=job.run.unit)
    # Before the process starts, so that an older record cannot pass for this run's result, and a full disk is noticed.
    record.write(unfinished, job.path)
    ended = trainer.run(
        job.run,
        job.path,
        limit,
        on_line,
        (following.run, following.path) if following else None,
    )
    folder.remove_leftovers([job])
    # Through a link nothing could be written below.
    written = None if job.path.is_symlink() else record.find(job.path)
    if written is None and os.path.lexists(
        job.path
    ):  # also what is no file, as a folder
        folder.set_aside(job.path)
    result = trainer.result(job.run, job.path, written, ended)
    if result is None:
        lost = failure.unwritten(ended.lines)
        if lost:  # not the run's failure: the placeholder stays, so that the run is made again
            raise OSError(lost)
        error = trainer.reason(job.run, ended, limit)
        # The batches and phases of an interrupted run stay, its rate does not. A user's command may not write all
        # options that identify the run.
        half = written or unfinished
        config = {
            **half.config,
            **{name: value for name, value in job.run.identity if value is not None},
        }
        result = dataclasses.replace(
            half, status="failed", error=error, config=config, throughput=None
        )
    if result is not written:
        record.write(result, job.path)
    _keep_stderr(job.path, ended.lines if result.status != "ok" else [])
    return result


def _keep_stderr(path: Path, lines: Sequence[str]) -> None:
    """Writes the last lines of a failed run next to its record; removes those of an earlier try."""
    text_path = path.with_name(f"{path.stem}.stderr.txt")
    if lines:
        write_text("\n".join(lines) + "\n", text_path)
    else:
        text_path.unlink(missing_ok=True)


def _estimator(
    jobs: Sequence[Job], survey: folder.Survey, trainer: Trainer[Any]
) -> Estimator:
    estimator = trainer.estimator()
    for job in jobs:
        if result := survey.finished.get(job.label):
            estimator.learn(job.run.identity, result)
    return estimator
