"""The page's sections on the inside of runs: where a step goes, its operators and kernels, and its workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.steps import counts
from rnn_scaling.analysis.steps.parts import StepParts
from rnn_scaling.records.step_names import PARTS
from rnn_scaling.reports import cluster, counts_table, start_up, steps
from rnn_scaling.reports.page.parts import MOST_FIGURES, Figure, Grid, figure_of
from rnn_scaling.reports.pictures import figures, step_figures
from rnn_scaling.reports.summary import SeriesSummary, Summary

MOST_TRACED = 100  # rows whose steps are told


def steps_of(series: Sequence[SeriesSummary]) -> list[dict[str, Any]]:
    """Where a step goes, for each traced row."""
    rows = [(each.title, row) for each in series for row in each.rows if row.traced][:MOST_TRACED]
    traced_steps = []
    for k, (name, row) in enumerate(rows):
        if row.traced is None:
            continue
        title = f"{name}, {row.devices}"
        head, lines = steps.exchange_grid(row.traced)
        grids = [Grid(f"{title}: parts of a step", *grid) for grid in steps.parts_grids(row.traced)]
        pictures = _step_pictures(row.traced, k, title) if k < MOST_FIGURES else []
        traced_steps.append(
            {
                "title": title,
                "figures": pictures,
                "grids": [*grids, Grid(f"{title}: exchange, start and end of the towers", head, lines)],
                "notes": steps.notes(row.traced),
            }
        )
    return traced_steps


def workers_of(series: Sequence[SeriesSummary]) -> list[dict[str, Any]]:
    """Initialisation against training, and the ranks of the most workers, of each series that has any."""
    documents = []
    for each in series:
        if each.largest is None or not each.largest.row.is_distributed:
            continue
        started = start_up.of([row.row for row in each.rows])
        ranks = cluster.by_rank(each.largest.row)
        grids = [Grid(f"{each.title}: initialisation against training", *start_up.grid(started))] if started else []
        grids += [Grid(f"{each.title}: by rank on {each.largest.devices}", *ranks.grid, (1,))] if ranks.grid else []
        if grids or ranks.notes:
            what, *why = start_up.sentences(started) if started else ("",)
            sentences, notes = (list(filter(None, lines)) for lines in ((*why, ranks.late), (what, *ranks.notes)))
            documents.append({"title": each.title, "sentences": sentences, "grids": grids, "notes": notes})
    return documents[:MOST_FIGURES]


def _step_pictures(step_parts: StepParts, k: int, title: str) -> list[Figure]:
    step = step_parts.typical
    title += step_figures.left_out(step_parts.num_towers)
    means = f"The parts of each tower's mean step, in milliseconds. {steps.notes(step_parts)[1]}"
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
    groups = [
        {
            "title": group.title,
            "grids": [
                *(
                    Grid(f"{group.title}: {caption}", head, lines)
                    for caption, head, lines in counts_table.seed_grids(group)
                ),
                Grid(f"{group.title}: from Python to kernels", *counts_table.graphs_grid(group)),
            ],
            "why": counts_table.reasons(group),
        }
        for group in inspected.groups
    ]
    agreement = [] if inspected.differences else [counts_table.agreement(inspected)]
    content = counts_table.content(inspected)
    return {"groups": groups, "agreement": agreement, "differences": inspected.differences, "content": content}
