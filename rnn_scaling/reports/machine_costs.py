"""Cost and speed of several machines: a table, a picture and a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rnn_scaling.analysis.comparison.costs import MachineCost, statements
from rnn_scaling.analysis.metrics import COST, RATE, Metric
from rnn_scaling.reports import report_files
from rnn_scaling.reports.numbers import plus_minus, unit_heading
from rnn_scaling.reports.page import document, explorer
from rnn_scaling.reports.page.document import Live, figure_of
from rnn_scaling.reports.pictures import curves, figures
from rnn_scaling.reports.sections import Columns, Section, grid_of
from rnn_scaling.reports.wording import sentences

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Cost over speed with all devices: right and down is better"


def section(costs: Sequence[MachineCost]) -> Section:
    """A line for each machine and series. All prices have the same currency."""
    rate, cost = _metrics(costs)
    columns: Columns = {
        "Machine (runs)": lambda row: f"{row.machine} ({row.folder})",
        "Series": lambda row: row.series,
        "Devices": lambda row: str(row.devices),
        unit_heading(rate.title): lambda row: plus_minus(row.rate, rate.digits),
        f"{cost.unit} per hour": lambda row: (
            f"{row.nodes} x {row.price:g}" if row.nodes > 1 else f"{row.price:g}"
        ),
        cost.column: lambda row: plus_minus(row.cost, cost.digits),
    }
    if len({row.series for row in costs}) == 1:
        del columns["Series"]
    return Section("cost with all devices", (grid_of("", columns, costs),))


def write(costs: Sequence[MachineCost], target: Path, force: bool) -> None:
    """Writes machines.png and machines.html. Raises Refusal if a file cannot be written."""
    files = {
        "machines.png": lambda: _picture(costs),
        "machines.html": lambda: _page(costs),
    }
    report_files.write(files, target, force)


def _metrics(costs: Sequence[MachineCost]) -> tuple[Metric, Metric]:
    return RATE.named_after(costs[0].unit), COST.named_after(
        costs[0].unit, costs[0].currency
    )


def _picture(costs: Sequence[MachineCost]) -> bytes:
    rate, cost = _metrics(costs)
    with figures.style(is_fixed=True):
        return figures.as_file(_draw(costs, (rate.title, cost.column), is_fixed=True))


def _page(costs: Sequence[MachineCost]) -> bytes:
    """The page: a line of the chart for each machine, over speed or price."""
    [grid] = section(costs).grids
    rate, cost = _metrics(costs)
    lead = sentences(statements(costs))
    by_machine: dict[str, list[explorer.Point]] = {}
    for row in costs:
        values = {cost.name: row.cost, rate.name: row.rate}
        places = {rate.name: row.rate.value, "price": row.nodes * row.price}
        ends = {
            name: [value.value, value.low, value.high] for name, value in values.items()
        }
        by_machine.setdefault(row.machine, []).append(
            explorer.Point(places, ends, label=f"{row.series}, {row.folder}")
        )
    data = explorer.Explorer(
        [explorer.Metric(cost.name, cost.title, cost.unit, cost.digits)],
        [
            explorer.Axis(rate.name, rate.title, "metric"),
            explorer.Axis("price", f"{cost.unit} per hour"),
        ],
        [explorer.Line(machine, points) for machine, points in by_machine.items()],
    )
    with figures.style():
        svg = figures.as_svg(_draw(costs, (rate.title, cost.column)), "machines")
    overview = document.Overview(
        grid.head,
        [("", [("#main", line) for line in grid.lines])],
        "What each machine costs",
    )
    first = [Live("chart", [figure_of(svg, "machines", TITLE, lead)])]
    return document.page(
        "Cost and speed of machines",
        [*by_machine],
        lead,
        overview,
        data,
        (),
        first=first,
    )


def _draw(
    costs: Sequence[MachineCost], titles: tuple[str, str], is_fixed: bool = False
) -> Figure:
    """Colours distinguish machines, markers series. titles: of the axes; is_fixed: for a separate file."""
    machines, series = (
        list(dict.fromkeys(names))
        for names in zip(*((cost.machine, cost.series) for cost in costs))
    )
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
    x_edges, y_edges = (
        curves.frame([cost.rate for cost in costs], 1),
        curves.frame([cost.cost for cost in costs], 1),
    )
    labels = [
        "\n".join(filter(None, (name, edges.start)))
        for name, edges in zip(titles, (x_edges, y_edges))
    ]
    axes.set(title=TITLE, xlabel=labels[0], ylabel=labels[1])
    axes.set(xlim=(x_edges.low, x_edges.high), ylim=(y_edges.low, y_edges.high))
    figures.add_legend(figure)
    return figure
