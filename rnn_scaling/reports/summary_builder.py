"""Turn a folder's runs into the Summary that all reports are views of.

Commands call `summarise` once per report.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis import learning
from rnn_scaling.analysis.attribution import Attribution, attribute_all
from rnn_scaling.analysis.comparison import differences
from rnn_scaling.analysis.learning import Target
from rnn_scaling.analysis.machines import group_by_machine
from rnn_scaling.analysis.prices import NO_PRICES, PriceList
from rnn_scaling.analysis.rows import Row, build_rows
from rnn_scaling.analysis.series_titles import (
    distinguishing_facts,
    group_by_series,
    make_titles,
)
from rnn_scaling.analysis.steady_state import SteadyState, analyse_run
from rnn_scaling.analysis.training_differences import find_other_training
from rnn_scaling.config import scale
from rnn_scaling.config.naming import network_name
from rnn_scaling.records.folder import Folder
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import environment
from rnn_scaling.reports.differences import describe
from rnn_scaling.reports.summary import (
    Failure,
    SeriesSummary,
    Summary,
)
from rnn_scaling.system import entry

# Rows whose efficiency loss is split, and runs whose steady state is analysed. Rows and
# runs on the most devices come first.
MAX_JUDGED = 1000

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
    machines = group_by_machine(records)
    machine_rows = [build_rows(members, prices) for members in machines.values()]
    rows = list(itertools.chain.from_iterable(machine_rows))
    good_records: list[RunRecord] = []
    for row in rows:
        good_records += row.good_runs

    steady_states = _analyse_steady_states(rows)
    num_timed = sum(bool(record.batches.seconds) for record in good_records)
    losses = _attribute_losses(machine_rows)
    series = _summarise_series(machine_rows, losses)
    diverged_files = []
    files_without_loss = []
    for run in runs:
        if learning.find_loss_growth(run.record.batches.loss):
            diverged_files.append(run.name)
        elif learning.has_diverged(run.record):
            files_without_loss.append(run.name)
    return Summary(
        name=entry.make_plain(name),
        series=series,
        failures=_list_failures(series, names),
        left_out=folder.left_out,
        facts=environment.list_facts(records),
        differences=tuple(
            map(describe, differences.find_differences_inside(good_records))
        ),
        losses=losses,
        files=names,
        steady_states=steady_states,
        num_unjudged=num_timed - len(steady_states),
        num_runs=len(runs),
        machines=tuple(
            (machine, len(members)) for machine, members in machines.items()
        ),
        files_in_progress=tuple(entry.make_plain(path.name) for path in folder.running),
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
    machines: Sequence[Sequence[Row]], losses: Mapping[Row, Attribution]
) -> tuple[SeriesSummary, ...]:
    """Return the series of all machines.

    Their titles are made together, because facts that the series of one machine have in
    common may distinguish them from another machine.
    """
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
        summaries.append(
            SeriesSummary(
                title=", ".join(filter(None, (title, machine))),
                rows=tuple(series_rows),
                losses=losses,
                machine=machine,
                facts=facts,
            )
        )
    return tuple(summaries)


def _attribute_losses(machines: Sequence[Sequence[Row]]) -> dict[Row, Attribution]:
    """Return the efficiency losses of the MAX_JUDGED rows on the most devices."""
    rows = itertools.chain.from_iterable(machines)
    split_rows = set(sorted(rows, key=lambda row: -row.num_devices)[:MAX_JUDGED])
    losses: dict[Row, Attribution] = {}
    for machine_rows in machines:
        members = [row for row in machine_rows if row in split_rows]
        for row, loss in zip(members, attribute_all(members, machine_rows)):
            if loss is not None and not row.is_speedup_hidden:
                losses[row] = loss
    return losses


def _analyse_steady_states(rows: Sequence[Row]) -> dict[int, SteadyState]:
    """Return the steady states of up to MAX_JUDGED runs, by the id of the record.

    The first runs of all rows come first, then the second ones, so that every row has
    some.
    """
    most_runs = max((len(row.good_runs) for row in rows), default=0)
    largest_first = sorted(rows, key=lambda row: -row.num_devices)
    timed_runs = []
    for k in range(most_runs):
        for row in largest_first:
            if k < len(row.good_runs) and row.good_runs[k].batches.seconds:
                timed_runs.append(row.good_runs[k])
    return {id(run): analyse_run(run) for run in timed_runs[:MAX_JUDGED]}


def _list_failures(
    series: Sequence[SeriesSummary], files: FileNames
) -> tuple[Failure, ...]:
    """Return the runs without a rate, in the order of the series."""
    failures = []
    for member in series:
        for row in member.rows:
            good_run_ids = set(map(id, row.good_runs))
            for run in row.records:
                if id(run) not in good_run_ids:
                    file = files[id(run)]
                    reason = _failure_reason(run)
                    failures.append(
                        Failure(file, member.title, row.num_devices, reason)
                    )
    return tuple(failures)


def _failure_reason(record: RunRecord) -> str:
    """Return why a run has no rate, as one line."""
    if not record.error:
        return f"status {record.status}, nothing was measured"
    message = " ".join(record.error.message.split())
    return f"{record.error.type}: {message}" if message else record.error.type
