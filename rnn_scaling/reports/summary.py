"""Everything that a report says: table.md, CSV, JSON and the page are views of one Summary of summary_builder.py."""

import dataclasses
import functools
import math
import shlex

from rnn_scaling.analysis import learning, significance
from rnn_scaling.analysis.attribution import Attribution
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.facts import separation
from rnn_scaling.analysis.folder_rows import identifying_options
from rnn_scaling.analysis.learning import Learning
from rnn_scaling.analysis.metrics import EFFICIENCY, WORK_PER_EXCHANGE, common_unit
from rnn_scaling.analysis.rows import Row, has_many_models, measured_seconds
from rnn_scaling.analysis.series_titles import describe_work
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steady_state import SteadyState
from rnn_scaling.analysis.steps.parts import StepParts
from rnn_scaling.config.naming import network, told_work
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import environment, steady_state
from rnn_scaling.reports.differences import DifferenceTexts

OUR_TRAINER = "rnn_scaling.train"


@dataclasses.dataclass(frozen=True)
class RunSteadyState:
    """One run and what its batch times say; `move`: by how much the headline rate would move (None: cannot be said)."""

    file: str
    record: RunRecord
    state: SteadyState

    @property
    def text(self) -> str:
        """The state in words."""
        return steady_state.state_text(self.state, self.record)


@dataclasses.dataclass(frozen=True, eq=False)
class RowSummary:
    row: Row
    files: tuple[str, ...]
    loss: Attribution | None
    steady: tuple[RunSteadyState, ...]
    padding: float | None
    imbalance: float
    step_parts: StepParts | None = None  # where its traced steps went

    @property
    def devices(self) -> str:
        return self.row.devices

    @functools.cached_property
    def efficiency(self) -> Interval | None:
        """In per cent."""
        return EFFICIENCY.in_printed_unit(self.row.metric(EFFICIENCY))


@dataclasses.dataclass(frozen=True, eq=False)
class SeriesSummary:
    """Rows that differ in the number of devices alone, or of workers."""

    title: str
    rows: tuple[RowSummary, ...]
    machine: str = ""  # "machine 1" where the folder holds runs of several
    facts: separation.Facts = ()  # that make its runs incomparable with those of other series

    @property
    def is_strong_scaling(self) -> bool:
        """Total work constant; otherwise work a device."""
        return bool(self.rows[0].row.options["global_batch_size"])

    @property
    def unit(self) -> str:
        return self.rows[0].row.unit

    @property
    def model(self) -> str:
        options = self.rows[0].row.options
        return str(options["model"] or network(options))

    @property
    def mode(self) -> str:
        return str(self.rows[0].row.options["variable_update"] or "")

    def row_on(self, count: int) -> RowSummary | None:
        return next(
            (
                row
                for row in self.rows
                if row.row.num_devices == count and row.row.rate is not None
            ),
            None,
        )

    @functools.cached_property
    def largest_row(self) -> RowSummary | None:
        """The row on the most devices that was measured; None when every run failed."""
        return next(
            (row for row in reversed(self.rows) if row.row.rate is not None), None
        )

    @functools.cached_property
    def faster_on_fewer_devices(self) -> RowSummary | None:
        """The row on fewer devices than the most that is faster, beyond noise; None: there is none."""
        rated = [(row, row.row.rate) for row in self.rows if row.row.rate is not None]
        k = significance.find_peak([rate for _, rate in rated])
        return None if k is None else rated[k][0]

    @functools.cached_property
    def failed_above(self) -> tuple[Row, ...]:
        """The rows without a good run on more devices than the most that were measured."""
        most = self.largest_row.row.num_devices if self.largest_row else 0
        return tuple(row.row for row in self.rows if row.row.num_devices > most)

    @functools.cached_property
    def num_diverged(self) -> int:
        """How many of its good runs diverged: a series with such runs is never called the fastest."""
        return sum(
            learning.is_lost(run) for row in self.rows for run in row.row.good_runs
        )


@dataclasses.dataclass(frozen=True)
class Failure:
    file: str
    title: str
    num_devices: int
    reason: str


