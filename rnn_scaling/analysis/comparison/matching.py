"""Two sets of runs -> what was changed between them, and the configurations that both hold.

An option that has one value in all runs before and another in all runs after is the change; runs whose other options
are the same are the same configuration.
"""

import dataclasses
import functools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis import disturbance, rows
from rnn_scaling.analysis.facts import separation
from rnn_scaling.analysis.facts.table import OF_MACHINES
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.keys import UNIT, Key, drop_options, key_value
from rnn_scaling.analysis.rows import DECODER, Row
from rnn_scaling.config import registry, scale
from rnn_scaling.config.conditions import CONDITIONS
from rnn_scaling.config.naming import (
    NAMED,
    TRAINER,
    distinguishing,
    network,
    told_apart,
    without_network,
)
from rnn_scaling.config.registry import WORKLOADS
from rnn_scaling.records import folder, record
from rnn_scaling.records.folder import RunFile
from rnn_scaling.records.options import ASSUMED, DEFAULTS, UNKNOWN
from rnn_scaling.records.record import RunRecord

PER_DEVICE = "per_device"
ALL_DEVICES = "all_devices"
REPEAT = re.compile(r"\.r(\d+)\.json$")
_WORKLOADS_OF = registry.readers(WORKLOADS)


class InputError(ValueError):
    """A path holds nothing that can be compared."""


@dataclasses.dataclass(frozen=True, eq=False)
class ComparedRuns:
    """The runs before, or after: `left_out` has a line for each file that is not a good record."""

    path: Path
    runs: tuple[RunFile, ...]
    left_out: tuple[str, ...]

    @functools.cached_property
    def names(self) -> dict[int, str]:
        """File names, by the identity of the record."""
        return {id(file.record): file.name for file in self.runs}

    @property
    def records(self) -> list[RunRecord]:
        return [file.record for file in self.runs]

    @property
    def good_runs(self) -> list[RunRecord]:
        """The runs that measured something."""
        return [run for run in self.records if run.status == "ok" and run.throughput]


@dataclasses.dataclass(frozen=True)
class Change:
    """An option that differs between all runs before and all runs after.

    A value is UNKNOWN if the runs do not use the option, or do not record it.
    """

    name: str
    before: Any
    after: Any
    is_recorded: bool = True  # whether all runs record every option


@dataclasses.dataclass(frozen=True, eq=False)
class Configuration:
    """What is compared: the same options on both sides except the change.

    Attributes:
      label: Its name.
      before: Its row before; None if there is none.
      after: Its row after; None if there is none.
      names: File names, by the identity of the record.
      scopes: When machines are compared: PER_DEVICE for the least devices that both
        have, ALL_DEVICES for all devices of each.
      series: When machines are compared: the label without the devices.
      disturbed: Names of the disturbed files, before and after, that do not count.
    """

    label: str
    before: Row | None
    after: Row | None
    names: Mapping[int, str]
    scopes: tuple[str, ...] = ()
    series: str = ""
    disturbed: tuple[tuple[str, ...], ...] = ((), ())

    @property
    def sides(self) -> list[Row]:
        """The sides that there are, the one before first."""
        return [side for side in (self.before, self.after) if side is not None]

    def repeat(self, run: RunRecord) -> int:
        """Return which repeat a run is by its file: NAME.json is 1, NAME.r2.json is 2."""
        number = REPEAT.search(self.names[id(run)])
        return int(number[1]) if number else 1


Matched = tuple[tuple[Change, ...], tuple[Configuration, ...]]


def read(path: Path) -> ComparedRuns:
    """Reads a folder of records, or one record; raises InputError if there is none."""
    try:
        if not path.is_dir():
            run = record.read(path)
            if folder.is_running(run, path.parent):
                raise InputError(
                    f"{path}: {folder.RUNNING}; compare it when it has ended"
                )
            return ComparedRuns(path, (RunFile(path.name, run),), ())
        content = folder.read(path)
    except OSError as e:
        raise InputError(f"{path}: {e.strerror or e}") from None
    except record.RecordError as e:
        raise InputError(str(e)) from None
    if not content.runs:
        why = f" ({content.left_out[0]})" if content.left_out else ""
        raise InputError(f"{path}: {content.nothing}{why}{folder.elsewhere(path)}")
    return ComparedRuns(path, content.runs, content.not_used)


def match(before: ComparedRuns, after: ComparedRuns) -> Matched:
    """Return the changes, and the configurations that are the same except for them."""
    changed, sides = _rows_of(before, after)
    by_key = [{drop_options(row.key, changed): row for row in side} for side in sides]
    keys = list(dict.fromkeys([*by_key[0], *by_key[1]]))
    names = {**before.names, **after.names}
    configurations = [
        Configuration(label, by_key[0].get(key), by_key[1].get(key), names)
        for key, label in zip(keys, labels_of(keys, changed))
    ]
    return _changes(sides, changed), tuple(configurations)


