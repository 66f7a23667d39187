"""Turn a folder's runs into the Summary that all reports are views of.

Commands call `summarise` once per report.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rnn_scaling.analysis import attribution, learning, steady_state
from rnn_scaling.analysis.attribution import Attribution
from rnn_scaling.analysis.comparison import differences
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.learning import Target
from rnn_scaling.analysis.machines import group_by_machine
from rnn_scaling.analysis.prices import NO_PRICES, PriceList
from rnn_scaling.analysis.rows import Row, build_rows
from rnn_scaling.analysis.series_titles import (
    distinguishing_facts,
    group_by_series,
    make_titles,
)
from rnn_scaling.analysis.steps import parts as step_parts
from rnn_scaling.analysis.training_differences import find_other_training
from rnn_scaling.config import scale
from rnn_scaling.config.naming import network_name
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

# Rows whose efficiency loss is split, and runs whose steady state is analysed. Rows and
# runs on the most devices come first.
MAX_JUDGED = 1000

SteadyStates = Mapping[Row, Sequence[RunSteadyState]]
# id of a record -> its file. It is only valid while the folder keeps its records.
FileNames = Mapping[int, str]


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
    machines = group_by_machine(records)
    machine_rows = [build_rows(members, prices) for members in machines.values()]
    rows = list(itertools.chain.from_iterable(machine_rows))
    good_records: list[RunRecord] = []
    for row in rows:
        good_records += row.good_runs

    steady_states = _analyse_steady_states(rows, names)
    num_timed = sum(bool(record.batches.seconds) for record in good_records)
    series = _summarise_series(machine_rows, names, steady_states)
    diverged_files = []
    files_without_loss = []
    for run in runs:
        if learning.find_loss_growth(run.record.batches.loss):
            diverged_files.append(run.name)
        elif learning.has_diverged(run.record):
            files_without_loss.append(run.name)
    return Summary(
        name=entry.plain(name),
        series=series,
        failures=_list_failures(series),
        left_out=folder.left_out,
        facts=environment.facts(records),
        differences=tuple(
            map(describe, differences.find_differences_inside(good_records))
        ),
        num_unjudged=num_timed - sum(map(len, steady_states.values())),
        num_runs=len(runs),
        machines=tuple(
            (machine, len(members)) for machine, members in machines.items()
        ),
        files_in_progress=tuple(entry.plain(path.name) for path in folder.running),
        learning=learning.measure_learning(rows, target),
        other_training=tuple(find_other_training(rows)),
        diverged_files=tuple(diverged_files),
        files_without_loss=tuple(files_without_loss),
    )


def _sort_key(config: Mapping[str, Any]) -> tuple[str, str, int, int]:
    return (
        network_name(config),
        str(config.get("variable_update", "")),
        config["num_devices"],
        scale.num_workers(config),
    )


def _summarise_series(
    machines: Sequence[Sequence[Row]], names: FileNames, steady: SteadyStates
) -> tuple[SeriesSummary, ...]:
    """Return the series of all machines.

    Their titles are made together, because facts that the series of one machine have in
    common may distinguish them from another machine.
    """
    losses = _attribute_losses(machines)
    names_of_machines: list[str] = []
    all_series_rows: list[list[Row]] = []
    for number, machine_rows in enumerate(machines, 1):
        series_of_machine = group_by_series(machine_rows)
        machine = f"machine {number}" if len(machines) > 1 else ""
        names_of_machines += [machine] * len(series_of_machine)
        all_series_rows += series_of_machine

    summaries = []
    for machine, series_rows, title, facts in zip(
        names_of_machines,
        all_series_rows,
        make_titles(all_series_rows),
        distinguishing_facts(all_series_rows),
    ):
        rows = [
            _summarise_row(row, names, losses.get(row), steady) for row in series_rows
        ]
        summaries.append(
            SeriesSummary(
                title=", ".join(filter(None, (title, machine))),
                rows=tuple(rows),
                machine=machine,
                facts=facts,
            )
        )
    return tuple(summaries)


def _attribute_losses(
    machines: Sequence[Sequence[Row]],
) -> dict[Row, Attribution | None]:
    """Return the efficiency losses of the MAX_JUDGED rows on the most devices."""
    rows = itertools.chain.from_iterable(machines)
    split_rows = set(sorted(rows, key=lambda row: -row.num_devices)[:MAX_JUDGED])
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
        attribution=None if row.is_speedup_hidden else loss,
        steady=tuple(steady.get(row, ())),
        padding=attribution.padding(row),
        imbalance=attribution.imbalance(row),
        step_parts=step_parts.split_steps(row.good_runs),
    )


def _analyse_steady_states(
    rows: Sequence[Row], names: FileNames
) -> dict[Row, list[RunSteadyState]]:
    """Return the steady states of up to MAX_JUDGED runs.

    The first runs of all rows come first, then the second ones, so that every row has
    some.
    """
    most_runs = max((len(row.good_runs) for row in rows), default=0)
    largest_first = sorted(rows, key=lambda row: -row.num_devices)
    timed_runs = []
    for k in range(most_runs):
        for row in largest_first:
            if k < len(row.good_runs) and row.good_runs[k].batches.seconds:
                timed_runs.append((row, row.good_runs[k]))

    judged_runs = timed_runs[:MAX_JUDGED]
    states = [
        RunSteadyState(names[id(record)], record, steady_state.analyse_run(record))
        for _, record in judged_runs
    ]
    return group_by(states, [row for row, _ in judged_runs])


def _list_failures(series: Sequence[SeriesSummary]) -> tuple[Failure, ...]:
    """Return the runs without a rate, in the order of the series."""
    failures: list[Failure] = []
    for member in series:
        for row in member.rows:
            failures += _row_failures(row, member.title)
    return tuple(failures)


def _row_failures(summary: RowSummary, title: str) -> Iterator[Failure]:
    row = summary.row
    good_run_ids = {id(record) for record in row.good_runs}
    for file, record in zip(summary.files, row.records):
        if id(record) not in good_run_ids:
            yield Failure(file, title, row.num_devices, _failure_reason(record))


def _failure_reason(record: RunRecord) -> str:
    """Return why a run has no rate, as one line."""
    if not record.error:
        return f"status {record.status}, nothing was measured"
    message = " ".join(record.error.message.split())
    return f"{record.error.type}: {message}" if message else record.error.type
