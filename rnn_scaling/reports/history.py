"""A history for the terminal, as CSV and as JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.history.curves import Curve, Point, Step, Timeline
from rnn_scaling.analysis.metrics import METRICS, RATE, common_unit
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports.numbers import interval_data, plus_minus, rounded
from rnn_scaling.reports.sections import Columns, Grid, Section, make_grid, markdown
from rnn_scaling.reports.wording import sentences
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import csv_cell, escaped

SCHEMA = "rnn_scaling.history_report/1"
BARS = "▁▂▃▄▅▆▇█"
MOST_BARS = 16
# Entries that a reliable search for change points of 5 % needs (docs/history.md).
ENOUGH = 16


def _size_statement(timeline: Timeline) -> Statement:
    """Return the numbers of entries, commits, machines and change points."""
    entries = timeline.entries
    days = sorted(entry.measured[:10] for entry in entries if entry.measured)
    days = days or ["unknown"]
    values = {
        "entries": len(entries),
        "commits": len({entry.source[:2] for entry in entries if entry.commit}),
        "machines": len({entry.machine.name for entry in entries}),
        "first": days[0],
        "last": days[-1],
        "steps": sum(len(curve.steps) for curve in timeline.curves),
        "curves": len(timeline.curves),
    }
    return Statement("history-size", values=values)


def _change_statements(curve: Curve, step: Step) -> list[Statement]:
    """Return the size of a change, its commits, and the versions that changed with it."""
    change = step.change
    low, high = change.ends or (change.value, change.value)
    commit = step.after.commit
    values: dict[str, Any] = {
        "change": _percent(change.value),
        "low": _percent(low),
        "high": _percent(high),
        "before": step.before.name,
        "after": step.after.name,
        "commits": step.commits,
        "title": (commit and commit.subject) or "subject unknown",
    }
    found = [Statement(f"history-step-{step.range}", curve.title, values)]
    versions = [f"{name} {old} -> {new}" for name, (old, new) in step.versions.items()]
    if versions:
        found.append(Statement("history-versions", values={"versions": versions}))
    return found


def _percent(ratio: float) -> float:
    """Return a ratio as a change in per cent."""
    return 100 * (ratio - 1)


def paragraphs(timeline: Timeline) -> list[list[Statement]]:
    """Return the size of the history, its change points, and remarks on the search."""
    found = [[_size_statement(timeline)]]
    for curve in timeline.curves:
        found += [_change_statements(curve, step) for step in curve.steps]

    longest = max(timeline.curves, key=lambda curve: len(curve.points))
    num_entries = len(longest.points)
    remarks = []
    if num_entries > 2:
        scatter = {
            "process": longest.process_deviation,
            "entry": longest.entry_deviation,
        }
        remarks.append(Statement("history-scatter", longest.title, scatter))
    if num_entries < ENOUGH:
        values = {"enough": ENOUGH, "entries": num_entries}
        remarks.append(Statement("history-few", values=values))
    return [*found, remarks] if remarks else found


def table(timeline: Timeline) -> Grid:
    """Return a line for each curve."""
    unit = common_unit(curve.unit for curve in timeline.curves)
    columns: Columns = {
        "Configuration": lambda curve: curve.title,
        "Entries": lambda curve: str(len(curve.points)),
        "First": lambda curve: plus_minus(curve.points[0].rate, RATE.digits),
        f"Latest ({unit}/s)": lambda curve: plus_minus(
            curve.points[-1].rate, RATE.digits
        ),
        "Steps": _changes_text,
        "Trend": lambda curve: _sparkline([point.rate.value for point in curve.points]),
    }
    return make_grid("", columns, timeline.curves)


def _changes_text(curve: Curve) -> str:
    changes = [f"{_percent(step.change.value):+.1f} %" for step in curve.steps]
    return ", ".join(changes) or "-"


def _sparkline(values: Sequence[float]) -> str:
    """Return the latest values as a text chart from the lowest to the highest."""
    latest = values[-MOST_BARS:]
    low = min(latest)
    width = max(latest) - low
    if not width:
        return BARS[0] * len(latest)
    highest = len(BARS) - 1
    return "".join(BARS[round(highest * (value - low) / width)] for value in latest)


def text(timeline: Timeline) -> str:
    """Return the table and the paragraphs for the terminal."""
    lines = [
        markdown([Section("", (table(timeline),))]),
        *map(sentences, paragraphs(timeline)),
        "",
    ]
    return escaped("\n".join(lines))


def points(timeline: Timeline) -> list[dict[str, Any]]:
    """Return the fields of each entry of each curve."""
    found = []
    for curve in timeline.curves:
        for k, point in enumerate(curve.points):
            found.append(_point_data(curve, k, point))
    return found


def _point_data(curve: Curve, index: int, point: Point) -> dict[str, Any]:
    entry = point.entry
    interval = interval_data(point.rate) or {}
    fields: dict[str, Any] = {
        "configuration": curve.title,
        "machine": curve.machine,
        "entry": point.place,
    }
    for name in ("hash", "modified", "date", "subject"):
        fields[name] = getattr(entry.commit, name, None)
    fields |= {
        "measured": entry.measured,
        "label": entry.label,
        "unit": curve.unit,
        "processes": len(point.configuration.rates),
        "items_per_second": interval["value"],
        "low": interval["low"],
        "high": interval["high"],
        "step": index in curve.levels.cuts,
    }
    for name in METRICS:
        value = point.metric(name)
        if value is not None:
            fields[name] = value
    return fields


def to_json(timeline: Timeline) -> bytes:
    """Return all statements, curves and points as JSON."""
    statements = []
    for paragraph in paragraphs(timeline):
        statements += [statement.data() for statement in paragraph]
    content = {
        "schema": SCHEMA,
        "statements": statements,
        "curves": list(map(_curve_data, timeline.curves)),
        "points": points(timeline),
    }
    return input_files.json_text(content).encode()


def _curve_data(curve: Curve) -> dict[str, Any]:
    steps = []
    for step, cut, found in zip(curve.steps, curve.levels.cuts, curve.levels.found):
        fields: dict[str, Any] = {
            "first": cut,
            "found": found,
            "change": interval_data(step.change),
            "range": step.range,
            "before": step.before.name,
            "after": step.after.name,
            "commits": step.commits,
            "versions": step.versions,
        }
        steps.append(fields)
    deviations = {
        "process": rounded(curve.process_deviation),
        "entry": rounded(curve.entry_deviation),
    }
    return {
        "configuration": curve.title,
        "options": curve.options,
        "standard_deviations": deviations,
        "steps": steps,
    }


def to_csv(timeline: Timeline) -> bytes:
    """Return a line for each entry of each curve."""
    lines = [{"schema": REPORT_SCHEMA, **fields} for fields in points(timeline)]
    names: dict[str, None] = {}
    for line in lines:
        names.update(dict.fromkeys(line))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, list(names))
    writer.writeheader()
    for line in lines:
        writer.writerow({name: csv_cell(value) for name, value in line.items()})
    return stream.getvalue().encode()
