"""Every row as CSV (RFC 4180): numbers to 12 digits, intervals as low and high, empty where not known."""

import csv
import io
from collections.abc import Sequence

from rnn_scaling.analysis.attribution import Part
from rnn_scaling.analysis.confidence import POOLED, Interval
from rnn_scaling.analysis.metrics import Metric
from rnn_scaling.analysis.rows import Row, select_metrics
from rnn_scaling.config import run_config as configs
from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports import certificates, learning
from rnn_scaling.reports.numbers import rounded
from rnn_scaling.reports.summary import RowSummary, SeriesSummary, Summary, mean_seconds
from rnn_scaling.system.files.markdown import csv_cell

WORK = (
    "num_devices",
    "batch_size",
    "global_batch_size",
    "runs_ok",
    "runs_failed",
    "seconds",
)
WHOSE = ("schema", "series", "scaling", "unit")
LEARNED = ("items_to_target", "seconds_to_target", "times_as_soon_as_one_device")
Cell = tuple[str, object]  # the name of its column, and its value


def render(summary: Summary) -> bytes:
    """One line a row, under a header; rates of several units are items/s, and the column `unit` says of what.

    A column for each option, metric and part of the loss, so that no text needs to be taken apart.
    """
    metrics, options = select_metrics(summary.rows), further_options(summary)
    rows = [(series, row) for series in summary.series for row in series.rows]
    parts = list(
        dict.fromkeys(
            part.name for _, row in rows if row.loss for part in row.loss.parts
        )
    )
    lines = [
        _line(summary, series, row, options, metrics) + _points(row, parts)
        for series, row in rows
    ]
    for line, (_, row) in zip(lines, rows):
        if summary.is_certified:
            certificate = certificates.row_certificate(row.row)
            words = (
                certificates.verdict_text([row.row]),
                certificates.certificate_text(certificate) if certificate else "",
            )
            line += zip(("certificate", "certificate_sentence"), words)
        if summary.learning:
            for name, value in zip(
                LEARNED, learning.row_numbers(summary.learning, row.row)
            ):
                line += _interval(name, value)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow([name for name, _ in lines[0]] if lines else WHOSE)
    writer.writerows([[csv_cell(value) for _, value in line] for line in lines])
    return text.getvalue().encode()


def further_options(summary: Summary) -> list[str]:
    """The options that tell the rows apart, without those of the work, which have columns of their own."""
    return [
        name
        for name in summary.options
        if name not in WORK or name not in configs.OPTIONS
    ]


def _column(option: str) -> str:
    """The name of an option's column; another program may have an option of the same name."""
    is_taken = option not in configs.OPTIONS and option in (
        *WHOSE,
        "machine",
        "kernel",
        *WORK,
    )
    return f"option_{option}" if is_taken else option


def encoder_kernel(row: Row) -> str:
    """What really ran as the encoder, of all its runs; empty where their records do not tell."""
    ran = {record.resolved.encoder_kernel for record in row.good_runs}
    return str(next(iter(ran)) or "") if len(ran) == 1 else ""


def _line(
    summary: Summary,
    series: SeriesSummary,
    member: RowSummary,
    options: Sequence[str],
    metrics: Sequence[Metric],
) -> list[Cell]:
    row = member.row
    good = len(row.good_runs)
    taken = mean_seconds(row)
    some_disturbed = any(other.disturbed_runs for other in summary.rows)
    cells: list[Cell] = [
        *zip(
            WHOSE,
            (
                REPORT_SCHEMA,
                series.title,
                "strong" if series.is_strong_scaling else "weak",
                series.unit,
            ),
        ),
        *([("machine", series.machine)] if len(summary.machines) > 1 else []),
        *((_column(name), row.reported(name)) for name in options),
        ("kernel", encoder_kernel(row)),
        ("num_devices", row.num_devices),
        ("batch_size", row.batch_size or ""),
        ("global_batch_size", row.options["global_batch_size"] or ""),
        ("runs_ok", good),
        ("runs_failed", len(row.records) - good),
        *([("runs_disturbed", len(row.disturbed_runs))] if some_disturbed else []),
        ("seconds", "" if taken is None else rounded(taken)),
    ]
    for metric in metrics:
        cells += _interval(metric.name, row.metric(metric))
    is_pooled = row.scatter is not None and row.scatter.note == POOLED
    over = (
        ""
        if row.rate is None or row.rate.ends is None
        else "pooled processes"
        if is_pooled
        else "processes"
    )
    cells += [("interval_over", over), ("interval", row.rate.kind if row.rate else "")]
    return [
        *cells,
        *_interval("within_run", row.rate_within_run)[1:],
    ]  # over the batches of the only run


def _points(row: RowSummary, names: Sequence[Part]) -> list[Cell]:
    """Points of efficiency of each part, of what is not split, and of the whole loss; nothing without parts."""
    points = {part.name: part.points for part in row.loss.parts} if row.loss else {}
    values = {name.replace(" ", "_"): points.get(name) for name in names}
    if names:
        values["not_split"] = row.loss.residual_points if row.loss else None
        values["loss"] = row.loss.loss_points if row.loss else None
    return [
        cell
        for name, value in values.items()
        for cell in _interval(f"{name}_points", value)
    ]


def _interval(name: str, value: Interval | None) -> list[Cell]:
    numbers = (value.value, value.low, value.high) if value else (None, None, None)
    cells = ["" if number is None else rounded(number) for number in numbers]
    return list(zip((name, f"{name}_low", f"{name}_high"), cells))
