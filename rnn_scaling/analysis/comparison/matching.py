"""Matching of two sets of runs: the changes between them, and their configurations.

An option with one value in all runs before and another one in all runs after is a
change. Runs whose other options are equal are of one configuration.

`judgement` calls `match` or `match_machines`. Fields named before and after are the
two sides of `compare`; the second one is judged.
"""

import dataclasses
import functools
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis import disturbance, rows
from rnn_scaling.analysis.facts import separation
from rnn_scaling.analysis.facts.table import OF_MACHINES
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.keys import UNIT, Key, drop_options, list_compared_options
from rnn_scaling.analysis.rows import DECODER, Row, count_all_batches
from rnn_scaling.config import registry, scale
from rnn_scaling.config.conditions import CONDITIONS
from rnn_scaling.config.naming import (
    NAMED,
    TRAINER,
    disambiguate,
    drop_network_options,
    find_distinguishing,
    name_network,
)
from rnn_scaling.config.registry import WORKLOADS
from rnn_scaling.records import folder, record
from rnn_scaling.records.folder import RunFile
from rnn_scaling.records.options import ASSUMED_VALUES, DEFAULTS, UNKNOWN
from rnn_scaling.records.record import RunRecord

PER_DEVICE = "per_device"
ALL_DEVICES = "all_devices"
_REPEAT = re.compile(r"\.r(\d+)\.json$")
_WORKLOADS_BY_OPTION = registry.find_readers(WORKLOADS)


class InputError(ValueError):
    """The inputs contain nothing that can be compared."""


@dataclasses.dataclass(frozen=True, eq=False)
class ComparedRuns:
    """The runs before, or the runs after."""

    path: Path
    runs: tuple[RunFile, ...]
    left_out: tuple[str, ...]  # a line for each file that is not a good record

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
    """Runs before and after with the same options, except the changes.

    Attributes:
      label: The configuration's name.
      row_before: The row before; None if the configuration was not run.
      row_after: The row after; None if the configuration was not run.
      names: File names, by the identity of the record.
      scopes: If machines are compared: PER_DEVICE for the smallest number of devices on
        both, ALL_DEVICES for all devices of each.
      series: If machines are compared: the label without the devices.
      disturbed: Names of the disturbed files, before and after, that do not count.
    """

    label: str
    row_before: Row | None
    row_after: Row | None
    names: Mapping[int, str]
    scopes: tuple[str, ...] = ()
    series: str = ""
    disturbed: tuple[tuple[str, ...], ...] = ((), ())

    @property
    def sides(self) -> list[Row]:
        """The sides that were run, before first."""
        return [side for side in (self.row_before, self.row_after) if side is not None]

    @property
    def max_devices(self) -> int:
        """The number of devices of the larger side."""
        return max(side.num_devices for side in self.sides)

    def repeat(self, run: RunRecord) -> int:
        """Return which repeat a run is by its file: NAME.json is 1, NAME.r2.json is 2."""
        number = _REPEAT.search(self.names[id(run)])
        return int(number[1]) if number else 1


Match = tuple[tuple[Change, ...], tuple[Configuration, ...]]


def start_time(run: RunRecord) -> str:
    """Return when a run started; "" if unknown."""
    return run.environment.started or ""


def read(path: Path) -> ComparedRuns:
    """Read a folder of records, or one record.

    Raises:
      InputError: If it contains no run that has ended.
    """
    try:
        if not path.is_dir():
            run = record.read(path)
            if folder.is_running(run, path.parent):
                raise InputError(
                    f"{path}: {folder.IN_PROGRESS}; compare it when it has ended"
                )
            return ComparedRuns(path, (RunFile(path.name, run),), ())
        content = folder.read(path)
    except OSError as e:
        raise InputError(
            f"{path}: {e.strerror or e}; name a folder of run records, or one record"
        ) from None
    except record.RecordError as e:
        raise InputError(str(e)) from None
    if not content.runs:
        reason = f" ({content.left_out[0]})" if content.left_out else ""
        raise InputError(
            f"{path}: {content.empty_reason}{reason}{folder.suggest_subfolders(path)}"
        )
    return ComparedRuns(path, content.runs, content.not_used)


