"""The entries of a history: one small JSON file for each commit and machine, written once and never changed.

The name of a file is MEASURED-COMMIT-DIGEST.json. It follows from the content, so that two writers never collide,
merges have no conflicts, and an edited entry is noticed.
"""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rnn_scaling import entry
from rnn_scaling.files import input_files
from rnn_scaling.files.output_files import write_text
from rnn_scaling.records.decoding import Length, Name, Number, Part, PositiveCount, decode, encode
from rnn_scaling.records.own_files import is_result, starts_as
from rnn_scaling.settings import scale

SCHEMA = "rnn_scaling.history/1"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")  # in UTC: as texts they are in their order
HASH = re.compile(r"[0-9a-f]{7,64}")
SHORT, SHORTEST = 12, 8  # letters of a commit or a digest in the name of a file, and on a page


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Machine(Part):
    """On which it was measured; entries are compared if all of this is equal."""

    name: Name
    cpu: Name | None = None
    cores: int | None = None
    gpus: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Commit(Part):
    """What was measured; diff: a digest of what was changed since; date and subject are None where git did not tell."""

    hash: Name
    modified: bool = False
    diff: Name | None = None
    date: Name | None = None
    subject: Name | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Configuration(Part):
    """One configuration: options that differ from the defaults, and numbers of each process in their order of time."""

    options: Mapping[str, Any]
    facts: Mapping[str, str] = dataclasses.field(default_factory=dict)  # that tell runs of the same options apart
    unit: Name
    num_devices: PositiveCount
    rates: tuple[Length, ...]
    metrics: Mapping[str, tuple[Number | None, ...]] = dataclasses.field(default_factory=dict)

    @property
    def key(self) -> str:
        return json.dumps([self.options, self.facts, self.unit], sort_keys=True)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Part):
    """What was measured of one commit on one machine; `measured`: when its first run started."""

    schema: Name = SCHEMA
    label: Name = ""
    measured: Name | None = None
    commit: Commit | None = None
    machine: Machine
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    configurations: tuple[Configuration, ...]

    @property
    def name(self) -> str:
        """The commit in short, with a + if it was changed; the time of measuring where no commit is known."""
        if self.commit is None:
            return self.measured or "unknown"
        return f"{self.commit.hash[:SHORTEST]}{'+' if self.commit.modified else ''}"

    @property
    def source(self) -> tuple[str, str | None, str]:
        """What its runs have in common: commit, changes since, machine."""
        return (self.commit.hash, self.commit.diff, self.machine.name) if self.commit else ("", None, self.machine.name)


@dataclasses.dataclass(frozen=True)
class History:
    """The entries of a folder, and a line for each file that is left out."""

    entries: tuple[Entry, ...]
    left_out: tuple[str, ...] = ()
    seen: set[Any] = dataclasses.field(default_factory=set, compare=False)  # the runs of its entries, for `unseen`


def read(folder: Path) -> History:
    """Every entry of a folder; a run that several entries hold counts once. Raises OSError if it cannot be read."""
    entries: list[Entry | None] = []
    left_out, others = [], 0
    seen: set[Any] = set()
    for name in sorted(name for name in os.listdir(folder) if name.endswith(".json")):
        path = folder / name
        if not starts_as(path, rb"history/"):
            others += not is_result(path)
            continue
        try:
            entries.append(unseen(_read_one(path), seen))
        except (OSError, ValueError) as e:
            left_out.append(f"{path}: {getattr(e, 'strerror', None) or e}")
    if others:
        left_out.append(f"{folder}: {others} JSON file{'s' if others > 1 else ''} of another kind")
    return History(tuple(filter(None, entries)), tuple(left_out), seen)


def unseen(new: Entry, seen: set[Any]) -> Entry | None:
    """The entry without runs that are in `seen`, to which it adds its own; None if there are none.

    A run is known by its rate: no two processes have the same to the last digit.
    """
    kept = []
    for part in new.configurations:
        runs = [(*new.source, part.key, rate) for rate in part.rates]
        places = [i for i, run in enumerate(runs) if run not in seen]
        seen.update(runs)
        metrics = {name: tuple(values[i] for i in places) for name, values in part.metrics.items()}
        kept += (
            [dataclasses.replace(part, rates=tuple(part.rates[i] for i in places), metrics=metrics)] if places else []
        )
    return dataclasses.replace(new, configurations=tuple(kept)) if kept else None


def write(new: Entry, folder: Path) -> Path:
    """Writes an entry whole or not at all; raises OSError."""
    fields = encode(new)
    commit = new.commit.hash[:SHORT] if new.commit else "none"
    path = folder / f"{re.sub('[-:]', '', new.measured or 'undated')}-{commit}-{_digest(fields)}.json"
    write_text(json.dumps(fields, separators=(",", ":"), ensure_ascii=False) + "\n", path)
    return path


def _digest(fields: Mapping[str, Any]) -> str:
    """Of the content, however it is spelled: git may change ends of lines."""
    return hashlib.sha256(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:SHORT]


def _read_one(path: Path) -> Entry:
    """Raises OSError, or a ValueError that says in one line why the file is no entry."""
    try:
        fields = input_files.parse_json(input_files.read_bytes(path).decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError("not UTF-8 text; expected an entry of a history") from None
    if not isinstance(fields, dict) or (schema := fields.get("schema")) != SCHEMA:
        raise ValueError(f"expected schema {SCHEMA}, got {entry.plain(schema)}; a newer version of this suite reads it")
    if not path.stem.endswith(f"-{_digest(fields)}"):
        raise ValueError("edited after it was written, or renamed; `git log` finds the original")
    faults: list[str] = []
    found: Entry | None = decode(Entry, fields, "", faults)
    if found is None or not _is_plausible(found):
        raise ValueError(". ".join(faults[:3]) or "its times, hash, sizes or numbers of processes are impossible")
    return found


def _is_plausible(found: Entry) -> bool:
    """What types do not say."""
    commit, parts = found.commit, found.configurations
    times = [found.measured, commit.date if commit else None]
    sizes = [part.options.get(name, 1) for part in parts for name in scale.AXES]
    counts = [{len(part.rates), *map(len, part.metrics.values())} for part in parts]
    return (
        all(TIME.fullmatch(time) for time in times if time is not None)
        and (commit is None or HASH.fullmatch(commit.hash) is not None)
        and all(type(size) is int and size > 0 for size in sizes)
        and all(len(numbers) == 1 and numbers != {0} for numbers in counts)
    )
