"""The page's sections on the inside of runs: where a step goes, its operators and kernels, and its workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.steps import counts
from rnn_scaling.analysis.steps.parts import StepParts, statements
from rnn_scaling.records.step_names import PARTS
from rnn_scaling.reports import counts_report, steps, table
from rnn_scaling.reports.page.parts import MOST_FIGURES, Figure, figure_of
from rnn_scaling.reports.pictures import figures, step_figures
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
    means = f"The parts of each tower's mean step, in milliseconds. {sentence(statements(step_parts)[1])}"
    drawn = f"Traced step {step} of {len(step_parts.steps)} from its start to its end, a bar for each tower."
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
    used = {part for each in series for row in each.rows if row.traced for part in row.traced.shown}
    described = []
    for part in (part for part in PARTS if part in used):
        look = step_figures.look(part)
        swatch = {"colour": figures.themed(look["facecolor"].lower()), "opacity": f"{look['alpha']:g}"}
        described.append((steps.title(part), swatch, steps.MEANING[part]))
    return described


def counts_of(summary: Summary) -> dict[str, Any] | None:
    """How many operators and kernels a step is, for runs that differ in encoder and devices; None without traces."""
    rows = [row for each in summary.measured for row in each.rows if row.traced]
    runs = {name: run for row in rows for name, run in zip(row.files, row.row.records) if run.trace and run.graph}
    if not runs:
        return None
    inspected = counts.inspect(runs)
    *groups, agreement = counts_report.sections(inspected)
    return {"groups": groups, "agreement": agreement, "content": counts_report.content(inspected)}