@dataclasses.dataclass(frozen=True, eq=False)
class Summary:
    """A folder's report. `name`: the folder as the user wrote it."""

    name: str
    series: tuple[SeriesSummary, ...]
    failures: tuple[Failure, ...]
    left_out: tuple[str, ...]
    facts: tuple[environment.EnvironmentFact, ...]
    differences: tuple[DifferenceTexts, ...]
    num_unjudged: int  # runs whose steady state was not looked for, and rows without attribution, beyond MOST
    num_runs: int
    machines: tuple[tuple[str, int], ...] = ()  # name, runs
    files_in_progress: tuple[
        str, ...
    ] = ()  # files of runs that still go on; they are in no row
    diverged_files: tuple[str, ...] = ()  # files of runs whose loss grew manifold
    files_without_loss: tuple[
        str, ...
    ] = ()  # files of runs whose loss was finite at first alone
    checked_predictions: tuple[
        Statement, ...
    ] = ()  # earlier predictions that were measured since
    learning: Learning | None = (
        None  # where a target was given, or runs counted right predictions
    )

    @property
    def measured(self) -> tuple[SeriesSummary, ...]:
        return tuple(member for member in self.series if member.largest_row)

    @functools.cached_property
    def rows(self) -> list[Row]:
        return [member.row for series in self.series for member in series.rows]

    @functools.cached_property
    def options(self) -> list[str]:
        return identifying_options(self.rows) if self.rows else []

    @functools.cached_property
    def is_certified(self) -> bool:
        """Whether any row has a certificate; a report of rows without does not speak of it."""
        return any(record.certificate for row in self.rows for record in row.records)

    @functools.cached_property
    def row_titles(self) -> dict[Row, str]:
        return {
            member.row: series.title for series in self.series for member in series.rows
        }

    @functools.cached_property
    def positions(self) -> dict[SeriesSummary, int]:
        """The place of each series among all."""
        return {series: k for k, series in enumerate(self.series)}

    @functools.cached_property
    def unit(self) -> str:
        """What the runs count: their unit; "items" where they differ in it."""
        return common_unit(member.unit for member in self.series)

    @functools.cached_property
    def scalings(self) -> list[tuple[str, tuple[SeriesSummary, ...]]]:
        """(what it is, its series) of weak and strong scaling and each work: never compared with each other."""
        kinds: dict[
            tuple[bool, str, str, str, tuple[str, ...]], list[SeriesSummary]
        ] = {}
        for member in self.series:
            row = member.rows[0].row
            model = str(
                row.options["model"] or f"{network(row.options)}, model not told"
            )
            facts = tuple(
                separation.in_words(separation.drop_decided_by_options(member.facts))
            )
            kinds.setdefault(
                (member.is_strong_scaling, member.unit, model, member.machine, facts),
                [],
            ).append(member)
        units = {unit for _, unit, *_ in kinds}
        several_models = len({(unit, model) for _, unit, model, *_ in kinds}) > len(
            units
        )
        named = []
        for (strong, unit, model, machine, facts), series in sorted(
            kinds.items(), key=lambda kind: kind[0][0]
        ):
            workload = [model] if several_models else [unit] if len(units) > 1 else []
            by_work: dict[tuple[str, ...], list[SeriesSummary]] = {}
            for work, member in zip(
                describe_work([member.rows[0].row for member in series]), series
            ):
                by_work.setdefault(work, []).append(member)
            for work, members in by_work.items():
                words = [
                    f"{'Strong' if strong else 'Weak'} scaling",
                    *workload,
                    *work,
                    machine,
                    *facts,
                ]
                named.append((", ".join(filter(None, words)), tuple(members)))
        return named

    @functools.cached_property
    def has_many_models(self) -> bool:
        """Whether the report compares models: in each update mode, whatever they count."""
        return has_many_models(self.rows)

    @functools.cached_property
    def tables(self) -> list[tuple[str, tuple[SeriesSummary, ...]]]:
        """(what it is, its series) of each table and picture: the scalings, or many models in each update mode.

        A model has one series there, its fastest; the models are in the order of their work per exchanged MB.
        """
        if not self.has_many_models:
            return self.scalings
        kinds: dict[str, dict[str, SeriesSummary]] = {}
        for name, series in self.scalings:
            for member in series:
                facts = separation.in_words(
                    separation.drop_decided_by_options(member.facts)
                )
                words = [name.partition(",")[0], member.mode, member.machine, *facts]
                of_kind = kinds.setdefault(", ".join(filter(None, words)), {})
                of_kind[member.model] = max(
                    of_kind.get(member.model, member), member, key=_standing
                )
        return [
            (
                name,
                tuple(
                    sorted(
                        models.values(), key=lambda member: -_work_per_exchange(member)
                    )
                ),
            )
            for name, models in kinds.items()
        ]

    @functools.cached_property
    def trainers_of_unknown_work(self) -> list[str]:
        """Trainers whose work may differ from that of the others in the report."""
        rows_of: dict[str, list[Row]] = {}
        for member in self.measured:
            row = member.rows[0].row
            rows_of.setdefault(
                OUR_TRAINER if row.is_ours else network(row.options), []
            ).append(row)
        is_unknown = any(
            told_work(row.options) is None for rows in rows_of.values() for row in rows
        )
        return list(rows_of) if len(rows_of) > 1 and is_unknown else []

    def command_for_folder(self, command: str) -> str:
        """A command that adds missing runs to this folder."""
        return f"{command} --out={shlex.quote(self.name)}"


def _standing(series: SeriesSummary) -> tuple[bool, int, float]:
    """By which the series that stands for its model is chosen."""
    row = series.largest_row.row if series.largest_row else None
    return (
        not series.num_diverged,
        row.num_devices if row else 0,
        row.rate.value if row and row.rate else 0.0,
    )


def _work_per_exchange(series: SeriesSummary) -> float:
    value = (
        series.largest_row.row.metric(WORK_PER_EXCHANGE) if series.largest_row else None
    )
    return value.value if value else 0.0


def mean_seconds(row: Row) -> float | None:
    """Seconds of the measured batches, the geometric mean over the runs that count.

    None without such a run, or if the log of one does not contain them.

    items/s are a geometric mean too, so seconds x items/s = the items of a run.
    """
    measured = [measured_seconds(record) for record in row.counted_runs]
    logs = [math.log(taken) for taken in measured if taken is not None]
    return (
        math.exp(math.fsum(logs) / len(logs))
        if logs and len(logs) == len(measured)
        else None
    )
