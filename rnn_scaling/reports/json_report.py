"""The whole report as JSON, schema "rnn_scaling.report/1" (docs/report.md)."""

from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.metrics import ITEMS, RATE, STEP_TIMES, Measured
from rnn_scaling.analysis.rows import select_metrics
from rnn_scaling.records.decoding import encode
from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports import (
    cautions,
    certificates,
    cluster,
    columns,
    conclusions,
    counts_report,
    learning,
    start_up,
    steps,
)
from rnn_scaling.reports.columns import RowColumn, json_fields
from rnn_scaling.reports.csv_table import further_options
from rnn_scaling.reports.environment import EnvironmentFact
from rnn_scaling.reports.numbers import interval_data, rounded
from rnn_scaling.reports.repeat_commands import repeat_command
from rnn_scaling.reports.series_statements import series_text, statements
from rnn_scaling.reports.summary import (
    RowSummary,
    RunSteadyState,
    SeriesSummary,
    Summary,
)
from rnn_scaling.system.files import input_files

# Rows up to which the text is also for people; indenting takes several times as long.
MOST_INDENTED = 1000


def render(summary: Summary) -> bytes:
    """Return the report as JSON."""
    answer = [
        *conclusions.answer_statements(summary),
        *conclusions.overview_statements(summary),
        *cautions.statements(summary),
    ]
    metrics = [columns.metric_column(metric) for metric in select_metrics(summary.rows)]
    options = further_options(summary)
    fields: dict[str, Any] = {
        "schema": REPORT_SCHEMA,
        "answer": conclusions.answer_text(summary),
        "overview": conclusions.overview_text(summary),
        "statements": [statement.data() for statement in answer],
        "cautions": cautions.caution_texts(summary),
        "runs": summary.num_runs,
        "opening": cautions.opening_paragraphs(summary),
        "left_out": list(summary.left_out),
        "running": list(summary.files_in_progress),
        "series": [
            _series_data(series, summary, metrics, options) for series in summary.series
        ],
        "failures": [vars(failure) for failure in summary.failures],
        "environment": [_fact_data(fact) for fact in summary.facts],
        "differences": [difference.data() for difference in summary.differences],
    }
    if summary.learning:
        fields["learning"] = learning.as_json(summary.learning, summary.row_titles)
    if inspection := counts_report.inspect_summary(summary):
        counts = counts_report.content(inspection)
        names = ("groups", "growth", "differences")
        fields["counts"] = {name: counts[name] for name in names}
    indent = 1 if len(summary.rows) <= MOST_INDENTED else None
    return input_files.json_text(fields, indent).encode()


def _fact_data(fact: EnvironmentFact) -> dict[str, Any]:
    values = [{"value": value, "runs": runs} for value, runs in fact.values]
    return {"name": fact.name, "values": values}


def _series_data(
    series: SeriesSummary,
    summary: Summary,
    metrics: Sequence[RowColumn],
    options: Sequence[str],
) -> dict[str, Any]:
    commands = conclusions.missing_run_commands(series)
    fastest = series.faster_on_fewer_devices

    fields = json_fields((columns.TITLE, columns.SCALING), series)
    if summary.unit == ITEMS:
        fields |= json_fields((columns.UNIT,), series)
    fields["sentence"] = series_text(series)
    fields["statements"] = [statement.data() for statement in statements(series)]
    fields["missing"] = [summary.command_for_folder(command) for command in commands]
    if series.machine:
        fields |= json_fields((columns.MACHINE,), series)
    if series.facts:
        fields["facts"] = dict(series.facts)
    fields |= start_up.as_json([row.row for row in series.rows])
    if fastest:
        fields["fastest_on"] = fastest.row.num_devices
    if series.num_diverged:
        fields["runs_diverged"] = series.num_diverged
    fields["rows"] = [_row_data(row, metrics, options, summary) for row in series.rows]
    return fields


def _row_data(
    row: RowSummary,
    metrics: Sequence[RowColumn],
    options: Sequence[str],
    summary: Summary,
) -> dict[str, Any]:
    fields = json_fields(columns.WORK, row.row)
    fields["options"] = {name: row.row.reported(name) for name in options}
    fields |= json_fields((columns.KERNEL,), row.row)
    fields["files"] = list(row.files)
    fields |= json_fields((columns.RUNS_OK, columns.RUNS_FAILED), row.row)
    if row.row.disturbed_runs:
        fields |= json_fields((columns.RUNS_DISTURBED,), row.row)
    fields["command"] = repeat_command(row.row, {})
    fields |= json_fields((*metrics, columns.WITHIN_RUN), row.row)
    fields["attribution"] = _attribution_data(row, summary.unit)
    fields["steady_state"] = [_steady_state_data(run) for run in row.steady]
    fields["speedups"] = start_up.speedups(row.row)
    fields |= json_fields((columns.PADDING, columns.IMBALANCE), row)
    if row.step_parts:
        fields["step"] = steps.as_json(row.step_parts)
    if row.row.num_workers > 1:
        fields["workers"] = cluster.row_data(row.row)
    if summary.is_certified:
        fields["certificate"] = encode(certificates.row_certificate(row.row))
    return fields


def _attribution_data(row: RowSummary, unit: str) -> dict[str, Any] | None:
    loss = row.loss
    if loss is None:
        return None
    rate = RATE.named_after(unit).name
    parts = []
    for part in loss.parts:
        fields = {
            "name": part.name,
            rate: interval_data(part.value),
            "points": interval_data(part.points),
            "told": part.is_significant,
            "commands": list(part.commands),
        }
        parts.append(fields)
    return {
        "ideal": interval_data(loss.ideal),
        "loss": interval_data(loss.loss),
        "parts": parts,
        "residual": interval_data(loss.residual),
        "loss_points": interval_data(loss.loss_points),
        "residual_points": interval_data(loss.residual_points),
        "rest_points": interval_data(loss.unexplained.points),
    }


def _steady_state_data(run: RunSteadyState) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "file": run.file,
        "warmup": run.record.batches.warmup,
    }
    for name in ("kind", "start", "rate_default", "rate_steady", "move"):
        fields[name] = getattr(run.state, name)
    fields["text"] = run.text
    measured = Measured((run.record,), 0, None, None)
    for metric in STEP_TIMES:
        value = metric.compute(measured)
        fields[metric.name] = value and rounded(value.value)
    return fields