def match(runs_before: ComparedRuns, runs_after: ComparedRuns) -> Match:
    """Return the changes, and the configurations that are equal except for them."""
    changed_options = _find_changed_options(runs_before, runs_after)
    rows_before, rows_after = _build_rows(runs_before, runs_after, changed_options)
    by_key_before = {drop_options(row.key, changed_options): row for row in rows_before}
    by_key_after = {drop_options(row.key, changed_options): row for row in rows_after}
    keys = list(dict.fromkeys([*by_key_before, *by_key_after]))
    names = {**runs_before.names, **runs_after.names}
    configurations = [
        Configuration(label, by_key_before.get(key), by_key_after.get(key), names)
        for key, label in zip(keys, build_labels(keys, changed_options))
    ]
    return _list_changes(rows_before, rows_after, changed_options), tuple(
        configurations
    )


def match_machines(runs_before: ComparedRuns, runs_after: ComparedRuns) -> Match:
    """Return the changes, and up to two configurations per series of both machines.

    These are the smallest common number of devices, and the most of each machine.

    Raises:
      InputError: If a side contains runs of several machines.
    """
    changed_options = _find_changed_options(runs_before, runs_after)
    sides = _build_rows(runs_before, runs_after, changed_options)
    series: dict[Key, tuple[list[Row], list[Row]]] = {}
    for number, (side, side_rows) in enumerate(zip((runs_before, runs_after), sides)):
        _check_one_machine(side.path, side_rows)
        for row in side_rows:
            varied_options = {
                *changed_options,
                scale.find_axis(row.options),
                *OF_MACHINES,
            }
            pair = series.setdefault(drop_options(row.key, varied_options), ([], []))
            pair[number].append(row)
    varied_options = {*changed_options, *scale.AXES}
    labels = build_labels(
        [drop_options(key, varied_options) for key in series], varied_options
    )
    names = {**runs_before.names, **runs_after.names}
    configurations: list[Configuration] = []
    for label, pair in zip(labels, series.values()):
        configurations.extend(_match_device_counts(label, *pair, names))
    changes = _list_changes(*sides, changed_options - {"device", *scale.AXES})
    return changes, tuple(configurations)


def _check_one_machine(path: Path, side: Sequence[Row]) -> None:
    for fact in OF_MACHINES:
        values = {dict(row.facts).get(fact) for row in side} - {None}
        if len(values) > 1:
            raise InputError(
                f"{path} contains runs of several machines, which differ in "
                f"{fact}; use one folder per machine"
            )


def _find_changed_options(
    runs_before: ComparedRuns, runs_after: ComparedRuns
) -> set[str]:
    """Return the options with one value in all runs before, and another one after."""
    options_before = [dict(key) for key in set(rows.build_keys(runs_before.records))]
    options_after = [dict(key) for key in set(rows.build_keys(runs_after.records))]
    names: set[str] = set()
    for options in (*options_before, *options_after):
        names.update(options)
    changed_names = set()
    for name in names:
        default = DEFAULTS.get(name, UNKNOWN)
        values_before = {options.get(name, default) for options in options_before}
        values_after = {options.get(name, default) for options in options_after}
        is_constant = len(values_before) == len(values_after) == 1
        if is_constant and values_before != values_after:
            changed_names.add(name)
    return changed_names


def _build_rows(
    runs_before: ComparedRuns,
    runs_after: ComparedRuns,
    changed_options: Collection[str],
) -> tuple[list[Row], list[Row]]:
    """Return the rows of each side; rows of the same work are next to each other."""
    records = [runs_before.records, runs_after.records]
    rows_before, rows_after = rows.build_compared_rows(records, changed_options)
    return _group_by_work(rows_before), _group_by_work(rows_after)


def _group_by_work(side: Sequence[Row]) -> list[Row]:
    works = group_by(side, [drop_options(row.key, separation.VARIED) for row in side])
    return list(itertools.chain.from_iterable(works.values()))


