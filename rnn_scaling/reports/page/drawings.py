"""The page's static pictures, each with its numbers as text for screen-reader users."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rnn_scaling.analysis.attribution import UNEXPLAINED, Attribution, Part
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps.parts import statements
from rnn_scaling.records.step_parts import PARTS
from rnn_scaling.reports import counts_report, learning, steps
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.page import document as page
from rnn_scaling.reports.page.document import (
    Block,
    Body,
    Figure,
    Folded,
    Group,
    Key,
    PageSection,
    Terms,
    Text,
)
from rnn_scaling.reports.pictures import bars, charts, figures, step_figures
from rnn_scaling.reports.pictures.charts import Chart
from rnn_scaling.reports.scaling_data import Group as Series
from rnn_scaling.reports.series_statements import noise_text
from rnn_scaling.reports.summary import SeriesSummary, Summary
from rnn_scaling.reports.wording import sentence

WIDTH = 7.2  # inches of the bars
BESIDE = 3  # names of a legend beside each other
LOSSES = "Points of efficiency lost, by part"
COLOURS: dict[str, str] = {
    **dict(zip(Part, figures.COLOURS)),
    UNEXPLAINED: figures.REST,
}


def picture(chart: Chart, name: str, title: str = "") -> Figure:
    """Return a chart with its caption, or another title."""
    title = title or chart.metric.caption
    return page.figure_of(charts.svg(chart, name), name, title, chart.description)


def curves(groups: Sequence[Series], but: str) -> list[Block]:
    """Return a static picture of every metric except one, separately for each group."""
    blocks: list[Block] = []
    for k, group in enumerate(groups):
        suffix = f"-{k}" if k else ""
        pictures = []
        for metric in group.drawn:
            if metric.name != but:
                name = f"fig-{metric.name}{suffix}"
                pictures.append(_named(group.chart(metric), name, group.title))
        blocks += [Text(group.title, "h3")] if group.title else []
        blocks += [Group("figures", pictures), *undrawn(len(group.lines), "series")]
    return blocks


def glance(groups: Sequence[Series]) -> list[Block]:
    """Return the efficiency of each group; nothing if no run used several devices."""
    blocks: list[Block] = []
    for k, group in enumerate(groups):
        if chart := group.efficiency:
            blocks += [Text(group.title, "h3")] if group.title else []
            blocks.append(_named(chart, f"glance-{k}", group.title))
    return blocks


def _named(chart: Chart, name: str, group: str) -> Figure:
    return picture(chart, name, ", ".join(filter(None, [chart.metric.caption, group])))


def undrawn(count: int, noun: str) -> list[Text]:
    """Return a note if there are more lines than a picture has."""
    values = {"shown": figures.MOST_LINES, "more": count - figures.MOST_LINES}
    if count <= figures.MOST_LINES:
        return []
    return [Text(sentence(Statement("pictures-show-some", noun, values)), "note")]


def losses(split: Sequence[tuple[str, Attribution]]) -> list[Block]:
    """Return the losses of (title, loss) pairs as bars."""
    few = split[: figures.MOST_LINES]
    lines = []
    for title, loss in few:
        parts = [
            f"{part.name} {plus_minus(part.points, 1)}" for part in loss.displayed_parts
        ]
        whole = plus_minus(loss.loss_points, 1)
        lines.append(f"{title}: {whole} ({', '.join(parts)}).")
    about = f"A bar for each series. {' '.join(lines)}"
    figure = page.figure_of(losses_svg(few), "losses", LOSSES, about)
    return [figure, *undrawn(len(split), "series")]


def losses_svg(split: Sequence[tuple[str, Attribution]]) -> str:
    """Return a bar for each loss; gains are left of 0."""
    drawn = []
    for title, loss in split:
        known = [
            (part.name, part.points.value)
            for part in loss.displayed_parts
            if part.points
        ]
        drawn.append(bars.Bar(title, known, loss.loss_points))
    used = {name for bar in drawn for name, _ in bar.parts}
    rows = math.ceil(len(used) / BESIDE)
    with figures.style():
        figure, axes = figures.blank(WIDTH, 0.78 + 0.42 * len(split), rows, left=0.06)
        bars.draw(axes, drawn, bars.looks(COLOURS), width=WIDTH)
        axes.set_xlabel("points of efficiency lost")
        keys = bars.legend(axes)
        names = [name for name in COLOURS if name in used]
        rest = f"{UNEXPLAINED}: within {noise_text([loss for _, loss in split])}"
        titles = [rest if name == UNEXPLAINED else name for name in names]
        place = {"loc": "lower left", "ncols": BESIDE, **figures.LEGEND}
        figure.legend([keys[name] for name in names], titles, **place)
        return figures.as_svg(figure, "losses")


def steps_section(series: Sequence[SeriesSummary]) -> PageSection:
    """Return where a step goes, for each traced row: its pictures and numbers."""
    blocks: list[Block] = []
    used: set[str] = set()
    for member in series:
        for row in member.rows:
            if parts := row.step_parts:
                title = f"{member.title}, {row.devices}"
                blocks.append(_steps_of(parts, len(blocks), title))
                used.update(parts.nonzero_parts)
    if blocks:
        keys = [_key(part) for part in PARTS if part in used]
        reading = Text(sentence(Statement("reading-of-steps")))
        blocks = [reading, Terms(keys, "parts"), *blocks]
    return PageSection("steps", "Where a step goes", blocks)


def _key(part: str) -> Key:
    look = step_figures.look(part)
    colour = figures.themed(look["facecolor"])
    return Key(steps.title(part), steps.MEANING[part], colour, look["alpha"])


def _steps_of(parts: steps.StepParts, k: int, title: str) -> Block:
    blocks: list[Block] = [Text(title, "h3")]
    if k < page.MOST_FIGURES:
        step = parts.typical
        at_once = {"concurrency": sentence(statements(parts)[1])}
        counted = {"step": step, "steps": len(parts.steps)}
        named = f"{title}{step_figures.left_out(parts.num_towers)}"
        pictures = [
            page.figure_of(
                step_figures.parts(parts, f"parts-{k}"),
                f"parts-{k}",
                f"{named}: parts of the mean step",
                sentence(Statement("picture-of-parts", values=at_once)),
            ),
            page.figure_of(
                step_figures.timeline(parts.steps[step], f"step-{k}"),
                f"step-{k}",
                f"{named}: traced step {step}",
                sentence(Statement("picture-of-step", values=counted)),
            ),
        ]
        blocks.append(Group("figures", pictures))
    tables = Body(steps.section(parts, title), title)
    return Group("loss", [*blocks, Folded("Numbers of a step", [tables], title)])


def counts_section(summary: Summary) -> PageSection:
    """Return the operators and kernels of runs that differ in encoder and devices."""
    blocks: list[Block] = []
    if inspection := counts_report.inspect_summary(summary):
        *groups, agreement = counts_report.sections(inspection)
        blocks = [Text(sentence(Statement("reading-of-counts"))), Body(agreement)]
        for group in groups:
            blocks.append(Folded(group.title, [Body(group, group.title)], "counts"))
    return PageSection("counts", "Operators and kernels of a step", blocks)


def learning_section(summary: Summary) -> PageSection:
    """Return curves and table, if runs counted right predictions or there is a target."""
    blocks: list[Block] = []
    if found := summary.learning:
        pictures = []
        for name, chart in learning.charts(found, summary.row_titles).items():
            title = f"{chart.metric.title.capitalize()} over {chart.axis.title}"
            pictures.append(picture(chart, f"learning-{name}", title))
        blocks = [
            Group("figures", pictures),
            *undrawn(len(found.learned), "configurations"),
            Body(learning.section(found, summary.row_titles), "Learning"),
        ]
    return PageSection("learning", "Learning", blocks)
