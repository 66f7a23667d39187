"""All content of a report: table.md, CSV, JSON and the page are views of one Summary.

What several formats show is a field or a method here, so that the formats agree.
"""

import dataclasses
import functools
import itertools
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis import learning, significance
from rnn_scaling.analysis.attribution import Attribution, LossPart, attribute_all
from rnn_scaling.analysis.comparable_work import describe_work
from rnn_scaling.analysis.comparison import differences
from rnn_scaling.analysis.facts import separation
from rnn_scaling.analysis.folder_rows import find_identifying_options
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.learning import Learning, Target
from rnn_scaling.analysis.machines import group_by_machine
from rnn_scaling.analysis.metrics import WORK_PER_EXCHANGE, find_common_unit
from rnn_scaling.analysis.prices import NO_PRICES, PriceList
from rnn_scaling.analysis.rows import (
    Row,
    build_rows,
    find_measured_seconds,
    has_many_models,
)
from rnn_scaling.analysis.series_titles import (
    group_by_series,
    list_distinguishing_facts,
    make_titles,
)
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steady_state import SteadyState, analyse_run
from rnn_scaling.analysis.training_differences import OtherTraining, find_other_training
from rnn_scaling.config import scale
from rnn_scaling.config.naming import find_recorded_work, name_network
from rnn_scaling.records.folder import Folder
from rnn_scaling.records.options import Options
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import environment
from rnn_scaling.reports.differences import DifferenceTexts, describe
from rnn_scaling.system import entry

_OUR_TRAINER = "rnn_scaling.train"


@dataclasses.dataclass(frozen=True, eq=False)
class SeriesSummary:
    """Rows that differ only in the number of devices or workers."""

    title: str
    rows: tuple[Row, ...]
    losses: Mapping[Row, Attribution]  # losses of rows whose loss is not hidden
    machine: str = ""  # "machine 1" if the folder has runs of several machines
    facts: separation.Facts = ()  # facts that make it incomparable with other series

    @property
    def options(self) -> Options:
        """The options of the first row."""
        return self.rows[0].options

    @property
    def is_strong_scaling(self) -> bool:
        """Whether the total work is constant, and not the work per device."""
        return bool(self.options["global_batch_size"])

    @property
    def unit(self) -> str:
        return self.rows[0].unit

    @property
    def model(self) -> str:
        return str(self.options["model"] or name_network(self.options))

    @property
    def mode(self) -> str:
        """The update mode; "" if it is unknown."""
        return str(self.options["variable_update"] or "")

    def row_on(self, num_devices: int) -> Row | None:
        """Return the row on a number of devices; None if it was not measured."""
        for row in self.rows:
            if row.num_devices == num_devices and row.rate is not None:
                return row
        return None

    @functools.cached_property
    def largest_row(self) -> Row | None:
        """The measured row on the most devices; None if all runs failed."""
        for row in reversed(self.rows):
            if row.rate is not None:
                return row
        return None

    @property
    def largest_loss(self) -> Attribution | None:
        """The split loss of the largest row; None if it is unknown or hidden."""
        return self.losses.get(self.largest_row) if self.largest_row else None

    def parts_of(self, row: Row) -> tuple[LossPart, ...]:
        """Return the parts of a row's loss that tables and pictures show."""
        loss = self.losses.get(row)
        return loss.displayed_parts if loss else ()

    @functools.cached_property
    def faster_on_fewer_devices(self) -> Row | None:
        """The row on fewer devices that is faster than the largest one, beyond noise."""
        rated = [(row, row.rate) for row in self.rows if row.rate is not None]
        index = significance.find_peak([rate for _, rate in rated])
        return None if index is None else rated[index][0]

    @functools.cached_property
    def failed_above(self) -> tuple[Row, ...]:
        """The rows without a good run on more devices than the largest row."""
        largest_measured = self.largest_row.num_devices if self.largest_row else 0
        return tuple(row for row in self.rows if row.num_devices > largest_measured)

    @functools.cached_property
    def num_diverged(self) -> int:
        """The number of good runs that diverged; with any, it is not ranked."""
        return sum(sum(map(learning.has_diverged, row.good_runs)) for row in self.rows)


