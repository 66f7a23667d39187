"""Cost and speed of several machines: a table, a picture and a page."""

from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.analysis.comparison.costs import MachineCost, statements
from rnn_scaling.analysis.metrics import COST, RATE, Metric
from rnn_scaling.reports import report_files
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.page import document, explorer
from rnn_scaling.reports.page.parts import Live, figure_of
from rnn_scaling.reports.pictures import figures, machines
from rnn_scaling.reports.sections import Columns, Section, grid_of
from rnn_scaling.reports.wording import sentences


def section(costs: Sequence[MachineCost]) -> Section:
    """A line for each machine and series. All prices have the same currency."""
    rate, cost = _metrics(costs)
    columns: Columns = {
        "Machine (runs)": lambda row: f"{row.machine} ({row.folder})",
        "Series": lambda row: row.series,
        "Devices": lambda row: str(row.devices),
        rate.title.capitalize(): lambda row: plus_minus(row.rate, rate.digits),
        f"{cost.unit} per hour": lambda row: f"{row.nodes} x {row.price:g}" if row.nodes > 1 else f"{row.price:g}",
        cost.column: lambda row: plus_minus(row.cost, cost.digits),
    }
    if len({row.series for row in costs}) == 1:
        del columns["Series"]
    return Section("cost with all devices", (grid_of("", columns, costs),))


def write(costs: Sequence[MachineCost], target: Path, force: bool) -> None:
    """Writes machines.png and machines.html. Raises Refusal if a file cannot be written."""
    files = {"machines.png": lambda: _picture(costs), "machines.html": lambda: _page(costs)}
    report_files.write(files, target, force)


def _metrics(costs: Sequence[MachineCost]) -> tuple[Metric, Metric]:
    return RATE.named_after(costs[0].unit), COST.named_after(costs[0].unit, costs[0].currency)


def _picture(costs: Sequence[MachineCost]) -> bytes:
    rate, cost = _metrics(costs)
    with figures.style(is_fixed=True):
        return figures.as_file(machines.draw(costs, (rate.title, cost.column), is_fixed=True))


def _page(costs: Sequence[MachineCost]) -> bytes:
    """The page: a line of the chart for each machine, over speed or price."""
    [grid] = section(costs).grids
    rate, cost = _metrics(costs)
    lead = sentences(statements(costs))
    by_machine: dict[str, list[explorer.Point]] = {}
    for row in costs:
        values = {cost.name: row.cost, rate.name: row.rate}
        places = {rate.name: row.rate.value, "price": row.nodes * row.price}
        ends = {name: [value.value, value.low, value.high] for name, value in values.items()}
        by_machine.setdefault(row.machine, []).append(explorer.Point(places, ends, label=f"{row.series}, {row.folder}"))
    data = explorer.Explorer(
        [explorer.Metric(cost.name, cost.title, cost.unit, cost.digits)],
        [explorer.Axis(rate.name, rate.title, "metric"), explorer.Axis("price", f"{cost.unit} per hour")],
        [explorer.Line(machine, points) for machine, points in by_machine.items()],
    )
    with figures.style():
        svg = figures.as_svg(machines.draw(costs, (rate.title, cost.column)), "machines")
    overview = document.Overview(grid.head, [("", [("#main", line) for line in grid.lines])], "What each machine costs")
    first = [Live("chart", [figure_of(svg, "machines", machines.TITLE, lead)])]
    return document.page("Cost and speed of machines", [*by_machine], lead, overview, data, (), first=first)
