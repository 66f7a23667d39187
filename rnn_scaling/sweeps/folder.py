"""A folder of records: its lock, and which runs of a plan it already holds."""

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

# Files that killed processes leave: a temporary file of record.write, and the files that ranks of a Recorder exchange.
LEFTOVER = re.compile(r"\.(.+\.json)\.(?:[^.]+\.tmp|rank\d+)")


class GoneError(RuntimeError):
    """A folder was removed, or another one put in its place, while a sweep worked in it."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A run and the folder of its record."""

    run: AnyRun
    folder: Path
    prefix: str = ""  # of the label, where several folders have runs of the same name

    @property
    def label(self) -> str:
        """The name of the run in messages, different for each job of a command."""
        return f"{self.prefix}{self.run.label}"

    @property
    def path(self) -> Path:
        """The record."""
        return self.folder / f"{self.run.label}.json"


@dataclasses.dataclass
class Survey:
    """What a folder holds of some jobs."""

    finished: dict[str, RunRecord] = dataclasses.field(
        default_factory=dict
    )  # jobs that need not run, by label
    pending: list[Job] = dataclasses.field(default_factory=list)
    # A line for each record of other flags in a job's place.
    conflicts: list[str] = dataclasses.field(default_factory=list)
    # Path and reason of what is in a job's place but is no record, or is a copy of another.
    unreadable: list[tuple[Path, str]] = dataclasses.field(default_factory=list)


def lock(folder: Path) -> AbstractContextManager[Hold]:
    """Holds a folder, which is made if it is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    return hold(folder, SWEEP_LOCK, "sweep", "choose another --out")


def survey(
    jobs: Sequence[Job], *, retry_failed: bool, force: bool, before: Sequence[Job] = ()
) -> Survey:
    """Sorts jobs into finished and pending; changes nothing.

    A job is finished when its file, or a file of the folder that is no job's, holds a finished record of its flags:
    a sweep that names its runs otherwise, since more flags vary in it, does not repeat them.
    """
    result = Survey()
    others = _Others([*before, *jobs])
    originals = Originals()
    repeated = ("interrupted", "failed") if retry_failed else ("interrupted",)
    for job in jobs:
        in_place = _read(job, result.unreadable)
        there, differences = _best(job, in_place, others)
        if there is None or is_placeholder(there):
            result.pending.append(job)
            continue
        original = "" if differences else originals.of(job.path.name, there)
        if original and there is in_place:
            result.unreadable.append((job.path, f"{job.path}: a copy of {original}"))
        if differences and not force and _has_numbers(there):
            remedy = "choose another --out, or --force overwrites it"
            result.conflicts.append(
                f"{job.path} has other flags ({differences}); {remedy}"
            )
        elif differences or original or there.status in repeated:
            result.pending.append(job)
        else:
            result.finished[job.label] = there
    return result


def _best(
    job: Job, in_place: RunRecord | None, others: "_Others"
) -> tuple[RunRecord | None, str]:
    """(the record in a job's place, or one of the same flags elsewhere in the folder; the flags that differ)."""
    if in_place is not None and is_placeholder(in_place):
        return in_place, ""
    differences = _differences(in_place.config, job.run) if in_place else ""
    elsewhere = others.take(job) if in_place is None or differences else None
    return (elsewhere, "") if elsewhere else (in_place, differences)


def _read(job: Job, unreadable: list[tuple[Path, str]]) -> RunRecord | None:
    """The record in a job's place; what cannot be read there is added to `unreadable`."""
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
    """Removes the files that killed processes left next to the records of these jobs, none of which runs."""
    paths = {job.path for job in jobs}
    for place in {job.folder for job in jobs}:
        for path in place.glob(".*"):
            match = LEFTOVER.fullmatch(path.name)
            if match and place / match[1] in paths and path.is_file():
                path.unlink(missing_ok=True)


def is_placeholder(run: RunRecord) -> bool:
    """Whether a record was written at a run's start and never replaced, because sweep and trainer died together."""
    return (
        run.status == "failed"
        and run.error is not None
        and run.error.type == PLACEHOLDER
    )


def is_result(run: RunRecord | None) -> TypeGuard[RunRecord]:
    """Whether a record is the result of a run: not its placeholder, and not of an interrupted run."""
    return run is not None and (
        run.status == "ok" or (run.status == "failed" and not is_placeholder(run))
    )


def set_aside(path: Path) -> Path:
    """Renames a file that is not a record, so that it is not lost; returns its new path."""
    numbered = (
        path.with_name(f"{path.name}.unreadable{suffix}")
        for suffix in ["", *range(2, 10_000)]
    )
    target = next(name for name in numbered if not os.path.lexists(name))
    path.rename(target)
    return target


def _has_numbers(run: RunRecord) -> bool:
    """Whether a record of other flags must be kept; a failed attempt without numbers may be overwritten."""
    is_of_others = run.error is not None and run.error.type == "Contradiction"
    return (
        run.status != "failed"
        or run.throughput is not None
        or bool(run.batches.seconds and not is_of_others)
    )


class _Others:
    """Finished records in files that belong to no job; each is taken once. Read when first asked."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._paths = {job.path for job in jobs}
        self._records: dict[Path, dict[Identity, list[RunRecord]]] = {}

    def take(self, job: Job) -> RunRecord | None:
        if job.folder not in self._records:
            self._records[job.folder] = self._read(
                job.folder, job.run
            )  # the same options identify all jobs
        same = self._records[job.folder].get(job.run.identity)
        return same.pop(0) if same else None

    def _read(self, folder: Path, like: AnyRun) -> dict[Identity, list[RunRecord]]:
        records: dict[Identity, list[RunRecord]] = {}
        for path in sorted(folder.glob("*.json")):
            # The report names what is no record, which is in the place of no job.
            if path not in self._paths and is_result(run := record.find(path)):
                records.setdefault(like.identity_of(run.config), []).append(run)
        return records


def _differences(there: Mapping[str, Any], here: AnyRun) -> str:
    """The flags in which a record's options differ from a run's, as text; empty when they are the same."""
    old, new = dict(here.identity_of(there)), dict(here.identity)
    differing = [name for name in {**new, **old} if old.get(name) != new.get(name)]
    shown = [
        f"{_spelled(name, old)} there, {_spelled(name, new)} here"
        for name in differing[:3]
    ]
    return "; ".join(
        [*shown, f"{len(differing) - 3} more"] if len(differing) > 3 else shown
    )


def _spelled(name: str, options: Mapping[str, Any]) -> str:
    return spell(name, options[name]) if name in options else f"no --{name}"
