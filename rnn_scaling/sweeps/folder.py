"""Lock a folder of records, and find the runs of a plan that it already contains.

`conduct` asks before each run. Names of files are part of the format of a folder:
`records.folder` reads the same names.
"""

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeGuard

from rnn_scaling.config.spelling import spell
from rnn_scaling.records import record
from rnn_scaling.records.folder import Originals
from rnn_scaling.records.lock import SWEEP_LOCK, Hold, hold
from rnn_scaling.records.record import RunRecord
from rnn_scaling.sweeps.estimate import Identity
from rnn_scaling.sweeps.failure import PLACEHOLDER
from rnn_scaling.sweeps.runs import AnyRun

# Files that killed processes leave: a temporary file of record.write, and the files
# that ranks of a Recorder exchange.
LEFTOVER = re.compile(r"\.(.+\.json)\.(?:[^.]+\.tmp|rank\d+)")
_MAX_SHOWN_DIFFERENCES = 3


class GoneError(RuntimeError):
    """A folder was removed or replaced while a sweep worked in it."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A run and the folder of its record."""

    run: AnyRun
    folder: Path
    # Distinguishes the labels of runs with the same name in several folders.
    prefix: str = ""

    @property
    def label(self) -> str:
        """The name of the run in messages, different for each job of a command."""
        return f"{self.prefix}{self.run.label}"

    @property
    def path(self) -> Path:
        """The file of the record."""
        return self.folder / f"{self.run.label}.json"


@dataclasses.dataclass
class Survey:
    """The state of some jobs in their folders."""

    # Jobs that need not run, by label.
    finished: dict[str, RunRecord] = dataclasses.field(default_factory=dict)
    pending: list[Job] = dataclasses.field(default_factory=list)
    # A line per job whose file has a record of other flags.
    conflicts: list[str] = dataclasses.field(default_factory=list)
    # Path and reason of a file that is not a record, or is the copy of another record.
    unreadable: list[tuple[Path, str]] = dataclasses.field(default_factory=list)


def lock(folder: Path) -> AbstractContextManager[Hold]:
    """Hold a folder, which is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    return hold(folder, SWEEP_LOCK, "sweep", "choose another --out")


def survey(
    jobs: Sequence[Job],
    *,
    retry_failed: bool,
    force: bool,
    earlier_jobs: Sequence[Job] = (),
) -> Survey:
    """Sort jobs into finished and pending ones; change nothing.

    A job is finished if its file has a finished record of its flags, or another file of
    the folder that belongs to no job. A sweep in which more flags vary names its runs
    differently, and so does not repeat them.

    Args:
      jobs: The jobs to sort.
      retry_failed: Whether failed runs are pending.
      force: Whether records of other flags may be overwritten.
      earlier_jobs: Jobs of the same command, whose files are not used for `jobs`.
    """
    result = Survey()
    spare_records = _SpareRecords([*earlier_jobs, *jobs])
    originals = Originals()
    repeated = ("interrupted", "failed") if retry_failed else ("interrupted",)
    for job in jobs:
        in_place = _read(job, result.unreadable)
        kept_record, differences = _find_record(job, in_place, spare_records)
        if kept_record is None or _is_placeholder(kept_record):
            result.pending.append(job)
            continue
        original = (
            "" if differences else originals.find_or_add(job.path.name, kept_record)
        )
        if original and kept_record is in_place:
            result.unreadable.append(
                (job.path, f"{job.path}: this is a copy of {original}")
            )
        if differences and not force and _has_numbers(kept_record):
            result.conflicts.append(
                f"{job.path} has other flags ({differences}); choose another --out, or "
                "--force overwrites it"
            )
        elif differences or original or kept_record.status in repeated:
            result.pending.append(job)
        else:
            result.finished[job.label] = kept_record
    return result


def _find_record(
    job: Job, in_place: RunRecord | None, spare_records: "_SpareRecords"
) -> tuple[RunRecord | None, str]:
    """Return the record of a job, and the flags in which it differs.

    It is the record in the job's file, or one of the same flags in another file of the
    folder.
    """
    if in_place is not None and _is_placeholder(in_place):
        return in_place, ""
    differences = _describe_differences(in_place.config, job.run) if in_place else ""
    if in_place is None or differences:
        spare = spare_records.take(job)
        if spare:
            return spare, ""
    return in_place, differences


def _read(job: Job, unreadable: list[tuple[Path, str]]) -> RunRecord | None:
    """Return the record in a job's file; add an unreadable file to the list."""
    try:
        return record.read(job.path)
    except (OSError, record.RecordError) as e:
        # A broken record, or not even a file: a pipe, or a link to nothing.
        if os.path.lexists(job.path):
            reason = str(e)
            if isinstance(e, OSError):
                reason = f"{job.path}: {e.strerror or e}"
            unreadable.append((job.path, reason))
    return None


