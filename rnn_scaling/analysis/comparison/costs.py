"""Cost of a series on several machines: which is cheapest, which is fastest, and at what price that changes."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from rnn_scaling.analysis.comparison.matching import (
    ALL_DEVICES,
    ComparedRuns,
    Configuration,
)
from rnn_scaling.analysis.comparison.verdicts import TOO_FEW, Result
from rnn_scaling.analysis.confidence import Interval, ratio
from rnn_scaling.analysis.machines import nodes
from rnn_scaling.analysis.metrics import BILLION
from rnn_scaling.analysis.prices import PriceList
from rnn_scaling.analysis.significance import is_above
from rnn_scaling.analysis.statements import Statement, interval_values


@dataclasses.dataclass(frozen=True)
class MachineCost:
    """One series on one machine, with all devices that its runs use."""

    series: str
    folder: str
    machine: str  # its name in machines.toml
    currency: str
    unit: str  # of the items
    price: float  # of an hour of one node
    nodes: int
    devices: int
    rate: Interval  # items/s
    cost: Interval  # of a billion items


def of_sides(
    sides: Sequence[ComparedRuns],
    common: Sequence[Configuration],
    results: Sequence[Result],
    prices: Sequence[PriceList],
    unit: str,
) -> Iterator[MachineCost]:
    """The costs of each comparable series, on each side whose machine has a price."""
    for configuration, result in zip(common, results):
        is_judged = result.reason is None or result.reason.kind == TOO_FEW
        if ALL_DEVICES not in configuration.scopes or not is_judged:
            continue
        rates = (result.before, result.after)
        for side, row, rate, listed in zip(sides, configuration.sides, rates, prices):
            run = row.good_runs[0]
            priced = listed.match(run)
            count = nodes(run)
            if rate and priced and priced.price_per_hour:
                yield MachineCost(
                    series=configuration.series,
                    folder=str(side.path),
                    machine=priced.name,
                    currency=priced.currency,
                    unit=unit,
                    price=priced.price_per_hour,
                    nodes=count,
                    devices=row.num_devices,
                    rate=rate,
                    cost=rate.inverse(BILLION / 3600 * priced.price_per_hour * count),
                )


def statements(costs: Sequence[MachineCost]) -> list[Statement]:
    """The answer for the fastest series that all machines ran, and in how many others the cheapest machine differs."""
    names = {cost.folder: cost.machine for cost in costs}
    by_series: dict[str, list[MachineCost]] = {}
    for cost in costs:
        name = (
            f"{cost.machine} ({cost.folder})"
            if [*names.values()].count(cost.machine) > 1
            else cost.machine
        )
        by_series.setdefault(cost.series, []).append(
            dataclasses.replace(cost, machine=name)
        )
    complete = [
        members for members in by_series.values() if len(members) == len(names) > 1
    ]
    if not complete:
        return []
    shown = max(complete, key=lambda members: max(cost.rate.value for cost in members))
    made = (
        [Statement("machines-series", shown[0].series, {"series": len(complete)})]
        if len(complete) > 1
        else []
    )
    if any(cost.rate.ends is None for cost in shown):
        return [*made, Statement("machines-without-interval")]
    cheapest = [
        min(members, key=lambda cost: cost.cost.value).folder for members in complete
    ]
    if differing := len(complete) - cheapest.count(cheapest[complete.index(shown)]):
        made.append(
            Statement(
                "machines-series-differ",
                values={"others": differing, "series": len(complete)},
            )
        )
    return [*made, *_cheapest(shown), _fastest(shown)]


def _cheapest(costs: Sequence[MachineCost]) -> list[Statement]:
    """The cheapest machine, and the price at which the second-best costs the same."""
    first, second, tied = _ranked(costs, lambda cost: cost.cost.inverse())
    money = {
        "currency": first.currency,
        "second": second.machine,
        "unit": first.unit,
        "tied": tied,
    }
    values = {
        **money,
        "cost": interval_values(first.cost),
        "second_cost": interval_values(second.cost),
    }
    if tied:
        return [Statement("machines-cheapest-unclear", first.machine, values)]
    price = ratio(first.rate, second.rate).scaled(
        second.price * second.nodes / first.nodes
    )
    break_even = Statement(
        "machines-break-even", first.machine, {**money, "price": interval_values(price)}
    )
    return [Statement("machines-cheapest", first.machine, values), break_even]


def _fastest(costs: Sequence[MachineCost]) -> Statement:
    first, second, tied = _ranked(costs, lambda cost: cost.rate)
    speed = {
        "rate": interval_values(first.rate),
        "ratio": interval_values(ratio(first.rate, second.rate)),
    }
    values = {**speed, "second": second.machine, "unit": first.unit, "tied": tied}
    return Statement(
        "machines-fastest-unclear" if tied else "machines-fastest",
        first.machine,
        values,
    )


def _ranked(
    costs: Sequence[MachineCost], worth: Callable[[MachineCost], Interval]
) -> tuple[MachineCost, MachineCost, list[str]]:
    """The best and second-best machine, and the names of all machines that tie for best (empty if there is no tie)."""
    first, *others = sorted(costs, key=lambda cost: -worth(cost).value)
    tied = [
        cost.machine
        for cost in others
        if not is_above(worth(first), worth(cost), len(costs))
    ]
    return first, others[0], [first.machine, *tied] if tied else []
