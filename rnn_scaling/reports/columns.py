"""The columns of a report: each quantity is described once, for tables, CSV and JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import Metric
from rnn_scaling.analysis.rows import Row
from rnn_scaling.reports import certificates
from rnn_scaling.reports.numbers import interval_data, plain, plus_minus, rounded
from rnn_scaling.reports.summary import RowSummary, SeriesSummary, mean_seconds

Item = TypeVar("Item")
CsvCell = tuple[str, object]  # name of the column, value
SECONDS_DIGITS = 3


@dataclasses.dataclass(frozen=True)
class Column(Generic[Item]):
    """One quantity of an item, such as a row, in all formats."""

    name: str  # key in JSON, and in CSV without a `csv_name`
    header: str  # heading in tables
    value: Callable[[Item], Any]  # an Interval, a number or a text; None if unknown
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
            return plus_minus(value, self.digits)
        if isinstance(value, float):
            return f"{self.factor * value:.{self.digits}f}"
        return str(value)

    def csv_cells(self, item: Item | None) -> list[CsvCell]:
        """Return the cells of a CSV line; empty cells if the item or its value is unknown."""
        name = self.csv_name or self.name
        value = None if item is None else self.value(item)
        if not self.has_interval:
            return [(name, "" if value is None else value)]
        names = (name, f"{name}_low", f"{name}_high")
        numbers = (value.value, value.low, value.high) if value else (None,) * 3
        cells = ["" if number is None else rounded(number) for number in numbers]
        return list(zip(names, cells))

    def json_value(self, item: Item) -> Any:
        """Return the value for JSON, where an interval is an object."""
        value = self.value(item)
        return interval_data(value) if isinstance(value, Interval) else value


def csv_line(columns: Iterable[Column[Item]], item: Item | None) -> list[CsvCell]:
    """Return the cells of an item in a CSV line."""
    cells: list[CsvCell] = []
    for column in columns:
        cells += column.csv_cells(item)
    return cells


def json_fields(columns: Iterable[Column[Item]], item: Item) -> dict[str, Any]:
    """Return the fields of an item in JSON."""
    return {column.name: column.json_value(item) for column in columns}


def metric_column(metric: Metric) -> Column[Row]:
    """Return the column of a metric."""
    return Column(
        metric.name,
        metric.column,
        lambda row: row.metric(metric),
        metric.digits,
        metric.factor,
        has_interval=True,
    )


def encoder_kernel(row: Row) -> str:
    """Return the kernel that ran as the encoder; "" if runs differ or do not record it."""
    kernels = {record.resolved.encoder_kernel for record in row.good_runs}
    return str(next(iter(kernels)) or "") if len(kernels) == 1 else ""


def _batch_size_text(row: Row) -> str:
    total = row.options["global_batch_size"]
    return f"{total} in all" if total else str(row.batch_size or "n/a")


def _num_failed(row: Row) -> int:
    return len(row.records) - len(row.good_runs)


def _runs_text(row: Row) -> str:
    """Return how many runs count, and how many do not."""
    parts = [str(len(row.counted_runs))]
    if row.disturbed_runs:
        parts.append(f"{len(row.disturbed_runs)} disturbed")
    if _num_failed(row):
        parts.append(f"{_num_failed(row)} failed")
    return ", ".join(parts)


def _rounded_seconds(row: Row) -> float | None:
    seconds = mean_seconds(row)
    return None if seconds is None else rounded(seconds)


def _seconds_text(row: Row) -> str:
    seconds = mean_seconds(row)
    if seconds is not None:
        return plain(seconds, SECONDS_DIGITS)
    return "n/a" if row.good_runs else row.records[-1].status


def _waiting_text(row: RowSummary) -> str:
    return f"{100 * row.imbalance / (1 + row.imbalance):.1f}"


NUM_DEVICES: Column[Row] = Column("num_devices", "Devices", lambda row: row.num_devices)
NUM_WORKERS: Column[Row] = Column("num_workers", "Workers", lambda row: row.num_workers)
BATCH_SIZE: Column[Row] = Column(
    "batch_size", "Batch size", lambda row: row.batch_size, text=_batch_size_text
)
GLOBAL_BATCH_SIZE: Column[Row] = Column(
    "global_batch_size",
    "Global batch size",
    lambda row: row.options["global_batch_size"] or None,
)
WORK = (NUM_DEVICES, BATCH_SIZE, GLOBAL_BATCH_SIZE)
KERNEL: Column[Row] = Column("kernel", "Kernel", encoder_kernel)
RUNS_OK: Column[Row] = Column(
    "runs_ok", "Runs", lambda row: len(row.good_runs), text=_runs_text
)
RUNS_FAILED: Column[Row] = Column("runs_failed", "Failed runs", _num_failed)
RUNS_DISTURBED: Column[Row] = Column(
    "runs_disturbed", "Disturbed runs", lambda row: len(row.disturbed_runs)
)
SECONDS: Column[Row] = Column(
    "seconds", "Total time (s)", _rounded_seconds, text=_seconds_text
)
WITHIN_RUN: Column[Row] = Column(
    "within_run",
    "Within the run",
    lambda row: row.rate_within_run,
    has_interval=True,
)
CERTIFICATE: Column[Row] = Column(
    "certificate",
    certificates.COLUMN_TITLE,
    lambda row: certificates.verdict_text([row]),
)
PADDING: Column[RowSummary] = Column(
    "padding",
    "Padding (% of positions)",
    lambda row: row.padding,
    digits=1,
    factor=100,
)
IMBALANCE: Column[RowSummary] = Column(
    "imbalance",
    "Waiting for the longest (% of time)",
    lambda row: row.imbalance if row.row.good_runs else None,
    text=_waiting_text,
)
TITLE: Column[SeriesSummary] = Column(
    "title", "Series", lambda series: series.title, csv_name="series"
)
SCALING: Column[SeriesSummary] = Column(
    "scaling",
    "Scaling",
    lambda series: "strong" if series.is_strong_scaling else "weak",
)
UNIT: Column[SeriesSummary] = Column("unit", "Unit", lambda series: series.unit)
MACHINE: Column[SeriesSummary] = Column(
    "machine", "Machine", lambda series: series.machine
)
