"""Two sets of runs -> what was changed between them, and the configurations that both hold.

An option that has one value in all runs before and another in all runs after is the change; runs whose other options
are the same are the same configuration.
"""

import dataclasses
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis import disturbance, rows
from rnn_scaling.analysis.confidence import Scatter
from rnn_scaling.analysis.facts import separation
from rnn_scaling.analysis.facts.table import OF_MACHINES
from rnn_scaling.analysis.rows import Key
from rnn_scaling.config import registry, scale
from rnn_scaling.config import run_config as configs
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
from rnn_scaling.records.record import RunRecord

ABSENT, NOT_TOLD = "not used", "not told"
PER_DEVICE, ALL_DEVICES = "per_device", "all_devices"
_WORKLOADS_OF = registry.readers(WORKLOADS)
REPEAT = re.compile(r"\.r(\d+)\.json$")


class InputError(ValueError):
    """A path holds nothing that can be compared."""


@dataclasses.dataclass(frozen=True, eq=False)
class ComparedRuns:
    """The runs before, or after: `left_out` has a line for each file that is no good record."""

    path: Path
    runs: tuple[RunFile, ...]
    left_out: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Change:
    """An option that differs between all runs before and all runs after."""

    name: str
    before: str
    after: str


@dataclasses.dataclass(frozen=True, eq=False)
class Runs:
    """The runs of one configuration on one side, and those of the same on one device; what each scatter by."""

    files: tuple[RunFile, ...]
    baseline: tuple[RunFile, ...] = ()
    scatter: Scatter | None = None
    baseline_scatter: Scatter | None = None

    @property
    def num_devices(self) -> int:
        return scale.num_devices(rows.full_config(self.files[0].record))


@dataclasses.dataclass(frozen=True, eq=False)
class Configuration:
    """What is compared: the same options on both sides but for the change. A side without runs is None."""

    label: str
    before: Runs | None
    after: Runs | None
    # Of machines, what the pair tells of: PER_DEVICE on the least devices that both have, ALL_DEVICES on all.
    scopes: tuple[str, ...] = ()
    series: str = ""  # when machines are compared: the label without the devices
    # Names of the disturbed files, before and after, that do not count.
    disturbed: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @property
    def sides(self) -> list[Runs]:
        """The sides that there are, the one before first."""
        return [side for side in (self.before, self.after) if side is not None]


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
    """The changes, and the configurations that are the same but for them, in the order of the files before."""
    sides = [_by_key(side.runs) for side in (before, after)]
    changed = _changed(*sides)
    sides = _apart(sides, changed)
    runs = [_with_baselines(side) for side in sides]
    short = [{rows.without(key, changed): key for key in side} for side in sides]
    keys = list(dict.fromkeys([*short[0], *short[1]]))
    configurations = [
        Configuration(
            label,
            runs[0].get(short[0].get(key, ())),
            runs[1].get(short[1].get(key, ())),
        )
        for key, label in zip(keys, labels_of(keys))
    ]
    return _changes(sides, changed), tuple(configurations)


def _changes(
    sides: Sequence[Mapping[Key, Sequence[RunFile]]], changed: Collection[str]
) -> tuple[Change, ...]:
    raw = [
        [rows.full_config(files[0].record) for files in side.values()] for side in sides
    ]
    values = {
        name: [{repr(config.get(name)) for config in side} for side in raw]
        for name in sorted(changed)
    }
    # What only follows, since the other mode does not read an option, need not be said.
    named = [name for name, (before, after) in values.items() if not before & after]
    absent = (
        NOT_TOLD
        if any(TRAINER in options for side in raw for options in side)
        else ABSENT
    )
    firsts = [dict(next(iter(side))) for side in sides]
    return tuple(
        Change(name, *(first.get(name, absent) for first in firsts)) for name in named
    )


def match_machines(before: ComparedRuns, after: ComparedRuns) -> Matched:
    """The series that both machines ran, as two configurations: the same number of devices, and the most of each."""
    sides = [_by_key(side.runs) for side in (before, after)]
    changed = _changed(*sides)
    series: dict[Key, tuple[list[Runs], list[Runs]]] = {}
    for number, (side, groups) in enumerate(
        zip((before, after), _apart(sides, changed))
    ):
        several = {
            what: {dict(key)[what] for key in groups if what in dict(key)}
            for what in OF_MACHINES
        }
        if unlike := [what for what, values in several.items() if len(values) > 1]:
            raise InputError(
                f"{side.path} holds runs of several machines, by {unlike[0]}; use one folder per machine"
            )
        for key, runs in _with_baselines(groups).items():
            axis = scale.axis(rows.full_config(runs.files[0].record))
            series.setdefault(
                rows.without(key, {*changed, axis, *OF_MACHINES}), ([], [])
            )[number].append(runs)
    labels = labels_of([rows.without(options, scale.AXES) for options in series])
    changes = _changes(sides, changed - {"device", *scale.AXES})
    return changes, tuple(_on_machines(list(series.values()), labels))


