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
from rnn_scaling.reports.sections import Grid, Section
from rnn_scaling.reports.wording import sentences


def section(costs: Sequence[MachineCost], rate: Metric) -> Section:
    """A line for each series on each machine; the prices of all have one currency."""
    cost = COST.named_after(unit_of(rate), costs[0].currency)
    head = ["series", "machine", "runs", "devices", rate.title, f"price ({costs[0].currency}/h)", cost.column]
    lines = [
        [
            *(each.series, each.machine, each.folder, str(each.devices), plus_minus(each.rate, rate.digits)),
            f"{each.nodes} x {each.price_per_hour:g}" if each.nodes > 1 else f"{each.price_per_hour:g}",
            plus_minus(each.cost, cost.digits),
        ]
        for each in costs
    ]
    return Section("cost with all devices", (Grid("", head, lines),))


def write(costs: Sequence[MachineCost], rate: Metric, target: Path, force: bool) -> None:
    """The picture and the page of cost over speed. A Refusal if one cannot be written."""
    (grid,), lead = section(costs, rate).grids, sentences(statements(costs, unit_of(rate)))
    files = {
        "machines.png": functools.partial(pictures.png, costs, rate),
        "machines.html": functools.partial(page.render, costs, rate, grid, lead),
    }
    report_files.write(files, target, force)
