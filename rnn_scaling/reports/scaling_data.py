"""Turn a Summary into charts: series over devices, parts of the losses, runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis import metrics as table
from rnn_scaling.analysis.attribution import UNEXPLAINED, Part
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.rows import (
    Row,
    has_many_models,
    process_rates,
    select_metrics,
)
from rnn_scaling.config.conditions import NOT_COMPARED
from rnn_scaling.config.naming import network
from rnn_scaling.config.spelling import command
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import environment
from rnn_scaling.reports.explorer import (
    Axis,
    Explorer,
    Line,
    Metric,
    Point,
    Run,
    short,
)
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.pictures.charts import Chart
from rnn_scaling.reports.summary import RowSummary, SeriesSummary, Summary
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files

DEVICES = Axis("devices", "devices")
MOST_STEPS = 200_000  # step times of all runs together
LEAST_STEPS = 100  # step times of a run
MOST_LOG = 8000  # characters of a run's log, from its end
PARTS = tuple(Part)
DEVIATION = Metric("apart", "difference from mean of repeats", "%", 1)


@dataclasses.dataclass(frozen=True)
class Group:
    """Series that one picture can contain: one kind of scaling, or one mode of models.

    title: Empty for the only group.
    drawn: The metrics that have a picture.
    """

    name: str
    title: str
    lines: Sequence[Line]
    drawn: Sequence[Metric]

    def chart(self, metric: Metric) -> Chart:
        return Chart(metric, DEVICES, self.lines)

    @property
    def efficiency(self) -> Chart | None:
        """The efficiency of series on several devices; None without any."""
        chart = self.chart(Metric.of(table.EFFICIENCY))
        lines = [line for line in self.lines if chart.points(line)]
        chart = dataclasses.replace(chart, lines=lines)
        return chart if max(chart.places, default=1) > 1 else None

    @property
    def by_work(self) -> Chart | None:
        """The efficiency of models over their work per exchange, on their most devices."""
        work = table.WORK_PER_EXCHANGE
        axis = Axis(work.name, f"{work.unit} per exchanged MB", "metric")
        chart = Chart(Metric.of(table.EFFICIENCY), axis, self.lines)
        last_points = []
        for line in self.lines:
            points = [point for *_, point in chart.points(line)]
            last_points.append(dataclasses.replace(line, points=points[-1:]))
        chart = dataclasses.replace(chart, lines=last_points)
        return chart if chart.places else None


def groups(summary: Summary) -> list[Group]:
    """Return the groups that measured something; a picture never has two of them."""
    run_indices: dict[RowSummary, list[int]] = {}
    for k, run in enumerate(_runs(summary)):
        run_indices.setdefault(run.row, []).append(k)
    axes = _option_axes(summary)
    report_metrics = select_metrics(summary.rows)

    measured = []
    for name, series in summary.tables:
        if members := [member for member in series if member.largest_row]:
            measured.append((name, members))
    found = []
    for name, members in measured:
        title = name if len(measured) > 1 else ""
        rows: list[Row] = []
        for member in members:
            rows += [row.row for row in member.rows]
        drawn = _picture_metrics(rows)
        # A group that counts words has other names than a report that counts items.
        metrics = dict.fromkeys((*report_metrics, *drawn))
        lines = []
        for member, style in zip(members, _line_styles(members)):
            points = [
                _point(row, metrics, axes, run_indices[row]) for row in member.rows
            ]
            lines.append(Line(member.title, points, title, *style))
        found.append(Group(name, title, lines, list(map(Metric.of, drawn))))
    return found


def _line_styles(series: Sequence[SeriesSummary]) -> list[tuple[int, int]]:
    """Return the numbers of colour and shape of each series.

    Colours distinguish update modes and shapes encoders, if these are enough.
    """
    pairs = []
    for member in series:
        options = member.rows[0].row.options
        pairs.append((options["variable_update"], network(options)))
    modes, encoders = [list(dict.fromkeys(names)) for names in zip(*pairs)]
    if len(set(pairs)) < len(pairs) or len(encoders) > len(figures.MARKERS):
        return [(k, k // len(figures.COLOURS)) for k in range(len(pairs))]
    return [(modes.index(mode), encoders.index(encoder)) for mode, encoder in pairs]


def _picture_metrics(rows: Sequence[Row]) -> list[table.Metric]:
    """Return the metrics with a picture; for many models, without one model's unit."""
    rate = table.RATE.compute if has_many_models(rows) else None
    return [
        metric
        for metric in select_metrics(rows)
        if metric.drawn and not metric.compares_models and metric.compute != rate
    ]


def explorer(summary: Summary, found: Sequence[Group]) -> Explorer:
    """Return the page's data; efficiency comes first if it is known."""
    metrics = select_metrics(summary.rows)
    if any(map(_has_efficiency, summary.rows)):
        # The sort is stable, so the other metrics stay in order.
        metrics.sort(key=lambda metric: metric.name != table.EFFICIENCY.name)
    numbers = list(map(Metric.of, metrics))

    lines: list[Line] = []
    known_names: set[str] = set()
    for group in found:
        lines += group.lines
        for line in group.lines:
            known_names.update(*(point.values for point in line.points))
    titles = {name: f"lost to {name}" for name in Part} | {
        UNEXPLAINED: "rest of the loss"
    }
    parts = [
        Metric(name, titles[name], "points", 1) for name in PARTS if name in known_names
    ]
    axes = [Axis(name, name.replace("_", " ")) for name in _option_axes(summary)]
    return Explorer(
        [*numbers[:2], DEVIATION, *numbers[2:], *parts],
        [DEVICES, *axes],
        lines,
        list(_run_data(summary, metrics)),
        parts=PARTS,
    )