def _on_machines(
    series: Sequence[tuple[list[Runs], list[Runs]]], labels: Sequence[str]
) -> Iterator[Configuration]:
    for label, sides in zip(labels, series):
        a, b = (
            {runs.num_devices: runs for runs in side if good(runs.files)}
            for side in sides
        )
        if not a or not b:
            yield Configuration(
                label, next(iter(sides[0]), None), next(iter(sides[1]), None)
            )
            continue
        scopes: dict[tuple[int, int], list[str]] = {}
        if both := a.keys() & b.keys():
            scopes.setdefault((min(both), min(both)), []).append(PER_DEVICE)
        scopes.setdefault((max(a), max(b)), []).append(ALL_DEVICES)
        for (in_a, in_b), of_pair in scopes.items():
            devices = (
                f"{in_a} and {in_b} devices"
                if in_a != in_b
                else scale.in_words(1, in_a)
            )
            yield Configuration(
                f"{label}, {devices}", a[in_a], b[in_b], tuple(of_pair), label
            )


def good(files: Iterable[RunFile]) -> list[RunFile]:
    """The runs that measured something."""
    return [
        file for file in files if file.record.status == "ok" and file.record.throughput
    ]


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
    before, after = configuration.before, configuration.after
    if before is None or after is None:
        return configuration
    if paired:
        left_out = _disturbed_repeats(before, after, is_relative)
        reduced = [_without_repeats(side, left_out) for side in (before, after)]
    else:
        reduced = [_without_disturbed_runs(side) for side in (before, after)]
    names = []
    for side, kept in zip((before, after), reduced):
        gone = [file for file in side.files if file not in kept.files]
        if is_relative:
            gone += [file for file in side.baseline if file not in kept.baseline]
        names.append(tuple(file.name for file in gone if _is_disturbed(file)))
    return dataclasses.replace(
        configuration,
        before=reduced[0],
        after=reduced[1],
        disturbed=(names[0], names[1]),
    )


def _is_disturbed(file: RunFile) -> bool:
    return disturbance.is_disturbed(file.record)


def _disturbed_repeats(before: Runs, after: Runs, is_relative: bool) -> set[int]:
    """Return the repeat numbers of the pairs that do not count."""
    files = [*before.files, *after.files]
    if is_relative:
        files += [*before.baseline, *after.baseline]
    disturbed = {repeat(file.name) for file in good(files) if _is_disturbed(file)}
    before_repeats = {repeat(file.name) for file in good(before.files)}
    after_repeats = {repeat(file.name) for file in good(after.files)}
    pairs = sorted(before_repeats & after_repeats)
    counted = disturbance.select_quiet(pairs, disturbed.__contains__)
    return set(pairs).difference(counted)


def _without_repeats(side: Runs, left_out: Collection[int]) -> Runs:
    def kept(files: Sequence[RunFile]) -> tuple[RunFile, ...]:
        return tuple([file for file in files if repeat(file.name) not in left_out])

    return dataclasses.replace(
        side, files=kept(side.files), baseline=kept(side.baseline)
    )


def _without_disturbed_runs(side: Runs) -> Runs:
    def kept(files: Sequence[RunFile]) -> tuple[RunFile, ...]:
        measured = good(files)
        counted = disturbance.select_quiet(measured, _is_disturbed)
        gone = {id(file) for file in measured} - {id(file) for file in counted}
        return tuple([file for file in files if id(file) not in gone])

    return dataclasses.replace(
        side, files=kept(side.files), baseline=kept(side.baseline)
    )


def two_sittings(before: ComparedRuns, after: ComparedRuns) -> bool:
    """Whether all good runs of one side started before those of the other; False where the records do not tell."""
    starts = [
        [file.record.environment.started for file in good(side.runs)]
        for side in (before, after)
    ]
    known = [[start for start in side if start] for side in starts]
    if known != starts or not all(known):
        return False
    return max(known[0]) < min(known[1]) or max(known[1]) < min(known[0])


def on_both_sides(before: Runs, after: Runs) -> int:
    """Runs of one side that are copies of the other's: no two processes take the same times to the last digit."""
    before_s, after_s = (
        {_own_seconds(file.record) for file in good(side.files)}
        for side in (before, after)
    )
    return sum(len(set(seconds)) > 1 for seconds in before_s & after_s)


def _own_seconds(run: RunRecord) -> tuple[float, ...]:
    """Of the measured batches; of a run that was read from a log, which prints few digits, those of its process."""
    if run.log_format is None:
        return run.batches.seconds[run.batches.warmup :]
    return (
        (run.throughput.items_per_second, run.phases.total)
        if run.throughput and run.phases.total
        else ()
    )


def repeat(name: str) -> int:
    """Which repeat a file is by its name: NAME.json is the first, NAME.r2.json the second."""
    number = REPEAT.search(name)
    return int(number[1]) if number else 1


def _by_key(files: Sequence[RunFile]) -> dict[Key, list[RunFile]]:
    keys: dict[
        tuple[int, str], Key
    ] = {}  # by identity: records of the same configuration share the object
    groups: dict[Key, list[RunFile]] = {}
    for file in files:
        known = (id(file.record.config), file.record.unit)
        if known not in keys:
            keys[known] = key_of(file.record)
        groups.setdefault(keys[known], []).append(file)
    return groups


