"""A folder of run records, and the files in it that are not used.

Whatever reads a folder uses `read`, so that all commands use and refuse the same files.
"""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rnn_scaling.config.naming import HOW_RUN
from rnn_scaling.records import record
from rnn_scaling.records.lock import SWEEP_LOCK, is_held_by_another
from rnn_scaling.records.options import Options
from rnn_scaling.records.own_files import is_result, starts_as
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system import entry
from rnn_scaling.system.processes import alive

UNKNOWN_UNIT = "items"  # the unit of a run that failed before its unit was known
_MAX_FOLDERS = 5  # folders that an error names
IN_PROGRESS = "this run is still in progress"
REPEAT_REMEDY = "Delete this file, and the same sweep repeats the run"


@dataclasses.dataclass(frozen=True)
class RunFile:
    """A run record with the name of its file."""

    name: str
    record: RunRecord


@dataclasses.dataclass(frozen=True)
class Folder:
    """The run records of a folder."""

    runs: tuple[RunFile, ...]  # runs that have ended
    left_out: tuple[str, ...]  # one line per file that is not a good record
    running: tuple[Path, ...] = ()  # files of runs that have not ended

    @property
    def not_used(self) -> tuple[str, ...]:
        """One line per file that is not among the runs."""
        lines = [entry.make_plain(f"{path}: {IN_PROGRESS}") for path in self.running]
        return (*self.left_out, *lines)

    @property
    def empty_reason(self) -> str:
        """Why there are no runs; the message does not name the folder."""
        if self.running:
            names = ", ".join([entry.make_plain(path.name) for path in self.running])
            return f"no run in this folder has ended ({names})"
        readable = " that can be read" if self.left_out else ""
        return f"no run records (*.json) in this folder{readable}"


def read(folder: Path) -> Folder:
    """Return the run records (*.json) of a folder, by file name.

    Subfolders are not read. They contain other sets of runs, such as the two sides of
    an A/B test, which would look like repeats of one configuration.

    Raises:
      OSError: If the folder cannot be read; a glob would find no files.
    """
    names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))
    return read_files({name: folder / name for name in names})


def read_files(paths: Mapping[str, Path]) -> Folder:
    """Return the run records among files.

    Other JSON files of this suite are left out without a message. Copies
    of records are left out, because counting both would narrow every interval.

    Args:
      paths: The files, by their names in the report.
    """
    runs = []
    left_out = []
    running_files = []
    originals = Originals()
    cache: record.Cache = {}
    for name, path in paths.items():
        name = entry.make_plain(name)
        try:
            run = record.read(path, cache=cache)
        except OSError as e:
            left_out.append(f"{path}: {e.strerror or e}")
            continue
        except record.RecordError as e:
            if not is_result(path):
                remedy = f". {REPEAT_REMEDY}" if starts_as(path, rb"run/") else ""
                left_out.append(f"{e}{remedy}")
            continue
        if is_running(run, path.parent):
            running_files.append(path)
        elif original := originals.find_or_add(name, run):
            left_out.append(
                f"{path}: this is a copy of {original}, whose batches took the same "
                f"seconds. {REPEAT_REMEDY}"
            )
        else:
            runs.append(RunFile(name, run))
    records = complete_failed_runs([run.record for run in runs])
    return Folder(
        tuple(RunFile(run.name, record) for run, record in zip(runs, records)),
        tuple(entry.make_plain(line) for line in left_out),
        tuple(running_files),
    )


def is_running(run: RunRecord, folder: Path) -> bool:
    """Return whether a run has not ended yet.

    Args:
      run: The record, which contains the run's process until the run ends.
      folder: The folder of the record. While a sweep of another process holds it, its
        unfinished runs are running, even if their processes are on another machine.
    """
    process = run.error.process if run.error else None
    if process is None or process == alive.identify_this_process():
        return False
    return alive.is_alive(process) or is_held_by_another(folder / SWEEP_LOCK)


def complete_failed_runs(records: Sequence[RunRecord]) -> list[RunRecord]:
    """Add options and units to failed runs of other trainers, whose logs lack them.

    A failed run gets the values that are equal in all good runs with its own options:
    in runs on the same number of devices if there are any, otherwise in all of them.
    """
    foreign_runs = [run for run in records if not run.options.is_ours]
    good_runs = [run for run in foreign_runs if run.status == "ok"]
    failed_ids = {id(run) for run in foreign_runs if run.status != "ok"}
    return [
        _complete_options(run, good_runs) if id(run) in failed_ids else run
        for run in records
    ]


def _complete_options(run: RunRecord, good_runs: Sequence[RunRecord]) -> RunRecord:
    excluded = ("num_devices", *HOW_RUN)
    own_options = {n: v for n, v in run.config.items() if n not in excluded}
    siblings = []
    for good_run in good_runs:
        config = good_run.config
        if all(config.get(name) == value for name, value in own_options.items()):
            siblings.append(good_run)
    if not siblings:
        return run
    count = run.options["num_devices"]
    same_size = [r for r in siblings if r.options["num_devices"] == count]
    siblings = same_size or siblings
    shared_options = dict(siblings[0].config)
    for sibling in siblings[1:]:
        shared_options = {
            n: v for n, v in shared_options.items() if sibling.config.get(n) == v
        }
    units = {sibling.unit for sibling in siblings}
    unit = run.unit
    if unit == UNKNOWN_UNIT and len(units) == 1:
        (unit,) = units
    options = Options({**shared_options, **run.config})
    return dataclasses.replace(run, options=options, unit=unit)


class Originals:
    """The runs that were read, by their times, which are equal only in copies."""

    def __init__(self) -> None:
        self._runs: dict[int, list[tuple[str, RunRecord]]] = {}

    def find_or_add(self, name: str, run: RunRecord) -> str | None:
        """Return the name of the run that this one is a copy of, or None for a new run.

        A new run becomes an original with its `name`. A failed run is never a copy.
        """
        if run.status != "ok":
            return None
        rate = run.throughput.items_per_second if run.throughput else None
        candidates = self._runs.setdefault(hash((run.batches.seconds, rate)), [])
        for original_name, original in candidates:
            if _is_copy(run, original):
                return original_name
        candidates.append((name, run))
        return None


def _is_copy(a: RunRecord, b: RunRecord) -> bool:
    if a.batches.seconds != b.batches.seconds:
        return False
    if a.log_format:
        # Rates in logs have few digits; the measured time of the process has many.
        return a.throughput == b.throughput and a.phases == b.phases
    if a.environment.started and a.environment.started == b.environment.started:
        return True
    # Old records do not contain when they started. Two runs of a single batch may take
    # the same time by chance.
    is_equal = a.batches == b.batches and a.config == b.config
    return len(a.batches.seconds) > 1 and is_equal


def suggest_subfolders(folder: Path) -> str:
    """Return the end of an error about a folder without runs.

    Returns:
      The subfolders with runs, or "".
    """
    names = []
    for path in sorted(path for path in folder.iterdir() if path.is_dir()):
        if any(starts_as(file, rb"run/") for file in path.glob("*.json")):
            names.append(str(path))
    if not names:
        return ""
    folders = ", ".join(names[:_MAX_FOLDERS])
    if len(names) > _MAX_FOLDERS:
        folders += f" and {len(names) - _MAX_FOLDERS} more"
    return f"; {folders} contain some: name one of these"