def _has_efficiency(row: Row) -> bool:
    return row.num_devices > 1 and row.metric(table.EFFICIENCY) is not None


@dataclasses.dataclass(frozen=True)
class _SummaryRun:
    """A run with its row and its series."""

    series: SeriesSummary
    row: RowSummary
    record: RunRecord
    file: str


def _runs(summary: Summary) -> Iterator[_SummaryRun]:
    for series in summary.series:
        for row in series.rows:
            for record, file in zip(row.row.records, row.files):
                yield _SummaryRun(series, row, record, file)


def _option_axes(summary: Summary) -> list[str]:
    """Return the options that are numbers in which rows differ, except devices."""
    axes = []
    for name in summary.options:
        values = {row.reported(name) for row in summary.rows} - {None}
        is_number = all(type(value) in (int, float) for value in values)
        if is_number and len(values) > 1 and name not in ("num_devices", "num_workers"):
            axes.append(name)
    return axes


def _point(
    row: RowSummary,
    metrics: Iterable[table.Metric],
    axes: Sequence[str],
    runs: Sequence[int],
) -> Point:
    x = {DEVICES.name: row.row.num_devices}
    x |= {name: row.row.reported(name) for name in axes}
    values = {
        metric.name: metric.in_printed_unit(row.row.metric(metric))
        for metric in metrics
    }
    for part in row.loss.displayed_parts if row.loss else ():
        values[part.name] = part.points
    return Point(_drop_unknown(x), _drop_unknown(values), runs, row.devices)


def _drop_unknown(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values that are neither None nor empty."""
    return {name: value for name, value in values.items() if value not in (None, "")}


def _run_data(summary: Summary, metrics: Sequence[table.Metric]) -> Iterator[Run]:
    most_steps = max(LEAST_STEPS, MOST_STEPS // max(1, summary.num_runs))
    for run in _runs(summary):
        record = run.record
        row = run.row.row
        states = [state for state in run.row.steady if state.record is record]
        steady = states[0] if states else None
        step_ms, bucket = _thin_out(record.batches.seconds, most_steps)

        facts = {**environment.run_facts(record), "Started": record.environment.started}
        facts["Batch times"] = steady.text if steady else None
        options = {}
        for name, value in _drop_unknown(dict(row.options.known)).items():
            if name not in NOT_COMPARED:
                options[name] = str(value)
        phases = {name: short(value, 4) for name, value in record.phases.parts.items()}
        trainer_command = str(record.config.get("trainer_command") or "")
        yield Run(
            name=run.file,
            title=f"{run.series.title}, {run.row.devices}",
            options=options,
            status=record.status,
            values=_values(row, record, metrics),
            step_ms=step_ms,
            steps=len(record.batches.seconds),
            bucket=bucket,
            warmup=record.batches.warmup,
            steady=steady.state.start if steady else None,
            phases={name: seconds for name, seconds in phases.items() if seconds},
            facts={name: str(value) for name, value in _drop_unknown(facts).items()},
            log=_log(summary, run),
            command=command(record.config) if row.is_ours else trainer_command,
        )


def _values(
    row: Row, record: RunRecord, metrics: Sequence[table.Metric]
) -> dict[str, float]:
    """Return the metrics of a run, in the printed unit."""
    if record not in row.good_runs:
        return {}
    rate = Interval(process_rates([record])[0])
    base = row.baseline.rate if row.baseline else None
    measured = table.Measured((record,), row.num_devices, rate, base, row.priced)
    values = {
        metric.name: metric.in_printed_unit(metric.compute(measured))
        for metric in metrics
    }
    if row.rate and len(row.good_runs) > 1:
        values[DEVIATION.name] = Interval(100 * (rate.value / row.rate.value - 1))
    numbers = {name: short(value.value) for name, value in values.items() if value}
    return {name: number for name, number in numbers.items() if number is not None}


def _thin_out(seconds: Sequence[float], most: int) -> tuple[list[Any], int]:
    """Return milliseconds, and the size of the buckets.

    If there are more than `most`, the milliseconds are the minimum and the maximum of
    each bucket. The size is 0 if there is a number for every step.
    """
    has_buckets = len(seconds) > most
    digits = 4 if has_buckets else 6
    times: list[Any] = [short(1000 * value, digits) for value in seconds]
    if not has_buckets:
        return times, 0
    size = math.ceil(2 * len(times) / most)
    ends = []
    for first in range(0, len(times), size):
        bucket = times[first : first + size]
        ends += [min(bucket), max(bucket)]
    return ends, size


def _log(summary: Summary, run: _SummaryRun) -> str:
    """Return the error of a run, and the end of its program's output."""
    error = run.record.error
    error_text = f"{error.type}: {error.message}" if error else ""
    texts = [entry.printable(error_text, lines=True), _program_log(summary, run.file)]
    return "\n".join(filter(None, texts))


def _program_log(summary: Summary, file: str) -> str:
    """Return the end of another program's output, which a sweep stores with the record."""
    path = Path(summary.name) / f"{Path(file).stem}.log.txt"
    try:
        text = input_files.read_bytes(path).decode(errors="replace")
    except OSError:
        return ""
    return entry.printable(text[-MOST_LOG:], lines=True)