def _list_changes(
    rows_before: Sequence[Row],
    rows_after: Sequence[Row],
    changed_options: Collection[str],
) -> tuple[Change, ...]:
    """Return each changed option with its value on both sides."""
    changes = []
    is_recorded = all(row.is_ours for row in (*rows_before, *rows_after))
    first_before = list_compared_options(rows_before[0].options)
    first_after = list_compared_options(rows_after[0].options)
    for name in sorted(changed_options):
        values_before = {row.options.get(name) for row in rows_before}
        values_after = {row.options.get(name) for row in rows_after}
        # The keys also differ if only one side's mode reads an option.
        if values_before.isdisjoint(values_after):
            value_before = first_before.get(name, UNKNOWN)
            value_after = first_after.get(name, UNKNOWN)
            changes.append(Change(name, value_before, value_after, is_recorded))
    return tuple(changes)


def _match_device_counts(
    label: str,
    rows_before: Sequence[Row],
    rows_after: Sequence[Row],
    names: Mapping[int, str],
) -> Iterator[Configuration]:
    """Yield the configurations of one series on two machines."""
    good_before = {row.num_devices: row for row in rows_before if row.good_runs}
    good_after = {row.num_devices: row for row in rows_after if row.good_runs}
    if not good_before or not good_after:
        yield Configuration(
            label, next(iter(rows_before), None), next(iter(rows_after), None), names
        )
        return
    scopes: dict[tuple[int, int], list[str]] = {}
    if common := good_before.keys() & good_after.keys():
        scopes[min(common), min(common)] = [PER_DEVICE]
    scopes.setdefault((max(good_before), max(good_after)), []).append(ALL_DEVICES)
    for (a, b), pair_scopes in scopes.items():
        devices = f"{a} and {b} devices" if a != b else scale.describe(1, a)
        yield Configuration(
            f"{label}, {devices}",
            row_before=good_before[a],
            row_after=good_after[b],
            names=names,
            scopes=tuple(pair_scopes),
            series=label,
        )


def exclude_disturbed_runs(
    configuration: Configuration, paired: bool, is_relative: bool
) -> Configuration:
    """Return the configuration without the good runs that do not count.

    `disturbance.select_quiet` decides, for each side or for pairs of runs.

    Args:
      configuration: The configuration; it is not changed if a side is missing.
      paired: Whether the runs of the same repeat number are a pair, which is disturbed
        if one of its runs is.
      is_relative: Whether the runs on one device are part of the result.
    """
    if len(configuration.sides) < 2:
        return configuration
    repeats = _list_disturbed_repeats(configuration, is_relative) if paired else set()

    def list_excluded_runs(row: Row | None) -> list[RunRecord]:
        if row is None:
            return []
        if not paired:
            return list(row.disturbed_runs)
        return [run for run in row.records if configuration.repeat(run) in repeats]

    sides = []
    names = []
    for side in configuration.sides:
        excluded = list_excluded_runs(side)
        excluded_bases = list_excluded_runs(side.one_device)
        runs_to_name = excluded + excluded_bases if is_relative else excluded
        disturbed_runs = filter(disturbance.is_disturbed, runs_to_name)
        names.append(tuple([configuration.names[id(run)] for run in disturbed_runs]))
        sides.append(_exclude_runs(side, set(map(id, excluded + excluded_bases))))
    if disturbance.has_disturbed_run(list_compared_runs(sides, is_relative)):
        sides = [count_all_batches(side) for side in sides]
    return dataclasses.replace(
        configuration, row_before=sides[0], row_after=sides[1], disturbed=tuple(names)
    )


def _list_disturbed_repeats(
    configuration: Configuration, is_relative: bool
) -> set[int]:
    """Return the repeat numbers of the pairs that do not count."""
    repeats = []
    disturbed_ids: set[int] = set()
    for side in configuration.sides:
        repeats.append(set(map(configuration.repeat, side.good_runs)))
        runs = filter(disturbance.is_disturbed, list_compared_runs([side], is_relative))
        disturbed_ids.update(map(configuration.repeat, runs))
    pairs = sorted(set.intersection(*repeats))
    quiet_pairs = disturbance.select_quiet(pairs, disturbed_ids.__contains__)
    return set(pairs).difference(quiet_pairs)


