"""The page's static pictures, each with its numbers as text for screen-reader users.

`scaling` and the other pages choose which pictures they show.
"""

from __future__ import annotations

from collections.abc import Sequence

from rnn_scaling.analysis.attribution import UNEXPLAINED, Attribution, LossPartName
from rnn_scaling.analysis.statements import state
from rnn_scaling.analysis.steps.parts import make_statements, split_steps
from rnn_scaling.records.step_parts import PARTS
from rnn_scaling.reports import counts_report, learning, steps
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
from rnn_scaling.reports.series_statements import format_noise
from rnn_scaling.reports.summary import SeriesSummary, Summary
from rnn_scaling.reports.wording import format_interval, write_sentence

_WIDTH = 7.2  # inches of the bars
_LOSSES = "Points of efficiency lost, by part"
_COLOURS: dict[str, str] = {
    **dict(zip(LossPartName, figures.COLOURS)),
    UNEXPLAINED: figures.UNEXPLAINED,
}


def draw_picture(chart: Chart, name: str, title: str = "") -> Figure:
    """Return a chart with its caption, or another title."""
    title = title or chart.metric.caption
    return page.make_figure(
        charts.draw_svg(chart, name), name, title, chart.description
    )


def draw_curves(groups: Sequence[Series], omitted_metric: str) -> list[Block]:
    """Return a static picture of every metric except one, separately for each group."""
    blocks: list[Block] = []
    for k, group in enumerate(groups):
        suffix = f"-{k}" if k else ""
        pictures = []
        for metric in group.picture_metrics:
            if metric.name != omitted_metric:
                name = f"fig-{metric.name}{suffix}"
                pictures.append(_draw_group(group.chart(metric), name, group.title))
        blocks += [Text(group.title, "h3")] if group.title else []
        blocks += [
            Group("figures", pictures),
            *_make_omission_note(len(group.lines), "series"),
        ]
    return blocks


def draw_glance(groups: Sequence[Series]) -> list[Block]:
    """Return the efficiency of each group that used several devices."""
    blocks: list[Block] = []
    for k, group in enumerate(groups):
        if chart := group.efficiency:
            blocks += [Text(group.title, "h3")] if group.title else []
            blocks.append(_draw_group(chart, f"glance-{k}", group.title))
    return blocks


def _draw_group(chart: Chart, name: str, group: str) -> Figure:
    return draw_picture(
        chart, name, ", ".join(filter(None, [chart.metric.caption, group]))
    )


def _make_omission_note(count: int, noun: str) -> list[Text]:
    """Return a note if there are more lines than a picture has."""
    if count <= figures.MAX_LINES:
        return []
    return [
        Text(
            write_sentence(
                state(
                    "pictures-show-some",
                    noun,
                    shown=figures.MAX_LINES,
                    more=count - figures.MAX_LINES,
                )
            ),
            "note",
        )
    ]


def draw_losses(split_losses: Sequence[tuple[str, Attribution]]) -> list[Block]:
    """Return the losses of (title, loss) pairs as bars."""
    first = split_losses[: figures.MAX_LINES]
    lines = []
    for title, loss in first:
        texts = [
            f"{part.name} {format_interval(part.points, 1)}"
            for part in loss.displayed_parts
        ]
        total = format_interval(loss.loss_points, 1)
        lines.append(f"{title}: {total} ({', '.join(texts)}).")
    description = f"A bar for each series. {' '.join(lines)}"
    figure = page.make_figure(draw_losses_svg(first), "losses", _LOSSES, description)
    return [figure, *_make_omission_note(len(split_losses), "series")]


