"""The columns of a report: each quantity is described once, for tables, CSV and JSON.

The `name` of a column is a key in report.json, and it or `csv_name` is a header in
table.csv: programs of users read both, so never rename one.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import SPEEDUP, Metric
from rnn_scaling.analysis.rows import Row
from rnn_scaling.reports import certificates
from rnn_scaling.reports.sections import Columns
from rnn_scaling.reports.summary import SeriesSummary, compute_mean_seconds
from rnn_scaling.reports.wording import format_interval, format_plain, round_for_files
from rnn_scaling.system.files.markdown import format_csv_cell

Item = TypeVar("Item")
_SECONDS_DIGITS = 3


@dataclasses.dataclass(frozen=True)
class Column(Generic[Item]):
    """One quantity of an item, such as a row, in all formats."""

    name: str  # key in JSON, and in CSV without a `csv_name`
    value: Callable[[Item], Any]  # an Interval, a number or a text; None if unknown
    header: str = ""  # heading in tables
    digits: int = 0  # most decimals in tables
    factor: float = 1.0  # number in tables / value
    has_interval: bool = False  # two more columns in CSV: low and high
    csv_name: str = ""
    text: Callable[[Item], str] | None = None  # cell in tables that is not the value

    def cell(self, item: Item) -> str:
        """Return the cell of a table."""
        if self.text is not None:
            return self.text(item)
        value = self.value(item)
        if isinstance(value, Interval) and self.factor != 1:
            value = value.scaled(self.factor)
        if value is None or isinstance(value, Interval):
            return format_interval(value, self.digits)
        if isinstance(value, float):
            return f"{self.factor * value:.{self.digits}f}"
        return str(value)

    def csv_fields(self, item: Item | None) -> dict[str, Any]:
        """Return the fields of a CSV line; None if the item or its value is unknown."""
        name = self.csv_name or self.name
        value = None if item is None else self.value(item)
        if not self.has_interval:
            return {name: value}
        fields = {}
        for suffix, attribute in (("", "value"), ("_low", "low"), ("_high", "high")):
            number = getattr(value, attribute, None)
            fields[name + suffix] = None if number is None else round_for_files(number)
        return fields


def format_csv_line(
    columns: Iterable[Column[Item]], item: Item | None
) -> dict[str, Any]:
    """Return the fields of an item in a CSV line."""
    fields: dict[str, Any] = {}
    for column in columns:
        fields |= column.csv_fields(item)
    return fields


def format_csv(lines: Sequence[Mapping[str, Any]], names: Iterable[str] = ()) -> str:
    """Return lines as CSV, with a header of all their fields.

    Args:
      lines: The fields of each line.
      names: The first names of the header.
    """
    header = dict.fromkeys(names)
    for line in lines:
        header |= dict.fromkeys(line)
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(header))
    writer.writeheader()
    for line in lines:
        writer.writerow({name: format_csv_cell(value) for name, value in line.items()})
    return stream.getvalue()


def make_json_fields(columns: Iterable[Column[Item]], item: Item) -> dict[str, Any]:
    """Return the fields of an item in JSON."""
    return {column.name: column.value(item) for column in columns}


def format_cells_by_header(columns: Iterable[Column[Item]]) -> Columns:
    """Return the cells of the columns that tables have."""
    return {column.header: column.cell for column in columns if column.header}


RowColumn = Column[Row]
SeriesColumn = Column[SeriesSummary]


def make_metric_column(metric: Metric) -> RowColumn:
    """Return the column of a metric."""
    return RowColumn(
        metric.name,
        lambda row: row.shown_metric(metric),
        metric.column,
        metric.digits,
        metric.factor,
        has_interval=True,
    )


def make_measured_rate_column(rate: Metric) -> RowColumn:
    """Return the column of the rate without a correction for load."""
    return RowColumn(
        f"measured_{rate.name}", lambda row: row.measured_rate, has_interval=True
    )


def _name_encoder_kernel(row: Row) -> str:
    """Return the kernel that ran as the encoder; "" if runs differ or do not record it."""
    kernels = {record.resolved.encoder_kernel for record in row.good_runs}
    return str(next(iter(kernels)) or "") if len(kernels) == 1 else ""


def _format_batch_size(row: Row) -> str:
    total = row.options["global_batch_size"]
    return f"{total} in all" if total else str(row.batch_size or "n/a")


def _count_failed(row: Row) -> int:
    return len(row.records) - len(row.good_runs)


def _format_runs(row: Row) -> str:
    """Return how many runs count, and how many do not."""
    parts = [str(len(row.counted_runs))]
    if row.disturbed_runs:
        parts.append(f"{len(row.disturbed_runs)} disturbed")
    if _count_failed(row):
        parts.append(f"{_count_failed(row)} failed")
    return ", ".join(parts)


def _has_corrected_speedup(row: Row) -> bool | None:
    """Return whether speedup and efficiency contain a corrected rate; None without."""
    speedup = row.shown_metric(SPEEDUP)
    return None if speedup is None else speedup.is_corrected


def _round_seconds(row: Row) -> float | None:
    seconds = compute_mean_seconds(row)
    return None if seconds is None else round_for_files(seconds)


def _format_seconds(row: Row) -> str:
    seconds = compute_mean_seconds(row)
    if seconds is not None:
        return format_plain(seconds, _SECONDS_DIGITS)
    return "n/a" if row.good_runs else row.records[-1].status


def _format_waiting(row: Row) -> str:
    return f"{100 * row.imbalance / (1 + row.imbalance):.1f}"


NUM_DEVICES = RowColumn("num_devices", lambda row: row.num_devices, "Devices")
NUM_WORKERS = RowColumn("num_workers", lambda row: row.num_workers, "Workers")
BATCH_SIZE = RowColumn(
    "batch_size", lambda row: row.batch_size, "Batch size", text=_format_batch_size
)
_GLOBAL_BATCH_SIZE = RowColumn(
    "global_batch_size", lambda row: row.options["global_batch_size"] or None
)
WORK = (NUM_DEVICES, BATCH_SIZE, _GLOBAL_BATCH_SIZE)
KERNEL = RowColumn("kernel", _name_encoder_kernel)
RUNS_OK = RowColumn(
    "runs_ok", lambda row: len(row.good_runs), "Runs", text=_format_runs
)
RUNS_FAILED = RowColumn("runs_failed", _count_failed)
RUNS_DISTURBED = RowColumn("runs_disturbed", lambda row: len(row.disturbed_runs))
# Columns of reports with a corrected rate.
RATE_CORRECTED = RowColumn("rate_corrected", lambda row: row.corrected is not None)
SPEEDUP_CORRECTED = RowColumn("speedup_corrected", _has_corrected_speedup)
SECONDS = RowColumn("seconds", _round_seconds, "Total time (s)", text=_format_seconds)
WITHIN_RUN = RowColumn("within_run", lambda row: row.rate_within_run, has_interval=True)
CERTIFICATE = RowColumn(
    "certificate",
    lambda row: certificates.format_verdict([row]),
    certificates.COLUMN_TITLE,
)
PADDING = RowColumn(
    "padding", lambda row: row.padding, "Padding (% of positions)", 1, factor=100
)
IMBALANCE = RowColumn(
    "imbalance",
    lambda row: row.imbalance if row.good_runs else None,
    "Waiting for the longest (% of time)",
    text=_format_waiting,
)
TITLE = SeriesColumn("title", lambda series: series.title, csv_name="series")
SCALING = SeriesColumn(
    "scaling", lambda series: "strong" if series.is_strong_scaling else "weak"
)
UNIT = SeriesColumn("unit", lambda series: series.unit)
MACHINE = SeriesColumn("machine", lambda series: series.machine)
