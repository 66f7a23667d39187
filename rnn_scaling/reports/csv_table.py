"""Every row as CSV (RFC 4180): numbers to 12 digits, intervals as low and high, empty where not known."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import ITEMS, Metric
from rnn_scaling.analysis.rows import shown
from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports import csv_cells
from rnn_scaling.reports.summary import RowSummary, SeriesSummary, Summary, seconds

WORK = ("num_devices", "batch_size", "global_batch_size", "runs_ok", "runs_failed", "seconds")
WITHIN_RUN = ("within_run_low", "within_run_high")  # of the rate, over the batches of the only run


def render(summary: Summary) -> bytes:
    """One line a row, under a header; rates of several units are items/s, and a column says of what."""
    text = io.StringIO()
    writer = csv.writer(text)
    metrics, of = shown(summary.rows), ["unit"] if summary.unit == ITEMS else []
    numbers = (f"{metric.name}{end}" for metric in metrics for end in ("", "_low", "_high"))
    writer.writerow(("schema", "series", "scaling", *of, *WORK, *numbers, "interval", *WITHIN_RUN))
    lines = (
        _line(series, row, metrics, [series.unit] if of else []) for series in summary.series for row in series.rows
    )
    writer.writerows(map(csv_cells.cell, line) for line in lines)
    return text.getvalue().encode()


def _line(series: SeriesSummary, summary: RowSummary, metrics: Sequence[Metric], unit: Sequence[str]) -> list[object]:
    row = summary.row
    good = len(row.good)
    line: list[object] = [
        REPORT_SCHEMA,
        series.title,
        "strong" if series.strong else "weak",
        *unit,
        row.num_devices,
        "" if series.strong else row.config["batch_size"],
        row.config["global_batch_size"] or "",
        good,
        len(row.records) - good,
        "" if (taken := seconds(row)) is None else rounded(taken),
    ]
    for metric in metrics:
        line += _interval(row.metric(metric))
    _, *within_run = _interval(row.rate_within_run)
    return [*line, row.rate.kind if row.rate else "", *within_run]


def _interval(value: Interval | None) -> list[object]:
    if value is None:
        return ["", "", ""]
    return ["" if number is None else rounded(number) for number in (value.value, value.low, value.high)]


def rounded(number: float) -> float:
    """The number to 12 digits: what follows depends on the platform's exp and log."""
    return float(f"{number:.12g}")
