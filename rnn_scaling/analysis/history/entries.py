"""Turns run records into entries of a history."""

import datetime
from collections.abc import Mapping, Sequence

from rnn_scaling.analysis.comparison.compared_metrics import CHOICES
from rnn_scaling.analysis.keys import UNIT
from rnn_scaling.analysis.machines import group_by_machine, machine
from rnn_scaling.analysis.metrics import METRICS, Measured
from rnn_scaling.analysis.rows import Row, build_rows, process_rates
from rnn_scaling.records import environment, history
from rnn_scaling.records.folder import Folder
from rnn_scaling.records.history import HASH, Configuration, Entry
from rnn_scaling.records.options import UNKNOWN
from rnn_scaling.records.record import RunRecord
from rnn_scaling.system import entry
from rnn_scaling.system.machine import commits

VERSIONS = ("tensorflow", "torch", "jax", "keras")  # packages that affect the speed


def entries(
    records: Sequence[RunRecord], label: str = "", commit: str | None = None
) -> list[Entry]:
    """Return an entry for each commit and machine of these runs.

    Disturbed runs are left out if enough quiet ones remain.

    Args:
      records: The runs; failed ones are left out.
      label: A text for the entries.
      commit: Hash of the measured commit, instead of the commits in the records.
    """
    groups = _by_source(records, commit)
    known = commits.known(
        [commit]
        if commit
        else [made_of.hash for made_of in map(_recorded, records) if made_of]
    )
    return [_entry(sorted(runs, key=_started), label, commit, known) for runs in groups]


def disturbed_files(folders: Sequence[Folder], commit: str | None = None) -> list[str]:
    """Return the names of the disturbed runs that `entries` leaves out of folders."""
    names = []
    for folder in folders:
        left_out: set[int] = set()
        for runs in _by_source([file.record for file in folder.runs], commit):
            for row in build_rows(runs):
                left_out.update(id(run) for run in row.disturbed_runs)
        names += [file.name for file in folder.runs if id(file.record) in left_out]
    return names


def _by_source(
    records: Sequence[RunRecord], commit: str | None
) -> list[list[RunRecord]]:
    """Return the good runs of each machine and commit; `commit` replaces the recorded ones."""
    groups: dict[tuple, list[RunRecord]] = {}
    good = [run for run in records if run.status == "ok" and run.throughput]
    for name, of_machine in group_by_machine(good).items():
        for run in of_machine:
            recorded = _recorded(run)
            source = (recorded.hash, recorded.diff) if recorded else None
            groups.setdefault((name, commit or source), []).append(run)
    return list(groups.values())


def _recorded(run: RunRecord) -> environment.Commit | None:
    """Return the commit of the program that ran; None if its record has none."""
    if not run.options.is_ours:
        return run.environment.program_commit
    return run.environment.commit


def _started(run: RunRecord) -> str:
    """When a run started, in UTC; "" if unknown."""
    try:
        time = datetime.datetime.fromisoformat(
            (run.environment.started or "").replace("Z", "+00:00")
        )
        return f"{time.astimezone(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
    except (ValueError, OverflowError):
        return ""


def _entry(
    runs: Sequence[RunRecord],
    label: str,
    commit: str | None,
    known: Mapping[str, commits.Known],
) -> Entry:
    first = runs[0].environment
    of_run = machine(runs[0])
    packages = first.packages
    versions = {name: packages[name] for name in VERSIONS if name in packages}
    return Entry(
        label=entry.printable(label),
        measured=next(filter(None, map(_started, runs)), None),
        commit=_commit(
            environment.Commit(hash=commit) if commit else _recorded(runs[0]), known
        ),
        machine=history.Machine(
            name=of_run.name, cpu=of_run.cpu, cores=of_run.cores, gpus=of_run.gpus
        ),
        versions={**({"python": first.python} if first.python else {}), **versions},
        configurations=tuple(_configuration(row) for row in build_rows(runs)),
    )


def _commit(
    made_of: environment.Commit | None, known: Mapping[str, commits.Known]
) -> history.Commit | None:
    if made_of is None or not HASH.fullmatch(made_of.hash):
        return None
    facts = known.get(made_of.hash)
    date, subject = (
        (facts.date, entry.printable(facts.subject)) if facts else (None, None)
    )
    return history.Commit(
        hash=made_of.hash,
        modified=made_of.modified,
        diff=made_of.diff,
        date=date,
        subject=subject,
    )


def _configuration(row: Row) -> Configuration:
    facts = dict(row.facts)
    options = {
        name: value
        for name, value in row.key
        if name not in (UNIT, *facts) and value not in (None, UNKNOWN)
    }
    metrics = {}
    for metric in METRICS.values():
        if metric.name not in CHOICES and not metric.compares_models:
            values = [
                metric.compute(Measured((run,), row.num_devices, None, None))
                for run in row.counted_runs
            ]
            metrics[metric.name] = tuple(
                value.value if value else None for value in values
            )
    return Configuration(
        options=options,
        facts=facts,
        unit=row.unit,
        num_devices=row.num_devices,
        rates=tuple(process_rates(row.counted_runs)),
        metrics={name: values for name, values in metrics.items() if any(values)},
    )
