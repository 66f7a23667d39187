"""One HTML page that opens from disk: nothing in it is fetched, and its words and numbers are those of the Summary."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rnn_scaling import entry
from rnn_scaling.analysis.attribution import (
    CONTENTION,
    EXCHANGE,
    FIXED,
    IMBALANCE,
    INPUT,
    MEANING,
    OVERSUBSCRIPTION,
    Attribution,
)
from rnn_scaling.analysis.metrics import EFFICIENCY, ITEMS, Metric
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports import (
    cautions,
    conclusions,
    loss_statements,
    repeat_commands,
    series_statements,
    series_table,
    table,
)
from rnn_scaling.reports.numbers import has_interval, plus_minus
from rnn_scaling.reports.page import drawings, inside
from rnn_scaling.reports.page.parts import MOST_FIGURES, cells, content, unbroken
from rnn_scaling.reports.pictures import curves, figures
from rnn_scaling.reports.sections import Grid, Section
from rnn_scaling.reports.summary import RunSteady, SeriesSummary, Summary, repeated
from rnn_scaling.reports.wording import sentence, sentences

ORDER = (OVERSUBSCRIPTION, CONTENTION, EXCHANGE, INPUT, IMBALANCE, FIXED)
TEMPLATES = Path(__file__).parent / "template"
MOST_COMMANDS = 200  # rows with a command of their own
ROUNDING = 1e-9  # shares below it are the error of floating point
MOST_STEADY = 500  # runs in the table of steady states


def render(summary: Summary) -> bytes:
    """The page as UTF-8."""
    import jinja2

    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"unbroken": unbroken, "cells": cells, "content": content}
    page = environment.get_template("page.html").render(**_context(summary))
    return page.encode()


def _context(summary: Summary) -> dict[str, Any]:
    measured = summary.measured
    steady = _steady_grid(summary)
    return {
        "schema": REPORT_SCHEMA,
        "name": entry.plain(Path(summary.name).resolve().name) or summary.name,
        "report_command": f"{entry.program()} report {shlex.quote(summary.name)}",
        "runs": summary.runs,
        "unit": summary.unit,
        "counted": list(dict.fromkeys((member.unit, member.rows[0].row.items) for member in summary.series)),
        "lead": unbroken(conclusions.lead(summary)),
        "remarks": unbroken(conclusions.overview(summary)),
        "overview": _overview(summary),
        "glance": drawings.glance(summary),
        "sentences": [unbroken(series_statements.sentence(member)) for member in summary.series]
        if len(summary.series) > 1
        else [],
        "cautions": cautions.lines(summary),
        "kinds": conclusions.kinds(summary.series),
        "series": _all_series(summary),
        "missing": _missing(summary),
        "again": [(member.title, repeat_commands.commands(member)) for member in summary.series[:MOST_COMMANDS]],
        "commands": _row_commands(summary),
        "curves": _curves(summary),
        "many_counts": any(drawings.is_curve(series) for _, series in figures.groups(summary)),  # else dots say it all
        "learning": inside.learning_of(summary),
        "losses": _losses(measured),
        # One number of devices alone stands next to its waterfall already.
        "splits": [
            dataclasses.replace(section, title=series.title)
            for series in measured
            if (section := table.parts_section(series)).grids and len(section.grids[0].lines) > 1
        ],
        "steps": inside.steps_of(measured),
        "step_parts": inside.parts_of(measured),
        "counts": inside.counts_of(summary),
        "times": drawings.times(measured) if steady else [],
        "steady": steady,
        "steady_sentence": unbroken(sentences(_steady_statements(summary))),
        "unjudged": summary.unjudged,
        "workers": inside.workers_of(measured),
        "padding": _padding(measured),
        "scalings": {member.strong for member in summary.series},
        "failures": _failures(summary),
        "left_out": summary.left_out,
        "facts": summary.facts,
        "differences": _differences(summary),
    }


def _missing(summary: Summary) -> list[tuple[str, list[str]]]:
    """(series, commands that supply what could not be said of them); series that need the same are one entry."""
    titles: dict[tuple[str, ...], list[str]] = {}
    for member in summary.series[:MOST_FIGURES]:
        if commands := conclusions.missing(member):
            titles.setdefault(tuple(commands), []).append(member.title)
    return [("; ".join(names), [summary.supplying(c) for c in commands]) for commands, names in titles.items()]


def _overview(summary: Summary) -> dict[str, Any]:
    """The table of all series; each line leads to the details of its series."""
    table_of_all = series_table.table_of(summary)
    groups = [
        (name, [(drawings.series_id(summary, series), series.title, cells) for series, cells in lines])
        for name, lines in table_of_all.groups
    ]
    return {"head": table_of_all.head, "groups": groups, "is_certified": summary.is_certified}


def _all_series(summary: Summary) -> dict[str, Any]:
    """What is folded below the overview: the rows of each series; what holds for all of them is said once."""
    details = [_series(summary, detail) for detail in summary.series]
    shared = (
        [line for line in details[0]["notes"] if all(line in detail["notes"] for detail in details)] if details else []
    )
    for detail in details:
        detail["notes"] = [line for line in detail["notes"] if line not in shared]
    return {"shared": shared, "each": details}


def _series(summary: Summary, series: SeriesSummary) -> dict[str, Any]:
    rows = [row.row for row in series.rows]
    rates, config = table.rates_of(series), rows[-1].config
    size = rows[-1].batch_size
    kind = "strong-scaling" if series.strong else "scaling-unknown" if size is None else "weak-scaling"
    shared = config["global_batch_size"] if series.strong else size
    constant = sentence(Statement(kind, values={"size": shared, "samples": rows[-1].samples}))
    return {
        "id": drawings.series_id(summary, series),
        "title": series.title,
        "grids": [dataclasses.replace(rates.grids[0], caption="Every row"), *rates.grids[1:]],
        "notes": [constant, *rates.notes],
    }


def _row_commands(summary: Summary) -> list[tuple[str, str, str]]:
    rows = [(series.title, row.devices, row.row) for series in summary.series for row in series.rows]
    return [(title, count, repeated(row)) for title, count, row in rows[:MOST_COMMANDS] if row.is_ours]


def _curves(summary: Summary) -> list[dict[str, Any]]:
    """The pictures of weak and of strong scaling that the first screen does not have, each with a legend of its own."""
    groups = figures.groups(summary)
    drawn = []
    for k, (name, series) in enumerate(groups):
        metrics = _metrics_over_devices(series)
        if metrics:
            suffix = f"-{k}" if k else ""
            group = name if len(groups) > 1 else ""
            frames = [curves.frame_of(series, metric) for metric in metrics]
            drawn.append(
                {
                    "name": group,
                    "figures": [drawings.curve(series, shown, f"fig-{shown.name}{suffix}", group) for shown in metrics],
                    "legend": [*drawings.swatches(series), *drawings.marks(*frames)],
                    "undrawn": max(0, len(series) - figures.MOST_LINES),
                }
            )
    return drawn


def _metrics_over_devices(series: Sequence[SeriesSummary]) -> list[Metric]:
    rows = [row.row for each in series for row in each.rows if row.row.rate]
    if len({row.num_devices for row in rows}) < 2:
        return []  # one number of devices makes no line
    shown = EFFICIENCY.name if drawings.is_curve(series) else ""
    return [each for each in figures.drawn(series) if each.name != shown and any(row.metric(each) for row in rows)]


def _losses(measured: Sequence[SeriesSummary]) -> dict[str, Any]:
    """Waterfalls of the series whose parts can be told from 0, and the others by name."""
    known = [(series, series.largest.loss) for series in measured if series.largest and series.largest.loss]
    split_losses = [(each, loss) for each, loss in known if loss.is_told]
    drawn = split_losses[:MOST_FIGURES]
    names = {part.name for _, loss in split_losses for part in loss.told}
    return {
        "drawn": [
            {"figure": drawings.loss(each, loss, k), "section": _loss_section(each, loss)}
            for k, (each, loss) in enumerate(drawn)
        ],
        "undrawn": [_loss_section(each, loss) for each, loss in split_losses[MOST_FIGURES:]],
        "legend": drawings.bars([loss for _, loss in drawn]) if drawn else [],
        "meaning": {
            name: MEANING[name].replace(ITEMS, series.unit)
            for name in ORDER
            if name in names
            for series, _ in split_losses[:1]
        },
        "noise": loss_statements.noise_of([loss for _, loss in split_losses]),
        "untold": _untold([(each.title, loss) for each, loss in known if not loss.is_told], len(known)),
    }


def _untold(losses: Sequence[tuple[str, Attribution]], of: int) -> list[tuple[str, str]]:
    """(whose, why no part is shown, and what would tell): series of which the same is said are one entry."""
    titles: dict[str, list[str]] = {}
    for title, loss in losses:
        if text := sentences(loss_statements.unmeasured(loss)):
            titles.setdefault(text, []).append(title)
    everywhere = "All series" if of > 1 else ""
    return [(everywhere if len(names) == of else "; ".join(names), text) for text, names in titles.items()]


def _loss_section(series: SeriesSummary, loss: Attribution) -> Section:
    lines = [[part.name, plus_minus(part.points, 1), plus_minus(part.value, 1)] for part in loss.shown]
    lines.append(["whole loss", plus_minus(loss.loss_points, 1), plus_minus(loss.loss, 1)])
    values = [*(part.points for part in loss.shown), loss.loss_points]
    kinds = dict.fromkeys(value.kind for value in values if value and has_interval(value))
    caption = f"Loss on {loss.row.devices} against {loss.row.num_devices} times one device"
    grid = Grid(caption, ["Part", "Points of efficiency", f"{series.unit.capitalize()}/s"], lines)
    return Section(series.title, (grid,), tuple(Statement("loss-interval", kind) for kind in kinds))


def _steady_grid(summary: Summary) -> Grid | None:
    runs = [(row.row, run) for member in summary.series for row in member.rows for run in row.steady][:MOST_STEADY]
    head = ["Run", "Devices", "Kind", "Skipped", "Steady from batch", "Headline would move"]
    lines = [_steady_line(str(row.num_devices), run) for row, run in runs]
    return Grid("Steady state of each run", head, lines, (2,)) if lines else None


def _steady_statements(summary: Summary) -> list[Statement]:
    """How many runs were steady, and how much it matters where that is judged to begin."""
    states = [run.state for series in summary.series for row in series.rows for run in row.steady]
    moves = [abs(state.move) for state in states if state.start is not None and state.move is not None]
    short = sum(state.kind == "too short" for state in states)
    found = []
    if short < len(states):
        found.append(Statement("steady-runs", values={"steady": len(moves), "runs": len(states)}))
    if moves:
        found.append(Statement("steady-move", values={"move": max(0.1, 100 * max(moves))}))
    return [*found, *([Statement("steady-too-short", values={"short": short})] if short else [])]


def _steady_line(count: str, run: RunSteady) -> list[str]:
    state = run.state
    start = "n/a" if state.start is None else str(state.start)
    move = "n/a" if state.move is None else f"{100 * state.move:+.1f} %"
    return [run.file, count, state.kind, str(run.record.batches.warmup), start, move]


def _padding(series: Sequence[SeriesSummary]) -> Grid | None:
    rows = [(member.title, row) for member in series for row in member.rows if row.padding or row.imbalance > ROUNDING]
    head = ["Series", "Devices", "Padding (% of positions)", "Waiting for the longest (% of time)"]
    lines = [
        [
            title,
            str(row.row.num_devices),
            "n/a" if row.padding is None else f"{100 * row.padding:.1f}",
            f"{100 * row.imbalance / (1 + row.imbalance):.1f}",
        ]
        for title, row in rows
    ]
    return Grid("Padding, and waiting for the tower with the longest sentences", head, lines) if lines else None


def _differences(summary: Summary) -> Grid | None:
    head = ["Difference", "Most runs", "Others", "Effect", "Severity"]
    lines = [[d.what, d.a, d.b, d.effect, d.severity] for d in summary.differences]
    return Grid("Differences between the runs", head, lines, (1, 2, 3, 4)) if lines else None


def _failures(summary: Summary) -> Grid | None:
    lines = [[f.file, f.title, str(f.num_devices), f.reason] for f in summary.failures]
    return Grid("Runs that measured nothing", ["File", "Series", "Devices", "Reason"], lines, (1, 3)) if lines else None
