"""Pictures of predictions: rates with intervals, lost points, and gains of changes.

`reports.page.prediction` puts them on the page, and `commands.prediction_results`
writes them as PNG files. A part of a bar without a colour in `_COLOURS` is drawn in
grey.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import EFFICIENCY, SPEEDUP, Metric
from rnn_scaling.analysis.prediction.changes import Sensitivity
from rnn_scaling.analysis.prediction.curves import Curve, Prediction
from rnn_scaling.analysis.prediction.predicting import SPEEDUP_UNIT, list_source_names
from rnn_scaling.reports.explorer import Axis, Line, Point
from rnn_scaling.reports.pictures import bars, charts, figures
from rnn_scaling.reports.pictures.bars import Bar
from rnn_scaling.reports.prediction import PERCENT, list_points
from rnn_scaling.system.files.terminal import format_count

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_SERIES = 6  # series in a picture
_DEVICES = "devices"
_EFFICIENCY_PART = "efficiency"  # the first part of a bar
_EFFICIENCY_AXIS_LABEL = "share of the ideal rate, %"
_GAIN = "gain"
_BLUE, _RED, _GREEN, _PINK, _ORANGE, _SKY = figures.COLOURS
# A measured prediction has the parts of `curves.PARTS`, a simulated one those of
# `simulating.PARTS`. Two parts have the same colour only if no picture contains both.
_COLOURS = {
    _EFFICIENCY_PART: _SKY,
    "failures": _BLUE,
    "fixed cost": _RED,
    "stragglers": _RED,
    "contention": _GREEN,
    "exchange": _PINK,
    "exchange bandwidth": _PINK,
    "jitter": _ORANGE,
    "exchange latency": figures.MUTED,
    "not split": figures.MUTED,
}
_PANEL_WIDTH_IN = 4.8
_MIN_PANEL_HEIGHT_IN = 2.6
_BAR_HEIGHT_IN = 0.45
_LEGEND_HEIGHT_IN = 0.8
_TITLE_CHARACTERS = 58  # a line of a panel's title
_CHANGES_WIDTH_IN = 7.4


def make_rate_metric(curve: Curve) -> Metric:
    """Return the metric of a curve's source, such as words/s, or a time in its unit."""
    if curve.time:
        return Metric(f"time, {curve.time.unit}", "time", curve.time.unit)
    if curve.unit == SPEEDUP_UNIT:
        return SPEEDUP
    return Metric(curve.unit, f"{curve.unit}/s", f"{curve.unit}/s", digits=1)


def make_line(prediction: Prediction, index: int) -> Line:
    """Return the measured and the predicted points of one series.

    Args:
      prediction: The series.
      index: Its position in the picture, which decides its colour and shape.
    """
    shape = index // len(figures.COLOURS)
    return Line(
        prediction.curve.name, _list_line_points(prediction), colour=index, shape=shape
    )


def _list_line_points(prediction: Prediction) -> list[Point]:
    curve = prediction.curve
    measured_counts = {point.devices for point in curve.points}
    measured_source, predicted_source = list_source_names(prediction)
    noun = _choose_device_noun(curve)
    line_points = []
    for point in list_points(prediction):
        is_predicted = point.devices not in measured_counts
        rate = curve.to_source_unit(point.devices, point.rate)
        values = {make_rate_metric(curve).name: _clip_interval(prediction, rate)}
        if point.efficiency:
            efficiency = _clip_interval(prediction, point.efficiency)
            values[SPEEDUP.name] = efficiency.scaled(point.devices)
            values[EFFICIENCY.name] = efficiency.scaled(PERCENT)
        for part, share in point.parts.items():
            values[part] = Interval(PERCENT * share)
        source = predicted_source if is_predicted else measured_source
        label = f"{point.devices:,} {noun}s, {source}"
        position = {_DEVICES: point.devices}
        line_points.append(
            Point(position, values, label=label, is_predicted=is_predicted)
        )
    return line_points


def _clip_interval(prediction: Prediction, interval: Interval) -> Interval:
    """Return the interval as it is drawn: a simulated number has no width."""
    return Interval(interval.value) if prediction.is_simulated else interval


def _choose_device_noun(curve: Curve) -> str:
    return "machine" if curve.counts_machines else "device"


def make_chart(prediction: Prediction) -> charts.Chart:
    """Return the chart of the rates and of the ideal rate over the device count."""
    curve = prediction.curve
    first = curve.points[0]
    measured_source, predicted_source = list_source_names(prediction)
    rates = Line(measured_source, _list_line_points(prediction))

    def compute_ideal_rate(devices: float) -> float:
        rate = Interval(first.rate / first.devices * devices)
        return curve.to_source_unit(int(devices), rate).value

    axis = Axis(_DEVICES, f"{_choose_device_noun(curve)}s")
    metric = make_rate_metric(curve)
    return charts.Chart(
        metric, axis, [rates], compute_ideal_rate, predicted_title=predicted_source
    )


