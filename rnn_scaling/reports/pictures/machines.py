"""Cost over speed of several machines: a point for each series on each machine, with 95 % intervals on both axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rnn_scaling.analysis.comparison.costs import MachineCost
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.pictures.curves import frame

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Cost over speed with all devices: right and down is better"


def draw(costs: Sequence[MachineCost], titles: tuple[str, str], is_fixed: bool = False) -> Figure:
    """Colours distinguish machines, markers series. titles: of the axes; is_fixed: for a separate file."""
    machines, series = (list(dict.fromkeys(names)) for names in zip(*((cost.machine, cost.series) for cost in costs)))
    figure, axes = figures.blank(5.6, 3.9, entries=len(costs), left=0.85, bottom=0.65)
    figure.patch.set_visible(is_fixed)
    for cost in costs:
        colour = figures.COLOURS[machines.index(cost.machine) % len(figures.COLOURS)]
        marker = figures.MARKERS[series.index(cost.series) % len(figures.MARKERS)]
        title = f"{cost.machine}, {cost.series}" if len(series) > 1 else cost.machine
        x, y = cost.rate.value, cost.cost.value
        look = {"color": colour, "marker": marker, "linestyle": "none"}
        figures.draw_line(axes, [(x, cost.cost)], title, look)
        axes.plot(cost.rate.ends or (x, x), (y, y), color=colour, linewidth=1)
    x_edges, y_edges = frame([cost.rate for cost in costs], 1), frame([cost.cost for cost in costs], 1)
    labels = ["\n".join(filter(None, (name, edges.start))) for name, edges in zip(titles, (x_edges, y_edges))]
    axes.set(title=TITLE, xlabel=labels[0], ylabel=labels[1])
    axes.set(xlim=(x_edges.low, x_edges.high), ylim=(y_edges.low, y_edges.high))
    figures.add_legend(figure)
    return figure
