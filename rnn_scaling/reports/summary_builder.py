"""A folder's runs -> the Summary that all reports are views of."""

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

# Rows that are attributed, and runs whose steady state is judged; the largest numbers of devices come first.
MOST = 1000


def summarise(
    folder: Folder,
    name: str,
    target: Target | None = None,
    prices: PriceList = NO_PRICES,
) -> Summary:
    """The results of a folder's runs. Without a target, one is found if runs counted right predictions."""
    runs = sorted(folder.runs, key=lambda run: _order(run.record.options))
    records = [run.record for run in runs]
    names = {id(run.record): run.name for run in runs}
    rows_of = {
        machine: build_rows(members, prices)
        for machine, members in group_by_machine(records).items()
    }
    rows = [row for machine_rows in rows_of.values() for row in machine_rows]
    good = [record for row in rows for record in row.good_runs]
    steady = _steady(rows, names)
    series = _series(list(rows_of.values()), names, steady)
    grown = tuple(
        run.name for run in runs if learning.loss_growth(run.record.batches.loss)
    )
    return Summary(
        name=entry.plain(name),
        series=series,
        failures=_failures(series, names),
        left_out=folder.left_out,
        facts=environment.facts(records),
        differences=tuple(map(describe, differences.within(good))),
        num_unjudged=sum(bool(record.batches.seconds) for record in good)
        - sum(map(len, steady.values())),
        num_runs=len(runs),
        machines=tuple(
            (machine, sum(len(row.records) for row in group))
            for machine, group in rows_of.items()
        ),
        files_in_progress=tuple(entry.plain(path.name) for path in folder.running),
        learning=learning.time_to_target(rows, target),
        diverged_files=grown,
        files_without_loss=tuple(
            run.name
            for run in runs
            if learning.is_lost(run.record) and run.name not in grown
        ),
    )


def _series(
    machines: Sequence[Sequence[Row]],
    names: Mapping[int, str],
    steady: Mapping[Row, list[RunSteadyState]],
) -> tuple[SeriesSummary, ...]:
    rows, several = (
        [row for machine_rows in machines for row in machine_rows],
        len(machines) > 1,
    )
    losses = {
        name: loss
        for machine_rows in machines
        for name, loss in _losses(machine_rows, rows).items()
    }
    placed = [
        (number, members)
        for number, group in enumerate(machines, 1)
        for members in group_by_series(group)
    ]
    all_series = [members for _, members in placed]
    return tuple(
        SeriesSummary(
            title=f"{title}, machine {number}" if several else title,
            rows=tuple(_row(row, names, losses.get(row), steady) for row in members),
            machine=f"machine {number}" if several else "",
            facts=facts,
        )
        # Together: what the series of one machine have in common may be what tells them from another's.
        for title, facts, (number, members) in zip(
            titles(all_series), series_facts(all_series), placed
        )
    )


def _order(config: Mapping[str, Any]) -> tuple[str, str, int, int]:
    return (
        network(config),
        str(config.get("variable_update", "")),
        config["num_devices"],
        scale.num_workers(config),
    )


def _losses(
    machine_rows: Sequence[Row], rows: Sequence[Row]
) -> dict[Row, Attribution | None]:
    """The losses of one machine's rows, among the first MOST of all."""
    first = set(sorted(rows, key=lambda row: -row.num_devices)[:MOST])
    wanted = [row for row in machine_rows if row in first]
    return dict(zip(wanted, attribution.attribute_all(wanted, machine_rows)))


def _row(
    row: Row,
    names: Mapping[int, str],
    loss: Attribution | None,
    steady: Mapping[Row, list[RunSteadyState]],
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


def _steady(
    rows: Sequence[Row], names: Mapping[int, str]
) -> dict[Row, list[RunSteadyState]]:
    """What the batch times of each row's runs say: the first runs of all rows, then the second ones, up to MOST."""
    judged: dict[Row, list[RunSteadyState]] = {}
    waves = range(max((len(row.good_runs) for row in rows), default=0))
    ordered = sorted(rows, key=lambda row: -row.num_devices)
    timed = [
        (row, row.good_runs[i])
        for i in waves
        for row in ordered
        if i < len(row.good_runs) and row.good_runs[i].batches.seconds
    ]
    for row, record in timed[:MOST]:
        batches = record.batches
        state = steady_state.analyse(batches.seconds, batches.items, batches.warmup)
        judged.setdefault(row, []).append(
            RunSteadyState(names[id(record)], record, state)
        )
    return judged


def _failures(
    series: Sequence[SeriesSummary], names: Mapping[int, str]
) -> tuple[Failure, ...]:
    rows = [(member.title, summary.row) for member in series for summary in member.rows]
    good = {id(record) for _, row in rows for record in row.good_runs}
    failed = [
        (record, title, row)
        for title, row in rows
        for record in row.records
        if id(record) not in good
    ]
    return tuple(
        Failure(names[id(run)], title, row.num_devices, _reason(run))
        for run, title, row in failed
    )


def _reason(record: RunRecord) -> str:
    if not record.error:
        return f"status {record.status}, nothing was measured"
    message = " ".join(record.error.message.split())
    return f"{record.error.type}: {message}" if message else record.error.type
