"""Turn a folder's runs into the Summary that all reports are views of."""

from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis import attribution, learning, steady_state
from rnn_scaling.analysis.attribution import Attribution
from rnn_scaling.analysis.comparison import differences
from rnn_scaling.analysis.learning import Target
from rnn_scaling.analysis.machines import group_by_machine
from rnn_scaling.analysis.prices import NO_PRICES, PriceList
from rnn_scaling.analysis.rows import Row, build_rows
from rnn_scaling.analysis.series_titles import group_by_series, series_facts, titles
from rnn_scaling.analysis.steps import parts as step_parts
from rnn_scaling.config import scale
from rnn_scaling.config.naming import network
from rnn_scaling.records.folder import Folder
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import environment
from rnn_scaling.reports.differences import describe
from rnn_scaling.reports.summary import (
    Failure,
    RowSummary,
    RunSteadyState,
    SeriesSummary,
    Summary,
)
from rnn_scaling.system import entry

# Rows whose efficiency loss is split, and runs whose steady state is analysed; those on
# the most devices come first.
MOST = 1000

SteadyStates = Mapping[Row, Sequence[RunSteadyState]]
FileNames = Mapping[int, str]  # id of a record -> its file


def summarise(
    folder: Folder,
    name: str,
    target: Target | None = None,
    prices: PriceList = NO_PRICES,
) -> Summary:
    """Return the results of a folder's runs.

    Args:
      folder: The runs.
      name: The folder as the user wrote it.
      target: What runs should learn. If it is None and runs counted right predictions,
        a target is found.
      prices: The prices of machines.
    """
    runs = sorted(folder.runs, key=lambda run: _sort_key(run.record.options))
    records = [run.record for run in runs]
    names = {id(run.record): run.name for run in runs}
    machines = {
        machine: build_rows(members, prices)
        for machine, members in group_by_machine(records).items()
    }
    rows: list[Row] = []
    for machine_rows in machines.values():
        rows += machine_rows
    good: list[RunRecord] = []
    for row in rows:
        good += row.good_runs

    steady = _steady_states(rows, names)
    num_timed = sum(bool(record.batches.seconds) for record in good)
    series = _all_series(list(machines.values()), names, steady)
    diverged_files = []
    files_without_loss = []
    for run in runs:
        if learning.loss_growth(run.record.batches.loss):
            diverged_files.append(run.name)
        elif learning.is_lost(run.record):
            files_without_loss.append(run.name)
    return Summary(
        name=entry.plain(name),
        series=series,
        failures=_failures(series, names),
        left_out=folder.left_out,
        facts=environment.facts(records),
        differences=tuple(map(describe, differences.within(good))),
        num_unjudged=num_timed - sum(map(len, steady.values())),
        num_runs=len(runs),
        machines=tuple(
            (machine, _num_records(members)) for machine, members in machines.items()
        ),
        files_in_progress=tuple(entry.plain(path.name) for path in folder.running),
        learning=learning.time_to_target(rows, target),
        diverged_files=tuple(diverged_files),
        files_without_loss=tuple(files_without_loss),
    )


def _num_records(rows: Sequence[Row]) -> int:
    return sum(len(row.records) for row in rows)


def _sort_key(config: Mapping[str, Any]) -> tuple[str, str, int, int]:
    return (
        network(config),
        str(config.get("variable_update", "")),
        config["num_devices"],
        scale.num_workers(config),
    )


def _all_series(
    machines: Sequence[Sequence[Row]], names: FileNames, steady: SteadyStates
) -> tuple[SeriesSummary, ...]:
    """Return the series of all machines.

    Their titles are made together, because facts that the series of one machine have in
    common may distinguish them from those of another machine.
    """
    losses = _losses(machines)
    numbers = []
    members = []
    for number, machine_rows in enumerate(machines, 1):
        for series_rows in group_by_series(machine_rows):
            numbers.append(number)
            members.append(series_rows)

    has_several_machines = len(machines) > 1
    found = []
    for number, series_rows, title, facts in zip(
        numbers, members, titles(members), series_facts(members)
    ):
        machine = f"machine {number}" if has_several_machines else ""
        rows = [
            _summarise_row(row, names, losses.get(row), steady) for row in series_rows
        ]
        found.append(
            SeriesSummary(
                title=", ".join(filter(None, (title, machine))),
                rows=tuple(rows),
                machine=machine,
                facts=facts,
            )
        )
    return tuple(found)


def _losses(machines: Sequence[Sequence[Row]]) -> dict[Row, Attribution | None]:
    """Return the efficiency losses of the MOST rows on the most devices."""
    rows: list[Row] = []
    for machine_rows in machines:
        rows += machine_rows
    split_rows = set(sorted(rows, key=lambda row: -row.num_devices)[:MOST])
    losses: dict[Row, Attribution | None] = {}
    for machine_rows in machines:
        members = [row for row in machine_rows if row in split_rows]
        losses |= zip(members, attribution.attribute_all(members, machine_rows))
    return losses


def _summarise_row(
    row: Row, names: FileNames, loss: Attribution | None, steady: SteadyStates
) -> RowSummary:
    return RowSummary(
        row=row,
        files=tuple(names[id(record)] for record in row.records),
        loss=loss,
        steady=tuple(steady.get(row, ())),
        padding=attribution.padding(row),
        imbalance=attribution.imbalance(row),
        step_parts=step_parts.split_steps(row.good_runs),
    )


def _steady_states(
    rows: Sequence[Row], names: FileNames
) -> dict[Row, list[RunSteadyState]]:
    """Return the steady states of up to MOST runs.

    The first runs of all rows come first, then the second ones, so that every row has
    some.
    """
    most_runs = max((len(row.good_runs) for row in rows), default=0)
    largest_first = sorted(rows, key=lambda row: -row.num_devices)
    timed = []
    for k in range(most_runs):
        for row in largest_first:
            if k < len(row.good_runs) and row.good_runs[k].batches.seconds:
                timed.append((row, row.good_runs[k]))

    found: dict[Row, list[RunSteadyState]] = {}
    for row, record in timed[:MOST]:
        batches = record.batches
        state = steady_state.analyse(batches.seconds, batches.items, batches.warmup)
        found.setdefault(row, []).append(
            RunSteadyState(names[id(record)], record, state)
        )
    return found


def _failures(series: Sequence[SeriesSummary], names: FileNames) -> tuple[Failure, ...]:
    found = []
    for member in series:
        for row in member.rows:
            good = {id(record) for record in row.row.good_runs}
            for record in row.row.records:
                if id(record) not in good:
                    file = names[id(record)]
                    devices = row.row.num_devices
                    found.append(Failure(file, member.title, devices, _reason(record)))
    return tuple(found)


def _reason(record: RunRecord) -> str:
    if not record.error:
        return f"status {record.status}, nothing was measured"
    message = " ".join(record.error.message.split())
    return f"{record.error.type}: {message}" if message else record.error.type