def _apart(
    sides: Sequence[Mapping[Key, Sequence[RunFile]]], changed: set[str]
) -> list[dict[Key, list[RunFile]]]:
    """The runs by their options, and by the facts that tell runs of the same options apart on any side."""
    works: dict[
        Key, list[list[tuple[Key, RunFile]]]
    ] = {}  # of each side: runs on any number of devices
    for number, side in enumerate(sides):
        for key, files in side.items():
            work = works.setdefault(
                rows.without(key, {*changed, *scale.AXES}), [[] for _ in sides]
            )
            work[number] += [(key, file) for file in files]
    parted: list[dict[Key, list[RunFile]]] = [{} for _ in sides]
    for work in works.values():
        args = [
            ([file.record for _, file in pairs], [key for key, _ in pairs])
            for pairs in work
        ]
        names = {
            what
            for runs, keys in args
            for facts in separation.separating_facts(runs, keys)
            for what, _ in facts
        }
        for groups, pairs, (runs, keys) in zip(parted, work, args):
            facts_of_runs = (
                separation.separating_facts(runs, keys, names)
                if names
                else [()] * len(runs)
            )
            for (key, file), facts in zip(pairs, facts_of_runs):
                groups.setdefault(key + facts, []).append(file)
    return parted


def _with_baselines(side: Mapping[Key, Sequence[RunFile]]) -> dict[Key, Runs]:
    """The runs of one side beside those on one device, with the scatter that a report's rows have."""
    ones: dict[Key, list[tuple[Key, Key]]] = {}
    for key in side:
        options, facts = _parted(key)
        ones.setdefault(options, []).append((facts, key))
    scatters = rows.scatters_of(
        [rows.Row(tuple(file.record for file in side[key]), key) for key in side]
    )
    runs = {}
    for key, files in side.items():
        options, facts = _parted(key)
        on_one = tuple(
            (name, "1" if name in scale.AXES else value) for name, value in options
        )
        base = separation.on_one_device(facts, ones.get(on_one, [])) or ()
        runs[key] = Runs(
            tuple(files),
            tuple(side.get(base, ())),
            scatters.get(key),
            scatters.get(base),
        )
    return runs


def _parted(key: Key) -> tuple[Key, Key]:
    """Options and facts."""
    facts = tuple(item for item in key if item[0] in separation.NAMED)
    return key[: len(key) - len(facts)], facts


def key_of(run: RunRecord) -> Key:
    return ((rows.UNIT, repr(run.unit)), *rows.work_key(rows.known_config(run)))


def _changed(before: Mapping[Key, Any], after: Mapping[Key, Any]) -> set[str]:
    sides = [[dict(key) for key in side] for side in (before, after)]
    names = {name for side in sides for options in side for name in options}
    values = {
        name: [{options.get(name, ABSENT) for options in side} for side in sides]
        for name in names
    }
    return {
        name
        for name, (a, b) in values.items()
        if len(a) == 1 and len(b) == 1 and a != b
    }


def labels_of(keys: Sequence[Key]) -> list[str]:
    """A name for each: encoder, update mode, devices and workers, and whatever else tells them apart."""
    # "None" stands where an option is not read, and has no value of its own.
    read = [{name: value for name, value in key if value != "None"} for key in keys]
    left_out = (*NAMED, *scale.AXES, TRAINER, rows.UNIT, "decoder_type")
    names = dict.fromkeys(
        name for key in keys for name, _ in key if name not in left_out
    )
    varied = distinguishing(names, read)
    if any(
        dict(key).get("decoder_type") != dict(key).get("encoder_type") for key in keys
    ):
        varied += distinguishing(["decoder_type"], [dict(key) for key in keys])
    labels = []
    for key in keys:
        options = dict(key)
        plain = {name: value.strip("'") for name, value in options.items()}
        words = [
            name for name in [network(plain)] if name != "None"
        ]  # a changed model is no part of a key
        words += [plain["variable_update"]] if plain.get("variable_update") else []
        words += _places(options)
        shown = without_network(varied, plain) if words else varied
        words += [
            f"{n}={plain[n]}"
            for n in shown
            if n in options and not _is_unread(n, options)
        ]
        labels.append(", ".join(words))
    return told_apart(labels, [dict(key).get(rows.UNIT, "").strip("'") for key in keys])


def _places(options: Mapping[str, str]) -> list[str]:
    """How many devices and workers, as far as the key says: what was changed is not in it."""
    workers, devices = (
        int(options[name]) if name in options else None
        for name in ("num_workers", "num_devices")
    )
    if devices is not None:
        return [scale.in_words(workers or 1, devices)]
    return [f"{workers} workers"] if workers and workers > 1 else []


def _is_unread(name: str, options: Mapping[str, str]) -> bool:
    """True if an option that only some modes read has its default, which it also has where it is not read."""
    if name not in CONDITIONS:
        return False
    workload = options.get("model", repr(configs.OPTIONS["model"].default)).strip("'")
    is_default = options[name] == repr(configs.OPTIONS[name].default)
    return is_default and workload not in _WORKLOADS_OF.get(name, ())
