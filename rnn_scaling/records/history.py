"""Entries of a history: one small JSON file for each commit and machine, written once and never changed.

File names are MEASURED-COMMIT-DIGEST.json, as `sealed_files` makes them.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnn_scaling.config import scale
from rnn_scaling.records import sealed_files
from rnn_scaling.records.decoding import Length, Name, Number, Part, PositiveCount
from rnn_scaling.records.own_files import is_result, starts_as

SCHEMA = "rnn_scaling.history/1"
TIME = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
)  # UTC, so that text order is time order
HASH = re.compile(r"[0-9a-f]{7,64}")
# Characters of a commit in file names, and on pages.
SHORT = 12
SHORTEST = 8


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine(Part):
    """The machine of an entry. Entries are compared if all fields are equal."""

    name: Name
    cpu: Name | None = None
    cores: int | None = None
    gpus: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Part):
    """The measured commit; diff: digest of uncommitted changes; date and subject: None if git did not know them."""

    hash: Name
    modified: bool = False
    diff: Name | None = None
    date: Name | None = None
    subject: Name | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Configuration(Part):
    """Options that differ from the defaults, and the values of each process, in order of time."""

    options: Mapping[str, Any]
    facts: Mapping[str, str] = dataclasses.field(
        default_factory=dict
    )  # that distinguish runs with the same options
    unit: Name
    num_devices: PositiveCount
    rates: tuple[Length, ...]
    metrics: Mapping[str, tuple[Number | None, ...]] = dataclasses.field(
        default_factory=dict
    )

    @property
    def key(self) -> str:
        return json.dumps([self.options, self.facts, self.unit], sort_keys=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Part):
    """The results of one commit on one machine; `measured`: when the first run started."""

    schema: Name = SCHEMA
    label: Name = ""
    measured: Name | None = None
    commit: Commit | None = None
    machine: Machine
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    configurations: tuple[Configuration, ...]

    @property
    def name(self) -> str:
        """The short commit, with + for uncommitted changes; without a commit, the time of measurement."""
        if self.commit is None:
            return self.measured or "unknown"
        return f"{self.commit.hash[:SHORTEST]}{'+' if self.commit.modified else ''}"

    @property
    def source(self) -> tuple[str, str | None, str]:
        """What its runs share: commit, uncommitted changes, machine."""
        return (
            (self.commit.hash, self.commit.diff, self.machine.name)
            if self.commit
            else ("", None, self.machine.name)
        )


@dataclasses.dataclass(frozen=True)
class History:
    """The entries of a folder, and a message for each file that is left out."""

    entries: tuple[Entry, ...]
    left_out: tuple[str, ...] = ()
    seen: set[Any] = dataclasses.field(
        default_factory=set, compare=False
    )  # the runs of its entries, for `unseen`


def read(folder: Path) -> History:
    """All entries of a folder; a run in several entries counts once. Raises OSError if the folder cannot be read."""
    entries: list[Entry | None] = []
    left_out = []
    num_others = 0
    seen: set[Any] = set()
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".json")):
        path = folder / name
        if not starts_as(path, rb"history/"):
            num_others += not is_result(path)
            continue
        try:
            entries.append(unseen(_read_one(path), seen))
        except (OSError, ValueError) as e:
            left_out.append(f"{path}: {getattr(e, 'strerror', None) or e}")
    if num_others:
        left_out.append(
            f"{folder}: {num_others} JSON file{'s' if num_others > 1 else ''} without a history entry"
        )
    return History(tuple(filter(None, entries)), tuple(left_out), seen)


def unseen(new: Entry, seen: set[Any]) -> Entry | None:
    """The entry without runs that are in `seen`, or None if nothing is left. Adds its runs to `seen`.

    A run is identified by its rate, because no two processes agree in all digits.
    """
    kept = []
    for part in new.configurations:
        runs = [(*new.source, part.key, rate) for rate in part.rates]
        places = [i for i, run in enumerate(runs) if run not in seen]
        seen.update(runs)
        metrics = {
            name: tuple(values[i] for i in places)
            for name, values in part.metrics.items()
        }
        if places:
            kept.append(
                dataclasses.replace(
                    part, rates=tuple(part.rates[i] for i in places), metrics=metrics
                )
            )
    return dataclasses.replace(new, configurations=tuple(kept)) if kept else None


def write(new: Entry, folder: Path) -> Path:
    """Writes an entry completely or not at all. Raises OSError."""
    commit = new.commit.hash[:SHORT] if new.commit else "none"
    return sealed_files.write(
        new, folder, f"{re.sub('[-:]', '', new.measured or 'undated')}-{commit}"
    )


def _read_one(path: Path) -> Entry:
    """Raises OSError, or a ValueError with one line that says why the file is not an entry."""
    found = sealed_files.read(path, Entry, SCHEMA)
    if not _is_plausible(found):
        raise ValueError("invalid times, hash, sizes or numbers of processes")
    return found


def _is_plausible(found: Entry) -> bool:
    """Checks that types cannot express."""
    commit = found.commit
    parts = found.configurations
    times = [found.measured, commit.date if commit else None]
    sizes = [part.options.get(name, 1) for part in parts for name in scale.AXES]
    counts = [{len(part.rates), *map(len, part.metrics.values())} for part in parts]
    return (
        all(TIME.fullmatch(time) for time in times if time is not None)
        and (commit is None or HASH.fullmatch(commit.hash) is not None)
        and all(type(size) is int and size > 0 for size in sizes)
        and all(len(numbers) == 1 and numbers != {0} for numbers in counts)
    )
