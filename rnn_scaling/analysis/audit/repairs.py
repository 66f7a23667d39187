"""Find the smallest change to a table that satisfies the relations which it breaks.

Broken relations that share a number have one cause: one number, or two that are
exchanged. If several changes of one size explain everything, each of them is named.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from rnn_scaling.analysis.audit import slips
from rnn_scaling.analysis.audit.instances import Bounds, Instance, Mark
from rnn_scaling.records.tables.measurements import Item, Place

MATERIAL = 0.005  # relative; medians and unprinted digits explain smaller differences
_MOST_ALTERNATIVES = 3  # changes that are named as "one of these"
_MOST_MISCOUNTED = 10.0  # times by which a count of devices may be wrong
_FARTHEST = 1e7  # times by which a number may be wrong
_MOST_SWAPS = 400  # pairs of numbers that are tried
Index = Mapping[Place, Sequence[Instance]]


@dataclasses.dataclass(frozen=True)
class Change:
    """What would satisfy the relations: for each place the bounds of what fits."""

    kind: str  # "number", "exchange", or a kind of patterns.py
    fits: Mapping[Place, Bounds]
    num_confirming: int = 0  # other relations that hold with the number as it is


@dataclasses.dataclass(frozen=True)
class Fault:
    """Broken relations of one cause, and changes that each repair all of them."""

    broken: Sequence[Instance]
    changes: Sequence[Change]


def index_of(instances: Iterable[Instance]) -> dict[Place, list[Instance]]:
    """Return the instances that have a number, by its place."""
    found: dict[Place, list[Instance]] = {}
    for instance in instances:
        for place in instance.places:
            found.setdefault(place, []).append(instance)
    return found


def faults(
    instances: Sequence[Instance],
    confirming: Set[Mark] = frozenset(),
    slack: float = MATERIAL,
) -> Iterator[Fault]:
    """Yield the faults of a table: the changes that repair most come first.

    Args:
      instances: Of all believed relations.
      confirming: Marks of those whose relation is certain. Without any, all are.
      slack: By which the instances may be off afterwards.
    """
    index = index_of(instances)
    broken = [instance for instance in instances if not instance.holds()]
    while broken:
        changes = _numbers(broken, index, confirming, slack)
        changes += _exchanges(broken, index, slack)
        if not changes:
            return
        ranks = [_rank(change, broken) for change in changes]
        best = min(ranks)
        repaired = _repaired(changes[ranks.index(best)], broken)
        alike = []
        for change, rank in zip(changes, ranks):
            if rank == best and _repaired(change, broken) == repaired:
                alike.append(change)
        chosen = _named(alike, broken)
        if chosen:
            yield Fault([one for one in broken if one.mark in repaired], chosen)
        broken = [one for one in broken if one.mark not in repaired]


def _rank(change: Change, broken: Sequence[Instance]) -> tuple[int, bool, int]:
    """Return a sort key: the changes that repair most, and change least, come first.

    A number that others confirm is blamed only if no other one is left.
    """
    num_repaired = len(_repaired(change, broken))
    return -num_repaired, change.kind == "exchange", change.num_confirming


def _repaired(change: Change, broken: Sequence[Instance]) -> Set[Mark]:
    """Return the marks of the broken instances that a change repairs."""
    places = set(change.fits)
    return {one.mark for one in broken if not places.isdisjoint(one.places)}


def _items(instances: Iterable[Instance]) -> dict[Place, Item]:
    return {term.item.place: term.item for one in instances for term in one.terms}


def _numbers(
    broken: Sequence[Instance], index: Index, confirming: Set[Mark], slack: float
) -> list[Change]:
    """Return single numbers that satisfy all instances which have them."""
    marks = {instance.mark for instance in broken}
    found = []
    for place, item in sorted(_items(broken).items()):
        certain = index.get(place, ())
        if confirming:
            certain = [i for i in certain if i.mark in confirming or i.mark in marks]
        fit = _fit(item, certain, slack) if certain else None
        if fit:
            num_confirming = sum(i.holds() and i.mark in confirming for i in certain)
            found.append(Change("number", {place: fit}, num_confirming))
    return found


def _named(changes: Sequence[Change], broken: Sequence[Instance]) -> list[Change]:
    """Return the changes that are named, those of computed numbers first.

    Of many numbers, such as the parts of a sum, that is one with a usual slip, or else
    the total.
    """
    if changes[0].kind == "exchange":
        return list(changes) if len(changes) <= _MOST_ALTERNATIVES else []
    targets = [instance.terms[0].item.place for instance in broken]
    if len(changes) > _MOST_ALTERNATIVES:
        items = _items(broken)
        slipped = []
        for change in changes:
            ((place, fit),) = change.fits.items()
            if slips.cheapest(items[place], fit, 1.0):
                slipped.append(change)
        if len(slipped) == 1:
            return slipped
        changes = [one for one in changes if not set(targets).isdisjoint(one.fits)]
    return sorted(changes, key=lambda one: set(targets).isdisjoint(one.fits))


def _fit(item: Item, instances: Sequence[Instance], slack: float) -> Bounds | None:
    """Return the bounds of a number that satisfies all instances; None without any."""
    bounds = [instance.fits(item.place) for instance in instances]
    low = max(low for low, _ in bounds)
    high = min(high for _, high in bounds)
    if low > high + slack * abs(high):
        return None
    low, high = sorted((low, high))
    terms = [term for term in instances[0].terms if term.item.place == item.place]
    may_be_negative = terms[0].shift or (instances[0].relation.is_sum and item.low < 0)
    largest = _FARTHEST * max(abs(item.low), abs(item.high))
    if (high <= 0 and not may_be_negative) or max(-low, high) > largest:
        return None
    if item.low == item.high:  # a count
        is_near = item.low / _MOST_MISCOUNTED <= high
        is_near &= low <= item.low * _MOST_MISCOUNTED
        is_whole = math.floor(high * (1 + 1e-9)) >= low * (1 - 1e-9)
        return (low, high) if is_near and is_whole else None
    return low, high


def _exchanges(broken: Sequence[Instance], index: Index, slack: float) -> list[Change]:
    """Return pairs of one column or row that satisfy all instances when exchanged."""
    items = {k: item for k, item in _items(broken).items() if k[0] >= 0}
    found = []
    pairs = filter(_are_alike, itertools.combinations(items.values(), 2))
    for one, other in itertools.islice(pairs, _MOST_SWAPS):
        moved = {one.place: _moved(one, other), other.place: _moved(other, one)}
        touched = [*index[one.place], *index[other.place]]
        if all(instance.holds(moved, slack) for instance in touched):
            found.append(Change("exchange", moved))
    return found


def _are_alike(pair: tuple[Item, Item]) -> bool:
    """Return whether two numbers of one column or one row may be exchanged."""
    first, second = pair
    is_same_line = first.place[0] == second.place[0]
    is_same_line |= first.place[1] == second.place[1]
    is_count = [item.low == item.high for item in pair]
    return is_same_line and is_count[0] == is_count[1]


def _moved(item: Item, source: Item) -> Bounds:
    """Return the bounds of another number in the unit of this place."""
    if item.place[1] == source.place[1]:
        return source.low, source.high
    return source.number.low * item.scale, source.number.high * item.scale
