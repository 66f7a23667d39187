"""The cost of series on several machines, and the cheapest and fastest machine.

`judgement` computes the costs for --across=machine, and reports show them.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

from rnn_scaling.analysis.comparison.matching import (
    ALL_DEVICES,
    ComparedRuns,
    Configuration,
)
from rnn_scaling.analysis.comparison.verdicts import TOO_FEW, Result
from rnn_scaling.analysis.confidence import Interval, divide_rates
from rnn_scaling.analysis.grouping import group_by
from rnn_scaling.analysis.machines import count_nodes
from rnn_scaling.analysis.metrics import BILLION
from rnn_scaling.analysis.prices import PriceList
from rnn_scaling.analysis.significance import is_above
from rnn_scaling.analysis.statements import Statement, state


@dataclasses.dataclass(frozen=True)
class MachineCost:
    """The cost of one series on one machine, with all devices that its runs use."""

    series: str
    folder: str
    machine: str  # name in machines.toml
    currency: str
    unit: str  # name of the items
    price: float  # currency per hour of one node
    nodes: int
    devices: int
    rate: Interval  # items/s
    cost: Interval  # currency per billion items


def compute_costs(
    sides: Sequence[ComparedRuns],
    configurations: Sequence[Configuration],
    results: Sequence[Result],
    prices: Sequence[PriceList],
    unit: str,
) -> Iterator[MachineCost]:
    """Yield the cost of each comparable series, on each side that has a price.

    Args:
      sides: The runs before and after.
      configurations: The configurations of both sides.
      results: The result of each configuration.
      prices: The prices of each side; empty if prices are unknown.
      unit: Name of the items.
    """
    for configuration, result in zip(configurations, results):
        is_judged = result.reason is None or result.reason.kind == TOO_FEW
        if ALL_DEVICES not in configuration.scopes or not is_judged:
            continue
        rates = (result.before, result.after)
        for side, row, rate, price_list in zip(
            sides, configuration.sides, rates, prices
        ):
            run = row.good_runs[0]
            priced = price_list.match(run)
            num_nodes = count_nodes(run)
            if rate and priced and priced.price_per_hour:
                price = priced.price_per_hour
                yield MachineCost(
                    series=configuration.series,
                    folder=str(side.path),
                    machine=priced.name,
                    currency=priced.currency,
                    unit=unit,
                    price=price,
                    nodes=num_nodes,
                    devices=row.num_devices,
                    rate=rate,
                    cost=rate.inverse(BILLION / 3600 * price * num_nodes),
                )


def make_statements(costs: Sequence[MachineCost]) -> list[Statement]:
    """Return the cheapest and fastest machine for the fastest series of all machines.

    A statement before counts the other series with another cheapest machine.
    """
    machines = {cost.folder: cost.machine for cost in costs}
    names = list(machines.values())
    named_costs = []
    for cost in costs:
        if names.count(cost.machine) > 1:
            name = f"{cost.machine} ({cost.folder})"
            cost = dataclasses.replace(cost, machine=name)
        named_costs.append(cost)
    by_series = group_by(named_costs, [cost.series for cost in costs])
    complete = [
        series for series in by_series.values() if len(series) == len(machines) > 1
    ]
    if not complete:
        return []
    fastest = max(complete, key=_find_max_rate)
    answer = []
    if len(complete) > 1:
        answer.append(state("machines-series", fastest[0].series, series=len(complete)))
    if any(cost.rate.ends is None for cost in fastest):
        return [*answer, state("machines-without-interval")]
    num_others = sum(
        _find_cheapest_folder(series) != _find_cheapest_folder(fastest)
        for series in complete
    )
    if num_others:
        answer.append(
            state("machines-series-differ", others=num_others, series=len(complete))
        )
    return [*answer, *_state_cheapest(fastest), _state_fastest(fastest)]


def _find_max_rate(series: Sequence[MachineCost]) -> float:
    return max(cost.rate.value for cost in series)


def _find_cheapest_folder(series: Sequence[MachineCost]) -> str:
    return min(series, key=lambda cost: cost.cost.value).folder


def _state_cheapest(costs: Sequence[MachineCost]) -> list[Statement]:
    """Return the cheapest machine, and the price at which it costs as much as the second."""
    first, second, tied_names = _rank_machines(costs, lambda cost: cost.cost.inverse())
    common = {
        "currency": first.currency,
        "second": second.machine,
        "unit": first.unit,
        "tied": tied_names,
    }
    values = {
        **common,
        "cost": first.cost,
        "second_cost": second.cost,
    }
    if tied_names:
        return [state("machines-cheapest-unclear", first.machine, **values)]
    price_ratio = second.price * second.nodes / first.nodes
    price = divide_rates(first.rate, second.rate).scaled(price_ratio)
    return [
        state("machines-cheapest", first.machine, **values),
        state("machines-break-even", first.machine, **common, price=price),
    ]


def _state_fastest(costs: Sequence[MachineCost]) -> Statement:
    first, second, tied_names = _rank_machines(costs, lambda cost: cost.rate)
    kind = "machines-fastest-unclear" if tied_names else "machines-fastest"
    return state(
        kind,
        first.machine,
        rate=first.rate,
        ratio=divide_rates(first.rate, second.rate),
        second=second.machine,
        unit=first.unit,
        tied=tied_names,
    )


def _rank_machines(
    costs: Sequence[MachineCost], score: Callable[[MachineCost], Interval]
) -> tuple[MachineCost, MachineCost, list[str]]:
    """Return the best machine, the second one, and the names that tie for best.

    Args:
      costs: The costs of one series on several machines.
      score: Returns what is larger for a better machine.
    """
    ranking = sorted(costs, key=lambda cost: -score(cost).value)
    first = ranking[0]
    tied_names = [
        cost.machine
        for cost in ranking[1:]
        if not is_above(score(first), score(cost), len(costs))
    ]
    return first, ranking[1], [first.machine, *tied_names] if tied_names else []
