"""Every row of a report as CSV (RFC 4180).

Numbers have 12 digits, and intervals have columns for low and high. A cell is empty if
its value is unknown.
"""

import csv
import io
from collections.abc import Callable

from rnn_scaling.analysis.attribution import Part
from rnn_scaling.analysis.confidence import POOLED, Interval
from rnn_scaling.analysis.rows import Row, select_metrics
from rnn_scaling.config import run_config as configs
from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports import certificates, columns, learning
from rnn_scaling.reports.columns import (
    CsvCell,
    RowColumn,
    RowSummaryColumn,
    SeriesColumn,
    csv_line,
)
from rnn_scaling.reports.summary import RowSummary, Summary
from rnn_scaling.system.files.markdown import csv_cell

SCHEMA = SeriesColumn("schema", lambda _: REPORT_SCHEMA)
SERIES = (SCHEMA, columns.TITLE, columns.SCALING, columns.UNIT)
# Columns that an option of the same name does not repeat.
ROW_NAMES = {
    column.name
    for column in (
        *columns.WORK,
        columns.RUNS_OK,
        columns.RUNS_FAILED,
        columns.SECONDS,
    )
}
SERIES_NAMES = {column.csv_name or column.name for column in SERIES}


def render(summary: Summary) -> bytes:
    """Return a header and one line per row.

    Each option, metric and part of the efficiency loss has a column, so that a program
    need not parse texts. Rates of several units are items/s; the column
    `unit` contains the unit of each row.
    """
    series_columns = list(SERIES)
    if len(summary.machines) > 1:
        series_columns.append(columns.MACHINE)
    row_columns = _row_columns(summary)
    part_columns = _part_columns(summary)

    lines = []
    for series in summary.series:
        for row in series.rows:
            line = csv_line(series_columns, series)
            line += csv_line(row_columns, row.row)
            # Its own value would repeat the rate.
            line += columns.WITHIN_RUN.csv_cells(row.row)[1:]
            line += csv_line(part_columns, row)
            if summary.is_certified:
                line += csv_line((columns.CERTIFICATE, CERTIFICATE_TEXT), row.row)
            if summary.learning:
                line += learning.csv_cells(
                    summary.learning, summary.row_titles, row.row
                )
            lines.append(line)
    return _text(lines).encode()


def _text(lines: list[list[CsvCell]]) -> str:
    header = [column.csv_name or column.name for column in SERIES]
    if lines:
        header = [name for name, _ in lines[0]]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(header)
    for line in lines:
        writer.writerow([csv_cell(value) for _, value in line])
    return text.getvalue()


def further_options(summary: Summary) -> list[str]:
    """Return the options in which rows differ, except those in ROW_NAMES."""
    return [
        name
        for name in summary.options
        if name not in ROW_NAMES or name not in configs.OPTIONS
    ]


def _row_columns(summary: Summary) -> list[RowColumn]:
    row_columns = [_option_column(name) for name in further_options(summary)]
    row_columns += [columns.KERNEL, *columns.WORK]
    row_columns += [columns.RUNS_OK, columns.RUNS_FAILED]
    if any(row.disturbed_runs for row in summary.rows):
        row_columns.append(columns.RUNS_DISTURBED)
    row_columns.append(columns.SECONDS)
    row_columns += map(columns.metric_column, select_metrics(summary.rows))
    return [*row_columns, INTERVAL_OVER, INTERVAL_KIND]


def _option_column(name: str) -> RowColumn:
    """Return the column of an option.

    Another program may have an option with the name of one of our columns.
    """
    reserved = {*SERIES_NAMES, *ROW_NAMES, columns.MACHINE.name, columns.KERNEL.name}
    is_taken = name not in configs.OPTIONS and name in reserved
    column_name = f"option_{name}" if is_taken else name
    return RowColumn(column_name, lambda row: row.reported(name))


def _interval_over(row: Row) -> str:
    if row.rate is None or row.rate.ends is None:
        return ""
    is_pooled = row.scatter is not None and row.scatter.note == POOLED
    return "pooled processes" if is_pooled else "processes"


def _certificate_text(row: Row) -> str:
    certificate = certificates.row_certificate(row)
    return certificates.certificate_text(certificate) if certificate else ""


INTERVAL_OVER = RowColumn("interval_over", _interval_over)
INTERVAL_KIND = RowColumn("interval", lambda row: row.rate.kind if row.rate else "")
CERTIFICATE_TEXT = RowColumn("certificate_sentence", _certificate_text)


def _part_columns(summary: Summary) -> list[RowSummaryColumn]:
    """Return the columns of points of efficiency: parts, what is not split, the whole."""
    parts: dict[Part, None] = {}
    for row in summary.row_summaries:
        if row.loss:
            parts.update(dict.fromkeys(part.name for part in row.loss.parts))
    if not parts:
        return []
    part_columns = [
        _points_column(part.replace(" ", "_"), _part_points(part)) for part in parts
    ]
    return [
        *part_columns,
        _points_column("not_split", _residual_points),
        _points_column("loss", _loss_points),
    ]


def _residual_points(row: RowSummary) -> Interval | None:
    return row.loss.residual_points if row.loss else None


def _loss_points(row: RowSummary) -> Interval | None:
    return row.loss.loss_points if row.loss else None


def _points_column(
    name: str, value: Callable[[RowSummary], Interval | None]
) -> RowSummaryColumn:
    return RowSummaryColumn(f"{name}_points", value, has_interval=True)


def _part_points(name: Part) -> Callable[[RowSummary], Interval | None]:
    def points(row: RowSummary) -> Interval | None:
        for part in row.loss.parts if row.loss else ():
            if part.name == name:
                return part.points
        return None

    return points