@dataclasses.dataclass(frozen=True)
class Failure:
    """A failed run."""

    file: str
    title: str  # title of the series
    num_devices: int
    reason: str


Scaling = tuple[str, tuple[SeriesSummary, ...]]  # title, series


@dataclasses.dataclass(frozen=True, eq=False)
class Summary:
    """The report of a folder."""

    name: str  # the folder as the user wrote it
    series: tuple[SeriesSummary, ...]
    failures: tuple[Failure, ...]
    left_out: tuple[str, ...]  # a line for each file that is not a good record
    facts: tuple[environment.EnvironmentFact, ...]
    differences: tuple[DifferenceTexts, ...]
    losses: Mapping[Row, Attribution]  # losses of rows whose loss is not hidden
    files: Mapping[int, str]  # id of a record -> its file
    steady_states: Mapping[int, SteadyState]  # id of a record -> state of its batches
    num_unjudged: int  # runs with batch times whose steady state was not analysed
    num_runs: int
    machines: tuple[tuple[str, int], ...] = ()  # name, number of runs
    files_in_progress: tuple[str, ...] = ()  # runs that have not ended have no row
    diverged_files: tuple[str, ...] = ()  # runs whose loss grew many times
    files_without_loss: tuple[str, ...] = ()  # runs whose loss became NaN or infinite
    # Earlier predictions that have been measured since.
    checked_predictions: tuple[Statement, ...] = ()
    # None without a target, if no run counted right predictions.
    learning: Learning | None = None
    # Configurations that provably train otherwise than on fewer devices.
    other_training: tuple[OtherTraining, ...] = ()

    @property
    def measured(self) -> tuple[SeriesSummary, ...]:
        return tuple(series for series in self.series if series.largest_row)

    @functools.cached_property
    def rows(self) -> list[Row]:
        rows: list[Row] = []
        for series in self.series:
            rows += series.rows
        return rows

    @functools.cached_property
    def records(self) -> list[RunRecord]:
        """The runs of all rows."""
        records: list[RunRecord] = []
        for row in self.rows:
            records += row.records
        return records

    @functools.cached_property
    def named_runs(self) -> list[tuple[str, RunRecord]]:
        """The (file, record) of all runs."""
        return [(self.files[id(run)], run) for run in self.records]

    @functools.cached_property
    def good_runs(self) -> list[RunRecord]:
        """The runs that measured something."""
        runs: list[RunRecord] = []
        for row in self.rows:
            runs += row.good_runs
        return runs

    @functools.cached_property
    def options(self) -> list[str]:
        """The options in which rows differ."""
        return find_identifying_options(self.rows) if self.rows else []

    @functools.cached_property
    def is_certified(self) -> bool:
        """Whether any run has a certificate; otherwise no report mentions them."""
        return any(record.certificate for record in self.records)

    @functools.cached_property
    def row_titles(self) -> dict[Row, str]:
        """The title of the series of each row."""
        titles: dict[Row, str] = {}
        for series in self.series:
            titles |= dict.fromkeys(series.rows, series.title)
        return titles

    @functools.cached_property
    def positions(self) -> dict[SeriesSummary, int]:
        """The place of each series among all."""
        return {series: k for k, series in enumerate(self.series)}

    @functools.cached_property
    def unit(self) -> str:
        """The unit of the runs; "items" if they have several."""
        return find_common_unit(series.unit for series in self.series)

    @functools.cached_property
    def scalings(self) -> list[Scaling]:
        """The series that are compared with each other, with a title.

        Weak scaling, strong scaling, and different amounts of work are never compared.
        """
        groups = group_by(self.series, map(_Workload.from_series, self.series))
        units = {workload.unit for workload in groups}
        models = {(workload.unit, workload.model) for workload in groups}

        scalings = []
        for workload in sorted(groups, key=lambda workload: workload.is_strong_scaling):
            names: list[str] = []
            if len(models) > len(units):
                names = [workload.model]
            elif len(units) > 1:
                names = [workload.unit]
            kind = "Strong" if workload.is_strong_scaling else "Weak"
            works = describe_work([series.rows[0] for series in groups[workload]])
            for work, members in group_by(groups[workload], works).items():
                words = [
                    f"{kind} scaling",
                    *names,
                    *work,
                    workload.machine,
                    *workload.facts,
                ]
                scalings.append((", ".join(filter(None, words)), tuple(members)))
        return scalings

    @functools.cached_property
    def has_many_models(self) -> bool:
        """Whether the report compares models, in each update mode and with any unit."""
        return has_many_models(self.rows)

    @functools.cached_property
    def tables(self) -> list[Scaling]:
        """The series of each table and picture, with a title.

        They are the scalings, or many models in each update mode. A model has only its
        fastest series; models are in the order of their work per exchanged MB.
        """
        if not self.has_many_models:
            return self.scalings
        tables: dict[str, dict[str, SeriesSummary]] = {}
        for name, members in self.scalings:
            for series in members:
                scaling = name.partition(",")[0]
                labels = [scaling, series.mode, series.machine, *_format_facts(series)]
                models = tables.setdefault(", ".join(filter(None, labels)), {})
                best = models.get(series.model, series)
                models[series.model] = max(best, series, key=_make_representative_key)
        return [
            (name, tuple(sorted(models.values(), key=_work_per_exchange, reverse=True)))
            for name, models in tables.items()
        ]

    @functools.cached_property
    def trainers_of_unknown_work(self) -> list[str]:
        """The trainers, if there are several and the work of one is unknown."""
        trainers: dict[str, None] = {}
        is_work_unknown = False
        for series in self.measured:
            options = series.options
            trainers[_OUR_TRAINER if options.is_ours else name_network(options)] = None
            is_work_unknown |= find_recorded_work(options) is None
        return list(trainers) if len(trainers) > 1 and is_work_unknown else []

    def command_for_folder(self, command: str) -> str:
        """Return a command that adds missing runs to this folder."""
        return f"{command} --out={shlex.quote(self.name)}"


