"""The whole report as JSON, schema "rnn_scaling.report/1" (docs/report.md).

Programs of users read the keys: new ones may be added, but never rename one or change
its meaning. Keys with the name of a column come from `columns`.
"""

from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.attribution import Attribution
from rnn_scaling.analysis.metrics import ITEMS, RATE, STEP_TIMES, Measured
from rnn_scaling.analysis.rows import Row, select_metrics
from rnn_scaling.analysis.steps.parts import split_steps
from rnn_scaling.records.decoding import encode
from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.records.record import RunRecord
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
from rnn_scaling.reports.columns import RowColumn, make_json_fields
from rnn_scaling.reports.csv_table import find_rate, list_further_options
from rnn_scaling.reports.environment import EnvironmentFact
from rnn_scaling.reports.json_data import format_plain_json
from rnn_scaling.reports.repeat_commands import repeat_command
from rnn_scaling.reports.series_statements import format_series, make_statements
from rnn_scaling.reports.steady_state import state_text
from rnn_scaling.reports.summary import (
    SeriesSummary,
    Summary,
)
from rnn_scaling.reports.wording import round_for_files, write_sentence, write_sentences

# A report with more rows has no line breaks: indenting takes several times as long.
_MAX_INDENTED_ROWS = 1000


def render(summary: Summary) -> bytes:
    """Return the report as JSON."""
    answer = conclusions.state_answer(summary)
    overview = conclusions.state_overview(summary)
    warnings = cautions.make_statements(summary)
    shown_metrics = select_metrics(summary.rows)
    metrics = list(map(columns.make_metric_column, shown_metrics))
    if any(row.corrected is not None for row in summary.rows):
        metrics.append(columns.make_measured_rate_column(find_rate(shown_metrics)))
    options = list_further_options(summary)
    data: dict[str, Any] = {
        "schema": REPORT_SCHEMA,
        "answer": write_sentences(answer),
        "overview": write_sentences(overview),
        "statements": [*answer, *overview, *warnings],
        "cautions": [write_sentence(each) for each in warnings],
        "runs": summary.num_runs,
        "opening": cautions.write_opening_paragraphs(summary),
        "left_out": list(summary.left_out),
        "running": list(summary.files_in_progress),
        "series": [
            _make_series_data(series, summary, metrics, options)
            for series in summary.series
        ],
        "failures": summary.failures,
        "environment": [_make_fact_data(fact) for fact in summary.facts],
        "differences": [difference.data() for difference in summary.differences],
    }
    if summary.learning:
        data["learning"] = learning.make_data(summary.learning, summary.row_titles)
    if inspection := counts_report.inspect_summary(summary):
        counts = counts_report.make_data(inspection)
        names = ("groups", "growth", "differences")
        data["counts"] = {name: counts[name] for name in names}
    indent = 1 if len(summary.rows) <= _MAX_INDENTED_ROWS else None
    return format_plain_json(data, indent).encode()


def _make_fact_data(fact: EnvironmentFact) -> dict[str, Any]:
    values = [{"value": value, "runs": runs} for value, runs in fact.values]
    return {"name": fact.name, "values": values}


def _make_series_data(
    series: SeriesSummary,
    summary: Summary,
    metrics: Sequence[RowColumn],
    options: Sequence[str],
) -> dict[str, Any]:
    """Return a series with its rows as JSON data."""
    commands = conclusions.list_missing_run_commands(series)
    faster_configuration = series.faster_on_fewer_devices

    data = make_json_fields((columns.TITLE, columns.SCALING), series)
    if summary.unit == ITEMS:
        data |= make_json_fields((columns.UNIT,), series)
    data["sentence"] = format_series(series)
    data["statements"] = make_statements(series)
    data["missing"] = [summary.command_for_folder(command) for command in commands]
    if series.machine:
        data |= make_json_fields((columns.MACHINE,), series)
    if series.facts:
        data["facts"] = dict(series.facts)
    data |= start_up.make_data(series.rows)
    if faster_configuration:
        data["fastest_on"] = faster_configuration.num_devices
    if series.num_diverged:
        data["runs_diverged"] = series.num_diverged
    data["rows"] = [
        _make_row_data(row, metrics, options, summary) for row in series.rows
    ]
    return data


def _make_row_data(
    row: Row,
    metrics: Sequence[RowColumn],
    options: Sequence[str],
    summary: Summary,
) -> dict[str, Any]:
    """Return a row with all columns as JSON data."""
    data = make_json_fields(columns.WORK, row)
    data["options"] = {name: row.reported(name) for name in options}
    data |= make_json_fields((columns.KERNEL,), row)
    data["files"] = [summary.files[id(run)] for run in row.records]
    data |= make_json_fields((columns.RUNS_OK, columns.RUNS_FAILED), row)
    if row.disturbed_runs:
        data |= make_json_fields((columns.RUNS_DISTURBED,), row)
    data["command"] = repeat_command(row, {})
    data |= make_json_fields((*metrics, columns.WITHIN_RUN), row)
    data["attribution"] = _make_attribution_data(summary.losses.get(row), summary.unit)
    data["steady_state"] = [
        _make_steady_state_data(summary, run)
        for run in row.good_runs
        if id(run) in summary.steady_states
    ]
    data["speedups"] = start_up.compute_speedups(row)
    data |= make_json_fields((columns.PADDING, columns.IMBALANCE), row)
    if parts := split_steps(row.good_runs):
        data["step"] = steps.make_data(parts)
    if row.num_workers > 1:
        data["workers"] = cluster.make_row_data(row)
    if summary.is_certified:
        data["certificate"] = encode(certificates.find_row_certificate(row))
    return data


def _make_attribution_data(
    attribution: Attribution | None, unit: str
) -> dict[str, Any] | None:
    """Return the lost points of a row and their parts as JSON data."""
    if attribution is None:
        return None
    rate = RATE.with_unit(unit).name
    parts = []
    for part in attribution.parts:
        part_data = {
            "name": part.name,
            rate: part.value,
            "points": part.points,
            # An old name for a significant part, which programs of users read.
            "told": part.is_significant,
            "commands": list(part.commands),
        }
        parts.append(part_data)
    return {
        "ideal": attribution.ideal,
        "loss": attribution.loss,
        "parts": parts,
        "residual": attribution.residual,
        "loss_points": attribution.loss_points,
        "residual_points": attribution.residual_points,
        "rest_points": attribution.unexplained.points,
    }


def _make_steady_state_data(summary: Summary, run: RunRecord) -> dict[str, Any]:
    state = summary.steady_states[id(run)]
    data: dict[str, Any] = {
        "file": summary.files[id(run)],
        "warmup": run.batches.warmup,
        "kind": state.kind,
        "start": state.start,
        "rate_default": state.rate_default,
        "rate_steady": state.rate_steady,
        "move": state.change,
        "text": state_text(state, run),
    }
    measured = Measured.of_run(run)
    for metric in STEP_TIMES:
        value = metric.compute(measured)
        data[metric.name] = None if value is None else round_for_files(value.value)
    return data
