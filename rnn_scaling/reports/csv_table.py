"""Every row of a report as CSV (RFC 4180).

Numbers have 12 digits, and intervals have columns for low and high. A cell is empty if
its value is unknown. Programs of users read the columns by name: names may be added, but
never change one. docs/report.md lists them.
"""

import functools
from collections.abc import Collection, Iterable, Mapping

from rnn_scaling.analysis.attribution import Attribution, LossPartName
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.interval_kinds import Note
from rnn_scaling.analysis.metrics import RATE, Metric
from rnn_scaling.analysis.rows import Row, select_metrics
from rnn_scaling.config import run_config as configs
from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports import certificates, columns, learning
from rnn_scaling.reports.columns import (
    RowColumn,
    SeriesColumn,
    format_csv,
    format_csv_line,
)
from rnn_scaling.reports.summary import Summary
from rnn_scaling.reports.wording import format_interval_kind


def _name_interval_basis(row: Row) -> str:
    """Return what the interval of the rate is over; "" without an interval."""
    if row.rate is None or row.rate.ends is None:
        return ""
    is_pooled = row.scatter is not None and row.scatter.note is Note.POOLED
    return "pooled processes" if is_pooled else "processes"


def _format_certificate(row: Row) -> str:
    certificate = certificates.find_row_certificate(row)
    return certificates.format_certificate(certificate) if certificate else ""


_SCHEMA = SeriesColumn("schema", lambda _: REPORT_SCHEMA)
_SERIES = (_SCHEMA, columns.TITLE, columns.SCALING, columns.UNIT)
_SERIES_NAMES = [column.csv_name or column.name for column in _SERIES]
_WORK_NAMES = {column.name for column in columns.WORK}
_INTERVAL_OVER = RowColumn("interval_over", _name_interval_basis)
_INTERVAL_KIND = RowColumn(
    "interval", lambda row: format_interval_kind(row.rate.kind) if row.rate else ""
)
_CERTIFICATE_TEXT = RowColumn("certificate_sentence", _format_certificate)
_NOT_SPLIT = "not split"
_LOSS = "loss"


def render(summary: Summary) -> bytes:
    """Return a header and one line per row; without rows, only the columns of series.

    Each option, metric and part of the efficiency loss has a column, so that a program
    need not parse texts. Rates of several units are items/s; the column `unit` contains
    the unit of each row.
    """
    series_columns = list(_SERIES)
    if len(summary.machines) > 1:
        series_columns.append(columns.MACHINE)
    row_columns = _make_row_columns(summary)
    part_columns = _make_part_columns(summary)

    lines = []
    for series in summary.series:
        for row in series.rows:
            line = format_csv_line(series_columns, series)
            line |= format_csv_line([*row_columns, columns.WITHIN_RUN], row)
            # The value would repeat the rate.
            del line[columns.WITHIN_RUN.name]
            line |= format_csv_line(part_columns, row)
            if summary.is_certified:
                line |= format_csv_line((columns.CERTIFICATE, _CERTIFICATE_TEXT), row)
            if summary.learning:
                line |= learning.make_csv_fields(
                    summary.learning, summary.row_titles, row
                )
            lines.append(line)
    return format_csv(lines, _SERIES_NAMES).encode()


def list_further_options(summary: Summary) -> list[str]:
    """Return the options in which rows differ, except the amount of work."""
    return [
        name
        for name in summary.options
        if not (name in _WORK_NAMES and name in configs.OPTIONS)
    ]


def _make_row_columns(summary: Summary) -> list[RowColumn]:
    """Return the columns of options, runs, metrics and the interval.

    A column without a value in any row is left out, except the ones of every report.
    """
    own_columns = [columns.KERNEL, *columns.WORK, columns.RUNS_OK, columns.RUNS_FAILED]
    if any(row.disturbed_runs for row in summary.rows):
        own_columns.append(columns.RUNS_DISTURBED)
    own_columns.append(columns.SECONDS)
    metrics = select_metrics(summary.rows)
    own_columns += map(columns.make_metric_column, metrics)
    if any(row.corrected is not None for row in summary.rows):
        own_columns.append(columns.make_measured_rate_column(find_rate(metrics)))
        own_columns += [columns.RATE_CORRECTED, columns.SPEEDUP_CORRECTED]
    own_columns += [_INTERVAL_OVER, _INTERVAL_KIND]
    # Another program may have an option with the name of one of our columns.
    reserved_names = {
        *_SERIES_NAMES,
        columns.MACHINE.name,
        *(column.name for column in own_columns),
    }
    reserved_names -= {*configs.OPTIONS}
    return [
        *(
            _make_option_column(name, reserved_names)
            for name in list_further_options(summary)
        ),
        *own_columns,
    ]


def find_rate(metrics: Iterable[Metric]) -> Metric:
    """Return the rate among the metrics of a report, with their unit."""
    return next(metric for metric in metrics if metric.compute is RATE.compute)


def _make_option_column(name: str, reserved_names: Collection[str]) -> RowColumn:
    column_name = f"option_{name}" if name in reserved_names else name
    return RowColumn(column_name, lambda row: row.reported(name))


def _make_part_columns(summary: Summary) -> list[RowColumn]:
    """Return the columns of points of efficiency: parts, unsplit points, and loss."""
    parts: dict[LossPartName, None] = {}
    for row in summary.rows:
        if loss := summary.losses.get(row):
            parts |= dict.fromkeys(part.name for part in loss.parts)
    if not parts:
        return []
    return [
        RowColumn(
            f"{name.replace(' ', '_')}_points",
            functools.partial(_convert_to_points, name, summary.losses),
            has_interval=True,
        )
        for name in (*parts, _NOT_SPLIT, _LOSS)
    ]


def _convert_to_points(
    name: str, losses: Mapping[Row, Attribution], row: Row
) -> Interval | None:
    """Return the points that a row lost to a part, that are not split, or of all."""
    attribution = losses.get(row)
    if attribution is None:
        return None
    points: dict[str, Interval | None] = {
        _NOT_SPLIT: attribution.residual_points,
        _LOSS: attribution.loss_points,
    }
    points |= {part.name: part.points for part in attribution.parts}
    return points.get(name)
