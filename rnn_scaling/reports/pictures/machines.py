"""Cost over speed of several machines: a point for each series on each machine, with 95 % intervals on both axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rnn_scaling.analysis.comparison.costs import MachineCost
from rnn_scaling.analysis.metrics import COST, Metric, unit_of
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.pictures.curves import LEGEND, frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Cost over speed with all devices: right and down is better"


def png(costs: Sequence[MachineCost], rate: Metric) -> bytes:
    """The picture as a file that stands alone."""
    with figures.style(is_fixed=True):
        figure = _draw(costs, rate)
        figure.patch.set_visible(True)
        return figures.as_file(figure)


def svg(costs: Sequence[MachineCost], rate: Metric) -> str:
    """The picture inside a page."""
    with figures.style():
        return figures.as_svg(_draw(costs, rate), "machines")


def _draw(costs: Sequence[MachineCost], rate: Metric) -> Figure:
    """Colours are machines, markers are series."""
    machines, series = (list(dict.fromkeys(names)) for names in zip(*((each.machine, each.series) for each in costs)))
    below = 0.55 + 0.19 * len(costs)
    figure, axes = figures.blank(5.6, 3.2 + below)
    for each in costs:
        colour = figures.COLOURS[machines.index(each.machine) % len(figures.COLOURS)]
        marker = figures.MARKERS[series.index(each.series) % len(figures.MARKERS)]
        title = figures.in_legend(f"{each.machine}, {each.series}" if len(series) > 1 else each.machine)
        x, y = each.rate.value, each.cost.value
        axes.plot(x, y, color=colour, marker=marker, linestyle="none", label=title)
        axes.plot(each.rate.ends or (x, x), (y, y), color=colour, linewidth=1.2)
        axes.plot((x, x), each.cost.ends or (y, y), color=colour, linewidth=1.2)
    cost = COST.named_after(unit_of(rate), costs[0].currency)
    for name, title, values in (
        ("x", rate.title, [each.rate for each in costs]),
        ("y", cost.column, [each.cost for each in costs]),
    ):
        edges = frame(values, 1)
        label = "\n".join(filter(None, (title, edges.start)))
        axes.set(**{f"{name}lim": (edges.low, edges.high), f"{name}label": label})
    axes.set_title(TITLE)
    figures.set_margins(figure, left=0.85, right=0.2, top=0.35, bottom=below)
    figure.legend(loc="lower left", **LEGEND)
    return figure
