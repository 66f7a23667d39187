"""Entries of a history: one small JSON file per commit and machine, never changed.

File names are MEASURED-COMMIT-DIGEST.json (see `sealed_files`). Field names are keys of
these files; rename only with metadata `older`, see decoding.py.
"""

import dataclasses
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.config import scale
from rnn_scaling.records import sealed_files
from rnn_scaling.records.decoding import (
    Magnitude,
    Name,
    Number,
    Part,
    PositiveCount,
    PositiveNumber,
)
from rnn_scaling.records.own_files import is_result, starts_as
from rnn_scaling.system.machine.load import NOTICEABLE_LOAD

SCHEMA = "rnn_scaling.history/1"
# UTC, so that sorting the texts sorts the times.
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
HASH = re.compile(r"[0-9a-f]{7,64}")
_FILE_HASH_DIGITS = 12  # digits of a commit in file names
_PAGE_HASH_DIGITS = 8  # digits of a commit on pages


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine(Part):
    """The machine of an entry. Entries are compared if all fields are equal."""

    name: Name
    cpu: Name | None = None
    cores: int | None = None
    gpus: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Part):
    """The measured commit; None for facts that git did not have."""

    hash: Name
    modified: bool = False
    diff: Name | None = None  # digest of uncommitted changes
    date: Name | None = None
    subject: Name | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Configuration(Part):
    """The runs of one configuration, in the order of time."""

    options: Mapping[str, Any]  # options that differ from the defaults
    # Other facts that distinguish runs with these options.
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unit: Name
    num_devices: PositiveCount
    rates: tuple[
        PositiveNumber, ...
    ]  # one per run, like the loads and values of each metric
    # Share of one device's cores that other processes took; None if it was not
    # recorded. Empty in older files.
    loads: tuple[Magnitude | None, ...] = ()
    metrics: Mapping[str, tuple[Number | None, ...]] = dataclasses.field(
        default_factory=dict
    )

    @property
    def max_load(self) -> float | None:
        """The load of the most disturbed run; None if it is unknown."""
        return max((load for load in self.loads if load is not None), default=None)

    @property
    def is_disturbed(self) -> bool:
        """Whether other processes slowed at least one run; False if it is unknown."""
        return (self.max_load or 0.0) > NOTICEABLE_LOAD

    @property
    def key(self) -> str:
        return json.dumps([self.options, self.facts, self.unit], sort_keys=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Part):
    """The results of one commit on one machine."""

    schema: Name = SCHEMA
    label: Name = ""
    measured: Name | None = None  # when the first run started
    commit: Commit | None = None
    machine: Machine
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    configurations: tuple[Configuration, ...]

    @property
    def name(self) -> str:
        """The short commit, with + if modified, or the time of measurement."""
        if self.commit is None:
            return self.measured or "unknown"
        return f"{self.commit.hash[:_PAGE_HASH_DIGITS]}{'+' if self.commit.modified else ''}"

    @property
    def source(self) -> tuple[str, str | None, str]:
        """Commit, uncommitted changes and machine, which all its runs share."""
        if self.commit is None:
            return "", None, self.machine.name
        return self.commit.hash, self.commit.diff, self.machine.name


@dataclasses.dataclass(frozen=True)
class History:
    """The entries of a folder."""

    entries: tuple[Entry, ...]
    left_out: tuple[str, ...] = ()  # one message per file that is not used
    # The runs of the entries, for `remove_seen_runs`.
    seen: set[Any] = dataclasses.field(default_factory=set, compare=False)


def read(folder: Path) -> History:
    """Return all entries of a folder; a run in several entries counts once.

    Raises:
      OSError: If the folder cannot be read.
    """
    entries = []
    messages = []
    num_foreign = 0
    seen: set[Any] = set()
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".json")):
        path = folder / name
        if not starts_as(path, rb"history/"):
            num_foreign += not is_result(path)
            continue
        try:
            entry = remove_seen_runs(_read_entry(path), seen)
        except (OSError, ValueError) as e:
            messages.append(f"{path}: {getattr(e, 'strerror', None) or e}")
            continue
        if entry:
            entries.append(entry)
    if num_foreign:
        files = "JSON files" if num_foreign > 1 else "JSON file"
        messages.append(
            f"{folder}: {num_foreign} {files} without a valid history entry"
        )
    return History(tuple(entries), tuple(messages), seen)


def remove_seen_runs(entry: Entry, seen: set[Any]) -> Entry | None:
    """Return the entry without runs that were seen before, or None if none remain.

    A run is identified by its rate, because no two runs have rates with the same
    digits.

    Args:
      entry: The entry.
      seen: The runs that were seen; the runs of the entry are added.
    """
    configurations = []
    for configuration in entry.configurations:
        key = (*entry.source, configuration.key)
        runs = [(*key, rate) for rate in configuration.rates]
        new_indices = [i for i, run in enumerate(runs) if run not in seen]
        seen.update(runs)
        if new_indices:
            configurations.append(_select(configuration, new_indices))
    if not configurations:
        return None
    return dataclasses.replace(entry, configurations=tuple(configurations))


def _select(configuration: Configuration, indices: Sequence[int]) -> Configuration:
    """Return the configuration with some of its runs."""
    metrics = {}
    for name, values in configuration.metrics.items():
        metrics[name] = tuple(values[i] for i in indices)
    return dataclasses.replace(
        configuration,
        rates=tuple(configuration.rates[i] for i in indices),
        loads=tuple(configuration.loads[i] for i in indices if configuration.loads),
        metrics=metrics,
    )


def write(entry: Entry, folder: Path) -> Path:
    """Write an entry completely or not at all.

    Raises:
      OSError: If it cannot be written.
    """
    commit = entry.commit.hash[:_FILE_HASH_DIGITS] if entry.commit else "none"
    measured_at = re.sub("[-:]", "", entry.measured or "undated")
    return sealed_files.write(entry, folder, f"{measured_at}-{commit}")


def _read_entry(path: Path) -> Entry:
    """Return the entry in a file.

    Raises:
      OSError: If the file cannot be read.
      ValueError: If it is not an entry.
    """
    entry = sealed_files.read(path, Entry, SCHEMA)
    if not _is_plausible(entry):
        raise ValueError(
            "a time, the hash, a size or a number of runs in it is not valid"
        )
    return entry


def _is_plausible(entry: Entry) -> bool:
    """Check rules that types cannot express."""
    times = [entry.measured]
    if entry.commit:
        times.append(entry.commit.date)
        if not HASH.fullmatch(entry.commit.hash):
            return False
    if not all(_TIME.fullmatch(time) for time in times if time is not None):
        return False
    for configuration in entry.configurations:
        sizes = [configuration.options.get(name, 1) for name in scale.AXES]
        if not all(type(size) is int and size > 0 for size in sizes):
            return False
        num_runs = len(configuration.rates)
        lengths = {len(values) for values in configuration.metrics.values()}
        if configuration.loads:
            lengths.add(len(configuration.loads))
        if not num_runs or not lengths <= {num_runs}:
            return False
    return True
