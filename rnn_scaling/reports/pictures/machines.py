"""Cost over speed of several machines: a point for each series on each machine, with 95 % intervals on both axes."""

from collections.abc import Sequence

from rnn_scaling.analysis.comparison.costs import MachineCost
from rnn_scaling.analysis.metrics import COST, Metric, unit_of
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.pictures.curves import LEGEND, frame


def render(costs: Sequence[MachineCost], rate: Metric) -> bytes:
    """A PNG: colours are machines, markers are series."""
    cost = COST.named_after(unit_of(rate), costs[0].currency)
    machines, series = (list(dict.fromkeys(names)) for names in zip(*((each.machine, each.series) for each in costs)))
    with figures.style(is_fixed=True):
        figure, axes = figures.blank(6.5, 4.2)
        figure.set_layout_engine("constrained")
        figure.patch.set_visible(True)
        for each in costs:
            colour = figures.COLOURS[machines.index(each.machine) % len(figures.COLOURS)]
            marker = figures.MARKERS[series.index(each.series) % len(figures.MARKERS)]
            title = f"{each.machine}, {each.series}" if len(series) > 1 else each.machine
            x, y = each.rate, each.cost
            axes.plot(x.value, y.value, color=colour, marker=marker, linestyle="none", label=figures.in_legend(title))
            axes.plot(x.ends or (), (y.value,) * len(x.ends or ()), color=colour, linewidth=1.2)
            axes.plot((x.value,) * len(y.ends or ()), y.ends or (), color=colour, linewidth=1.2)
        edges = [frame(values, 1) for values in ([each.rate for each in costs], [each.cost for each in costs])]
        labels = [
            " ".join(filter(None, (name, edge.start and f"({edge.start})")))
            for name, edge in zip((rate.title, cost.column), edges)
        ]
        axes.set(
            xlim=(edges[0].low, edges[0].high), ylim=(edges[1].low, edges[1].high), xlabel=labels[0], ylabel=labels[1]
        )
        axes.set_title("Cost over speed, all devices: right and down is better")
        figure.legend(loc="outside lower left", **LEGEND)
        return figures.as_file(figure)
