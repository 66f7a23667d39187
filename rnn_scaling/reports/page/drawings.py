"""The page's static pictures with their legends, each with its numbers as text for screen-reader users."""

from collections.abc import Sequence

from rnn_scaling.analysis.attribution import REST, Attribution
from rnn_scaling.analysis.metrics import EFFICIENCY, Metric
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.reports.loss_statements import noise_of
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.page.parts import Block, Figure, Key, Legend, Text, figure_of
from rnn_scaling.reports.pictures import curves, figures, losses
from rnn_scaling.reports.summary import SeriesSummary, Summary
from rnn_scaling.reports.wording import sentence

DASHES = {"-": "", "--": "5 2.5", ":": "1.5 2", "-.": "6 2 1.5 2", "none": ""}
SHAPES = {"o": "M14 3a3 3 0 1 0 .01 0z", "s": "M11 3h6v6h-6z", "^": "M14 2.4l3.6 6.4h-7.2z", "D": "M14 2l4 4-4 4-4-4z"}
STROKE, BAR, ARROW = "M14 1v10M11.5 1h5M11.5 11h5", "M3 1.5h22v9h-22z", "M20 2.4l-6 3.6 6 3.6zM20 6h7"


def swatches(series: Sequence[SeriesSummary]) -> list[Key]:
    few, keys = series[: figures.MOST_LINES], []
    for member, look in zip(few, curves.looks(few)):
        colour, dash, shape = figures.themed(look["color"].lower()), DASHES[look["linestyle"]], SHAPES[look["marker"]]
        keys.append(Key(member.title, colour, dash, shape, has_line=look["linestyle"] != "none"))
    return keys


def marks(frame: curves.Frame) -> list[Key]:
    """The ideal, intervals, and the arrow of an interval that continues beyond the frame."""
    muted = figures.themed(figures.MUTED)
    keys = [Key("ideal", muted, "2 2", has_line=True)]
    if frame.has_intervals:
        keys.append(Key("95 % interval over runs", muted, shape=STROKE))
    return [*keys, *([Key("interval goes on", muted, shape=ARROW)] if frame.cuts else [])]


def curve(series: Sequence[SeriesSummary], metric: Metric, name: str, group: str = "") -> Figure:
    """One metric over the number of devices."""
    about = (
        f"Each series over the number of devices. {_numbers(series, metric)} {curves.frame_of(series, metric).sentence}"
    )
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
    """The losses of (title, loss) pairs as bars, with a legend of the parts."""
    few = split[: figures.MOST_LINES]
    lines = []
    for title, loss in few:
        parts = ", ".join(f"{part.name} {plus_minus(part.points, 1)}" for part in loss.shown)
        lines.append(f"{title}: {plus_minus(loss.loss_points, 1)} ({parts}).")
    title = "Points of efficiency lost, by part"
    figure = figure_of(losses.losses(few, "losses"), "losses", title, f"A bar for each series. {' '.join(lines)}")
    names = {part.name for _, loss in split for part in loss.shown}
    within = {REST: f"{REST}: within {noise_of([loss for _, loss in split])}"}
    keyed = [(within.get(name, name), colour) for name, colour in losses.COLOURS.items() if name in names]
    keys = [Key(name, figures.themed(colour.lower()), shape=BAR, opacity=losses.OPACITY) for name, colour in keyed]
    return [figure, Legend("Parts of the losses", keys), *undrawn(len(split), "series")]


def glance(summary: Summary) -> list[Block]:
    """The efficiency of each kind of scaling; nothing if no run used several devices."""
    groups, drawn = figures.groups(summary), list[Block]()
    for k, (name, series) in enumerate(groups):
        scaled = [member for member in series if member.largest and member.largest.row.metric(EFFICIENCY)]
        if any(member.largest and member.largest.row.num_devices > 1 for member in scaled):
            group = name if len(groups) > 1 else ""
            keys = [*swatches(scaled), *marks(curves.frame_of(scaled, EFFICIENCY))]
            figure = curve(scaled, EFFICIENCY, f"glance-{k}", group)
            drawn += [*([Text(group, "h3")] if group else []), figure, Legend(f"Legend of {figure.title}", keys)]
    return drawn
