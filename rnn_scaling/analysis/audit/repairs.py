"""Find the smallest changes to a table that satisfy the relations which it breaks.

Broken relations that share a number have one cause, a wrong number or two exchanged
ones. If several changes of one size explain the same, each of them is named.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence, Set

from rnn_scaling.analysis.audit import slips
from rnn_scaling.analysis.audit.readings import Bounds, Instance, Mark
from rnn_scaling.records.tables.measurements import Item, Place

# Relative. Medians and unprinted digits explain smaller differences.
MATERIAL = 0.005
_MAX_ALTERNATIVES = 3  # changes that are named as "one of these"
_MAX_COUNT_FACTOR = 10.0  # largest error of a count of devices
_MAX_FACTOR = 1e7  # largest error of any number
_MAX_PAIRS = 400  # pairs of numbers that are tried


@dataclasses.dataclass(frozen=True)
class Change:
    """A change that satisfies the relations."""

    kind: str  # "number" or "exchange"
    fits: Mapping[Place, Bounds]  # bounds of the right numbers
    num_confirming: int = 0  # other relations that hold without the change

    @property
    def rank(self) -> tuple[bool, int]:
        """A sort key: a number that others confirm is blamed last."""
        return self.kind == "exchange", self.num_confirming


@dataclasses.dataclass(frozen=True)
class Fault:
    """Broken relations with one cause, and changes that each repair all of them."""

    broken: Sequence[Instance]
    changes: Sequence[Change]


def faults(
    instances: Mapping[Mark, Instance], confirming: Set[Mark]
) -> Iterator[Fault]:
    """Yield the faults of a table, first the changes that repair most.

    Args:
      instances: The instances of all believed relations.
      confirming: Marks of instances whose relation is certain.
    """
    by_place = _index_by_place(instances)
    broken = {mark: i for mark, i in instances.items() if not i.holds()}
    while broken:
        broken_by_place = _index_by_place(broken)
        # The likeliest changes that repair the same instances.
        groups: dict[frozenset[Mark], list[Change]] = {}
        for change in _find_changes(by_place, broken_by_place, confirming):
            repaired = [broken_by_place.get(place, {}) for place in change.fits]
            group = groups.setdefault(frozenset().union(*repaired), [])
            if not group or change.rank < group[0].rank:
                group[:] = [change]
            elif change.rank == group[0].rank:
                group.append(change)
        if not groups:
            return
        remaining = dict(broken)
        for marks in sorted(groups, key=lambda m: (-len(m), groups[m][0].rank)):
            if marks <= remaining.keys():
                causes = [remaining.pop(mark) for mark in broken if mark in marks]
                named_changes = _select_named_changes(groups[marks], causes)
                if named_changes:
                    yield Fault(causes, named_changes)
        broken = remaining


Index = Mapping[Place, Mapping[Mark, Instance]]


def _index_by_place(instances: Mapping[Mark, Instance]) -> Index:
    index: dict[Place, dict[Mark, Instance]] = {}
    for mark, instance in instances.items():
        for place in instance.places:
            index.setdefault(place, {})[mark] = instance
    return index


def _find_changes(
    by_place: Index, broken: Index, confirming: Set[Mark]
) -> Iterator[Change]:
    """Yield the changes that each repair all broken instances of some numbers."""
    items: dict[Place, Item] = {}
    for place in sorted(broken):
        for term in next(iter(broken[place].values())).terms:
            items[term.item.place] = term.item
        certain_changes = []
        num_confirming = 0
        for mark, instance in by_place[place].items():
            if mark in confirming or mark in broken[place]:
                certain_changes.append(instance)
            num_confirming += mark in confirming and instance.holds()
        fit = _fit(items[place], certain_changes)
        if fit:
            yield Change("number", {place: fit}, num_confirming)
    pairs = itertools.combinations([items[place] for place in sorted(broken)], 2)
    exchangeable = filter(_are_exchangeable, pairs)
    for first, second in itertools.islice(exchangeable, _MAX_PAIRS):
        fits = {
            first.place: _source_bounds(first, second),
            second.place: _source_bounds(second, first),
        }
        touched = [*by_place[first.place].values(), *by_place[second.place].values()]
        if all(instance.holds(fits, MATERIAL) for instance in touched):
            yield Change("exchange", fits)


def _select_named_changes(
    changes: Sequence[Change], broken: Sequence[Instance]
) -> list[Change]:
    """Return the changes that are named, first the changes of computed numbers.

    If many numbers may be wrong, such as the parts of a sum, only the one with a usual
    slip is named, or else the total.
    """
    if changes[0].kind == "exchange":
        return list(changes) if len(changes) <= _MAX_ALTERNATIVES else []
    targets = {instance.terms[0].item.place for instance in broken}
    if len(changes) > _MAX_ALTERNATIVES:
        terms = itertools.chain(*(instance.terms for instance in broken))
        items = {term.item.place: term.item for term in terms}
        slipped = []
        for change in changes:
            ((place, fit),) = change.fits.items()
            if slips.cheapest(items[place], fit, 1.0):
                slipped.append(change)
        if len(slipped) == 1:
            return slipped
        changes = [c for c in changes if not targets.isdisjoint(c.fits)]
    return sorted(changes, key=lambda change: targets.isdisjoint(change.fits))


def _fit(item: Item, instances: Sequence[Instance]) -> Bounds | None:
    """Return the bounds of a number that satisfies all instances, if any does."""
    bounds = [instance.fits(item.place) for instance in instances]
    low = max(low for low, _ in bounds)
    high = min(high for _, high in bounds)
    if low > high + MATERIAL * abs(high):
        return None
    low, high = sorted((low, high))
    terms = [term for term in instances[0].terms if term.item.place == item.place]
    may_be_negative = terms[0].factor.shift[0] or (
        instances[0].relation.is_sum and item.low < 0
    )
    largest = _MAX_FACTOR * max(abs(item.low), abs(item.high))
    if (high <= 0 and not may_be_negative) or max(-low, high) > largest:
        return None
    if item.low == item.high:  # a count
        is_near = item.low / _MAX_COUNT_FACTOR <= high
        is_near &= low <= item.low * _MAX_COUNT_FACTOR
        is_whole = math.floor(high * (1 + 1e-9)) >= low * (1 - 1e-9)
        return (low, high) if is_near and is_whole else None
    return low, high


def _are_exchangeable(pair: tuple[Item, Item]) -> bool:
    """Return whether two numbers of one column or one row may be exchanged."""
    first, second = pair
    is_same_line = first.place[0] == second.place[0]
    is_same_line |= first.place[1] == second.place[1]
    is_count = [item.low == item.high for item in pair]
    return is_same_line and is_count[0] == is_count[1]


def _source_bounds(item: Item, source: Item) -> Bounds:
    """Return the bounds of the source in the unit of an item."""
    if item.place[1] == source.place[1]:
        return source.low, source.high
    return source.number.low * item.scale, source.number.high * item.scale
