"""Renders a history for the terminal, as CSV, as JSON and as a chart."""

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
ENOUGH = 16  # entries that a reliable search for steps of 5 % needs: docs/history.md


def _size(shown: Timeline) -> Statement:
    entries = shown.entries
    days = sorted(entry.measured[:10] for entry in entries if entry.measured) or [
        "unknown"
    ]
    values = {
        "entries": len(entries),
        "commits": len({entry.source[:2] for entry in entries if entry.commit}),
        "machines": len({entry.machine.name for entry in entries}),
        "first": days[0],
        "last": days[-1],
        "steps": sum(len(curve.steps) for curve in shown.curves),
        "curves": len(shown.curves),
    }
    return Statement("history-size", values=values)


def _step(curve: Curve, step: Step) -> list[Statement]:
    """The size of a step, its commits, and the versions that changed with it."""
    change, commit = step.change, step.after.commit
    percents = [
        100 * (ratio - 1)
        for ratio in (change.value, *(change.ends or (change.value, change.value)))
    ]
    values: dict[str, Any] = dict(zip(("change", "low", "high"), percents))
    values |= {
        "before": step.before.name,
        "after": step.after.name,
        "commits": step.commits,
    }
    values["title"] = (commit and commit.subject) or "subject unknown"
    made = [Statement(f"history-step-{step.range}", curve.title, values)]
    if versions := [
        f"{name} {old} -> {new}" for name, (old, new) in step.versions.items()
    ]:
        made.append(Statement("history-versions", values={"versions": versions}))
    return made


def paragraphs(shown: Timeline) -> list[list[Statement]]:
    """The size of the history, a paragraph for each step, and remarks on the search for steps."""
    longest = max(shown.curves, key=lambda curve: len(curve.points))
    remarks = []
    if len(longest.points) > 2:
        scatter = {
            "process": longest.process_deviation,
            "entry": longest.entry_deviation,
        }
        remarks.append(Statement("history-scatter", longest.title, scatter))
    if len(longest.points) < ENOUGH:
        remarks.append(
            Statement(
                "history-few", values={"enough": ENOUGH, "entries": len(longest.points)}
            )
        )
    steps = [_step(curve, step) for curve in shown.curves for step in curve.steps]
    return [[_size(shown)], *steps, *([remarks] if remarks else [])]


def table(shown: Timeline) -> Grid:
    """A line for each curve."""
    unit = common_unit(curve.unit for curve in shown.curves)
    columns: Columns = {
        "Configuration": lambda curve: curve.title,
        "Entries": lambda curve: str(len(curve.points)),
        "First": lambda curve: plus_minus(curve.points[0].rate, RATE.digits),
        f"Latest ({unit}/s)": lambda curve: plus_minus(
            curve.points[-1].rate, RATE.digits
        ),
        "Steps": lambda curve: (
            ", ".join(f"{100 * (step.change.value - 1):+.1f} %" for step in curve.steps)
            or "-"
        ),
        "Trend": lambda curve: _sparkline([point.rate.value for point in curve.points]),
    }
    return make_grid("", columns, shown.curves)


def _sparkline(values: Sequence[float]) -> str:
    """The latest values as a text chart, scaled from the lowest to the highest."""
    few = values[-MOST_BARS:]
    low, width = min(few), max(few) - min(few)
    return "".join(
        BARS[round((len(BARS) - 1) * (value - low) / width) if width else 0]
        for value in few
    )


def text(shown: Timeline) -> str:
    """The text for the terminal."""
    lines = [
        markdown([Section("", (table(shown),))]),
        *map(sentences, paragraphs(shown)),
        "",
    ]
    return escaped("\n".join(lines))


def points(shown: Timeline) -> list[dict[str, Any]]:
    """A flat mapping for each entry of each curve."""
    return [
        _flat(curve, k, point)
        for curve in shown.curves
        for k, point in enumerate(curve.points)
    ]


def _flat(curve: Curve, k: int, point: Point) -> dict[str, Any]:
    commit, interval = point.entry.commit, interval_data(point.rate) or {}
    return {
        "configuration": curve.title,
        "machine": curve.machine,
        "entry": point.place,
        **{
            name: getattr(commit, name, None)
            for name in ("hash", "modified", "date", "subject")
        },
        "measured": point.entry.measured,
        "label": point.entry.label,
        "unit": curve.unit,
        "processes": len(point.configuration.rates),
        "items_per_second": interval["value"],
        "low": interval["low"],
        "high": interval["high"],
        "step": k in curve.levels.cuts,
        **{
            name: value for name in METRICS if (value := point.metric(name)) is not None
        },
    }


def to_json(shown: Timeline) -> bytes:
    """All statements, curves and points as JSON."""
    facts = [
        statement.data() for paragraph in paragraphs(shown) for statement in paragraph
    ]
    content = {
        "schema": SCHEMA,
        "statements": facts,
        "curves": [*map(_curve, shown.curves)],
        "points": points(shown),
    }
    return input_files.json_text(content).encode()


def _curve(curve: Curve) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [
        {
            "first": cut,
            "found": found,
            "change": interval_data(step.change),
            "range": step.range,
            "before": step.before.name,
            "after": step.after.name,
            "commits": step.commits,
            "versions": step.versions,
        }
        for step, cut, found in zip(curve.steps, curve.levels.cuts, curve.levels.found)
    ]
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


def to_csv(shown: Timeline) -> bytes:
    """A line for each entry of each curve."""
    lines, stream = (
        [{"schema": REPORT_SCHEMA, **line} for line in points(shown)],
        io.StringIO(),
    )
    writer = csv.DictWriter(
        stream, list(dict.fromkeys(name for line in lines for name in line))
    )
    writer.writeheader()
    writer.writerows(
        {name: csv_cell(value) for name, value in line.items()} for line in lines
    )
    return stream.getvalue().encode()
