"""Pictures of predictions: rates with intervals, losses, and gains of changes.

The page and the files of `predict` show them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import EFFICIENCY, SPEEDUP, Metric
from rnn_scaling.analysis.prediction.changes import Sensitivity
from rnn_scaling.analysis.prediction.curves import Curve, Prediction
from rnn_scaling.analysis.prediction.predicting import SPEEDUP as UNIT_OF_SPEEDUPS
from rnn_scaling.analysis.prediction.predicting import source_names
from rnn_scaling.reports.explorer import Axis, Line, Point
from rnn_scaling.reports.pictures import bars, charts, figures
from rnn_scaling.reports.pictures.bars import Bar
from rnn_scaling.reports.prediction import PERCENT, list_points
from rnn_scaling.system.files.terminal import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_SERIES = 6  # series in a picture
DEVICES = "devices"
SHARE = "efficiency"  # the first part of a bar
_SHARE_LABEL = "share of the ideal rate, %"
_GAIN = "gain"
BLUE, RED, GREEN, PINK, ORANGE, SKY = figures.COLOURS
_COLOURS = {
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
_WIDTH = 4.8  # inches of a panel
_HEIGHT = 0.45  # inches of a bar


def rate_metric(curve: Curve) -> Metric:
    """Return the metric that the source of a curve prints."""
    if curve.time:
        return Metric(f"time, {curve.time.unit}", "time", curve.time.unit)
    if curve.unit == UNIT_OF_SPEEDUPS:
        return SPEEDUP
    return Metric(curve.unit, f"{curve.unit}/s", f"{curve.unit}/s", digits=1)


def make_line(prediction: Prediction, k: int) -> Line:
    """Return the measured and the predicted points of series number k."""
    curve = prediction.curve
    measured_counts = {point.devices for point in curve.points}
    measured_source, predicted_source = source_names(prediction)
    noun = "machines" if curve.counts_machines else DEVICES
    line_points = []
    for point in list_points(prediction):
        is_predicted = point.devices not in measured_counts
        values = {
            rate_metric(curve).name: curve.to_source_unit(point.devices, point.rate)
        }
        if point.efficiency:
            values[SPEEDUP.name] = point.efficiency.scaled(point.devices)
            values[EFFICIENCY.name] = point.efficiency.scaled(PERCENT)
        if prediction.is_simulated:
            values = {name: Interval(value.value) for name, value in values.items()}
        for part, share in point.parts.items():
            values[part] = Interval(PERCENT * share)
        source = predicted_source if is_predicted else measured_source
        label = f"{point.devices:,} {noun}, {source}"
        position = {DEVICES: point.devices}
        line_points.append(
            Point(position, values, label=label, is_predicted=is_predicted)
        )
    return Line(curve.name, line_points, colour=k, shape=k // len(figures.COLOURS))


def make_chart(prediction: Prediction) -> charts.Chart:
    """Return the rates over the number of devices, and the ideal."""
    curve = prediction.curve
    first = curve.points[0]
    measured_source, predicted_source = source_names(prediction)
    rates = Line(measured_source, make_line(prediction, 0).points)

    def compute_ideal_rate(devices: float) -> float:
        rate = Interval(first.rate / first.devices * devices)
        return curve.to_source_unit(int(devices), rate).value

    axis = Axis(DEVICES, "machines" if curve.counts_machines else DEVICES)
    metric = rate_metric(curve)
    return charts.Chart(
        metric, axis, [rates], compute_ideal_rate, predicted_title=predicted_source
    )


def render(predictions: Sequence[Prediction]) -> bytes:
    """Return a PNG with the rates and the losses of each of the first series."""
    with figures.apply_style(is_fixed=True):
        return figures.as_file(draw_series(predictions))


def draw_series(predictions: Sequence[Prediction]) -> Figure:
    first_predictions = predictions[:MAX_SERIES]
    bars_of_series = [_make_bars(prediction) for prediction in first_predictions]
    columns = 2 if any(bars_of_series) else 1
    heights = [max(2.6, _HEIGHT * (1 + len(losses))) for losses in bars_of_series]
    figure, rows = figures.make_stacked_figure(heights, _WIDTH * columns, 0.8, columns)
    for row, prediction, losses in zip(rows, first_predictions, bars_of_series):
        charts.draw(row[0], make_chart(prediction))
        row[0].set_title(textwrap.fill(prediction.curve.name, 58))
        row[0].set_ylabel(rate_metric(prediction.curve).caption)
        if losses:
            styles = bars.part_styles(_choose_colours(losses))
            bars.draw(row[1], losses, styles, width=_WIDTH)
            row[1].set_xlabel(_SHARE_LABEL)
        elif columns > 1:
            row[1].set_axis_off()
    figures.add_legend(figure, columns=3 * columns, place="outside ")
    _count_left_out(figure, len(predictions), "series")
    return figure


def _count_left_out(figure: Figure, count: int, noun: str) -> None:
    if count > MAX_SERIES:
        title = f"The first {MAX_SERIES} of {count} {noun}"
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")


def _make_bars(prediction: Prediction) -> list[Bar]:
    """Return the efficiency and the losses of each number of devices that has both."""
    noun = "machine" if prediction.curve.counts_machines else "device"
    losses = []
    for point in prediction.points:
        if not point.efficiency:
            continue
        efficiency = point.efficiency.scaled(PERCENT)
        if prediction.is_simulated:
            efficiency = Interval(efficiency.value)
        bar_parts = [(SHARE, efficiency.value)]
        for name, share in point.parts.items():
            if share > 0:
                bar_parts.append((name, PERCENT * share))
        losses.append(Bar(counted(point.devices, noun), bar_parts, efficiency))
    return losses


def _choose_colours(losses: Sequence[Bar]) -> dict[str, str]:
    """Return the colour of each part of the bars."""
    colours: dict[str, str] = {}
    for bar in losses:
        colours |= {name: _COLOURS.get(name, figures.MUTED) for name, _ in bar.parts}
    return colours


def draw_losses_svg(prediction: Prediction, name: str) -> str:
    """Return the losses of one series as SVG for the page."""
    losses = _make_bars(prediction)
    return bars.draw_svg(name, losses, _choose_colours(losses), _WIDTH, _SHARE_LABEL)


def draw_changes(answers: Sequence[Sensitivity]) -> bytes:
    """Return a PNG: for each of the first answers, the gain of every change."""
    first_answers = answers[:MAX_SERIES]
    heights = [0.5 + _HEIGHT * len(answer.effects) for answer in first_answers]
    with figures.apply_style(is_fixed=True):
        figure, rows = figures.make_stacked_figure(heights, width=7.4)
        for [axes], answer in zip(rows, first_answers):
            # The first effect is "now", which gains nothing.
            gains = [
                Bar(effect.change, [(_GAIN, effect.gain.value - 1)], effect.gain)
                for effect in answer.effects[1:]
            ]
            bars.draw(axes, gains, bars.part_styles({_GAIN: BLUE}), start=1.0, digits=2)
            axes.set_title(f"{answer.curve.name}, {answer.devices:,} devices")
            axes.set_xlabel("rate, as a multiple of the rate now")
        _count_left_out(figure, len(answers), "answers")
        return figures.as_file(figure)
