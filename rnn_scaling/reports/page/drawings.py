"""The page's static pictures, each with its numbers as text for screen-reader users, and the sections made of them."""

from collections.abc import Sequence

from rnn_scaling.analysis.attribution import Attribution
from rnn_scaling.analysis.learning import Learning
from rnn_scaling.analysis.metrics import EFFICIENCY, Metric
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps.parts import StepParts, statements
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
from rnn_scaling.reports.pictures import curves, figures, losses, step_figures
from rnn_scaling.reports.summary import SeriesSummary, Summary
from rnn_scaling.reports.wording import sentence


def curve(
    series: Sequence[SeriesSummary], metric: Metric, name: str, group: str = ""
) -> Figure:
    """One metric over the number of devices."""
    start = curves.frame_of(series, metric).start
    about = f"Each series over the number of devices. {_numbers(series, metric)} {start.capitalize()}"
    title = f"{metric.caption}, {group}" if group else metric.caption
    return page.figure_of(curves.lines(series, metric, name=name), name, title, about)


def undrawn(count: int, noun: str) -> list[Text]:
    """A note where there are more lines than a picture has."""
    values = {"shown": figures.MOST_LINES, "more": count - figures.MOST_LINES}
    return (
        [Text(sentence(Statement("pictures-show-some", noun, values)), "note")]
        if values["more"] > 0
        else []
    )


def _numbers(series: Sequence[SeriesSummary], metric: Metric) -> str:
    lines = []
    for member in series[: figures.MOST_LINES]:
        measured = [
            (row.row.num_devices, row.row.metric(metric)) for row in member.rows
        ]
        points = [
            f"{plus_minus(metric.printed(value), metric.digits)} on {n}"
            for n, value in measured
            if value
        ]
        if points:
            lines.append(f"{member.title}: {', '.join(points)}.")
    return " ".join(lines)


def bars(split: Sequence[tuple[str, Attribution]]) -> list[Block]:
    """The losses of (title, loss) pairs as bars."""
    few = split[: figures.MOST_LINES]
    lines = []
    for title, loss in few:
        parts = ", ".join(
            f"{part.name} {plus_minus(part.points, 1)}" for part in loss.shown
        )
        lines.append(f"{title}: {plus_minus(loss.loss_points, 1)} ({parts}).")
    title = "Points of efficiency lost, by part"
    figure = page.figure_of(
        losses.losses(few, "losses"),
        "losses",
        title,
        f"A bar for each series. {' '.join(lines)}",
    )
    return [figure, *undrawn(len(split), "series")]


def glance(summary: Summary) -> list[Block]:
    """The efficiency of each kind of scaling; nothing if no run used several devices."""
    groups, drawn = figures.groups(summary), list[Block]()
    for k, (name, series) in enumerate(groups):
        scaled = [
            member
            for member in series
            if member.largest and member.largest.row.metric(EFFICIENCY)
        ]
        if any(
            member.largest and member.largest.row.num_devices > 1 for member in scaled
        ):
            group = name if len(groups) > 1 else ""
            drawn += [
                *([Text(group, "h3")] if group else []),
                curve(scaled, EFFICIENCY, f"glance-{k}", group),
            ]
    return drawn


def steps_section(series: Sequence[SeriesSummary]) -> PageSection:
    """Where a step goes, for each traced row: its pictures and numbers."""
    rows = [
        (f"{member.title}, {row.devices}", row.traced)
        for member in series
        for row in member.rows
        if row.traced
    ]
    traced = []
    for k, (title, parts) in enumerate(rows):
        pictures = (
            [Group("figures", _step_pictures(parts, k, title))]
            if k < page.MOST_FIGURES
            else []
        )
        tables = Folded(
            "Numbers of a step", [Body(steps.section(parts, title), title)], title
        )
        traced.append(Group("loss", [Text(title, "h3"), *pictures, tables]))
    used = {part for _, parts in rows for part in parts.shown}
    terms = Terms([_key(part) for part in PARTS if part in used], "parts")
    reading = Text(sentence(Statement("reading-of-steps")))
    return PageSection(
        "steps", "Where a step goes", [reading, terms, *traced] if traced else []
    )


def _key(part: str) -> Key:
    look = step_figures.look(part)
    return Key(
        steps.title(part),
        steps.MEANING[part],
        figures.themed(look["facecolor"].lower()),
        look["alpha"],
    )


def _step_pictures(step_parts: StepParts, k: int, title: str) -> list[Figure]:
    step = step_parts.typical
    title += step_figures.left_out(step_parts.num_towers)
    at_once = {"concurrency": sentence(statements(step_parts)[1])}
    means = sentence(Statement("picture-of-parts", values=at_once))
    about = sentence(
        Statement(
            "picture-of-step", values={"step": step, "steps": len(step_parts.steps)}
        )
    )
    parts, timeline = f"parts-{k}", f"step-{k}"
    bars, drawn = (
        step_figures.parts(step_parts, parts),
        step_figures.timeline(step_parts.steps[step], timeline),
    )
    return [
        page.figure_of(bars, parts, f"{title}: parts of the mean step", means),
        page.figure_of(drawn, timeline, f"{title}: traced step {step}", about),
    ]


def counts_section(summary: Summary) -> PageSection:
    """How many operators and kernels a step is, for runs that differ in encoder and devices."""
    blocks: list[Block] = []
    if inspection := counts_report.inspection_of(summary):
        *groups, agreement = counts_report.sections(inspection)
        blocks = [Text(sentence(Statement("reading-of-counts"))), Body(agreement)]
        blocks += [
            Folded(group.title, [Body(group, group.title)], "counts")
            for group in groups
        ]
    return PageSection("counts", "Operators and kernels of a step", blocks)


def learning_section(summary: Summary) -> PageSection:
    """Curves and table, where runs counted right predictions or a target was given."""
    blocks: list[Block] = []
    if found := summary.learning:
        names = learning.line_names(found, summary.row_titles)
        pictures = [_curve(found, names, *kind) for kind in learning.kinds(found)]
        blocks = [
            Group("figures", pictures),
            *undrawn(len(found.learned), "configurations"),
        ]
        blocks.append(Body(learning.section(found, summary.row_titles), "Learning"))
    return PageSection("learning", "Learning", blocks)


def _curve(found: Learning, names: dict[Row, str], kind: str, over: str) -> Figure:
    name = f"learning-{kind}-{over}"
    ends = []
    for learned in found.learned[: figures.MOST_LINES]:
        if line := learning.points(learned, found, kind, over):
            ends.append(
                f"{names[learned.row]}: from {line[0][1]:.4g} to {line[-1][1]:.4g}."
            )
    about = f"A line for each configuration, its first run. {' '.join(ends)}"
    svg = learning.draw(found, names, kind, over, name)
    return page.figure_of(svg, name, learning.picture_title(found, kind, over), about)
