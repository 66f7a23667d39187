"""Cost and speed of several machines: a table, and the files of `report A B --output=DIR`."""

import functools
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.analysis.comparison.costs import MachineCost, statements
from rnn_scaling.analysis.metrics import COST, Metric, unit_of
from rnn_scaling.reports import report_files
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.page import machines as page
from rnn_scaling.reports.pictures import machines as pictures
from rnn_scaling.reports.sections import Columns, Section, grid_of
from rnn_scaling.reports.wording import sentences


def section(costs: Sequence[MachineCost], rate: Metric) -> Section:
    """A line for each machine and series; the prices of all have one currency."""
    money = costs[0].currency
    cost = COST.named_after(unit_of(rate), money)
    columns: Columns = {
        "Machine (runs)": lambda each: f"{each.machine} ({each.folder})",
        "Series": lambda each: each.series,
        "Devices": lambda each: str(each.devices),
        rate.title.capitalize(): lambda each: plus_minus(each.rate, rate.digits),
        f"{money} per hour": lambda each: f"{each.nodes} x {each.price:g}" if each.nodes > 1 else f"{each.price:g}",
        cost.column: lambda each: plus_minus(each.cost, cost.digits),
    }
    if len({each.series for each in costs}) == 1:
        del columns["Series"]
    return Section("cost with all devices", (grid_of("", columns, costs),))


def write(costs: Sequence[MachineCost], rate: Metric, target: Path, force: bool) -> None:
    """The picture and the page of cost over speed. A Refusal if one cannot be written."""
    (grid,), lead = section(costs, rate).grids, sentences(statements(costs, unit_of(rate)))
    files = {
        "machines.png": functools.partial(pictures.png, costs, rate),
        "machines.html": functools.partial(page.render, costs, rate, grid, lead),
    }
    report_files.write(files, target, force)
