"""Runs jobs one after the other, each a process of its own, so that any end of any process loses nothing.

lock the folders -> what is there already? -> placeholder, process, record for each job that is left
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.files import input_files
from rnn_scaling.files.output_files import refuse_link, write_text
from rnn_scaling.models.config import option
from rnn_scaling.processes import alive
from rnn_scaling.records import record
from rnn_scaling.records.lock import BusyError, Hold
from rnn_scaling.records.parts import RunError
from rnn_scaling.records.record import RunRecord
from rnn_scaling.settings import flags
from rnn_scaling.sweeps import display, failure, folder, ranks
from rnn_scaling.sweeps import limit as limits
from rnn_scaling.sweeps.estimate import Estimator
from rnn_scaling.sweeps.folder import Job
from rnn_scaling.sweeps.limit import Limit
from rnn_scaling.sweeps.runs import Trainer

Made = tuple[Job, RunRecord]


@dataclasses.dataclass(frozen=True)
class ConductOptions(flags.FileOptions):
    """Runs: time limit, launcher, dry run."""

    run_timeout: float | None = option(
        None,
        f"wall limit of a run in seconds; 0: none (default: {limits.TIMES:g} times what finished runs or the estimate "
        f"say, {limits.LEAST_S:g} at least)",
        minimum=0.0,
    )
    retry_failed: bool = option(False, "run failed runs again, too")
    force: bool = option(False, "overwrite records of other flags that are in the way")
    dry_run: bool = option(False, "list the runs and an estimate of the time; run and write nothing")
    launch: str = option(
        "",
        "a launcher with its flags, which starts the processes of each run: LAUNCHER -n PROCESSES trainer; "
        "without one they are started on this machine",
        parse=ranks.launcher,
        shown='"srun -K"',
        whole=True,
    )


@dataclasses.dataclass
class Outcome:
    """What became of the jobs.

    Attributes:
      exit_status: set when the command must end now (a dry run, bad input, Ctrl-C); None when every job is finished.
      records: the finished jobs' records by label.
    """

    exit_status: int | None = None
    records: dict[str, RunRecord] = dataclasses.field(default_factory=dict)

    def print_failures(self) -> bool:
        """Names every failed run on stderr; returns whether there is one."""
        failed = {label: result for label, result in self.records.items() if result.status != "ok"}
        for label, result in failed.items():
            entry.fail(f"{label}: {result.error.message if result.error else result.status}")
        if failed:
            print("--retry_failed runs failed runs again", file=sys.stderr)
        return bool(failed)


def conduct(
    jobs: Sequence[Job],
    out: Path,
    options: ConductOptions,
    *,
    again: Sequence[str],
    trainer: Trainer,
    before: Sequence[Made] | None = None,
) -> Outcome:
    """Runs the jobs that are not finished; says on stderr what stops it.

    Args:
      before: what was made in earlier rounds, where a command finds out round by round what to run; None: it is all.
    """
    outcome = Outcome()
    input_files.allow(options.max_file_mb)
    try:
        with contextlib.ExitStack() as locks:
            holds = [] if options.dry_run else _held_folders([out, *(job.folder for job in jobs)], locks)
            survey = folder.survey(
                jobs, retry_failed=options.retry_failed, force=options.force, before=[job for job, _ in before or ()]
            )
            outcome.records.update(survey.finished)
            _tell_unreadable(survey, options.dry_run)
            if not options.dry_run:
                folder.remove_leftovers(jobs)
            if survey.conflicts:
                outcome.exit_status = entry.fail(*survey.conflicts, status=entry.EXIT_USAGE)
                return outcome
            if survey.pending and not before:  # which have warned of it
                entry.warn(*trainer.warnings([job.run for job in survey.pending], options.dry_run))
            if options.dry_run:
                print(listing(jobs, survey, trainer), end="", flush=True)
                outcome.exit_status = 0
            else:
                if not survey.pending and before is None:
                    rule = f"all {len(jobs)} runs are finished; another --out measures anew"
                    print(f"nothing left to run: {rule}", file=sys.stderr)
                _run_pending(jobs, survey, options.run_timeout, trainer, outcome.records, holds, before or ())
    except BusyError as e:
        outcome.exit_status = entry.fail(str(e), status=entry.EXIT_USAGE)
    except folder.GoneError as e:
        outcome.exit_status = entry.fail(str(e))
    except BrokenPipeError:  # of what is printed
        raise
    except OSError as e:
        kept = f"; {len(outcome.records)} finished runs are kept, the same command goes on" if outcome.records else ""
        outcome.exit_status = entry.fail(f"--out={out}: {e.strerror or e}{_at(e)}{kept}")
    except KeyboardInterrupt:
        of_all = f"{len(before or ()) + len(outcome.records)} of {len(before or ()) + len(jobs)}"
        print(
            f"\ninterrupted: {of_all} runs are finished in {out}; to go on:\n  {entry.program()} {shlex.join(again)}",
            file=sys.stderr,
        )
        outcome.exit_status = entry.EXIT_INTERRUPTED
    return outcome


def _held_folders(folders: Sequence[Path], locks: contextlib.ExitStack) -> list[Hold]:
    """Makes the folders where they lack, and holds each until the locks are given back."""
    holds = []
    for place in dict.fromkeys(folders):
        place.mkdir(parents=True, exist_ok=True)
        holds.append(locks.enter_context(folder.lock(place)))
    return holds


def listing(jobs: Sequence[Job], survey: folder.Survey, trainer: Trainer) -> str:
    """The table of a dry run and its estimate."""
    pending = {job.label for job in survey.pending}
    states = [
        "to run" if job.label in pending else "finished" if survey.finished[job.label].status == "ok" else "failed"
        for job in jobs
    ]
    width = max(len(job.label) for job in jobs)
    lines = [f"{'run':>4}  {'state':<8}  {'name':<{width}}  command"]
    for number, (job, state) in enumerate(zip(jobs, states), 1):
        lines.append(f"{number:>4}  {state:<8}  {job.label:<{width}}  {trainer.shown(job.run, job.path)}")
    left = [job.identity for job in survey.pending]
    lines.append(f"\n{len(jobs)} runs, {len(survey.finished)} finished, {len(left)} to run")
    if left:
        lines[-1] += f": {_estimator(jobs, survey, trainer).in_words(left)}"
    lines += trainer.remarks([job.run for job in jobs])
    return "\n".join(lines) + "\n"


def _run_pending(
    jobs: Sequence[Job],
    survey: folder.Survey,
    timeout_s: float | None,
    trainer: Trainer,
    records: dict[str, RunRecord],
    holds: Sequence[Hold],
    before: Sequence[Made],
) -> None:
    """Runs what is pending; fills `records` run by run.

    Raises:
      GoneError: if a folder was taken away, with what became of the records.
    """
    if not survey.pending:
        return
    estimator = _estimator(jobs, survey, trainer)
    for job, result in before:
        _learn(estimator, job, result)
    shown = display.Display(len(before) + len(jobs), len(survey.finished), begun=len(before))
    pending = [job.identity for job in survey.pending]
    shown.announce(f"{len(pending)} run{'s' if len(pending) > 1 else ''} to make: {estimator.in_words(pending)}")
    try:
        for index, job in enumerate(survey.pending):
            left = [later.identity for later in survey.pending[index:]]
            shown.start(job.label, estimator.total_s(left))
            _require_whole(holds, jobs, records)
            result = run_job(job, limits.of(job.identity, estimator, timeout_s), trainer, shown.said)
            records[job.label] = result
            _learn(estimator, job, result)
            shown.end(job.label, result, estimator.total_s(left[1:]))
            _require_whole(holds, jobs, records)
    finally:
        shown.close()


def _require_whole(holds: Sequence[Hold], jobs: Sequence[Job], records: Mapping[str, RunRecord]) -> None:
    gone = [str(each.folder) for each in holds if not each.is_whole()]
    if gone:
        there = [str(job.path) for job in jobs if job.label in records and job.path.exists()]
        kept = f"left {'is' if len(there) == 1 else 'are'} {', '.join(there[-3:])}" if there else "none is left"
        raise folder.GoneError(
            f"{', '.join(gone)}: removed or replaced while the sweep ran, with {len(records) - len(there)} of "
            f"{len(records)} records; {kept}; the same command makes the others again"
        )


def run_job(
    job: Job, limit: Limit, trainer: Trainer, on_line: Callable[[str | None], None] = lambda line: None
) -> RunRecord:
    """Runs one job to its record, which is on disk when this returns; a failure is a record, too.

    Args:
      on_line: gets each line that the run writes, and None while it is silent.

    Raises:
      OSError: if the record cannot be written, by the trainer or here, or no process be started.
      KeyboardInterrupt: Ctrl-C; the record on disk is then that of an unfinished run.
    """
    message = "the sweep ended during this run"
    placeholder = RunError(type=failure.PLACEHOLDER, message=message, process=alive.this_process())
    unfinished = RunRecord("failed", placeholder, job.run.options, unit=job.run.unit)
    # Before the process starts: whatever stood here cannot pass for this run's result, and a full disk is found out.
    record.write(unfinished, job.path)
    ended = trainer.run(job.run, job.path, limit, on_line)
    folder.remove_leftovers([job])
    written: RunRecord | None = None
    try:
        refuse_link(job.path)  # through which nothing could be written below
        written = record.read(job.path)
    except (OSError, record.RecordError):  # also what is no file, as a folder
        if os.path.lexists(job.path):
            folder.set_aside(job.path)
    result = trainer.result(job.run, job.path, written, ended)
    if result is None:
        lost = failure.unwritten(ended.lines)
        if lost:  # not the run's failure: the placeholder stays, so that the run is made again
            raise OSError(lost)
        error = trainer.reason(job.run, ended, limit)
        # What an interrupted trainer wrote of its batches and phases stays; a rate of half a run does not. Another
        # trainer than ours does not know all that its run is told by.
        half = written or unfinished
        config = {**half.config, **{name: value for name, value in job.identity if value is not None}}
        result = dataclasses.replace(half, status="failed", error=error, config=config, throughput=None)
    if result is not written:
        record.write(result, job.path)
    _keep_stderr(job.path, ended.lines if result.status != "ok" else [])
    return result


def _keep_stderr(path: Path, lines: Sequence[str]) -> None:
    """Writes the last lines that a failed run said beside its record; removes those of an earlier try."""
    beside = path.with_name(f"{path.stem}.stderr.txt")
    if lines:
        write_text("\n".join(lines) + "\n", beside)
    else:
        beside.unlink(missing_ok=True)


def _estimator(jobs: Sequence[Job], survey: folder.Survey, trainer: Trainer) -> Estimator:
    estimator = trainer.estimator()
    for job in jobs:
        if result := survey.finished.get(job.label):
            _learn(estimator, job, result)
    return estimator


def _learn(estimator: Estimator, job: Job, result: RunRecord) -> None:
    if result.status == "ok" and result.phases.total > 0:
        estimator.add(job.identity, result.phases.total)


def _tell_unreadable(survey: folder.Survey, dry_run: bool) -> None:
    for path, what in survey.unreadable:
        done = "would be set aside" if dry_run else f"renamed to {folder.set_aside(path).name}"
        entry.warn(f"{what}; {done}")


def _at(error: OSError) -> str:
    return f" ({error.filename})" if error.filename else ""
