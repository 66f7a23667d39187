"""Every row as CSV (RFC 4180): numbers to 12 digits, intervals as low and high, empty where not known."""

import csv
import io
from collections.abc import Sequence

from rnn_scaling.analysis.confidence import POOLED, Interval
from rnn_scaling.analysis.metrics import Metric
from rnn_scaling.analysis.rows import Row, shown
from rnn_scaling.files import csv_cells
from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports import certificates, learning
from rnn_scaling.reports.numbers import rounded
from rnn_scaling.reports.summary import RowSummary, SeriesSummary, Summary, seconds
from rnn_scaling.settings import config as configs

WORK = ("num_devices", "batch_size", "global_batch_size", "runs_ok", "runs_failed", "seconds")
WHOSE = ("schema", "series", "scaling", "unit")
WITHIN_RUN = ("within_run_low", "within_run_high")  # of the rate, over the batches of the only run
ENDS = ("", "_low", "_high")
LEARNED = ("items_to_target", "seconds_to_target", "times_as_soon_as_one_device")
LOSS, RESIDUAL = "loss", "not_split"


def render(summary: Summary) -> bytes:
    """One line a row, under a header; rates of several units are items/s, and the column `unit` says of what.

    A column for each option, metric and part of the loss, so that no text needs to be taken apart.
    """
    text = io.StringIO()
    writer = csv.writer(text)
    metrics, options = shown(summary.rows), further_options(summary)
    parts = _parts(summary)
    numbers = [f"{metric.name}{end}" for metric in metrics for end in ENDS]
    points = [f"{name}_points{end}" for name in (*parts.values(), RESIDUAL, LOSS) for end in ENDS] if parts else []
    places = ["machine"] if len(summary.machines) > 1 else []
    head = [*WHOSE, *places, *map(_column, options), "kernel", *WORK, *numbers]
    is_certified = summary.is_certified
    certificate = ["certificate", "certificate_sentence"] if is_certified else []
    learned = [f"{name}{end}" for name in LEARNED for end in ENDS] if summary.learning else []
    writer.writerow([*head, "interval_over", "interval", *WITHIN_RUN, *points, *certificate, *learned])
    for series in summary.series:
        for row in series.rows:
            labels = [*([series.machine] if places else []), *(row.row.told(name) for name in options)]
            line = [*_line(series, row, labels, metrics), *(_points(row, list(parts)) if parts else [])]
            line += certificates.words(row.row) if is_certified else []
            if summary.learning:
                line += [cell for value in learning.by_row(summary.learning, row.row) for cell in _interval(value)]
            writer.writerow([csv_cells.cell(value) for value in line])
    return text.getvalue().encode()


def further_options(summary: Summary) -> list[str]:
    """The options that tell the rows apart, without those of the work, which have columns of their own."""
    return [name for name in summary.options if name not in WORK or name not in configs.OPTIONS]


def _column(option: str) -> str:
    """The name of an option's column; another program may have an option of the same name."""
    is_taken = option not in configs.OPTIONS and option in (*WHOSE, "machine", "kernel", *WORK)
    return f"option_{option}" if is_taken else option


def kernel(row: Row) -> str:
    """What really ran as the encoder, of all its runs; empty where their records do not tell."""
    ran = {record.resolved.encoder_kernel for record in row.good}
    return str(next(iter(ran)) or "") if len(ran) == 1 else ""


def _line(
    series: SeriesSummary, summary: RowSummary, labels: Sequence[object], metrics: Sequence[Metric]
) -> list[object]:
    row = summary.row
    good = len(row.good)
    line: list[object] = [
        REPORT_SCHEMA,
        series.title,
        "strong" if series.strong else "weak",
        series.unit,
        *labels,
        kernel(row),
        row.num_devices,
        row.batch_size or "",
        row.config["global_batch_size"] or "",
        good,
        len(row.records) - good,
        "" if (taken := seconds(row)) is None else rounded(taken),
    ]
    for metric in metrics:
        line += _interval(row.metric(metric))
    _, *within_run = _interval(row.rate_within_run)
    return [*line, _over(row), row.rate.kind if row.rate else "", *within_run]


def _over(row: Row) -> str:
    """What the interval of the rate is over, in a word; empty without one."""
    if row.rate is None or row.rate.ends is None:
        return ""
    return "pooled processes" if row.scatter is not None and row.scatter.note == POOLED else "processes"


def _parts(summary: Summary) -> dict[str, str]:
    """Name of each part that any row has -> how its column begins."""
    losses = [row.loss for series in summary.series for row in series.rows if row.loss]
    return {part.name: part.name.replace(" ", "_") for loss in losses for part in loss.parts}


def _points(row: RowSummary, names: Sequence[str]) -> list[object]:
    """Points of efficiency of each part, of what is not split, and of the whole loss, with their ends."""
    if row.loss is None:
        return [*_interval(None)] * (len(names) + 2)
    points = {part.name: part.points for part in row.loss.parts}
    values = [*(points.get(name) for name in names), row.loss.residual_points, row.loss.loss_points]
    return [cell for value in values for cell in _interval(value)]


def _interval(value: Interval | None) -> list[object]:
    if value is None:
        return ["", "", ""]
    return ["" if number is None else rounded(number) for number in (value.value, value.low, value.high)]
