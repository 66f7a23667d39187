"""Cost and speed of several machines: a table, a picture and a page.

`compare --across=machine` writes them if prices are known.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.analysis.comparison.costs import MachineCost, make_statements
from rnn_scaling.analysis.metrics import COST, RATE, Metric
from rnn_scaling.reports import explorer, report_files
from rnn_scaling.reports.page import document, drawings
from rnn_scaling.reports.page.document import Live
from rnn_scaling.reports.pictures import charts
from rnn_scaling.reports.sections import Columns, Section, make_grid
from rnn_scaling.reports.wording import (
    format_interval,
    make_unit_heading,
    write_sentences,
)

_TITLE = "Cost over speed with all devices: right and down is better"


def make_section(costs: Sequence[MachineCost]) -> Section:
    """Return a line for each machine and series. All prices have the same currency."""
    rate, cost = _list_rate_and_cost_metrics(costs)
    columns: Columns = {
        "Machine (runs)": lambda row: f"{row.machine} ({row.folder})",
        "Series": lambda row: row.series,
        "Devices": lambda row: str(row.devices),
        make_unit_heading(rate.title): lambda row: format_interval(
            row.rate, rate.digits
        ),
        f"{cost.unit} per hour": lambda row: (
            f"{row.nodes} x {row.price:g}" if row.nodes > 1 else f"{row.price:g}"
        ),
        cost.column: lambda row: format_interval(row.cost, cost.digits),
    }
    if len({row.series for row in costs}) == 1:
        del columns["Series"]
    return Section("cost with all devices", (make_grid("", columns, costs),))


def write(costs: Sequence[MachineCost], target: Path, force: bool) -> None:
    """Write machines.png and machines.html.

    Raises:
      Refusal: If a file cannot be written.
    """
    data = _make_explorer(costs)
    chart = charts.Chart(data.metrics[0], data.axes[0], data.lines)
    files = {
        "machines.png": lambda: charts.draw_png(chart),
        "machines.html": lambda: _render_page(costs, data, chart),
    }
    report_files.write_files(files, target, force)


def _list_rate_and_cost_metrics(costs: Sequence[MachineCost]) -> tuple[Metric, Metric]:
    unit = costs[0].unit
    return RATE.with_unit(unit), COST.with_unit(unit, costs[0].currency)


def _make_explorer(costs: Sequence[MachineCost]) -> explorer.Explorer:
    """Return a line for each machine and series, over speed or price.

    Colours distinguish machines, and shapes distinguish series.
    """
    rate, cost = _list_rate_and_cost_metrics(costs)
    machines = list(dict.fromkeys(row.machine for row in costs))
    series = list(dict.fromkeys(row.series for row in costs))
    lines = []
    for row in costs:
        point = explorer.Point(
            {"price": row.nodes * row.price},
            {cost.name: row.cost, rate.name: row.rate},
            label=f"{row.series}, {row.folder}",
        )
        title = f"{row.machine}, {row.series}" if len(series) > 1 else row.machine
        look = (machines.index(row.machine), series.index(row.series))
        lines.append(explorer.Line(title, [point], "", *look))
    axes = [
        explorer.Axis(rate.name, rate.title, "metric"),
        explorer.Axis("price", f"{cost.unit} per hour"),
    ]
    return explorer.Explorer([cost], axes, lines)


def _render_page(
    costs: Sequence[MachineCost], data: explorer.Explorer, chart: charts.Chart
) -> bytes:
    [grid] = make_section(costs).grids
    lines = [("#main", line) for line in grid.lines]
    overview = document.Overview(grid.head, [("", lines)], "What each machine costs")
    return document.render_page(
        "Cost and speed of machines",
        about=list(dict.fromkeys(row.machine for row in costs)),
        lead=write_sentences(make_statements(costs)),
        overview=overview,
        explorer=data,
        sections=(),
        first=[Live("chart", [drawings.draw_picture(chart, "machines", _TITLE)])],
    )
