"""Pictures of predictions: rates with their intervals, what n devices lose, and what changes would gain."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction.changes import Sensitivity
from rnn_scaling.analysis.prediction.curves import PARTS, Curve, Prediction
from rnn_scaling.analysis.prediction.predicting import SPEEDUP, sources
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.pictures import figures, losses

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST = 6  # series in a picture
LOG_FROM = 16  # largest / smallest number from which on axes are logarithmic
ROOM = 3.0  # times the smallest rate that a logarithmic axis has below it
FURTHEST = 2.0  # times a gain up to which its interval widens the axis
MOST_TICKS = 7
NAMES = (
    "failures",
    "fixed cost",
    "contention",
    "exchange",
    "jitter",
    "exchange latency",
)
COLOURS = dict(
    zip(NAMES, figures.COLOURS)
)  # of the parts; that without a known cause is grey
COLOURS |= {
    "stragglers": COLOURS["fixed cost"],
    "exchange bandwidth": COLOURS["exchange"],
}
LEGEND: dict[str, Any] = {
    **figures.LEGEND,
    "handlelength": 1.6,
    "columnspacing": 1.2,
    "fontsize": 8,
}


def render(predictions: Sequence[Prediction]) -> bytes:
    """The pictures as a PNG: a line of panels for each of the first series."""
    with figures.style(is_fixed=True):
        return figures.as_file(_figure(predictions, [_draw_rates, _draw_losses]))


def svg(predictions: Sequence[Prediction], name: str) -> str:
    """The rates of all series, or the losses of one, as SVG for the page."""
    with figures.style():
        figure = _figure(
            predictions, [_draw_rates if name == "rates" else _draw_losses]
        )
        for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
            patch.set_visible(False)
        return figures.as_svg(figure, name)


def _figure(
    predictions: Sequence[Prediction], panels: Sequence[Callable[..., None]]
) -> Figure:
    from matplotlib.figure import Figure

    few = predictions[:MOST]
    columns = (
        panels
        if any(point.efficiency for member in few for point in member.points)
        else panels[:1]
    )
    height = 0.5 + (3.0 if len(few) == 1 else 2.3 * len(few))
    figure = Figure(figsize=(4.8 * len(columns), height), layout="constrained")
    for line, prediction in zip(
        figure.subplots(len(few), len(columns), squeeze=False), few
    ):
        line[0].set_title(textwrap.fill(prediction.curve.name, 58))
        for axes, draw in zip(line, columns):
            draw(axes, prediction)
    shown = {
        label: key
        for axes in figure.axes
        for key, label in zip(*axes.get_legend_handles_labels())
    }
    names = sorted(shown, key=lambda name: name == PARTS[-1])
    keys = [shown[name] for name in names]
    figure.legend(
        keys, names, loc="outside lower left", ncols=4 * len(columns) - 1, **LEGEND
    )
    _tell_left_out(figure, len(predictions))
    return figure


def _tell_left_out(figure: Figure, count: int, names: str = "series") -> None:
    if count > MOST:
        figure.suptitle(
            f"The first {MOST} of {count} {names}", fontsize=10, x=0.01, ha="left"
        )


def _ink(setting: Any = "axes.labelcolor") -> str:
    """The colour of muted text, or of another setting, in the page or in a separate file."""
    import matplotlib

    return str(matplotlib.rcParams[setting])


def _draw_rates(axes: Axes, prediction: Prediction) -> None:
    """Draws the measured and the predicted rates over the number of devices, and the ideal."""
    from matplotlib.ticker import EngFormatter, FuncFormatter, LogLocator

    curve = prediction.curve
    first, *_ = curve.points
    x = sorted(
        {
            *(point.devices for point in prediction.points),
            *(point.devices for point in curve.points),
        }
    )
    ideal = [curve.shown(n, Interval(first.rate / first.devices * n)).value for n in x]
    devices = [point.devices for point in prediction.points]
    predicted = [curve.shown(point.devices, point.rate) for point in prediction.points]
    rates = [interval.value for interval in predicted]
    ends = [interval.ends or (interval.value,) * 2 for interval in predicted]
    measured = [
        (point.devices, curve.shown(point.devices, point.interval))
        for point in curve.points
    ]
    values = [*rates, *ideal, *(interval.value for _, interval in measured)]
    is_log = x[-1] > LOG_FROM * x[0]
    low, high = (
        (min(values) / ROOM, 1.4 * max(values)) if is_log else (0.0, 1.08 * max(values))
    )
    if is_log:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(
            LogLocator(subs=(1.0,) if high > 300 * low else (1.0, 2.0, 5.0))
        )
        axes.minorticks_off()
    colour, (known, new) = figures.COLOURS[0], sources(prediction)
    axes.plot(
        x,
        ideal,
        color=_ink(),
        linewidth=1,
        linestyle=(0, (2, 2)),
        label="ideal",
    )
    if not prediction.is_simulated:
        lows, highs = zip(*((max(low, end[0]), min(high, end[1])) for end in ends))
        axes.fill_between(
            devices,
            lows,
            highs,
            color=colour,
            alpha=0.18,
            linewidth=0,
            label="95 % interval",
        )
    axes.plot(
        devices,
        rates,
        color=colour,
        marker="o",
        markersize=3.5,
        markerfacecolor="none",
        label=new,
    )
    figures.draw_line(
        axes, measured, known, {"color": colour, "marker": "o", "linestyle": "none"}
    )
    is_cut = any(end[0] < low or end[1] > high for end in ends)
    axes.set(
        ylim=(low, high),
        xlabel=_counted(curve) + " (the interval goes on beyond the frame)" * is_cut,
    )
    axes.set_ylabel(_quantity(curve))
    axes.set_xticks(few := _thinned(x, is_log), [f"{n:,}" for n in few])
    axes.yaxis.set_major_formatter(
        EngFormatter(sep="") if high > 1000 else FuncFormatter(lambda y, _: f"{y:g}")
    )


def _counted(curve: Curve) -> str:
    return "machines" if curve.counts_machines else "devices"


def _quantity(curve: Curve) -> str:
    """Return the label of the numbers of a curve, as its source prints them."""
    if curve.time:
        return f"time, {curve.time.unit}"
    return "speedup" if curve.unit == SPEEDUP else f"{curve.unit}/s"


def _thinned(counts: Sequence[int], is_log: bool) -> list[int]:
    """The numbers of devices that are named on an axis, among them the largest."""
    kept = [n for n in counts if not is_log or not n & (n - 1) or n == counts[-1]]
    return kept[:: -math.ceil(len(kept) / MOST_TICKS)]


def _draw_losses(axes: Axes, prediction: Prediction) -> None:
    """Draws a bar for each number of devices: the efficiency, with its interval, and the parts of what is lost."""
    points = [point for point in prediction.points if point.efficiency]
    if not points:
        axes.set_axis_off()
        return
    edge: dict[str, Any] = {"edgecolor": _ink(), "linewidth": 0.4}
    places = range(len(points))
    efficiencies = [
        100 * point.efficiency.value for point in points if point.efficiency
    ]
    label = "efficiency" + ", 95 % interval" * (not prediction.is_simulated)
    axes.bar(
        places,
        efficiencies,
        facecolor=figures.COLOURS[0],
        alpha=0.18,
        label=label,
        **edge,
    )
    tops = [*efficiencies]
    for part in points[0].parts:
        heights = [max(0.0, 100 * point.parts[part]) for point in points]
        if any(height > 0.5 for height in heights):
            look = {
                "facecolor": COLOURS.get(part, _ink()),
                "alpha": losses.OPACITY,
                "label": part,
                **edge,
            }
            axes.bar(places, heights, bottom=tops, **look)
        tops = [top + height for top, height in zip(tops, heights)]
    for place, point in zip(places, () if prediction.is_simulated else points):
        low, high = (point.efficiency and point.efficiency.ends) or (0.0, 0.0)
        axes.plot(
            [place, place],
            [100 * low, 100 * high],
            color=_ink("text.color"),
            linewidth=1.2,
        )
    counts = [point.devices for point in points]
    named = _thinned(counts, False)
    axes.set(
        ylabel="share of the ideal rate, %",
        xlabel=_counted(prediction.curve),
        ylim=(0, 1.03 * max(100.0, *tops)),
    )
    axes.set_xticks([counts.index(n) for n in named], [f"{n:,}" for n in named])
    axes.grid(axis="x", visible=False)


def changes(answers: Sequence[Sensitivity]) -> bytes:
    """A PNG: for each of the first answers the gain of every change, with its interval, in the given order."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    few = answers[:MOST]
    gains = [
        effect.gain for found in few for effect in found.effects
    ]  # the first, "now", gains nothing
    low = min(max(gain.low or 0.0, gain.value / FURTHEST) for gain in gains)
    high = max(min(gain.high or gain.value, gain.value * FURTHEST) for gain in gains)
    heights = [0.6 + 0.22 * len(found.effects) for found in few]
    with figures.style(is_fixed=True):
        figure = Figure(figsize=(7.4, 0.3 + sum(heights)), layout="constrained")
        panels = figure.subplots(
            len(few), 1, sharex=True, squeeze=False, height_ratios=heights
        )[:, 0]
        if high > LOG_FROM * low:
            panels[0].set_xscale("log")
        for axes, found in zip(panels, few):
            _draw_gains(axes, found)
        axes.set(xlim=(low, 1.02 * high), xlabel="rate, as a multiple of the rate now")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.12g}"))
        _tell_left_out(figure, len(answers), "answers")
        return figures.as_file(figure)


def _draw_gains(axes: Axes, found: Sensitivity) -> None:
    effects = found.effects[1:]
    gains, places = [effect.gain.value - 1 for effect in effects], range(len(effects))
    axes.barh(places, gains, left=1, height=0.55, color=figures.COLOURS[0], alpha=0.6)
    for place, effect in enumerate(effects):
        axes.plot(
            effect.gain.ends or (1, 1),
            [place, place],
            color=_ink("text.color"),
            linewidth=1.2,
        )
        text, at = plus_minus(effect.gain, 2), ("axes fraction", "data")
        axes.annotate(
            text, (1.02, place), xycoords=at, va="center", annotation_clip=False
        )
    axes.axvline(1, color=_ink(), linewidth=0.8)
    axes.set(
        title=f"{found.curve.name}, {found.devices:,} devices",
        ylim=(len(effects) - 0.4, -0.6),
    )
    axes.set_yticks(places, [effect.title for effect in effects])
    axes.minorticks_off()
    axes.grid(axis="y", visible=False)