def draw_losses_svg(split_losses: Sequence[tuple[str, Attribution]]) -> str:
    """Return a bar for each loss; gains are left of 0."""
    loss_bars = []
    used_parts: set[str] = set()
    for title, loss in split_losses:
        sizes = [
            (part.name, part.points.value)
            for part in loss.displayed_parts
            if part.points
        ]
        loss_bars.append(bars.Bar(title, sizes, loss.loss_points))
        used_parts.update(name for name, _ in sizes)
    noise = format_noise([loss for _, loss in split_losses])
    titles = {name: name for name in _COLOURS if name in used_parts}
    if UNEXPLAINED in titles:
        titles[UNEXPLAINED] = f"{UNEXPLAINED}: within {noise}"
    label = "points of efficiency lost"
    return bars.draw_svg(
        "losses",
        bars=loss_bars,
        colours=_COLOURS,
        width=_WIDTH,
        label=label,
        titles=titles,
    )


def make_steps_section(series: Sequence[SeriesSummary]) -> PageSection:
    """Return pictures and numbers of the parts of a step, for each traced row."""
    blocks: list[Block] = []
    used_parts: set[str] = set()
    for member in series:
        for row in member.rows:
            if parts := split_steps(row.good_runs):
                title = f"{member.title}, {row.devices}"
                blocks.append(_make_step_block(parts, len(blocks), title))
                used_parts.update(parts.nonzero_parts)
    if blocks:
        keys = [_make_part_key(part) for part in PARTS if part in used_parts]
        reading = Text(write_sentence(state("reading-of-steps")))
        blocks = [reading, Terms(keys, "parts"), *blocks]
    return PageSection("steps", "Where a step goes", blocks)


def _make_part_key(part: str) -> Key:
    style = step_figures.make_part_style(part)
    colour = figures.apply_page_theme(style["facecolor"])
    return Key(
        steps.name_part(part),
        write_sentence(state(f"part-{part}")),
        colour,
        style["alpha"],
    )


def _make_step_block(parts: steps.StepParts, k: int, title: str) -> Block:
    blocks: list[Block] = [Text(title, "h3")]
    if k < page.MAX_FIGURES:
        step = parts.typical
        figure_title = title + step_figures.format_omitted_towers(parts.num_towers)
        pictures = [
            page.make_figure(
                step_figures.draw_parts(parts, f"parts-{k}"),
                f"parts-{k}",
                f"{figure_title}: parts of the mean step",
                write_sentence(
                    state(
                        "picture-of-parts",
                        concurrency=write_sentence(make_statements(parts)[1]),
                    )
                ),
            ),
            page.make_figure(
                step_figures.draw_timeline(parts.steps[step], f"step-{k}"),
                f"step-{k}",
                f"{figure_title}: traced step {step}",
                write_sentence(
                    state("picture-of-step", step=step, steps=len(parts.steps))
                ),
            ),
        ]
        blocks.append(Group("figures", pictures))
    tables = Body(steps.make_section(parts, title), title)
    return Group("loss", [*blocks, Folded("Numbers of a step", [tables], title)])


def make_counts_section(summary: Summary) -> PageSection:
    """Return the operators and kernels of runs that differ in encoder and devices."""
    blocks: list[Block] = []
    if inspection := counts_report.inspect_summary(summary):
        *groups, agreement = counts_report.make_sections(inspection)
        blocks = [Text(write_sentence(state("reading-of-counts"))), Body(agreement)]
        for group in groups:
            blocks.append(Folded(group.title, [Body(group, group.title)], "counts"))
    return PageSection("counts", "Operators and kernels of a step", blocks)


def make_learning_section(summary: Summary) -> PageSection:
    """Return the curves and the table of the accuracy or of a target, if recorded."""
    blocks: list[Block] = []
    if result := summary.learning:
        pictures = []
        for name, chart in learning.make_charts(result, summary.row_titles).items():
            title = f"{chart.metric.title.capitalize()} over {chart.axis.title}"
            pictures.append(draw_picture(chart, f"learning-{name}", title))
        blocks = [
            Group("figures", pictures),
            *_make_omission_note(len(result.results), "configurations"),
            Body(learning.make_section(result, summary.row_titles), "Learning"),
        ]
    return PageSection("learning", "Learning", blocks)
