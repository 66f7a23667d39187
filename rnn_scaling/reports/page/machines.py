"""The page of several machines: what the same work costs on each, over its speed."""

from collections.abc import Sequence

from rnn_scaling.analysis.comparison.costs import MachineCost
from rnn_scaling.analysis.metrics import COST, Metric, unit_of
from rnn_scaling.reports.page import document, explorer
from rnn_scaling.reports.page.parts import Live, figure_of
from rnn_scaling.reports.pictures import machines
from rnn_scaling.reports.sections import Grid


def render(costs: Sequence[MachineCost], rate: Metric, grid: Grid, lead: str) -> bytes:
    """The page as UTF-8; `grid`: the table, a line for each of `costs`."""
    cost = COST.named_after(unit_of(rate), costs[0].currency)
    names = list(dict.fromkeys(each.machine for each in costs))
    lines = [
        explorer.Line(name, {}, [_point(each, cost, rate) for each in costs if each.machine == name]) for name in names
    ]
    data = explorer.Explorer(
        [explorer.Metric(cost.name, cost.title, cost.unit, cost.digits)],
        [explorer.Axis(rate.name, rate.title, "metric"), explorer.Axis("price", f"{costs[0].currency} per hour")],
        lines,
    )
    picture = figure_of(machines.svg(costs, rate), "machines", machines.TITLE, lead)
    return document.page(
        "Cost and speed of machines",
        names,
        lead,
        document.Overview(grid.head, [("", [("#main", line) for line in grid.lines])], "What each machine costs"),
        data,
        (),
        first=[Live("chart", [picture])],
    )


def _point(each: MachineCost, cost: Metric, rate: Metric) -> explorer.Point:
    values = {cost.name: each.cost, rate.name: each.rate}
    return explorer.Point(
        {rate.name: each.rate.value, "price": each.nodes * each.price},
        {name: [value.value, value.low, value.high] for name, value in values.items()},
        label=f"{each.series}, {each.folder}",
    )
