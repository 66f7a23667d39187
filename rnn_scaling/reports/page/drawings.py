"""The page's static pictures, each with its numbers as text for screen-reader users."""

from collections.abc import Sequence

from rnn_scaling.analysis.attribution import Attribution
from rnn_scaling.analysis.metrics import EFFICIENCY, Metric
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.page.parts import Block, Figure, Text, figure_of
from rnn_scaling.reports.pictures import curves, figures, losses
from rnn_scaling.reports.summary import SeriesSummary, Summary
from rnn_scaling.reports.wording import sentence


def curve(series: Sequence[SeriesSummary], metric: Metric, name: str, group: str = "") -> Figure:
    """One metric over the number of devices."""
    start = curves.frame_of(series, metric).start
    about = f"Each series over the number of devices. {_numbers(series, metric)} {start.capitalize()}"
    title = f"{metric.caption}, {group}" if group else metric.caption
    return figure_of(curves.lines(series, metric, name=name), name, title, about)


def undrawn(count: int, noun: str) -> list[Text]:
    """A note where there are more lines than a picture has."""
    values = {"shown": figures.MOST_LINES, "more": count - figures.MOST_LINES}
    return [Text(sentence(Statement("pictures-show-some", noun, values)), "note")] if values["more"] > 0 else []


def _numbers(series: Sequence[SeriesSummary], metric: Metric) -> str:
    lines = []
    for member in series[: figures.MOST_LINES]:
        measured = [(row.row.num_devices, row.row.metric(metric)) for row in member.rows]
        points = [f"{plus_minus(metric.printed(value), metric.digits)} on {n}" for n, value in measured if value]
        if points:
            lines.append(f"{member.title}: {', '.join(points)}.")
    return " ".join(lines)


def bars(split: Sequence[tuple[str, Attribution]]) -> list[Block]:
    """The losses of (title, loss) pairs as bars."""
    few = split[: figures.MOST_LINES]
    lines = []
    for title, loss in few:
        parts = ", ".join(f"{part.name} {plus_minus(part.points, 1)}" for part in loss.shown)
        lines.append(f"{title}: {plus_minus(loss.loss_points, 1)} ({parts}).")
    title = "Points of efficiency lost, by part"
    figure = figure_of(losses.losses(few, "losses"), "losses", title, f"A bar for each series. {' '.join(lines)}")
    return [figure, *undrawn(len(split), "series")]


def glance(summary: Summary) -> list[Block]:
    """The efficiency of each kind of scaling; nothing if no run used several devices."""
    groups, drawn = figures.groups(summary), list[Block]()
    for k, (name, series) in enumerate(groups):
        scaled = [member for member in series if member.largest and member.largest.row.metric(EFFICIENCY)]
        if any(member.largest and member.largest.row.num_devices > 1 for member in scaled):
            group = name if len(groups) > 1 else ""
            drawn += [*([Text(group, "h3")] if group else []), curve(scaled, EFFICIENCY, f"glance-{k}", group)]
    return drawn
