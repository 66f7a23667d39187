"""Entries of a history from run records.

The command `history` adds the entries; `records.history` writes their files.
"""

import datetime
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis import disturbance
from rnn_scaling.analysis.comparison.compared_metrics import CHOICES
from rnn_scaling.analysis.keys import UNIT, build_key
from rnn_scaling.analysis.machines import Machine, group_by_machine, identify_machine
from rnn_scaling.analysis.metrics import METRICS, Measured
from rnn_scaling.analysis.rows import Row, build_rows, run_rates
from rnn_scaling.records import environment, history
from rnn_scaling.records.folder import Folder
from rnn_scaling.records.history import HASH, Configuration, Entry
from rnn_scaling.records.options import UNKNOWN, Options
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system import entry
from rnn_scaling.system.machine import commits

_VERSIONS = ("tensorflow", "torch", "jax", "keras")  # packages that affect the speed


def build_entries(
    records: Sequence[RunRecord], label: str = "", commit: str | None = None
) -> list[Entry]:
    """Return an entry for each commit and machine of these runs.

    Disturbed runs are left out if enough quiet ones remain.

    Args:
      records: The runs; failed ones are left out.
      label: A text for the entries.
      commit: Hash of the measured commit, instead of the commits in the records.
    """
    names = [commit] if commit else []
    if not commit:
        recorded = filter(None, map(_find_recorded_commit, records))
        names = [each.hash for each in recorded]
    facts = commits.find(names)
    entries = []
    for runs in _group_by_source(records, commit):
        runs = sorted(runs, key=_start_time)
        measured_commit = _find_recorded_commit(runs[0])
        if commit:
            measured_commit = environment.Commit(hash=commit)
        entries.append(
            _make_entry(runs, label, _add_commit_facts(measured_commit, facts))
        )
    return entries


def make_rows_of_entries(
    folders: Sequence[Folder], commit: str | None = None
) -> list[Row]:
    """Return the rows whose counted runs `build_entries` puts into entries."""
    rows = []
    for folder in folders:
        records = [file.record for file in folder.runs]
        for runs in _group_by_source(records, commit):
            rows += build_rows(runs)
    return rows


def _group_by_source(
    records: Sequence[RunRecord], commit: str | None
) -> list[list[RunRecord]]:
    """Return the good runs of each machine and commit.

    Args:
      records: The runs.
      commit: Replaces the recorded commits.
    """
    groups: dict[tuple, list[RunRecord]] = {}
    good_runs = [run for run in records if run.status == "ok" and run.throughput]
    for name, runs in group_by_machine(good_runs).items():
        for run in runs:
            recorded = _find_recorded_commit(run)
            source = (recorded.hash, recorded.diff) if recorded else None
            groups.setdefault((name, commit or source), []).append(run)
    return list(groups.values())


def _find_recorded_commit(run: RunRecord) -> environment.Commit | None:
    """Return the commit of the program that ran; None if it is not recorded."""
    if not run.options.is_ours:
        return run.environment.program_commit
    return run.environment.commit


def _start_time(run: RunRecord) -> str:
    """Return when a run started, in UTC; "" if unknown."""
    text = (run.environment.started or "").replace("Z", "+00:00")
    try:
        time = datetime.datetime.fromisoformat(text)
        return f"{time.astimezone(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError):
        return ""


def _make_entry(
    runs: Sequence[RunRecord], label: str, commit: history.Commit | None
) -> Entry:
    first = runs[0].environment
    host = identify_machine(runs[0])
    versions = {"python": first.python} if first.python else {}
    for name in _VERSIONS:
        if name in first.packages:
            versions[name] = first.packages[name]
    return Entry(
        label=entry.make_printable(label),
        measured=next(filter(None, map(_start_time, runs)), None),
        commit=commit,
        machine=history.Machine(
            name=host.name, cpu=host.cpu, cores=host.cores, gpus=host.gpus
        ),
        versions=versions,
        configurations=tuple(map(_make_configuration, build_rows(runs))),
    )


def _add_commit_facts(
    commit: environment.Commit | None, facts: Mapping[str, commits.Commit]
) -> history.Commit | None:
    """Return a commit with its date and subject, if the repository has it.

    Returns:
      None if the commit is unknown or its name is not a hash.
    """
    if commit is None or not HASH.fullmatch(commit.hash):
        return None
    fact = facts.get(commit.hash)
    return history.Commit(
        hash=commit.hash,
        modified=commit.modified,
        diff=commit.diff,
        date=fact.date if fact else None,
        subject=entry.make_printable(fact.subject) if fact else None,
    )


def make_curve_key(
    options: Mapping[str, Any],
    facts: Mapping[str, str],
    unit: str,
    host: Machine | history.Machine,
) -> Hashable:
    """Return what the entries of one curve have in common.

    Args:
      options: The options that differ from the defaults.
      facts: Facts that distinguish runs with the same options.
      unit: Name of the items.
      host: The machine.
    """
    key = build_key(Options(options), unit)
    return key, tuple(sorted(facts.items())), host.name, host.cpu, host.cores, host.gpus


def make_curve_key_of_row(row: Row) -> Hashable:
    """Return the key of the curve to which entries of a row with good runs belong."""
    host = identify_machine(row.good_runs[0])
    return make_curve_key(_list_known_options(row), dict(row.facts), row.unit, host)


def _list_known_options(row: Row) -> dict[str, Any]:
    facts = dict(row.facts)
    options = {}
    for name, value in row.key:
        if name not in (UNIT, *facts) and value not in (None, UNKNOWN):
            options[name] = value
    return options


def _make_configuration(row: Row) -> Configuration:
    metrics = {}
    all_batches = disturbance.has_disturbed_run(row.counted_runs)
    for metric in METRICS.values():
        if metric.name in CHOICES or metric.compares_models:
            continue
        values = []
        for run in row.counted_runs:
            measured = Measured(
                (run,),
                row.num_devices,
                None,
                None,
                counts_all_batches=all_batches,
            )
            value = metric.compute(measured)
            values.append(value.value if value else None)
        if any(values):
            metrics[metric.name] = tuple(values)
    return Configuration(
        options=_list_known_options(row),
        facts=dict(row.facts),
        unit=row.unit,
        num_devices=row.num_devices,
        rates=tuple(run_rates(row.counted_runs)),
        loads=tuple(
            disturbance.compute_device_load(run, all_batches)
            for run in row.counted_runs
        ),
        metrics=metrics,
    )