def match_machines(before: ComparedRuns, after: ComparedRuns) -> Matched:
    """The series that both machines ran, as two configurations: the same number of devices, and the most of each."""
    changed, sides = _rows_of(before, after)
    series: dict[Key, tuple[list[Row], list[Row]]] = {}
    for number, (side, side_rows) in enumerate(zip((before, after), sides)):
        for what in OF_MACHINES:
            values = {dict(row.facts).get(what) for row in side_rows} - {None}
            if len(values) > 1:
                raise InputError(
                    f"{side.path} holds runs of several machines, by {what}; use one folder per machine"
                )
        for row in side_rows:
            varied = {*changed, scale.axis(row.options), *OF_MACHINES}
            series.setdefault(drop_options(row.key, varied), ([], []))[number].append(
                row
            )
    varied = {*changed, *scale.AXES}
    labels = labels_of([drop_options(key, varied) for key in series], varied)
    names = {**before.names, **after.names}
    configurations: list[Configuration] = []
    for label, pair in zip(labels, series.values()):
        configurations.extend(_on_machines(label, *pair, names))
    changes = _changes(sides, changed - {"device", *scale.AXES})
    return changes, tuple(configurations)


def _rows_of(
    before: ComparedRuns, after: ComparedRuns
) -> tuple[set[str], list[list[Row]]]:
    """Return the changed options, and the rows of each side, those of one work together."""
    records = [before.records, after.records]
    keys = [[dict(key) for key in set(rows.build_keys(side))] for side in records]
    changed = set()
    for name in {name for side in keys for key in side for name in key}:
        default = DEFAULTS.get(name, UNKNOWN)
        values = [{key.get(name, default) for key in side} for side in keys]
        if len(values[0]) == len(values[1]) == 1 and values[0] != values[1]:
            changed.add(name)
    ordered = []
    for side in rows.build_compared_rows(records, changed):
        works = group_by(
            side, [drop_options(row.key, separation.VARIED) for row in side]
        )
        ordered.append([row for members in works.values() for row in members])
    return changed, ordered


def _changes(
    sides: Sequence[Sequence[Row]], changed: Collection[str]
) -> tuple[Change, ...]:
    changes = []
    is_recorded = all(row.is_ours for side in sides for row in side)
    for name in sorted(changed):
        values = [{row.options.get(name) for row in side} for side in sides]
        # What only follows, because the other mode does not read an option, is no change.
        if values[0].isdisjoint(values[1]):
            before, after = (
                key_value(side[0].key, side[0].options, name) for side in sides
            )
            changes.append(Change(name, before, after, is_recorded))
    return tuple(changes)


def _on_machines(
    label: str, before: Sequence[Row], after: Sequence[Row], names: Mapping[int, str]
) -> Iterator[Configuration]:
    good_before = {row.num_devices: row for row in before if row.good_runs}
    good_after = {row.num_devices: row for row in after if row.good_runs}
    if not good_before or not good_after:
        yield Configuration(
            label, next(iter(before), None), next(iter(after), None), names
        )
        return
    scopes: dict[tuple[int, int], list[str]] = {}
    if both := good_before.keys() & good_after.keys():
        scopes[min(both), min(both)] = [PER_DEVICE]
    scopes.setdefault((max(good_before), max(good_after)), []).append(ALL_DEVICES)
    for (a, b), scopes_of_pair in scopes.items():
        devices = f"{a} and {b} devices" if a != b else scale.in_words(1, a)
        yield Configuration(
            f"{label}, {devices}",
            good_before[a],
            good_after[b],
            names,
            tuple(scopes_of_pair),
            label,
        )


def without_disturbed(
    configuration: Configuration, paired: bool, is_relative: bool
) -> Configuration:
    """Return the configuration without the good runs that do not count.

    `disturbance.select_quiet` decides, for each side or for pairs of runs.

    Args:
      configuration: The configuration; it stays as it is if a side is missing.
      paired: Whether the runs of the same repeat number are a pair, which is disturbed
        if one of its runs is.
      is_relative: Whether the runs on one device are part of the result.
    """
    if len(configuration.sides) < 2:
        return configuration
    left_out = _disturbed_repeats(configuration, is_relative) if paired else set()
    reduced = []
    names = []
    for side in configuration.sides:
        rows_of_side = [row for row in (side, side.one_device) if row is not None]
        gone: list[list[RunRecord]] = []
        for row in rows_of_side:
            if paired:
                runs = [r for r in row.records if configuration.repeat(r) in left_out]
                gone.append(runs)
            else:
                gone.append(list(row.disturbed_runs))
        shown = [run for runs in gone[: 1 + is_relative] for run in runs]
        disturbed = filter(disturbance.is_disturbed, shown)
        names.append(tuple([configuration.names[id(run)] for run in disturbed]))
        reduced.append(_without(side, {id(run) for runs in gone for run in runs}))
    return dataclasses.replace(
        configuration, before=reduced[0], after=reduced[1], disturbed=tuple(names)
    )


