"""All series in one table, each on its most devices; terminal, table.md and page begin with it."""

import operator
from collections.abc import Callable, Sequence

from rnn_scaling.analysis.metrics import EFFICIENCY, MODEL_METRICS, SPEEDUP, common_unit
from rnn_scaling.reports import certificates
from rnn_scaling.reports.columns import NUM_DEVICES, RowColumn, metric_column
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.sections import Columns, Section, make_grid
from rnn_scaling.reports.summary import RowSummary, SeriesSummary, Summary
from rnn_scaling.system.files.terminal import counted

UNKNOWN = "n/a"
SPEEDUP_COLUMN = metric_column(SPEEDUP)
EFFICIENCY_COLUMN = metric_column(EFFICIENCY)


def sections(summary: Summary, is_brief: bool = False) -> list[Section]:
    """Return the summary's tables of series or, if it compares models, of models.

    A single table has no title. The speedup, or the efficiency, comes first, so that a
    phone shows it.

    Args:
      summary: The summary.
      is_brief: Whether the table is for a terminal and has fewer columns.
    """
    tables = []
    for title, series in summary.tables:
        heading_series = series if is_brief else summary.series
        columns = _columns(summary, heading_series, is_brief)
        section_title = title if len(summary.tables) > 1 else ""
        tables.append(Section(section_title, (make_grid("", columns, series),)))
    return tables


def _columns(
    summary: Summary, series: Sequence[SeriesSummary], is_brief: bool
) -> Columns:
    """Return the columns; the headings name the number of devices that all series share."""
    rows = [member.largest_row for member in series if member.largest_row]
    is_scaled = any(row.row.num_devices > 1 for row in rows)
    compares_models = summary.has_many_models
    place = _common_place(rows)
    unit = common_unit(member.unit for member in series).capitalize()

    name_heading = "Model" if compares_models else "Series"
    name = operator.attrgetter("model" if compares_models else "title")
    has_devices_column = not place
    if is_brief:
        if is_scaled and place:
            name_heading = place.strip().capitalize()
        place = ""

    columns: Columns = {name_heading: name}
    if has_devices_column:
        columns[NUM_DEVICES.header] = _largest_row_cell(NUM_DEVICES)
    rates: Columns = {f"{unit}/s{place}": _rate_cell}
    speedup: Columns = {f"Speedup{place}": _largest_row_cell(SPEEDUP_COLUMN)}
    efficiency: Columns = {
        f"Efficiency{place} (%)": _largest_row_cell(EFFICIENCY_COLUMN)
    }
    if compares_models:
        columns |= efficiency
        for metric in MODEL_METRICS:
            columns[metric.column] = _largest_row_cell(metric_column(metric))
    elif is_brief:
        columns |= rates
        if is_scaled:
            columns |= {**speedup, **efficiency}
    else:
        if is_scaled:
            columns |= {**speedup, **efficiency, **rates}
        columns[f"{unit}/s on 1 device"] = _base_rate_cell
    if not is_brief:
        columns["Runs"] = _runs_cell
    if summary.is_certified:
        columns[certificates.COLUMN_TITLE] = _certificate_cell
    return columns


def _common_place(rows: Sequence[RowSummary]) -> str:
    """Return " on 2 devices" or " on 4 workers"; "" if rows differ in their devices."""
    if len({row.row.num_devices for row in rows}) != 1:
        return ""
    places = {row.devices.removesuffix(" of one device each") for row in rows}
    if len(places) == 1:
        return f" on {places.pop()}"
    return f" on {counted(rows[0].row.num_devices, 'device')}"


def _largest_row_cell(column: RowColumn) -> Callable[[SeriesSummary], str]:
    """Return a function that returns the column's cell on the most devices of a series."""

    def cell(series: SeriesSummary) -> str:
        row = series.largest_row
        return column.cell(row.row) if row else UNKNOWN

    return cell


def _rate_cell(series: SeriesSummary) -> str:
    row = series.largest_row
    return plus_minus(row.row.rate, 1) if row else "failed"


def _base_rate_cell(series: SeriesSummary) -> str:
    row = series.largest_row
    baseline = row.row.baseline if row else None
    return plus_minus(baseline.rate, 1) if baseline else UNKNOWN


def _runs_cell(series: SeriesSummary) -> str:
    """Return the numbers of runs that count on one device and on the most devices."""
    row = series.largest_row
    if row is None:
        return "none succeeded"
    counts = [len(row.row.counted_runs)]
    if row.row.baseline:
        counts.insert(0, len(row.row.baseline.counted_runs))
    text = " and ".join(map(str, dict.fromkeys(counts)))
    return f"{text}, diverged" if series.num_diverged else text


def _certificate_cell(series: SeriesSummary) -> str:
    return certificates.verdict_text([row.row for row in series.rows])
