"""A folder of run records: what is good in it, what is left out and why, and which files in it are the report's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnn_scaling.records import record
from rnn_scaling.records.own_files import is_result, starts_as
from rnn_scaling.records.record import RunRecord


@dataclasses.dataclass(frozen=True)
class RunFile:
    """One run record and the name of its file."""

    name: str
    record: RunRecord


@dataclasses.dataclass(frozen=True)
class Folder:
    """What a folder holds. left_out: a line for each file that is no good record, which names it."""

    runs: tuple[RunFile, ...]
    left_out: tuple[str, ...]


def read(folder: Path) -> Folder:
    """Every run record (*.json) of the folder itself, by file name.

    Subfolders are other sets of runs (the two sides of an A/B, before and after): read together they would look like
    repeats of one configuration. JSON of this suite's commands is passed over, and so is a copy of a record: two
    processes never took the same times to the last digit, so counting both would narrow every interval.

    Raises:
      OSError: if the folder cannot be read.
    """
    # Not by glob, to which a folder that is not there, or may not be read, is an empty one.
    return read_files({path.name: path for path in sorted(folder.iterdir()) if path.name.endswith(".json")})


def read_files(paths: Mapping[str, Path]) -> Folder:
    """The run records among these files, each under the name that the report gives it; copies are passed over."""
    runs, left_out = [], []
    kept: dict[str, Any] = {}  # what many records have in common: thousands of them then fit into memory
    seen: dict[int, RunFile] = {}
    for name, path in paths.items():
        try:
            run = record.read(path, kept=kept)
        except OSError as e:
            left_out.append(f"{path}: {e.strerror or e}")
            continue
        except record.RecordError as e:
            if not is_result(path):
                left_out.append(str(e))
            continue
        file = RunFile(name, run)
        if run.status == "ok" and len(run.batches.seconds) > 1:
            first = seen.setdefault(_times(run), file)
            if first is not file and _same_run(first.record, run):
                left_out.append(f"{path}: a copy of {first.name}, whose batches are the same to the last digit")
                continue
        runs.append(file)
    return Folder(tuple(runs), tuple(left_out))


def subfolders_with_records(folder: Path) -> list[Path]:
    """Folders one level down that hold run records."""
    inside = (path for path in folder.iterdir() if path.is_dir())
    return sorted(path for path in inside if any(starts_as(file, rb"run/") for file in path.glob("*.json")))


def _times(run: RunRecord) -> int:
    return hash((repr(run.config.get("num_devices")), run.batches.seconds))


def _same_run(a: RunRecord, b: RunRecord) -> bool:
    return a.batches == b.batches and a.config == b.config