def _disturbed_repeats(configuration: Configuration, is_relative: bool) -> set[int]:
    """Return the repeat numbers of the pairs that do not count."""
    good = [side.good_runs for side in configuration.sides]
    runs = [run for side in good for run in side]
    for side in configuration.sides if is_relative else ():
        runs += side.one_device.good_runs if side.one_device else ()
    disturbed = set(map(configuration.repeat, filter(disturbance.is_disturbed, runs)))
    before, after = (set(map(configuration.repeat, side)) for side in good)
    pairs = sorted(before & after)
    return set(pairs).difference(
        disturbance.select_quiet(pairs, disturbed.__contains__)
    )


def _without(row: Row, gone: Collection[int]) -> Row:
    """Return the row, and its baseline, without some runs, by their identity."""
    if not gone:
        return row
    kept = tuple([run for run in row.records if id(run) not in gone])
    base = row.one_device and _without(row.one_device, gone)
    if base and not base.records:
        base = None
    return dataclasses.replace(row, records=kept, one_device=base)


def two_sittings(before: ComparedRuns, after: ComparedRuns) -> bool:
    """Whether all good runs of one side started before those of the other; False where the records do not tell."""
    starts = [
        [run.environment.started or "" for run in side.good_runs]
        for side in (before, after)
    ]
    if not all(starts) or "" in starts[0] + starts[1]:
        return False
    return max(starts[0]) < min(starts[1]) or max(starts[1]) < min(starts[0])


def count_shared_runs(before: Row, after: Row) -> int:
    """Return the number of runs that are on both sides.

    Equal step times mean the same process.
    """
    seconds = [set(map(_own_seconds, row.good_runs)) for row in (before, after)]
    return sum(len(set(times)) > 1 for times in seconds[0] & seconds[1])


def _own_seconds(run: RunRecord) -> tuple[float, ...]:
    """Of the measured batches; of a run that was read from a log, which prints few digits, those of its process."""
    if run.log_format is None:
        return run.batches.seconds[run.batches.warmup :]
    if run.throughput and run.phases.total:
        return run.throughput.items_per_second, run.phases.total
    return ()


def labels_of(keys: Sequence[Key], changed: Collection[str] = ()) -> list[str]:
    """Return a name for each key: encoder, update mode, devices, and what else differs.

    Args:
      keys: The keys.
      changed: Options that the keys do not contain.
    """
    ours = {name: v for name, v in DEFAULTS.items() if name not in changed}
    theirs = {name: v for name, v in ours.items() if name not in ASSUMED}
    settings = [
        {**(theirs if TRAINER in options else ours), **options}
        for options in map(dict, keys)
    ]
    for options in settings:
        if options.get("global_batch_size"):
            options.pop("batch_size", None)
    values = [
        {name: v for name, v in options.items() if v not in (None, UNKNOWN)}
        for options in settings
    ]
    names = {name for options in settings for name in options}
    facts = [name for name in separation.NAMED if name in names]
    left_out = {*NAMED, *scale.AXES, TRAINER, UNIT, DECODER, *facts}
    varied = distinguishing([*sorted(names - left_out), *facts], values)
    if any(s.get(DECODER) != s.get("encoder_type") for s in settings):
        varied += distinguishing([DECODER], settings)
    labels = []
    for options in values:
        mode = options.get("variable_update")
        words = [word for word in (network(options), mode, *_places(options)) if word]
        words += [
            f"{name}={options[name]}"
            for name in (without_network(varied, options) if words else varied)
            if name in options and not _is_unread(name, options)
        ]
        labels.append(", ".join(words))
    return told_apart(labels, [str(options.get(UNIT, "")) for options in values])


def _places(options: Mapping[str, Any]) -> list[str]:
    """How many devices and workers, as far as they are known."""
    workers = options.get("num_workers", 1)
    devices = options.get("num_devices")
    if devices:
        return [scale.in_words(workers, devices)]
    return [f"{workers} workers"] if workers > 1 else []


def _is_unread(name: str, options: Mapping[str, Any]) -> bool:
    """True if an option that only some modes read has its default, which it also has where it is not read."""
    if name not in CONDITIONS or options[name] != DEFAULTS[name]:
        return False
    workload = options.get("model", DEFAULTS["model"])
    return workload not in _WORKLOADS_OF.get(name, ())
