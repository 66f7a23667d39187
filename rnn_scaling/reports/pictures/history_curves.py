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
    figure, axes = figures.blank(8.0, 4.2, entries=len(few), bottom=1.0)
    for k, curve in enumerate(few):
        first, x = curve.points[0].rate.value, [point.place for point in curve.points]
        rates = [point.rate.scaled(100 / first) for point in curve.points]
        look = figures.line_look(k)
        figures.draw_line(axes, [*zip(x, rates)], curve.title, {"marker": "o", "markersize": 3, **look})
        for step, cut in zip(curve.steps, curve.levels.cuts):
            axes.axvline(x[cut] - 0.5, color=look["color"], linewidth=0.8, linestyle=":")
            axes.annotate(f"{100 * (step.change.value - 1):+.1f} %", (x[cut], rates[cut].value), fontsize=7)
    places = range(0, len(shown.entries), -(-len(shown.entries) // MOST_NAMES))
    axes.set_xticks(list(places), [shown.entries[place].name for place in places], rotation=60, ha="right", fontsize=6)
    axes.set(title="Rate, % of the first entry (dotted lines: steps)")
    figures.add_legend(figure)
    return figure
