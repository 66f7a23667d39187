"""A folder of run records: what is good in it, what is left out and why, and which files in it are the report's own."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config.naming import HOW_RUN
from rnn_scaling.records import record
from rnn_scaling.records.lock import SWEEP_LOCK, is_held_by_another
from rnn_scaling.records.options import Options
from rnn_scaling.records.own_files import is_result, starts_as
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system import entry
from rnn_scaling.system.processes import alive

NOT_TOLD = "items"  # the unit of a run that did not get so far as to tell it
GROWING = "num_devices"  # in which the runs of a configuration may differ
MOST_NAMED = 5  # folders that an error names
RUNNING = "this run is still in progress"
ANEW = "Delete it, and the same sweep makes the run again"


@dataclasses.dataclass(frozen=True)
class RunFile:
    name: str
    record: RunRecord


@dataclasses.dataclass(frozen=True)
class Folder:
    """The run records of a folder."""

    runs: tuple[RunFile, ...]  # that have ended
    left_out: tuple[str, ...]  # one line for each file that is not a good record
    running: tuple[Path, ...] = ()  # files of runs that have not ended

    @property
    def not_used(self) -> tuple[str, ...]:
        """One line for each file that is not among the runs."""
        lines = [entry.plain(f"{path}: {RUNNING}") for path in self.running]
        return (*self.left_out, *lines)

    @property
    def nothing(self) -> str:
        """The reason why a folder without runs has none, without the folder."""
        if self.running:
            names = ", ".join([entry.plain(path.name) for path in self.running])
            return f"no run in this folder has ended ({names})"
        readable = " that can be read" if self.left_out else ""
        return f"no run records (*.json) in this folder{readable}"


def read(folder: Path) -> Folder:
    """Every run record (*.json) of the folder itself, by file name; raises OSError if the folder cannot be read.

    Subfolders are other sets of runs (the two sides of an A/B, before and after): read together they would look like
    repeats of one configuration. JSON of this suite's commands is passed over, and so is a copy of a record: counting
    both would narrow every interval.
    """
    # Not by glob, to which a folder that is not there, or may not be read, is an empty one.
    return read_files(
        {
            name: folder / name
            for name in sorted(os.listdir(folder))
            if name.endswith(".json")
        }
    )


def read_files(paths: Mapping[str, Path]) -> Folder:
    """The run records among these files, each under the name that the report gives it; copies are passed over."""
    runs = []
    left_out = []
    running = []
    originals = Originals()
    kept: dict[
        Any, Any
    ] = {}  # what many records have in common: thousands of them then fit into memory
    for name, path in paths.items():
        run = _read_one(path, kept)
        if isinstance(run, str):
            left_out.append(entry.plain(run))
        elif run is not None and is_running(run, path.parent):
            running.append(path)
        elif run is not None and (
            original := originals.of(name := entry.plain(name), run)
        ):
            left_out.append(
                entry.plain(
                    f"{path}: a copy of {original}, whose batches took the same seconds. {ANEW}"
                )
            )
        elif run is not None:
            runs.append(RunFile(name, run))
    known = completed([run.record for run in runs])
    return Folder(
        tuple(RunFile(run.name, record) for run, record in zip(runs, known)),
        tuple(left_out),
        tuple(running),
    )


def is_running(run: RunRecord, place: Path) -> bool:
    """Return whether a run has not ended yet.

    Args:
      run: Its record, which contains its process until the run ends.
      place: The folder of the record. While a sweep of another process holds it, its
        unfinished runs are running, even if their processes are on another machine.
    """
    process = run.error.process if run.error else None
    if process is None or process == alive.this_process():
        return False
    return alive.is_alive(process) or is_held_by_another(place / SWEEP_LOCK)


def _read_one(path: Path, kept: dict[Any, Any]) -> RunRecord | str | None:
    """The record of a file, or why it has none; None: the file is another thing of this suite's."""
    try:
        return record.read(path, kept=kept)
    except OSError as e:
        return f"{path}: {e.strerror or e}"
    except record.RecordError as e:
        if is_result(path):
            return None
        remedy = f". {ANEW}" if starts_as(path, rb"run/") else ""
        return f"{e}{remedy}"


def completed(records: Sequence[RunRecord]) -> list[RunRecord]:
    """The records in their order; failed runs of other trainers get the options and the unit of good runs.

    A failed run left no log with its batch size. It gets the values that are equal in all good runs with its own
    options: runs on the same number of devices if there are any, otherwise all of them.
    """
    theirs = [run for run in records if not run.options.is_ours]
    good = [run for run in theirs if run.status == "ok"]
    failed = {id(run) for run in theirs if run.status != "ok"}
    return [_completed(run, good) if id(run) in failed else run for run in records]


def _completed(run: RunRecord, good: Sequence[RunRecord]) -> RunRecord:
    fixed = [item for item in run.config.items() if item[0] not in (GROWING, *HOW_RUN)]
    alike = [
        other
        for other in good
        if all(other.config.get(name) == value for name, value in fixed)
    ]
    count = run.options[GROWING]
    siblings = [r for r in alike if r.options[GROWING] == count] or alike
    if not siblings:
        return run
    shared = dict(siblings[0].config)
    for other in siblings[1:]:
        shared = {n: v for n, v in shared.items() if other.config.get(n) == v}
    units = {record.unit for record in siblings}
    unit = units.pop() if len(units) == 1 and run.unit == NOT_TOLD else run.unit
    options = Options({**shared, **run.config})
    return dataclasses.replace(run, options=options, unit=unit)


class Originals:
    """Runs that were seen, by their times: no two processes take the same to the last digit."""

    def __init__(self) -> None:
        self._seen: dict[int, list[tuple[str, RunRecord]]] = {}

    def of(self, name: str, run: RunRecord) -> str | None:
        """The run that this one is a copy of, edited or not; None: it is an original."""
        if run.status != "ok":
            return None
        rate = run.throughput.items_per_second if run.throughput else None
        same_times = self._seen.setdefault(hash((run.batches.seconds, rate)), [])
        for original, earlier_run in same_times:
            if _is_copy(run, earlier_run):
                return original
        same_times.append((name, run))
        return None


def _is_copy(a: RunRecord, b: RunRecord) -> bool:
    if a.batches.seconds != b.batches.seconds:
        return False
    if (
        a.log_format
    ):  # logs print few digits, or rates alone; how long a process took is measured
        return a.throughput == b.throughput and a.phases == b.phases
    if a.environment.started and a.environment.started == b.environment.started:
        return True
    # Records of old do not say when they started; one batch may take the same time by chance, and a log has none.
    return (
        len(a.batches.seconds) > 1 and a.batches == b.batches and a.config == b.config
    )


def elsewhere(folder: Path) -> str:
    """The end of an error about a folder without runs: subfolders that have some; "" if there are none."""
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    inside = [
        path
        for path in folders
        if any(starts_as(file, rb"run/") for file in path.glob("*.json"))
    ]
    more = f" and {len(inside) - MOST_NAMED} more" if len(inside) > MOST_NAMED else ""
    return (
        f"; there are some in {', '.join(map(str, inside[:MOST_NAMED]))}{more}: name one"
        if inside
        else ""
    )
