"""Turns a Summary into the data of the interactive page: series over devices, parts of the losses, runs."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis import metrics as table
from rnn_scaling.analysis.attribution import MEANING, REST
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.rows import Row, process_rates, shown
from rnn_scaling.config.conditions import NOT_COMPARED
from rnn_scaling.config.spelling import command
from rnn_scaling.records.record import RunRecord
from rnn_scaling.reports import environment
from rnn_scaling.reports.page.explorer import Axis, Explorer, Line, Metric, Point, Run
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.summary import RowSummary, SeriesSummary, Summary
from rnn_scaling.system import entry
from rnn_scaling.system.files import input_files

DEVICES = "devices"
MOST_STEPS = 200_000  # step times of all runs together
LEAST_STEPS = 100  # step times of a run
MOST_LOG = 8000  # characters of a run's log, from its end
PARTS = (*MEANING, REST)
APART = Metric("apart", "difference from mean of repeats", "%", 1)


def explorer(summary: Summary) -> Explorer:
    """The page's data. Each group of comparable series is a chart; efficiency comes first if it is known."""
    metrics = shown(summary.rows)
    scaled = any(
        row.num_devices > 1 and row.metric(table.EFFICIENCY) for row in summary.rows
    )
    first = table.EFFICIENCY.name if scaled else metrics[0].name
    metrics.sort(key=lambda metric: metric.name != first)
    places = _places(summary)
    axes = {
        name: name.replace("_", " ")
        for name in summary.options
        if _is_axis(summary, name)
    }
    groups = figures.groups(summary)
    members = [
        (member, name if len(groups) > 1 else "")
        for name, series in groups
        for member in series
    ]
    lines = [
        _line(member, group, metrics, list(axes), places) for member, group in members
    ]
    known = {name for line in lines for point in line.points for name in point.values}
    parts = [
        Metric(
            name, f"lost to {name}" if name != REST else "rest of the loss", "points", 1
        )
        for name in PARTS
    ]
    numbers = [
        Metric(metric.name, metric.title, metric.unit, metric.digits, _ideal(metric))
        for metric in metrics
    ]
    return Explorer(
        [
            *numbers[:2],
            APART,
            *numbers[2:],
            *(part for part in parts if part.name in known),
        ],
        [
            Axis(DEVICES, "devices"),
            *(Axis(name, title) for name, title in axes.items()),
        ],
        lines,
        [*_run_data(summary, metrics)],
        parts=PARTS,
    )


def _runs(
    summary: Summary,
) -> Iterator[tuple[SeriesSummary, RowSummary, RunRecord, str]]:
    for series in summary.series:
        for row in series.rows:
            for record, file in zip(row.row.records, row.files):
                yield series, row, record, file


def _places(summary: Summary) -> dict[RowSummary, list[int]]:
    """The indices of each row's runs."""
    places: dict[RowSummary, list[int]] = {}
    for k, (_, row, *_) in enumerate(_runs(summary)):
        places.setdefault(row, []).append(k)
    return places


def _is_axis(summary: Summary, name: str) -> bool:
    """Whether this option is a number in which rows differ; devices have a separate axis."""
    values = {row.told(name) for row in summary.rows} - {None}
    is_number = all(type(value) in (int, float) for value in values)
    return is_number and len(values) > 1 and name not in ("num_devices", "num_workers")


def _ideal(metric: table.Metric) -> str:
    return "" if metric.ideal is None else "one" if metric.ideal(2) == 1 else "n"


def _line(
    series: SeriesSummary,
    group: str,
    metrics: Sequence[table.Metric],
    axes: list[str],
    places: dict[RowSummary, list[int]],
) -> Line:
    points = []
    for row in series.rows:
        values = {
            metric.name: ends(metric.printed(row.row.metric(metric)))
            for metric in metrics
        }
        values |= {
            part.name: ends(part.points)
            for part in (row.loss.shown if row.loss else ())
        }
        x = {
            DEVICES: row.row.num_devices,
            **{name: row.row.told(name) for name in axes},
        }
        known = {name: value for name, value in values.items() if value}
        points.append(
            Point(
                {name: at for name, at in x.items() if at is not None},
                known,
                places[row],
                row.devices,
            )
        )
    return Line(series.title, points, group)


