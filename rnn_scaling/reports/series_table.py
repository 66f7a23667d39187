"""All series in one table, each on its most devices.

The output on the terminal, table.md and the page begin with `make_sections`. Numbers come from
`columns`; this module chooses columns and marks.
"""

import dataclasses
import operator
from collections.abc import Sequence

from rnn_scaling.analysis.metrics import (
    EFFICIENCY,
    MODEL_METRICS,
    RATE,
    SPEEDUP,
    Metric,
    find_common_unit,
)
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.reports import certificates, marks
from rnn_scaling.reports.columns import (
    NUM_DEVICES,
    RowColumn,
    SeriesColumn,
    cells_by_header,
    metric_column,
)
from rnn_scaling.reports.numbers import format_interval
from rnn_scaling.reports.sections import Section, make_grid
from rnn_scaling.reports.summary import SeriesSummary, Summary
from rnn_scaling.system.files.terminal import format_count

_UNKNOWN = "n/a"


def make_sections(summary: Summary, is_brief: bool = False) -> list[Section]:
    """Return the summary's tables of series or, if it compares models, of models.

    A single table has no title. The speedup, or the efficiency, comes first, so that a
    phone shows it.

    Args:
      summary: The summary.
      is_brief: Whether the table is for a terminal and has fewer columns.
    """
    tables = []
    for title, series in summary.tables:
        columns = make_columns(
            summary, series if is_brief else summary.series, is_brief
        )
        section_title = title if len(summary.tables) > 1 else ""
        grid = make_grid("", cells_by_header(columns), series)
        tables.append(Section(section_title, (grid,), tuple(mark_statements(series))))
    return tables


def mark_statements(series: Sequence[SeriesSummary]) -> list[Statement]:
    """Return the lines that explain the marks of a table of series."""
    rows = [member.largest_row for member in series if member.largest_row]
    return marks.explain_rows(marks.with_baselines(rows))


def common_devices_suffix(series: Sequence[SeriesSummary]) -> str:
    """Return " on 2 devices" or " on 4 workers"; "" if series have different most devices."""
    rows = [member.largest_row for member in series if member.largest_row]
    if len({row.num_devices for row in rows}) != 1:
        return ""
    places = {row.devices.removesuffix(" of one device each") for row in rows}
    if len(places) == 1:
        return f" on {places.pop()}"
    return f" on {format_count(rows[0].num_devices, 'device')}"


def make_columns(
    summary: Summary, series: Sequence[SeriesSummary], is_brief: bool = False
) -> list[SeriesColumn]:
    """Return the columns, with the name of the metric that each shows, or "".

    The headings name the number of devices that all series share.
    """
    rows = [member.largest_row for member in series if member.largest_row]
    is_scaled = any(row.num_devices > 1 for row in rows)
    compares_models = summary.has_many_models
    suffix = common_devices_suffix(series)
    unit = find_common_unit(member.unit for member in series)

    name = SeriesColumn("", operator.attrgetter("title"), "Series")
    if compares_models:
        name = SeriesColumn("", operator.attrgetter("model"), "Model")
    columns = [name]
    if not suffix:
        columns.append(_largest_row_column(NUM_DEVICES.header, NUM_DEVICES))
    elif is_brief:
        # The first heading has the devices once, because a terminal is narrow.
        if is_scaled:
            columns = [dataclasses.replace(name, header=suffix.strip().capitalize())]
        suffix = ""
    rate_name = RATE.with_unit(unit).name
    heading = f"{unit.capitalize()}/s"
    rate = SeriesColumn(rate_name, _rate_cell, f"{heading}{suffix}")
    speedup = _metric_column(f"Speedup{suffix}", SPEEDUP)
    efficiency = _metric_column(f"Efficiency{suffix} (%)", EFFICIENCY)
    # Each table begins with its most important number, because a phone shows only that.
    if compares_models:
        columns.append(efficiency)
        columns += [_metric_column(metric.column, metric) for metric in MODEL_METRICS]
    elif is_brief:
        columns += [rate, speedup, efficiency] if is_scaled else [rate]
    else:
        columns += [speedup, efficiency, rate] if is_scaled else []
        base_metric = "" if is_scaled else rate_name
        columns.append(
            SeriesColumn(base_metric, _base_rate_cell, f"{heading} on 1 device")
        )
    if not is_brief:
        columns.append(SeriesColumn("", _runs_cell, "Runs"))
    if summary.is_certified:
        columns.append(SeriesColumn("", _certificate_cell, certificates.COLUMN_TITLE))
    return columns


def _largest_row_column(
    heading: str, column: RowColumn, metric: str = ""
) -> SeriesColumn:
    """Return the column with a cell of the row on the most devices."""

    def cell(series: SeriesSummary) -> str:
        row = series.largest_row
        return column.cell(row) if row else _UNKNOWN

    return SeriesColumn(metric, cell, heading)


def _metric_column(heading: str, metric: Metric) -> SeriesColumn:
    return _largest_row_column(heading, metric_column(metric), metric.name)


def _certificate_cell(series: SeriesSummary) -> str:
    return certificates.verdict_text(series.rows)


def _rate_cell(series: SeriesSummary) -> str:
    """Return the rate on the most devices, or "failed" if no run succeeded."""
    row = series.largest_row
    return format_interval(row.rate, 1) if row else "failed"


def _base_rate_cell(series: SeriesSummary) -> str:
    """Return the rate on one device, from which speedup and efficiency are computed."""
    row = series.largest_row
    baseline = row.baseline if row else None
    return format_interval(baseline.rate, 1) if baseline else _UNKNOWN


def _runs_cell(series: SeriesSummary) -> str:
    """Return the numbers of runs that count on one device and on the most devices."""
    row = series.largest_row
    if row is None:
        return "none succeeded"
    counts = [len(row.counted_runs)]
    if row.baseline:
        counts.insert(0, len(row.baseline.counted_runs))
    text = " and ".join(map(str, dict.fromkeys(counts)))
    return f"{text}, diverged" if series.num_diverged else text
