"""The rate of each configuration over the entries of a history, relative to its first entry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rnn_scaling.analysis.history.curves import Timeline
from rnn_scaling.reports.pictures import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NAMES = 20  # entries that are named below the axis


def render(shown: Timeline) -> bytes:
    """The chart as a PNG file."""
    with figures.style(is_fixed=True):
        return figures.as_file(_draw(shown))


def svg(shown: Timeline) -> str:
    """The chart as SVG, for the page."""
    with figures.style():
        return figures.as_svg(_draw(shown), "history")


def _draw(shown: Timeline) -> Figure:
    few = shown.curves[: figures.MOST_LINES]
    below = 1.1 + 0.17 * (len(few) + 1)
    figure, axes = figures.blank(8.0, 3.2 + below)
    for k, curve in enumerate(few):
        first, x = curve.points[0].rate.value, [point.place for point in curve.points]
        rates = [point.rate.scaled(100 / first) for point in curve.points]
        ends = [rate.ends or (rate.value, rate.value) for rate in rates]
        look = figures.line_look(k)
        y = [rate.value for rate in rates]
        axes.plot(x, y, marker="o", markersize=3, label=figures.in_legend(curve.title), **look)
        axes.vlines(x, *zip(*ends), color=look["color"], linewidth=0.8)
        for step, cut in zip(curve.steps, curve.levels.cuts):
            axes.axvline(x[cut] - 0.5, color=look["color"], linewidth=0.8, linestyle=":")
            axes.annotate(f"{100 * (step.change.value - 1):+.1f} %", (x[cut], y[cut]), fontsize=7)
    places = range(0, len(shown.entries), -(-len(shown.entries) // MOST_NAMES))
    axes.set_xticks(list(places), [shown.entries[place].name for place in places], rotation=60, ha="right", fontsize=6)
    axes.set(title="Rate, % of the first entry (dotted lines: steps)")
    figures.set_margins(figure, left=0.62, right=0.2, top=0.32, bottom=below)
    figure.legend(*axes.get_legend_handles_labels(), loc="lower left", frameon=False, handlelength=3)
    return figure