def ends(interval: Interval | None) -> list[float | None]:
    """[value, low, high]; [] if unknown."""
    return (
        []
        if interval is None
        else [_short(interval.value), *map(_short, interval.ends or (None, None))]
    )


def _short(value: float | None, digits: int = 6) -> float | None:
    return (
        float(f"{value:.{digits}g}")
        if value is not None and math.isfinite(value)
        else None
    )


def _run_data(summary: Summary, metrics: Sequence[table.Metric]) -> Iterator[Run]:
    most = max(LEAST_STEPS, MOST_STEPS // max(1, summary.runs))
    for series, row, record, file in _runs(summary):
        steady = next((run for run in row.steady if run.record is record), None)
        step_ms, bucket = _thinned(record.batches.seconds, most)
        facts = {**environment.facts_of(record), "Started": record.environment.started}
        facts["Batch times"] = steady.text if steady else None
        error = f"{record.error.type}: {record.error.message}" if record.error else ""
        options = {
            name: value
            for name, value in row.row.known.items()
            if name not in NOT_COMPARED
        }
        yield Run(
            name=file,
            title=f"{series.title}, {row.devices}",
            options={
                name: str(value)
                for name, value in options.items()
                if value not in (None, "")
            },
            status=record.status,
            values=_values(row.row, record, metrics),
            step_ms=step_ms,
            steps=len(record.batches.seconds),
            bucket=bucket,
            warmup=record.batches.warmup,
            steady=steady.state.start if steady else None,
            phases={
                name: seconds
                for name, value in record.phases.parts.items()
                if (seconds := _short(value, 4))
            },
            facts={
                name: str(value)
                for name, value in facts.items()
                if value not in (None, "")
            },
            log="\n".join(
                filter(None, [entry.printable(error, lines=True), _log(summary, file)])
            ),
            command=command(record.config)
            if row.row.is_ours
            else str(record.config.get("trainer_command") or ""),
        )


def _values(
    row: Row, record: RunRecord, metrics: Sequence[table.Metric]
) -> dict[str, float]:
    """The metrics of a run, in the printed unit."""
    if record not in row.good:
        return {}
    rate = Interval(process_rates([record])[0])
    measured = table.Measured(
        (record,),
        row.num_devices,
        rate,
        row.baseline.rate if row.baseline else None,
        row.priced,
    )
    values = {
        metric.name: metric.printed(metric.compute(measured)) for metric in metrics
    }
    if row.rate and len(row.good) > 1:
        values[APART.name] = Interval(100 * (rate.value / row.rate.value - 1))
    return {
        name: short
        for name, value in values.items()
        if value and (short := _short(value.value)) is not None
    }


def _thinned(seconds: Sequence[float], most: int) -> tuple[list[float], int]:
    """(milliseconds, bucket size): every step; if more than `most`, the minimum and maximum of each bucket."""
    milliseconds: list[Any] = [
        _short(1000 * value, 6 if len(seconds) <= most else 4) for value in seconds
    ]
    if len(milliseconds) <= most:
        return milliseconds, 0
    size = math.ceil(2 * len(milliseconds) / most)
    buckets = [milliseconds[i : i + size] for i in range(0, len(milliseconds), size)]
    return [end for bucket in buckets for end in (min(bucket), max(bucket))], size


def _log(summary: Summary, file: str) -> str:
    """The end of another program's output, which a sweep stores next to the record."""
    try:
        text = input_files.read_bytes(
            Path(summary.name) / f"{Path(file).stem}.log.txt"
        ).decode(errors="replace")
    except OSError:
        return ""
    return entry.printable(text[-MOST_LOG:], lines=True)
