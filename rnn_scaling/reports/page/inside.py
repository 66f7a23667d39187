"""The page's sections on the inside of runs: where a step goes, operators and kernels, start-up, learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps import counts
from rnn_scaling.analysis.steps.parts import StepParts, statements
from rnn_scaling.records.step_names import PARTS
from rnn_scaling.reports import counts_report, learning, steps, table
from rnn_scaling.reports.page.drawings import DASHES, Key
from rnn_scaling.reports.page.parts import MOST_FIGURES, Figure, figure_of
from rnn_scaling.reports.pictures import figures, learning_curves, step_figures
from rnn_scaling.reports.summary import SeriesSummary, Summary
from rnn_scaling.reports.wording import sentence

MOST_TRACED = 100  # rows whose steps are shown


def steps_of(series: Sequence[SeriesSummary]) -> list[dict[str, Any]]:
    """Where a step goes, for each traced row: its section and its pictures."""
    rows = [(member.title, row.devices, row.traced) for member in series for row in member.rows if row.traced]
    traced = []
    for k, (name, devices, parts) in enumerate(rows[:MOST_TRACED]):
        title = f"{name}, {devices}"
        pictures = _step_pictures(parts, k, title) if k < MOST_FIGURES else []
        traced.append({"section": steps.section(parts, title), "figures": pictures})
    return traced


def workers_of(series: Sequence[SeriesSummary]) -> list[dict[str, Any]]:
    """Start-up against training, and the ranks of the most workers, of each series that has any."""
    documents = [{"title": member.title, "sections": table.workers(member)} for member in series]
    return [document for document in documents if document["sections"]][:MOST_FIGURES]


def _step_pictures(step_parts: StepParts, k: int, title: str) -> list[Figure]:
    step = step_parts.typical
    title += step_figures.left_out(step_parts.num_towers)
    at_once = {"concurrency": sentence(statements(step_parts)[1])}
    means = sentence(Statement("picture-of-parts", values=at_once))
    drawn = sentence(Statement("picture-of-step", values={"step": step, "steps": len(step_parts.steps)}))
    return [
        figure_of(
            step_figures.parts(step_parts, f"parts-{k}"), f"parts-{k}", f"{title}: parts of the mean step", means
        ),
        figure_of(
            step_figures.timeline(step_parts.steps[step], f"step-{k}"),
            f"step-{k}",
            f"{title}: traced step {step}",
            drawn,
        ),
    ]


def parts_of(series: Sequence[SeriesSummary]) -> list[tuple[str, dict[str, str], str]]:
    """(name, swatch, meaning) of each part that occurs."""
    used = {part for member in series for row in member.rows if row.traced for part in row.traced.shown}
    described = []
    for part in (part for part in PARTS if part in used):
        look = step_figures.look(part)
        swatch = {"colour": figures.themed(look["facecolor"].lower()), "opacity": f"{look['alpha']:g}"}
        described.append((steps.title(part), swatch, steps.MEANING[part]))
    return described


def counts_of(summary: Summary) -> dict[str, Any] | None:
    """How many operators and kernels a step is, for runs that differ in encoder and devices; None without traces."""
    rows = [row for member in summary.measured for row in member.rows if row.traced]
    runs = {name: run for row in rows for name, run in zip(row.files, row.row.records) if run.trace and run.graph}
    if not runs:
        return None
    inspected = counts.inspect(runs)
    *groups, agreement = counts_report.sections(inspected)
    return {"groups": groups, "agreement": agreement, "content": counts_report.content(inspected)}


def learning_of(summary: Summary) -> dict[str, Any] | None:
    """What the template shows; None where no run counted right predictions and no target was given."""
    if summary.learning is None:
        return None
    return {
        "section": learning.section(summary.learning, summary.row_titles),
        "figures": [_figure(summary, *kind) for kind in learning_curves.kinds(summary.learning)],
        "legend": _legend(summary),
        "undrawn": max(0, len(summary.learning.learned) - figures.MOST_LINES),
    }


def _figure(summary: Summary, kind: str, over: str) -> Figure:
    if summary.learning is None:
        raise ValueError("expected what runs learned")
    names = learning.line_names(summary.learning, summary.row_titles)
    name = f"learning-{kind}-{over}"
    svg = learning_curves.draw(summary.learning, names, kind, over, name)
    ends = []
    for learned in summary.learning.learned[: figures.MOST_LINES]:
        if line := learning_curves.points(learned, summary.learning, kind, over):
            ends.append(f"{names[learned.row]}: from {line[0][1]:.4g} to {line[-1][1]:.4g}.")
    about = f"A line for each configuration, its first run. {' '.join(ends)}"
    return figure_of(svg, name, learning_curves.title(summary.learning, kind, over), about)


def _legend(summary: Summary) -> list[Key]:
    if summary.learning is None:
        return []
    names = learning.line_names(summary.learning, summary.row_titles)
    keys = []
    for k, learned in enumerate(summary.learning.learned[: figures.MOST_LINES]):
        look = learning_curves.look(k)
        colour = figures.themed(look["color"].lower())
        keys.append(Key(names[learned.row], colour, DASHES[look["linestyle"]], has_line=True))
    return [*keys, Key("target", figures.themed(figures.MUTED), "2 2", has_line=True)]
