"""Turn a Summary into charts: series over devices, parts of the losses, runs.

The page, the curves and the PNG draw what this module collects.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.attribution import UNEXPLAINED, LossPartName
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import (
    EFFICIENCY,
    RATE,
    SPEEDUP,
    WORK_PER_EXCHANGE,
    Measured,
    Metric,
)
from rnn_scaling.analysis.rows import (
    Row,
    has_many_models,
    run_rates,
    select_metrics,
)
from rnn_scaling.config.conditions import NOT_COMPARED
from rnn_scaling.config.naming import name_network
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import environment
from rnn_scaling.reports.columns import make_metric_column
from rnn_scaling.reports.explorer import (
    Axis,
    Explorer,
    Line,
    Point,
    Run,
    round_briefly,
)
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.pictures.charts import Chart
from rnn_scaling.reports.repeat_commands import run_command
from rnn_scaling.reports.shared_names import split_titles
from rnn_scaling.reports.steady_state import state_text
from rnn_scaling.reports.summary import SeriesSummary, Summary
from rnn_scaling.reports.wording import format_interval
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files

DEVICES = Axis("devices", "devices")
MAX_STEPS = 200_000  # step times of all runs together
MIN_STEPS = 100  # step times of a run
_MAX_LOG = 8000  # characters of a run's log, from its end
PARTS = tuple(LossPartName)
_DEVIATION = Metric("apart", "difference from mean of repeats", "%", digits=1)


@dataclasses.dataclass(frozen=True)
class Group:
    """Series that one picture can contain: one kind of scaling, or one mode of models.

    Attributes:
      title: Empty for the only group.
    """

    name: str
    title: str
    lines: Sequence[Line]
    picture_metrics: Sequence[Metric]  # metrics that have a picture

    def chart(self, metric: Metric) -> Chart:
        return Chart(metric, DEVICES, self.lines)

    @property
    def efficiency(self) -> Chart | None:
        """The efficiency, or None if no series used several devices."""
        chart = self.chart(EFFICIENCY)
        lines = [line for line in self.lines if chart.points(line)]
        chart = dataclasses.replace(chart, lines=lines)
        return chart if max(chart.positions, default=1) > 1 else None

    @property
    def efficiency_over_work(self) -> Chart | None:
        """The efficiency of models on their most devices, over the work per exchange."""
        work = WORK_PER_EXCHANGE
        axis = Axis(work.name, f"{work.unit} per exchanged MB", "metric")
        chart = Chart(EFFICIENCY, axis, self.lines)
        last_points = []
        for line in self.lines:
            points = [point for *_, point in chart.points(line)]
            last_points.append(dataclasses.replace(line, points=points[-1:]))
        chart = dataclasses.replace(chart, lines=last_points)
        return chart if chart.positions else None


def list_groups(summary: Summary) -> list[Group]:
    """Return the groups that measured something, which have separate pictures."""
    report_metrics = select_metrics(summary.rows)
    measured_series = []
    for name, series in summary.tables:
        if members := [member for member in series if member.largest_row]:
            measured_series.append((name, members))
    result = []
    for name, members in measured_series:
        title = name if len(measured_series) > 1 else ""
        rows: list[Row] = []
        for member in members:
            rows += member.rows
        picture_metrics = _list_picture_metrics(rows)
        # A group that counts words has other names than a report that counts items.
        metrics = [*dict.fromkeys((*report_metrics, *picture_metrics))]
        lines = _make_lines(summary, members, title, metrics)
        result.append(Group(name, title, lines, picture_metrics))
    return result


def _make_lines(
    summary: Summary,
    members: Sequence[SeriesSummary],
    group: str,
    metrics: Sequence[Metric],
) -> list[Line]:
    """Return the line of each series of a group."""
    axes = _list_option_axes(summary)
    # The indices of the runs of each row, which are numbered in the order of the rows.
    run_indices = {}
    num_runs = 0
    for row in summary.rows:
        run_indices[row] = list(range(num_runs, num_runs + len(row.records)))
        num_runs += len(row.records)
    lines = []
    for member, style, (heading, short_name) in zip(
        members,
        _make_line_styles(members),
        _list_short_names(members, summary.has_many_models),
    ):
        line = Line(
            member.title,
            [
                _make_point(member, row, metrics, axes, run_indices[row])
                for row in member.rows
            ],
            group,
            *style,
            shared=heading,
            short=short_name,
            anchor=make_series_anchor(summary, member),
            cells=_make_metric_cells(member, metrics),
        )
        lines.append(line)
    return lines


def make_series_anchor(summary: Summary, series: SeriesSummary) -> str:
    """Return the id of the details of a series on the page."""
    return f"series-{summary.positions[series]}"


def _list_short_names(
    series: Sequence[SeriesSummary], has_many_models: bool
) -> list[tuple[str, str]]:
    """Return the heading and the short name of each series.

    A report of many models has one series per model, which has the model's name.
    """
    if has_many_models:
        return [("", member.model) for member in series]
    return split_titles([member.title for member in series])


def _make_metric_cells(
    series: SeriesSummary, metrics: Iterable[Metric]
) -> dict[str, str]:
    """Return the number of each metric on the most devices, as in a table."""
    row = series.largest_row
    if row is None:
        return {}
    cells = {
        metric.name: make_metric_column(metric).cell(row)
        for metric in metrics
        if row.shown_metric(metric) is not None
    }
    for part in series.parts_of(row):
        if part.points is not None:
            cells[part.name] = format_interval(part.points, 1)
    return cells


def _make_line_styles(series: Sequence[SeriesSummary]) -> list[tuple[int, int]]:
    """Return the numbers of colour and shape of each series.

    Colours distinguish update modes and shapes encoders, if there are enough shapes.
    """
    pairs = []
    for member in series:
        options = member.options
        pairs.append((options["variable_update"], name_network(options)))
    modes, encoders = [list(dict.fromkeys(names)) for names in zip(*pairs)]
    if len(set(pairs)) < len(pairs) or len(encoders) > len(figures.MARKERS):
        return [(k, k // len(figures.COLOURS)) for k in range(len(pairs))]
    return [(modes.index(mode), encoders.index(encoder)) for mode, encoder in pairs]


def _list_picture_metrics(rows: Sequence[Row]) -> list[Metric]:
    """Return the metrics with a picture; for many models, without one model's unit."""
    rate = RATE.compute if has_many_models(rows) else None
    return [
        metric
        for metric in select_metrics(rows)
        if metric.has_picture and not metric.compares_models and metric.compute != rate
    ]