def render(predictions: Sequence[Prediction]) -> bytes:
    """Return a PNG with a row per series: its rates and its lost points.

    Only the first MAX_SERIES series are drawn.
    """
    with figures.apply_style(is_fixed=True):
        return figures.draw_to_file(draw_series(predictions))


def draw_series(predictions: Sequence[Prediction]) -> Figure:
    """Return the figure of `render`."""
    first_predictions = predictions[:MAX_SERIES]
    bars_of_series = [_make_bars(prediction) for prediction in first_predictions]
    columns = 2 if any(bars_of_series) else 1
    heights = []
    for series_bars in bars_of_series:
        height = _BAR_HEIGHT_IN * (1 + len(series_bars))
        heights.append(max(_MIN_PANEL_HEIGHT_IN, height))
    figure, rows = figures.make_stacked_figure(
        heights, _PANEL_WIDTH_IN * columns, _LEGEND_HEIGHT_IN, columns
    )
    for row, prediction, series_bars in zip(rows, first_predictions, bars_of_series):
        charts.draw(row[0], make_chart(prediction))
        row[0].set_title(textwrap.fill(prediction.curve.name, _TITLE_CHARACTERS))
        row[0].set_ylabel(make_rate_metric(prediction.curve).caption)
        if series_bars:
            styles = bars.make_part_styles(_choose_colours(series_bars))
            bars.draw(row[1], series_bars, styles, width=_PANEL_WIDTH_IN)
            row[1].set_xlabel(_EFFICIENCY_AXIS_LABEL)
        elif columns > 1:
            row[1].set_axis_off()
    figures.add_legend(figure, columns=3 * columns, place="outside ")
    _add_title_if_cut(figure, len(predictions), "series")
    return figure


def _add_title_if_cut(figure: Figure, count: int, noun: str) -> None:
    """Write how many of the `count` series or answers are drawn, if not all are."""
    if count > MAX_SERIES:
        title = f"The first {MAX_SERIES} of {count} {noun}"
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")


def _make_bars(prediction: Prediction) -> list[Bar]:
    """Return a bar for each device count whose efficiency is known.

    Its parts are the efficiency and the lost points by cause.
    """
    noun = _choose_device_noun(prediction.curve)
    series_bars = []
    for point in prediction.points:
        if not point.efficiency:
            continue
        efficiency = _clip_interval(prediction, point.efficiency).scaled(PERCENT)
        bar_parts = [(_EFFICIENCY_PART, efficiency.value)]
        for name, share in point.parts.items():
            if share > 0:
                bar_parts.append((name, PERCENT * share))
        title = format_count(point.devices, noun)
        series_bars.append(Bar(title, bar_parts, efficiency))
    return series_bars


def _choose_colours(series_bars: Sequence[Bar]) -> dict[str, str]:
    """Return the colour of each part of the bars."""
    colours: dict[str, str] = {}
    for bar in series_bars:
        colours |= {name: _COLOURS.get(name, figures.MUTED) for name, _ in bar.parts}
    return colours


def draw_losses_svg(prediction: Prediction, name: str) -> str:
    """Return the lost points of one series as SVG for the page."""
    series_bars = _make_bars(prediction)
    return bars.draw_svg(
        name,
        series_bars,
        _choose_colours(series_bars),
        _PANEL_WIDTH_IN,
        _EFFICIENCY_AXIS_LABEL,
    )


def render_changes(sensitivities: Sequence[Sensitivity]) -> bytes:
    """Return a PNG with the gain of every change, for the first MAX_SERIES answers."""
    with figures.apply_style(is_fixed=True):
        return figures.draw_to_file(draw_changes(sensitivities))


def draw_changes(sensitivities: Sequence[Sensitivity]) -> Figure:
    """Return the figure of `render_changes`."""
    first_sensitivities = sensitivities[:MAX_SERIES]
    heights = []
    for sensitivity in first_sensitivities:
        heights.append(0.5 + _BAR_HEIGHT_IN * len(sensitivity.effects))
    figure, rows = figures.make_stacked_figure(heights, width=_CHANGES_WIDTH_IN)
    styles = bars.make_part_styles({_GAIN: _BLUE})
    for [axes], sensitivity in zip(rows, first_sensitivities):
        # The first effect is "now", which gains nothing. A bar begins at 1, the rate
        # now, so its length is the gain minus 1.
        gains = [
            Bar(effect.change, [(_GAIN, effect.gain.value - 1)], effect.gain)
            for effect in sensitivity.effects[1:]
        ]
        bars.draw(axes, gains, styles, start=1.0, digits=2)
        curve = sensitivity.curve
        size = format_count(sensitivity.devices, _choose_device_noun(curve))
        axes.set_title(f"{curve.name}, {size}")
        axes.set_xlabel("rate, as a multiple of the rate now")
    _add_title_if_cut(figure, len(sensitivities), "answers")
    return figure
