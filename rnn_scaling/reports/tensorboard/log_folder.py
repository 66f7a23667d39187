"""The runs in and below a log folder, named as TensorBoard names them, and their report as one page.

The names that a browser asks for are looked up among the runs that were found; no path is ever made from them.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shlex
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from rnn_scaling import entry
from rnn_scaling.files import input_files
from rnn_scaling.files.output_files import RECORD_IN_LOG_DIR
from rnn_scaling.records import folder, record
from rnn_scaling.records.record import SCHEMA
from rnn_scaling.reports.page import document
from rnn_scaling.reports.summarising import summarise
from rnn_scaling.reports.tensorboard import run_text

HERE = "."  # the run in the log folder itself
NOT_RUNS = ("plugins",)  # traces; a record is never below
HEAD = 200  # bytes at the start of a record within which its schema stands
MOST_PAGES = 8  # kept in memory; one is 0.1 to 1 MB
_PATHS_SHOWN = 5


class UnknownRunError(LookupError):
    """No run of this name or letters; the message is a line for a person."""


class LogFolder:
    """Reads at every call what has changed on disk since the last."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._lock = threading.Lock()  # TensorBoard asks from many threads, and matplotlib's settings are global
        self._pages: dict[str, bytes] = {}

    def has_runs(self) -> bool:
        """True if there is any record."""
        return bool(self.records())

    def records(self) -> dict[str, list[Path]]:
        """Run -> its records: the path of their folder below the root ("." for the root), by name.

        Links are not followed, so that nothing outside of the root is served.
        """
        files_of_runs = {}
        for path, subfolders, files in os.walk(self._root):
            subfolders[:] = sorted(name for name in subfolders if name not in NOT_RUNS and not name.startswith("."))
            here = [Path(path, name) for name in sorted(files) if name.endswith(".json")]
            if here := [file for file in here if _is_record(file)]:
                files_of_runs[Path(path).relative_to(self._root).as_posix()] = here
        return files_of_runs

    def names(self) -> list[str]:
        """What can be reported: every run, and every folder with several runs below it."""
        runs = list(self.records())
        parents = [parent.as_posix() for run in runs for parent in Path(run).parents]
        groups = {parent for parent in parents if parents.count(parent) > 1 and parent != HERE}
        return sorted({*runs, *groups})

    def report(self, name: str = "") -> bytes:
        """The page of a run, of all runs below a folder, or of every run when no name is given.

        Raises:
          UnknownRunError: if there is none.
        """
        runs = self.records()
        chosen = {run: files for run, files in runs.items() if not name or run == name or run.startswith(f"{name}/")}
        if not chosen:
            shown = ", ".join(list(runs)[:_PATHS_SHOWN]) or "none"
            raise UnknownRunError(f"run={name}: no run record there; runs with a record: {shown}")
        return self._page(name, chosen)

    def name_of(self, letters: str) -> str:
        """The run that the link of a text page means.

        Raises:
          UnknownRunError: if no record has these letters.
        """
        for run, files in self.records().items():
            if any(_run_id(file, *_version(file)) == letters for file in files):
                return run
        raise UnknownRunError(f"id={letters}: no record of this run below the log folder; is {RECORD_IN_LOG_DIR} gone?")

    def _page(self, name: str, chosen: Mapping[str, Sequence[Path]]) -> bytes:
        files = [file for each in chosen.values() for file in each]
        versions = json.dumps([name, *((str(file), *_version(file)) for file in files)])
        key = hashlib.sha256(versions.encode()).hexdigest()
        with self._lock:
            if key not in self._pages:
                self._pages[key] = self._render(name, files, alone=list(chosen) == [name or HERE])
                for old in list(self._pages)[:-MOST_PAGES]:
                    del self._pages[old]
            return self._pages[key]

    def _render(self, name: str, files: Sequence[Path], alone: bool) -> bytes:
        records = folder.read_files({file.relative_to(self._root).as_posix(): file for file in files})
        where = self._root / name if name else self._root
        # The command report reads one folder, so it has no page of several.
        made_by = "" if alone else f"{entry.program()} tensorboard --logdir={shlex.quote(str(where))}"
        return document.render(summarise(records, str(where)), made_by)


def _is_record(path: Path) -> bool:
    """Whether a JSON file is a run record, or should be one; other tools leave JSON in a log folder, too."""
    if path.is_symlink() or not path.is_file():
        return False
    if path.name == RECORD_IN_LOG_DIR:
        return True  # also half of one: the page says what is wrong with it
    try:
        with input_files.open_regular(path, input_files.UNLIMITED) as file:
            return SCHEMA.encode() in file.read(HEAD)
    except OSError:
        return False


def _version(path: Path) -> tuple[int, int]:
    """What changes when a file is written anew."""
    try:
        status = path.stat()
    except OSError:  # deleted just now
        return 0, 0
    return status.st_mtime_ns, status.st_size


@functools.lru_cache(maxsize=4096)
def _run_id(path: Path, _modified: int, _size: int) -> str | None:
    try:
        return run_text.run_id(record.read(path))
    except (OSError, record.RecordError):
        return None
