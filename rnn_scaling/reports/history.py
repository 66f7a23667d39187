"""A history for the terminal, as CSV and as JSON.

Programs of users read history.json, schema "rnn_scaling.history_report/2": keys may be
added, but never rename one or change its meaning.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.history.curves import ChangePoint, Curve, Point, Timeline
from rnn_scaling.analysis.interval_kinds import Note
from rnn_scaling.analysis.metrics import METRICS, RATE, find_common_unit
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports.columns import format_csv
from rnn_scaling.reports.json_data import format_plain_json, make_interval_data
from rnn_scaling.reports.sections import (
    Columns,
    Grid,
    Section,
    format_markdown,
    make_grid,
)
from rnn_scaling.reports.wording import (
    MARKS,
    format_interval,
    format_signed_percent,
    round_for_files,
    write_sentences,
)
from rnn_scaling.system.files.markdown import escape
from rnn_scaling.system.machine.load import NOTICEABLE_LOAD

SCHEMA = "rnn_scaling.history_report/2"
_BARS = "▁▂▃▄▅▆▇█"
_MAX_BARS = 16
# Entries that a reliable search for change points of 5 % needs (docs/history.md).
_MIN_ENTRIES_FOR_SEARCH = 16


def _state_size(timeline: Timeline) -> Statement:
    """Return the numbers of entries, commits, machines and change points."""
    entries = timeline.entries
    days = sorted(entry.measured[:10] for entry in entries if entry.measured)
    days = days or ["unknown"]
    return state(
        "history-size",
        entries=len(entries),
        commits=len({entry.source[:2] for entry in entries if entry.commit}),
        machines=len({entry.machine.name for entry in entries}),
        first=days[0],
        last=days[-1],
        change_points=sum(len(curve.change_points) for curve in timeline.curves),
        curves=len(timeline.curves),
    )


def _state_disturbed_runs(timeline: Timeline) -> list[Statement]:
    """State how many entries are left out of the search; [] if none."""
    disturbed: set[int] = set()
    for curve in timeline.curves:
        disturbed.update(point.index for point in curve.points if point.is_disturbed)
    if not disturbed:
        return []
    mark = MARKS[Note.DISTURBED]
    return [
        state(
            "history-left-out", mark, entries=len(disturbed), threshold=NOTICEABLE_LOAD
        )
    ]


def _state_change(curve: Curve, change_point: ChangePoint) -> list[Statement]:
    """Return the size of a change, its commits, and the versions that changed then."""
    change = change_point.change
    low, high = change.ends or (change.value, change.value)
    commit = change_point.after.commit
    kind = f"history-change-{change_point.range}"
    statements = [
        state(
            kind,
            curve.title,
            change=_convert_to_percent(change.value),
            low=_convert_to_percent(low),
            high=_convert_to_percent(high),
            before=change_point.before.name,
            after=change_point.after.name,
            commits=change_point.commits,
            title=(commit and commit.subject) or "subject unknown",
        )
    ]
    versions = [
        f"{name} {old} -> {new}" for name, (old, new) in change_point.versions.items()
    ]
    if versions:
        statements.append(state("history-versions", versions=versions))
    return statements


def _convert_to_percent(ratio: float) -> float:
    """Return a ratio as a change in per cent."""
    return 100 * (ratio - 1)


def make_paragraphs(timeline: Timeline) -> list[list[Statement]]:
    """Return the size of the history, its change points, and remarks on the search."""
    groups = [[_state_size(timeline)]]
    for curve in timeline.curves:
        for change_point in curve.change_points:
            groups.append(_state_change(curve, change_point))

    longest = max(timeline.curves, key=lambda curve: len(curve.quiet_points))
    num_entries = len(longest.quiet_points)
    remarks = _state_disturbed_runs(timeline)
    if num_entries > 2:
        remarks.append(
            state(
                "history-scatter",
                longest.title,
                process=longest.run_deviation,
                entry=longest.entry_deviation,
            )
        )
    if num_entries < _MIN_ENTRIES_FOR_SEARCH:
        remarks.append(
            state("history-few", enough=_MIN_ENTRIES_FOR_SEARCH, entries=num_entries)
        )
    return [*groups, remarks] if remarks else groups


def make_table(timeline: Timeline) -> Grid:
    """Return a line for each curve."""
    unit = find_common_unit(curve.unit for curve in timeline.curves)
    columns: Columns = {
        "Configuration": lambda curve: curve.title,
        "Entries": _format_entries,
        "First": lambda curve: format_interval(curve.points[0].rate, RATE.digits),
        f"Latest ({unit}/s)": lambda curve: format_interval(
            curve.points[-1].rate, RATE.digits
        ),
        "Change points": _format_changes,
        "Trend": lambda curve: _draw_sparkline(
            [point.rate.value for point in curve.quiet_points]
        ),
    }
    return make_grid("", columns, timeline.curves)


def _format_entries(curve: Curve) -> str:
    """Return the number of entries, and how many further ones are left out."""
    text = str(len(curve.quiet_points))
    if num_disturbed := len(curve.points) - len(curve.quiet_points):
        text += f" + {num_disturbed}{MARKS[Note.DISTURBED]}"
    return text


def _format_changes(curve: Curve) -> str:
    changes = [
        format_signed_percent(point.change.value) for point in curve.change_points
    ]
    return ", ".join(changes) or "-"


def _draw_sparkline(values: Sequence[float]) -> str:
    """Return the latest values as a text chart from the lowest to the highest."""
    if not values:
        return "-"
    latest = values[-_MAX_BARS:]
    low = min(latest)
    width = max(latest) - low
    if not width:
        return _BARS[0] * len(latest)
    highest = len(_BARS) - 1
    return "".join(_BARS[round(highest * (value - low) / width)] for value in latest)


def format_text(timeline: Timeline) -> str:
    """Return the table and the paragraphs for the terminal."""
    lines = [
        format_markdown([Section("", (make_table(timeline),))]),
        *map(write_sentences, make_paragraphs(timeline)),
        "",
    ]
    return escape("\n".join(lines))


def list_points(timeline: Timeline) -> list[dict[str, Any]]:
    """Return the fields of each entry of each curve."""
    lines = []
    for curve in timeline.curves:
        first_points = [curve.quiet_points[cut] for cut in curve.levels.cuts]
        for point in curve.points:
            fields = _make_point_data(curve, point)
            fields["change_point"] = any(first is point for first in first_points)
            lines.append(fields)
    return lines


def _make_point_data(curve: Curve, point: Point) -> dict[str, Any]:
    """Return one entry of a curve as JSON data."""
    entry = point.entry
    interval = make_interval_data(point.rate)
    fields: dict[str, Any] = {
        "configuration": curve.title,
        "machine": curve.machine,
        "entry": point.index,
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
        "load": point.configuration.max_load,
        "disturbed": point.is_disturbed,
        "change_point": False,
    }
    for name in METRICS:
        value = point.metric(name)
        if value is not None:
            fields[name] = value
    return fields


def to_json(timeline: Timeline) -> bytes:
    """Return all statements, curves and points as JSON."""
    content = {
        "schema": SCHEMA,
        "statements": list(itertools.chain.from_iterable(make_paragraphs(timeline))),
        "curves": list(map(_make_curve_data, timeline.curves)),
        "points": list_points(timeline),
    }
    return format_plain_json(content).encode()


def _make_curve_data(curve: Curve) -> dict[str, Any]:
    """Return a curve with its points and change points as JSON data."""
    change_points = []
    levels = curve.levels
    # The search numbers quiet entries only.
    numbers = [k for k, point in enumerate(curve.points) if not point.is_disturbed]
    for change_point, first, revealed_by in zip(
        curve.change_points, levels.cuts, levels.found
    ):
        fields: dict[str, Any] = {
            "first": numbers[first],
            "found": numbers[revealed_by],
            "change": change_point.change,
            "range": change_point.range,
            "before": change_point.before.name,
            "after": change_point.after.name,
            "commits": change_point.commits,
            "versions": change_point.versions,
        }
        change_points.append(fields)
    deviations = {
        "process": round_for_files(curve.run_deviation),
        "entry": round_for_files(curve.entry_deviation),
    }
    return {
        "configuration": curve.title,
        "options": curve.options,
        "standard_deviations": deviations,
        "change_points": change_points,
    }


def to_csv(timeline: Timeline) -> bytes:
    """Return a line for each entry of each curve."""
    lines = [{"schema": REPORT_SCHEMA, **fields} for fields in list_points(timeline)]
    return format_csv(lines).encode()