def _exclude_runs(row: Row, excluded: Collection[int]) -> Row:
    """Return the row, and its baseline, without some runs, by their identity."""
    if not excluded:
        return row
    records = tuple([run for run in row.records if id(run) not in excluded])
    base = row.one_device and _exclude_runs(row.one_device, excluded)
    if base and not base.records:
        base = None
    return dataclasses.replace(row, records=records, one_device=base)


def list_compared_runs(sides: Sequence[Row], is_relative: bool) -> list[RunRecord]:
    """Return the good runs of the sides of a comparison, each once.

    Args:
      sides: The sides, without runs that do not count.
      is_relative: Whether the runs on one device are part of the result.
    """
    compared = [*sides]
    if is_relative:
        compared += [side.one_device for side in sides if side.one_device]
    runs = itertools.chain.from_iterable(row.good_runs for row in compared)
    return list({id(run): run for run in runs}.values())


def count_shared_runs(row_before: Row, row_after: Row) -> int:
    """Return the number of runs that are on both sides.

    Equal step times mean the same run.
    """
    times_before = set(map(_list_unrounded_times, row_before.good_runs))
    times_after = set(map(_list_unrounded_times, row_after.good_runs))
    return sum(len(set(times)) > 1 for times in times_before & times_after)


def _list_unrounded_times(run: RunRecord) -> tuple[float, ...]:
    """Return the times of the measured batches.

    A log prints few digits, so a run from a log has its rate and total time instead.
    """
    if run.log_format is None:
        return run.batches.seconds[run.batches.warmup :]
    if run.throughput and run.phases.total:
        return run.throughput.items_per_second, run.phases.total
    return ()


def build_labels(
    keys: Sequence[Key], changed_options: Collection[str] = ()
) -> list[str]:
    """Return a name for each key: encoder, update mode, devices, and other differences.

    Args:
      keys: The keys.
      changed_options: Options that the keys do not contain.
    """
    defaults = {name: v for name, v in DEFAULTS.items() if name not in changed_options}
    program_defaults = {
        name: v for name, v in defaults.items() if name not in ASSUMED_VALUES
    }
    settings = []
    values = []  # the known settings
    names: set[str] = set()
    for key in keys:
        options = dict(key)
        options = {**(program_defaults if TRAINER in options else defaults), **options}
        if options.get("global_batch_size"):
            options.pop("batch_size", None)
        settings.append(options)
        names.update(options)
        values.append(
            {name: v for name, v in options.items() if v not in (None, UNKNOWN)}
        )
    facts = [name for name in separation.NAMED if name in names]
    names -= {*NAMED, *scale.AXES, TRAINER, UNIT, DECODER, *facts}
    varied_names = find_distinguishing([*sorted(names), *facts], values)
    if any(s.get(DECODER) != s.get("encoder_type") for s in settings):
        varied_names += find_distinguishing([DECODER], settings)
    labels = [_make_label(options, varied_names) for options in values]
    return disambiguate(labels, [str(options.get(UNIT, "")) for options in values])


def _make_label(options: Mapping[str, Any], varied_options: Sequence[str]) -> str:
    """Return the name of a configuration, with the options that vary."""
    mode = options.get("variable_update")
    parts = [
        part for part in (name_network(options), mode, _format_size(options)) if part
    ]
    if parts:
        varied_options = drop_network_options(varied_options, options)
    known_options = [name for name in varied_options if name in options]
    parts += [
        f"{name}={options[name]}"
        for name in known_options
        if not _is_unread(name, options)
    ]
    return ", ".join(parts)


def _format_size(options: Mapping[str, Any]) -> str:
    """Return the number of devices or workers; "" if it is unknown."""
    workers = options.get("num_workers", 1)
    devices = options.get("num_devices")
    if devices:
        return scale.describe(workers, devices)
    return f"{workers} workers" if workers > 1 else ""


def _is_unread(name: str, options: Mapping[str, Any]) -> bool:
    """Return whether an option has its default because the workload does not read it.

    Only options that some modes do not read are considered.
    """
    if name not in CONDITIONS or options[name] != DEFAULTS[name]:
        return False
    workload = options.get("model", DEFAULTS["model"])
    return workload not in _WORKLOADS_BY_OPTION.get(name, ())