@dataclasses.dataclass(frozen=True)
class _Workload:
    """The properties that comparable series share."""

    is_strong_scaling: bool
    unit: str
    model: str
    machine: str
    facts: tuple[str, ...]

    @classmethod
    def from_series(cls, series: SeriesSummary) -> "_Workload":
        options = series.options
        model = str(options["model"] or f"{name_network(options)}, model not recorded")
        return cls(
            series.is_strong_scaling,
            series.unit,
            model,
            series.machine,
            tuple(_format_facts(series)),
        )


def _format_facts(series: SeriesSummary) -> list[str]:
    """Return the facts that always separate a series from others, in words."""
    return separation.describe_facts(separation.drop_decided_by_options(series.facts))


def _make_representative_key(series: SeriesSummary) -> tuple[bool, int, float]:
    """Return the order by which the series that represents its model is chosen."""
    if series.largest_row is None:
        return (not series.num_diverged, 0, 0.0)
    row = series.largest_row
    rate = row.rate.value if row.rate else 0.0
    return (not series.num_diverged, row.num_devices, rate)


def _work_per_exchange(series: SeriesSummary) -> float:
    if series.largest_row is None:
        return 0.0
    value = series.largest_row.metric(WORK_PER_EXCHANGE)
    return value.value if value else 0.0


def compute_mean_seconds(row: Row) -> float | None:
    """Return the seconds of the measured batches: the geometric mean over runs.

    Rates are geometric means too, so that seconds x items/s are the items of a run. If
    disturbed batches do not count, the rate is of the others, and the product is larger.

    Returns:
      The mean over the runs that count; None without any, or if the log of one does not
      contain its seconds.
    """
    logarithms = []
    for record in row.counted_runs:
        seconds = find_measured_seconds(record)
        if seconds is None:
            return None
        logarithms.append(math.log(seconds))
    if not logarithms:
        return None
    return math.exp(math.fsum(logarithms) / len(logarithms))


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
        name_network(config),
        str(config.get("variable_update", "")),
        config["num_devices"],
        scale.count_workers(config),
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
        list_distinguishing_facts(all_series_rows),
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
                    reason = _find_failure_reason(run)
                    failures.append(
                        Failure(file, member.title, row.num_devices, reason)
                    )
    return tuple(failures)


def _find_failure_reason(record: RunRecord) -> str:
    """Return why a run has no rate, as one line."""
    if not record.error:
        return f"status {record.status}, nothing was measured"
    message = " ".join(record.error.message.split())
    return f"{record.error.type}: {message}" if message else record.error.type
