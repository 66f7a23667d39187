"""Cost and speed of several machines: a table, and the files of `report A B --output=DIR`."""

import functools
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.analysis.comparison.costs import MachineCost
from rnn_scaling.analysis.metrics import COST, Metric, unit_of
from rnn_scaling.reports import report_files
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.pictures import machines
from rnn_scaling.reports.sections import Grid, Section


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
    """The picture of cost over speed. A Refusal if it cannot be written."""
    report_files.write({"machines.png": functools.partial(machines.render, costs, rate)}, target, force)
