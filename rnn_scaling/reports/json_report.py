"""The whole report as JSON, schema "rnn_scaling.report/1" (docs/report.md): numbers with their intervals."""

from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.metrics import ITEMS, RATE, STEP_TIMES, Measured, Metric
from rnn_scaling.analysis.rows import select_metrics
from rnn_scaling.records.decoding import encode
from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports import (
    cautions,
    certificates,
    cluster,
    conclusions,
    counts_report,
    learning,
    start_up,
    steps,
)
from rnn_scaling.reports.csv_table import encoder_kernel, further_options
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

MOST_INDENTED = 1000  # rows up to which the text is for people too; indenting takes several times as long


def render(summary: Summary) -> bytes:
    metrics, options = select_metrics(summary.rows), further_options(summary)
    answer = [
        *conclusions.answer_statements(summary),
        *conclusions.overview_statements(summary),
    ]
    fields = {
        "schema": REPORT_SCHEMA,
        "answer": conclusions.answer_text(summary),
        "overview": conclusions.overview_text(summary),
        "statements": [
            statement.data() for statement in (*answer, *cautions.statements(summary))
        ],
        "cautions": cautions.caution_texts(summary),
        "runs": summary.num_runs,
        "opening": cautions.opening_paragraphs(summary),
        "left_out": list(summary.left_out),
        "running": list(summary.files_in_progress),
        "series": [
            _series(member, summary, metrics, options) for member in summary.series
        ],
        "failures": [vars(failure) for failure in summary.failures],
        "environment": [
            {
                "name": fact.name,
                "values": [
                    {"value": value, "runs": runs} for value, runs in fact.values
                ],
            }
            for fact in summary.facts
        ],
        "differences": [difference.data() for difference in summary.differences],
    }
    if summary.learning:
        fields["learning"] = learning.as_json(summary.learning, summary.row_titles)
    if inspection := counts_report.inspect_summary(summary):
        counts = counts_report.content(inspection)
        fields["counts"] = {
            name: counts[name] for name in ("groups", "growth", "differences")
        }
    indent = 1 if len(summary.rows) <= MOST_INDENTED else None
    return input_files.json_text(fields, indent).encode()


def _series(
    series: SeriesSummary,
    summary: Summary,
    metrics: Sequence[Metric],
    options: Sequence[str],
) -> dict[str, Any]:
    return {
        "title": series.title,
        "scaling": "strong" if series.is_strong_scaling else "weak",
        **({"unit": series.unit} if summary.unit == ITEMS else {}),
        "sentence": series_text(series),
        "statements": [statement.data() for statement in statements(series)],
        "missing": [
            summary.command_for_folder(command)
            for command in conclusions.missing_run_commands(series)
        ],
        **({"machine": series.machine} if series.machine else {}),
        **({"facts": dict(series.facts)} if series.facts else {}),
        **start_up.as_json([row.row for row in series.rows]),
        **(
            {"fastest_on": series.faster_on_fewer_devices.row.num_devices}
            if series.faster_on_fewer_devices
            else {}
        ),
        **({"runs_diverged": series.num_diverged} if series.num_diverged else {}),
        "rows": [_row(row, metrics, options, summary) for row in series.rows],
    }


def _row(
    summary: RowSummary,
    metrics: Sequence[Metric],
    options: Sequence[str],
    whole: Summary,
) -> dict[str, Any]:
    row = summary.row
    return {
        "num_devices": row.num_devices,
        "batch_size": row.batch_size,
        "global_batch_size": row.options["global_batch_size"] or None,
        "options": {name: row.reported(name) for name in options},
        "kernel": encoder_kernel(row),
        "files": list(summary.files),
        "runs_ok": len(row.good_runs),
        "runs_failed": len(row.records) - len(row.good_runs),
        **({"runs_disturbed": len(row.disturbed_runs)} if row.disturbed_runs else {}),
        "command": repeat_command(row, {}),
        **{metric.name: interval_data(row.metric(metric)) for metric in metrics},
        "within_run": interval_data(row.rate_within_run),
        "attribution": _attribution(summary, whole.unit),
        "steady_state": [_steady(run) for run in summary.steady],
        "speedups": start_up.speedups(row),
        "padding": summary.padding,
        "imbalance": summary.imbalance if row.good_runs else None,
        **({"step": steps.as_json(summary.step_parts)} if summary.step_parts else {}),
        **({"workers": cluster.row_data(row)} if row.num_workers > 1 else {}),
        **(
            {"certificate": encode(certificates.row_certificate(row))}
            if whole.is_certified
            else {}
        ),
    }


def _attribution(summary: RowSummary, unit: str) -> dict[str, Any] | None:
    loss = summary.loss
    if loss is None:
        return None
    name = RATE.named_after(unit).name
    parts = []
    for part in loss.parts:
        numbers = {
            name: interval_data(part.value),
            "points": interval_data(part.points),
        }
        parts.append(
            {
                "name": part.name,
                **numbers,
                "told": part.is_significant,
                "commands": list(part.commands),
            }
        )
    return {
        "ideal": interval_data(loss.ideal),
        "loss": interval_data(loss.loss),
        "parts": parts,
        "residual": interval_data(loss.residual),
        "loss_points": interval_data(loss.loss_points),
        "residual_points": interval_data(loss.residual_points),
        "rest_points": interval_data(loss.unexplained.points),
    }


def _steady(run: RunSteadyState) -> dict[str, Any]:
    fields = ("kind", "start", "rate_default", "rate_steady", "move")
    found = {name: getattr(run.state, name) for name in fields}
    found["text"] = run.text
    alone = Measured((run.record,), 0, None, None)
    values = {metric.name: metric.compute(alone) for metric in STEP_TIMES}
    times = {name: value and rounded(value.value) for name, value in values.items()}
    return {"file": run.file, "warmup": run.record.batches.warmup, **found, **times}