def make_explorer(summary: Summary, series_groups: Sequence[Group]) -> Explorer:
    """Return the page's data; efficiency comes first if it is known."""
    metrics = select_metrics(summary.rows)
    if any(map(_has_efficiency, summary.rows)):
        # The sort is stable, so the other metrics stay in order.
        metrics.sort(key=lambda metric: metric.name != EFFICIENCY.name)

    lines: list[Line] = []
    used_names: set[str] = set()
    for group in series_groups:
        lines += group.lines
        for line in group.lines:
            used_names.update(*(point.values for point in line.points))
    titles = {name: f"lost to {name}" for name in LossPartName}
    titles[UNEXPLAINED] = "rest of the loss"
    parts = [
        Metric(name, titles[name], "points", digits=1)
        for name in PARTS
        if name in used_names
    ]
    axes = [Axis(name, name.replace("_", " ")) for name in _list_option_axes(summary)]
    return Explorer(
        [*metrics[:2], _DEVIATION, *metrics[2:], *parts],
        [DEVICES, *axes],
        lines,
        _run_data(summary, metrics),
        parts=PARTS,
    )


def _has_efficiency(row: Row) -> bool:
    return row.num_devices > 1 and row.shown_metric(EFFICIENCY) is not None


def _list_option_axes(summary: Summary) -> list[str]:
    """Return the options that are numbers in which rows differ, except devices."""
    axes = []
    for name in summary.options:
        values = {row.reported(name) for row in summary.rows} - {None}
        is_number = all(type(value) in (int, float) for value in values)
        if is_number and len(values) > 1 and name not in ("num_devices", "num_workers"):
            axes.append(name)
    return axes


def _make_point(
    series: SeriesSummary,
    row: Row,
    metrics: Iterable[Metric],
    axes: Sequence[str],
    runs: Sequence[int],
) -> Point:
    x = {DEVICES.name: row.num_devices}
    x |= {name: row.reported(name) for name in axes}
    values = {
        metric.name: metric.to_printed_unit(row.shown_metric(metric))
        for metric in metrics
    }
    for part in series.parts_of(row):
        values[part.name] = part.points
    return Point(_drop_unknown(x), _drop_unknown(values), runs, row.devices)