def remove_leftovers(jobs: Sequence[Job]) -> None:
    """Remove the files of killed processes next to the records of these jobs.

    None of the jobs may be running.
    """
    paths = {job.path for job in jobs}
    for folder in {job.folder for job in jobs}:
        for path in folder.glob(".*"):
            match = LEFTOVER.fullmatch(path.name)
            if match and folder / match[1] in paths and path.is_file():
                path.unlink(missing_ok=True)


def _is_placeholder(run: RunRecord) -> bool:
    """Return whether a record was written at the start of a run and never replaced.

    This happens if sweep and trainer end together.
    """
    return (
        run.status == "failed"
        and run.error is not None
        and run.error.type == PLACEHOLDER
    )


def is_result(run: RunRecord | None) -> TypeGuard[RunRecord]:
    """Return whether a record is the result of a run.

    A placeholder and the record of an interrupted run are not.
    """
    if run is None:
        return False
    return run.status == "ok" or (run.status == "failed" and not _is_placeholder(run))


def set_aside(path: Path) -> Path:
    """Rename a file that is not a record, to keep it; return its new path."""
    target = path.with_name(f"{path.name}.unreadable")
    number = 2
    while os.path.lexists(target):
        target = path.with_name(f"{path.name}.unreadable{number}")
        number += 1
    path.rename(target)
    return target


def _has_numbers(run: RunRecord) -> bool:
    """Return whether a record of other flags must be kept.

    A failed attempt without numbers may be overwritten.
    """
    if run.status != "failed" or run.throughput is not None:
        return True
    is_contradiction = run.error is not None and run.error.type == "Contradiction"
    return bool(run.batches.seconds) and not is_contradiction


class _SpareRecords:
    """Finished records in files that belong to no job; each is taken once."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._paths = {job.path for job in jobs}
        self._records: dict[Path, dict[Identity, list[RunRecord]]] = {}

    def take(self, job: Job) -> RunRecord | None:
        """Return a record of the same flags in the folder of a job, or None."""
        if job.folder not in self._records:
            # The same options identify all jobs.
            self._records[job.folder] = self._read(job.folder, job.run)
        matches = self._records[job.folder].get(job.run.identity)
        return matches.pop(0) if matches else None

    def _read(self, folder: Path, run: AnyRun) -> dict[Identity, list[RunRecord]]:
        records: dict[Identity, list[RunRecord]] = {}
        for path in sorted(folder.glob("*.json")):
            if path in self._paths:
                continue
            stored_record = record.find(path)
            # The report names files that are not records.
            if is_result(stored_record):
                records.setdefault(run.identify(stored_record.config), []).append(
                    stored_record
                )
        return records


def _describe_differences(config: Mapping[str, Any], run: AnyRun) -> str:
    """Return the flags in which a record differs from a run; empty if none does."""
    recorded = dict(run.identify(config))
    planned = dict(run.identity)
    parts = []
    for name in {**planned, **recorded}:
        if recorded.get(name) != planned.get(name):
            recorded_flag = _spell(name, recorded)
            parts.append(f"{recorded_flag} there, {_spell(name, planned)} here")
    num_hidden = len(parts) - _MAX_SHOWN_DIFFERENCES
    if num_hidden > 0:
        parts[_MAX_SHOWN_DIFFERENCES:] = [f"{num_hidden} more"]
    return "; ".join(parts)


def _spell(name: str, options: Mapping[str, Any]) -> str:
    return spell(name, options[name]) if name in options else f"no --{name}"
