"""The page's pictures, each with its numbers in words for who does not see it, and their legends."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnn_scaling.analysis.attribution import REST, Attribution
from rnn_scaling.analysis.metrics import Metric
from rnn_scaling.files.terminal import three_digits
from rnn_scaling.reports.loss_text import nothing_told
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.page.parts import MOST_FIGURES, Figure, figure_of
from rnn_scaling.reports.pictures import batch_times, curves, figures, waterfall
from rnn_scaling.reports.summary import RunSteady, SeriesSummary

DASHES = {"-": "", "--": "5 2.5", ":": "1.5 2", "-.": "6 2 1.5 2"}
SHAPES = {"o": "M14 3a3 3 0 1 0 .01 0z", "s": "M11 3h6v6h-6z", "^": "M14 2.4l3.6 6.4h-7.2z", "D": "M14 2l4 4-4 4-4-4z"}
STROKE, BAR, ARROW = "M14 1v10M11.5 1h5M11.5 11h5", "M3 1.5h22v9h-22z", "M20 2.4l-6 3.6 6 3.6zM20 6h7"
GAP = "M3 1.5h6l-2 9h-4zM12 1.5h13v9h-15z"


@dataclasses.dataclass(frozen=True)
class Key:
    """One entry of a legend: a line with its marker, or a filled shape."""

    text: str
    colour: str
    dash: str = ""
    shape: str = ""
    has_line: bool = False


def swatches(series: Sequence[SeriesSummary]) -> list[Key]:
    """The lines of these series."""
    few = series[: figures.MOST_LINES]
    return [
        Key(each.title, figures.themed(look["color"].lower()), DASHES[look["linestyle"]], SHAPES[look["marker"]], True)
        for each, look in zip(few, figures.looks(few))
    ]


def marks(*frames: curves.Frame) -> list[Key]:
    """The ideal, intervals, and, where one goes on beyond its frame, what says so."""
    muted = figures.themed(figures.MUTED)
    keys = [Key("ideal", muted, "2 2", has_line=True)]
    if any(frame.has_intervals for frame in frames):
        keys.append(Key("95 % interval over runs", muted, shape=STROKE))
    return [*keys, *([Key("interval goes on", muted, shape=ARROW)] if any(frame.cuts for frame in frames) else [])]


def bars(losses: Sequence[Attribution]) -> list[Key]:
    """What the bars of waterfalls are."""
    names = {name for loss in losses for name, _, _ in waterfall.parts_of(loss)}
    points = [part.points.value for loss in losses for part in loss.told if part.points]
    keys = [Key("ideal: n times one device", figures.themed(figures.GRID), shape=BAR)]
    if any(value > 0 for value in points):
        keys.append(Key("lost", figures.themed(figures.LOSS), shape=BAR))
    if any(value < 0 for value in points):
        keys.append(Key("gained: below 0", figures.themed(figures.GAIN), shape=BAR))
    if REST in names:
        keys.append(Key(f"{REST}: not told apart from {nothing_told(losses)}", figures.themed(figures.REST), shape=BAR))
    keys.append(Key("measured", figures.themed(figures.COLOURS[0].lower()), shape=BAR))
    if any(waterfall.frame_of(loss).low for loss in losses):
        keys.append(Key("with a gap: begins at 0, cut", figures.themed(figures.COLOURS[0].lower()), shape=GAP))
    return [*keys, *marks(*(waterfall.frame_of(loss) for loss in losses))[1:]]


def curve(series: Sequence[SeriesSummary], metric: Metric, name: str, group: str = "") -> Figure:
    """One metric over the number of devices."""
    about = f"A line for each series. {_numbers(series, metric)} {curves.frame_of(series, metric).sentence}"
    return figure_of(curves.lines(series, metric, name=name), name, titled(metric.caption, group), about)


def titled(caption: str, group: str) -> str:
    """A picture's name, which no other one on the page has."""
    return f"{caption}, {group}" if group else caption


def _numbers(series: Sequence[SeriesSummary], metric: Metric) -> str:
    said = []
    for each in series[: figures.MOST_LINES]:
        points = [
            f"{plus_minus(metric.printed(value), metric.digits)} on {row.row.num_devices}"
            for row in each.rows
            if (value := row.row.metric(metric))
        ]
        if points:
            said.append(f"{each.title}: {', '.join(points)}.")
    return " ".join(said)


def loss(series: SeriesSummary, split: Attribution, k: int) -> Figure:
    """The waterfall of a series."""
    devices = series.largest.devices if series.largest else ""
    parts = [f"{name} {plus_minus(points, 1)}" for name, _, points in waterfall.parts_of(split)]
    ideal, measured = split.ideal.value, split.ideal.value - split.loss.value
    about = (
        f"Ideal {three_digits(ideal)} {series.unit}/s; points of efficiency lost: {', '.join(parts)}; "
        f"measured {three_digits(measured)} {series.unit}/s, {100 * measured / ideal:.1f} % of the ideal. "
        f"{waterfall.frame_of(split).sentence}"
    )
    name = f"waterfall-{k}"
    return figure_of(waterfall.waterfall(split, name), name, f"{series.title}, {devices}: where the rest goes", about)


def times(series: Sequence[SeriesSummary]) -> list[tuple[Figure, str]]:
    """A picture for each series' run on one device and on the most, and what is said below it."""
    ends = [row for each in series for row in dict.fromkeys((each.rows[0], each.largest)) if row and row.steady]
    titles = {id(row): each.title for each in series for row in each.rows}
    drawn = []
    for k, row in enumerate(ends[:MOST_FIGURES]):
        run, name = row.steady[0], f"times-{k}"
        seconds = sorted(run.record.batches.seconds)
        about = (
            f"{run.file}: {len(seconds)} batches of {1000 * seconds[0]:,.1f} to {1000 * seconds[-1]:,.1f} ms, the "
            f"middle one {1000 * seconds[len(seconds) // 2]:,.1f} ms; {run.state.text}"
        )
        title = f"{titles[id(row)]}, {row.devices}"
        drawn.append((figure_of(batch_times.batch_times(run, name), name, title, about), _when(run)))
    return drawn


def _when(run: RunSteady) -> str:
    """The kind, the cut and what it moves, in a few words."""
    state, warmup = run.state, run.record.batches.warmup
    if state.start is None or state.move is None:
        return state.text
    start = "the first batch" if state.start == 0 else f"batch {state.start}"
    move = f"{100 * state.move:+.1f} %".replace("-", "\u2212")
    passed = f"; {state.passed}" if state.passed else ""
    return f"{state.kind}, steady from {start}{passed}; the headline, which skips {warmup}, would move by {move}"
