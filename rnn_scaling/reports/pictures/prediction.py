"""Pictures of predictions: rates with intervals, losses, and gains of changes."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction.changes import Sensitivity
from rnn_scaling.analysis.prediction.curves import Curve, Prediction
from rnn_scaling.analysis.prediction.predicting import SPEEDUP as UNIT_OF_SPEEDUPS
from rnn_scaling.analysis.prediction.predicting import sources
from rnn_scaling.reports.explorer import Axis, Line, Metric, Point
from rnn_scaling.reports.pictures import bars, charts, figures
from rnn_scaling.reports.pictures.bars import Bar
from rnn_scaling.reports.prediction import PERCENT, points
from rnn_scaling.system.files.terminal import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 6  # series in a picture
DEVICES = "devices"
SPEEDUP = Metric("speedup", "speedup", "", 2, "n")
EFFICIENCY = Metric("efficiency", "efficiency", "%", 1, "one")
SHARE = "efficiency"  # the first part of a bar
GAIN = "gain"
BLUE, RED, GREEN, PINK, ORANGE, SKY = figures.COLOURS
COLOURS = {
    SHARE: SKY,
    "failures": BLUE,
    "fixed cost": RED,
    "stragglers": RED,
    "contention": GREEN,
    "exchange": PINK,
    "exchange bandwidth": PINK,
    "jitter": ORANGE,
    "exchange latency": SKY,
}
WIDTH = 4.8  # inches of a panel
HEIGHT = 0.45  # inches of a bar


def rate_metric(curve: Curve) -> Metric:
    """Return what the numbers of a curve are, as its source prints them."""
    if curve.time:
        return Metric(f"time, {curve.time.unit}", "time", curve.time.unit, 2)
    if curve.unit == UNIT_OF_SPEEDUPS:
        return SPEEDUP
    return Metric(curve.unit, f"{curve.unit}/s", f"{curve.unit}/s", 1)


def line(prediction: Prediction, k: int) -> Line:
    """Return the measured and the predicted points of series number k."""
    curve = prediction.curve
    measured = {point.devices for point in curve.points}
    known, new = sources(prediction)
    noun = "machines" if curve.counts_machines else DEVICES
    made = []
    for point in points(prediction):
        is_predicted = point.devices not in measured
        values = {rate_metric(curve).name: curve.shown(point.devices, point.rate)}
        if point.efficiency:
            values[SPEEDUP.name] = point.efficiency.scaled(point.devices)
            values[EFFICIENCY.name] = point.efficiency.scaled(PERCENT)
        if prediction.is_simulated:
            values = {name: Interval(value.value) for name, value in values.items()}
        for part, share in point.parts.items():
            values[part] = Interval(PERCENT * share)
        label = f"{point.devices:,} {noun}, {new if is_predicted else known}"
        place = {DEVICES: point.devices}
        made.append(Point(place, values, label=label, is_predicted=is_predicted))
    return Line(curve.name, made, colour=k, shape=k // len(figures.COLOURS))


def chart(prediction: Prediction) -> charts.Chart:
    """Return the rates over the number of devices, and the ideal."""
    curve = prediction.curve
    first = curve.points[0]
    known, new = sources(prediction)
    drawn = Line(known, line(prediction, 0).points)

    def ideal(devices: float) -> float:
        rate = Interval(first.rate / first.devices * devices)
        return curve.shown(int(devices), rate).value

    axis = Axis(DEVICES, "machines" if curve.counts_machines else DEVICES)
    metric = rate_metric(curve)
    return charts.Chart(metric, axis, [drawn], ideal, predicted_title=new)


def render(predictions: Sequence[Prediction]) -> bytes:
    """Return a PNG with the rates and the losses of each of the first series."""
    with figures.style(is_fixed=True):
        return figures.as_file(figure_of(predictions))


def figure_of(predictions: Sequence[Prediction]) -> Figure:
    from matplotlib.figure import Figure

    few = predictions[:MOST]
    split = [_bars(prediction) for prediction in few]
    columns = 2 if any(split) else 1
    heights = [max(2.6, HEIGHT * (1 + len(drawn))) for drawn in split]
    size = (WIDTH * columns, 0.8 + sum(heights))
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(few), columns, squeeze=False, height_ratios=heights)
    keys: dict[str, Any] = {}
    for row, prediction, drawn in zip(panels, few, split):
        charts.draw(row[0], chart(prediction))
        row[0].set_title(textwrap.fill(prediction.curve.name, 58))
        row[0].set_ylabel(rate_metric(prediction.curve).caption)
        keys |= bars.legend(row[0])
        if drawn:
            _draw_losses(row[1], drawn)
            keys |= bars.legend(row[1])
        elif columns > 1:
            row[1].set_axis_off()
    place = {"loc": "outside lower left", "ncols": 3 * columns, **figures.LEGEND}
    figure.legend(list(keys.values()), list(keys), **place)
    _count_left_out(figure, len(predictions), "series")
    return figure


def _count_left_out(figure: Figure, count: int, noun: str) -> None:
    if count > MOST:
        title = f"The first {MOST} of {count} {noun}"
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")


def _bars(prediction: Prediction) -> list[Bar]:
    """Return the efficiency and the losses of each number of devices that has both."""
    drawn = []
    for point in prediction.points:
        if point.efficiency:
            whole = point.efficiency.scaled(PERCENT)
            if prediction.is_simulated:
                whole = Interval(whole.value)
            parts = [(name, PERCENT * share) for name, share in point.parts.items()]
            sized = [(name, size) for name, size in parts if size > 0]
            noun = "machine" if prediction.curve.counts_machines else "device"
            title = counted(point.devices, noun)
            drawn.append(Bar(title, [(SHARE, whole.value), *sized], whole))
    return drawn


def _draw_losses(axes: Axes, drawn: Sequence[Bar]) -> None:
    names = {name for bar in drawn for name, _ in bar.parts}
    colours = {name: COLOURS.get(name, figures.MUTED) for name in names}
    bars.draw(axes, drawn, bars.looks(colours), width=WIDTH)
    axes.set_xlabel("share of the ideal rate, %")


def losses_svg(prediction: Prediction, name: str) -> str:
    """Return the losses of one series as SVG for the page."""
    drawn = _bars(prediction)
    with figures.style():
        figure, axes = figures.blank(WIDTH, 0.8 + HEIGHT * len(drawn), 3, left=0.1)
        _draw_losses(axes, drawn)
        keys = bars.legend(axes)
        place = {"loc": "lower left", "ncols": 3, **figures.LEGEND}
        figure.legend(list(keys.values()), list(keys), **place)
        return figures.as_svg(figure, name)


def changes(answers: Sequence[Sensitivity]) -> bytes:
    """Return a PNG: for each of the first answers, the gain of every change."""
    from matplotlib.figure import Figure

    few = answers[:MOST]
    heights = [0.5 + HEIGHT * len(found.effects) for found in few]
    with figures.style(is_fixed=True):
        figure = Figure(figsize=(7.4, 0.5 + sum(heights)), layout="constrained")
        panels = figure.subplots(len(few), 1, squeeze=False, height_ratios=heights)
        for axes, found in zip(panels[:, 0], few):
            # The first effect is "now", which gains nothing.
            drawn = [
                Bar(effect.title, [(GAIN, effect.gain.value - 1)], effect.gain)
                for effect in found.effects[1:]
            ]
            looks = bars.looks({GAIN: BLUE})
            bars.draw(axes, drawn, looks, start=1.0, digits=2)
            axes.set_title(f"{found.curve.name}, {found.devices:,} devices")
            axes.set_xlabel("rate, as a multiple of the rate now")
        _count_left_out(figure, len(answers), "answers")
        return figures.as_file(figure)
