"""A folder of records: who works in it, and which runs of a plan it already holds."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from rnn_scaling.records import record
from rnn_scaling.records.folder import Originals
from rnn_scaling.records.lock import Hold, hold
from rnn_scaling.records.record import RunRecord
from rnn_scaling.settings.spelling import spell
from rnn_scaling.sweeps.estimate import Identity
from rnn_scaling.sweeps.failure import PLACEHOLDER
from rnn_scaling.sweeps.runs import AnyRun

LOCK_NAME = ".sweep.lock"
# What a run's processes leave that were killed: a file of record.write, and those by which ranks of a Recorder meet.
LEFTOVER = re.compile(r"\.(.+\.json)\.(?:[^.]+\.tmp|rank\d+)")


class GoneError(RuntimeError):
    """A folder was removed, or another one put in its place, while a sweep worked in it."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A run and the folder of its record."""

    run: AnyRun
    folder: Path
    label: str

    @property
    def path(self) -> Path:
        """Where its record is written."""
        return self.folder / f"{self.run.label}.json"

    @property
    def identity(self) -> Identity:
        """What its record's config must say."""
        return self.run.identity


@dataclasses.dataclass
class Survey:
    """What a folder holds of some jobs.

    Attributes:
      finished: records of jobs that need not run, by label.
      pending: jobs to run, in order.
      conflicts: a line for each record of other flags in a job's place.
      unreadable: what stands in a job's place and is no record, or a copy of another one, with what is wrong.
    """

    finished: dict[str, RunRecord] = dataclasses.field(default_factory=dict)
    pending: list[Job] = dataclasses.field(default_factory=list)
    conflicts: list[str] = dataclasses.field(default_factory=list)
    unreadable: list[tuple[Path, str]] = dataclasses.field(default_factory=list)


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[Hold]:
    """Holds a folder for this sweep alone; see `lock.hold`."""
    with hold(folder, LOCK_NAME, "sweep", "choose another --out") as held:
        yield held


def survey(jobs: Sequence[Job], *, retry_failed: bool, force: bool, before: Sequence[Job] = ()) -> Survey:
    """Sorts jobs into finished and pending; changes nothing.

    A job is finished when its file, or a file of the folder that is no job's, holds a finished record of its flags:
    a sweep that names its runs otherwise, since more flags vary in it, does not repeat them.
    """
    result, others, originals = Survey(), _Others([*before, *jobs]), Originals()
    for job in jobs:
        is_own = True
        try:
            there: RunRecord | None = record.read(job.path)
        except (OSError, record.RecordError) as e:
            if os.path.lexists(job.path):  # no file that can be read, as a pipe, or a link to nothing
                what = f"{job.path}: {e.strerror or e}" if isinstance(e, OSError) else str(e)
                result.unreadable.append((job.path, what))
            there, is_own = others.take(job), False
        if there is None or is_placeholder(there):
            result.pending.append(job)
            continue
        differences = _differences(there.config, job.run)
        if differences and (elsewhere := others.take(job)):
            there, differences, is_own = elsewhere, "", False
        if not differences and (original := originals.of(job.path.name, there)):
            if is_own:
                result.unreadable.append((job.path, f"{job.path}: a copy of {original}"))
            result.pending.append(job)
        elif differences and not force and _has_numbers(there):
            result.conflicts.append(
                f"{job.path} is a record of other flags ({differences}); choose another --out, or --force overwrites it"
            )
        elif differences or there.status == "interrupted" or (there.status == "failed" and retry_failed):
            result.pending.append(job)
        else:
            result.finished[job.label] = there
    return result


def remove_leftovers(jobs: Sequence[Job]) -> None:
    """Removes what processes that were killed left beside the records of jobs, which have none that go on."""
    own = {job.path for job in jobs}
    for place in {job.folder for job in jobs}:
        for path in place.glob(".*"):
            match = LEFTOVER.fullmatch(path.name)
            if match and place / match[1] in own and path.is_file():
                path.unlink(missing_ok=True)


def is_placeholder(run: RunRecord) -> bool:
    """Whether a record was written at a run's start and never replaced: sweep and trainer died together."""
    return run.status == "failed" and run.error is not None and run.error.type == PLACEHOLDER


def is_result(run: RunRecord | None) -> TypeGuard[RunRecord]:
    """Whether a record is what a run has left: not one that stood while it went on, or that was interrupted."""
    return run is not None and (run.status == "ok" or (run.status == "failed" and not is_placeholder(run)))


def set_aside(path: Path) -> Path:
    """Renames a file that is no record, so that it is neither read as one nor lost; returns its new name."""
    numbered = (path.with_name(f"{path.name}.unreadable{suffix}") for suffix in ["", *range(2, 10_000)])
    target = next(name for name in numbered if not os.path.lexists(name))
    path.rename(target)
    return target


def _has_numbers(run: RunRecord) -> bool:
    """Whether a record of other flags is to be kept: a failed attempt without numbers of its own flags gives way."""
    is_of_others = run.error is not None and run.error.type == "Contradiction"
    return run.status != "failed" or run.throughput is not None or bool(run.batches.seconds and not is_of_others)


class _Others:
    """Finished records in files that belong to no job; each is taken once. Read when first asked."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._own = {job.path for job in jobs}
        self._records: dict[Path, dict[Identity, list[RunRecord]]] = {}

    def take(self, job: Job) -> RunRecord | None:
        if job.folder not in self._records:
            self._records[job.folder] = self._read(job.folder, job.run)  # all jobs are told by the same options
        same = self._records[job.folder].get(job.identity)
        return same.pop(0) if same else None

    def _read(self, folder: Path, like: AnyRun) -> dict[Identity, list[RunRecord]]:
        records: dict[Identity, list[RunRecord]] = {}
        for path in sorted(folder.glob("*.json")):
            if path in self._own:
                continue
            try:
                run = record.read(path)
            except (OSError, record.RecordError):
                continue  # nobody's place; the report names it
            if is_result(run):
                records.setdefault(like.identity_of(run.config), []).append(run)
        return records


def _differences(there: Mapping[str, Any], here: AnyRun) -> str:
    """The flags in which a record's options differ from a run's, as text; empty when they are the same."""
    old, new = dict(here.identity_of(there)), dict(here.identity)
    differing = [name for name in {**new, **old} if old.get(name) != new.get(name)]
    shown = [f"{_said(name, old)} there, {_said(name, new)} here" for name in differing[:3]]
    return "; ".join([*shown, f"{len(differing) - 3} more"] if len(differing) > 3 else shown)


def _said(name: str, options: Mapping[str, Any]) -> str:
    return spell(name, options[name]) if name in options else f"no --{name}"