def _drop_unknown(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values that are neither None nor empty."""
    return {name: value for name, value in values.items() if value not in (None, "")}


def _run_data(summary: Summary, metrics: Sequence[Metric]) -> list[Run]:
    """Return the runs in the order of the rows."""
    most_steps = max(MIN_STEPS, MAX_STEPS // max(1, summary.num_runs))
    runs = []
    for row in summary.rows:
        counted = row.counted_runs
        rates = run_rates(counted, row.counts_all_batches)
        measured_rates = dict(zip(map(id, counted), rates))
        for record in row.records:
            measured_rate = measured_rates.get(id(record))
            values = _list_metric_values(row, record, metrics, measured_rate)
            runs.append(
                _run(
                    summary,
                    row=row,
                    record=record,
                    values=values,
                    most_steps=most_steps,
                )
            )
    return runs


def _run(
    summary: Summary,
    row: Row,
    record: RunRecord,
    values: dict[str, float],
    most_steps: int,
) -> Run:
    """Return a run with these values of metrics."""
    file = summary.files[id(record)]
    steady = summary.steady_states.get(id(record))
    step_ms, bucket = _thin_out(record.batches.seconds, most_steps)
    facts = {**environment.run_facts(record), "Started": record.environment.started}
    facts["Batch times"] = state_text(steady, record) if steady else None
    known_options = _drop_unknown(dict(row.options.known))
    phases = {
        name: round_briefly(value, 4) for name, value in record.phases.parts.items()
    }
    command = str(record.config.get("trainer_command") or "")
    if row.is_ours:
        command = run_command(record.config)
    return Run(
        name=file,
        title=f"{summary.row_titles[row]}, {row.devices}",
        options={
            name: str(known_options[name])
            for name in known_options
            if name not in NOT_COMPARED
        },
        status=record.status,
        values=values,
        step_ms=step_ms,
        steps=len(record.batches.seconds),
        bucket=bucket,
        warmup=record.batches.warmup,
        steady=steady.start if steady else None,
        phases={name: seconds for name, seconds in phases.items() if seconds},
        facts={name: str(value) for name, value in _drop_unknown(facts).items()},
        log=_find_log(summary, file, record),
        command=command,
    )


def _list_metric_values(
    row: Row,
    record: RunRecord,
    metrics: Sequence[Metric],
    measured_rate: float | None,
) -> dict[str, float]:
    """Return the metrics of a run as measured, in the printed unit.

    Args:
      row: The row of the point.
      record: The run.
      metrics: The metrics of the report.
      measured_rate: Items/s of a run that counts, over the batches that count in the
        row; None for other runs.

    Returns:
      No speedup if the speedup of the row is not the ratio of measured rates, or if
      load hides it.
    """
    if record not in row.good_runs:
        return {}
    rate = Interval(measured_rate or run_rates([record])[0])
    speedup = row.shown_metric(SPEEDUP)
    base = None
    if row.baseline and speedup and not speedup.kind.inherited_notes:
        base = row.baseline.rate
    measured = Measured(
        (record,),
        num_devices=row.num_devices,
        rate=rate,
        base_rate=base,
        priced=row.priced,
    )
    values = {
        metric.name: metric.to_printed_unit(metric.compute(measured))
        for metric in metrics
    }
    mean = row.measured_rate
    if mean and len(row.good_runs) > 1:
        values[_DEVIATION.name] = Interval(100 * (rate.value / mean.value - 1))
    numbers = {
        name: round_briefly(value.value) for name, value in values.items() if value
    }
    return {name: number for name, number in numbers.items() if number is not None}


def _thin_out(seconds: Sequence[float], limit: int) -> tuple[list[Any], int]:
    """Return milliseconds, and the size of the buckets.

    If there are more than `limit`, the milliseconds are the minimum and the maximum of
    each bucket. The size is 0 if there is a number for every step.
    """
    has_buckets = len(seconds) > limit
    digits = 4 if has_buckets else 6
    times: list[Any] = [round_briefly(1000 * value, digits) for value in seconds]
    if not has_buckets:
        return times, 0
    size = math.ceil(2 * len(times) / limit)
    ends = []
    for first in range(0, len(times), size):
        bucket = times[first : first + size]
        ends += [min(bucket), max(bucket)]
    return ends, size


def _find_log(summary: Summary, file: str, record: RunRecord) -> str:
    """Return the error of a run, and the end of its program's output."""
    error = record.error
    error_text = f"{error.type}: {error.message}" if error else ""
    texts = [
        entry.make_printable(error_text, lines=True),
        _find_program_log(summary, file),
    ]
    return "\n".join(filter(None, texts))


def _find_program_log(summary: Summary, file: str) -> str:
    """Return the end of another program's output, which a sweep stores with the record."""
    path = Path(summary.name) / f"{Path(file).stem}.log.txt"
    try:
        text = input_files.read_bytes(path).decode(errors="replace")
    except OSError:
        return ""
    return entry.make_printable(text[-_MAX_LOG:], lines=True)
