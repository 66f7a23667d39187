"""Find the smallest changes to a table that satisfy the relations which it breaks.

Broken relations that share a number have one cause, a wrong number. If several numbers
explain the same, each of them is named.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

from rnn_scaling.analysis.audit.readings import Bounds, Instance, Mark
from rnn_scaling.records.tables.measurements import CellNumber, CellPosition

# Relative. Medians and unprinted digits explain smaller differences.
MATERIAL = 0.005
_MAX_COUNT_FACTOR = 10.0  # largest error of a count of devices
_MAX_FACTOR = 1e7  # largest error of any number
Index = Mapping[CellPosition, Mapping[Mark, Instance]]


@dataclasses.dataclass(frozen=True)
class Change:
    """A change of one number that satisfies the relations."""

    item: CellNumber
    fit: Bounds  # bounds of the right number
    num_confirming: int  # other relations that hold without the change

    @property
    def position(self) -> CellPosition:
        return self.item.position


@dataclasses.dataclass(frozen=True)
class Fault:
    """Broken relations with one cause, and changes that each repair all of them."""

    broken: Sequence[Instance]
    changes: Sequence[Change]


def find_faults(instances: Mapping[Mark, Instance]) -> Iterator[Fault]:
    """Yield the faults of a table, first the changes that repair most.

    Args:
      instances: The instances of all believed relations.
    """
    by_position = _index_by_position(instances)
    broken = {mark: i for mark, i in instances.items() if not i.holds()}
    while broken:
        broken_by_position = _index_by_position(broken)
        # The likeliest changes that repair the same instances: a number that others
        # confirm is blamed last.
        groups: dict[frozenset[Mark], list[Change]] = {}
        for change in _find_changes(by_position, broken_by_position):
            marks = frozenset(broken_by_position[change.position])
            group = groups.setdefault(marks, [])
            if group and change.num_confirming < group[0].num_confirming:
                group.clear()
            if not group or change.num_confirming == group[0].num_confirming:
                group.append(change)
        if not groups:
            return
        remaining = dict(broken)
        for marks in sorted(
            groups, key=lambda m: (-len(m), groups[m][0].num_confirming)
        ):
            if marks <= remaining.keys():
                causes = [remaining.pop(mark) for mark in broken if mark in marks]
                yield Fault(causes, _put_computed_first(groups[marks], causes))
        broken = remaining


def _index_by_position(instances: Mapping[Mark, Instance]) -> Index:
    index: dict[CellPosition, dict[Mark, Instance]] = {}
    for mark, instance in instances.items():
        for position in instance.positions:
            index.setdefault(position, {})[mark] = instance
    return index


def _find_changes(by_position: Index, broken: Index) -> Iterator[Change]:
    """Yield the changes that each repair all broken instances of a number."""
    for position in sorted(broken):
        terms = next(iter(broken[position].values())).terms
        item = next(term.item for term in terms if term.item.position == position)
        fit = _fit(item, list(by_position[position].values()))
        if fit:
            yield Change(item, fit, len(by_position[position]) - len(broken[position]))


def _put_computed_first(
    changes: Sequence[Change], broken: Sequence[Instance]
) -> list[Change]:
    """Return the changes, first the changes of computed numbers."""
    targets = {instance.terms[0].item.position for instance in broken}
    return sorted(changes, key=lambda change: change.position not in targets)


def _fit(item: CellNumber, instances: Sequence[Instance]) -> Bounds | None:
    """Return the bounds of a number that satisfies all instances, if any does."""
    bounds = [instance.fits(item.position) for instance in instances]
    low = max(low for low, _ in bounds)
    high = min(high for _, high in bounds)
    if low > high + MATERIAL * abs(high):
        return None
    low, high = sorted((low, high))
    terms = [term for term in instances[0].terms if term.item.position == item.position]
    may_be_negative = terms[0].factor.shift[0]
    largest = _MAX_FACTOR * max(abs(item.low), abs(item.high))
    if (high <= 0 and not may_be_negative) or max(-low, high) > largest:
        return None
    if item.low == item.high:  # a count
        is_near = item.low / _MAX_COUNT_FACTOR <= high
        is_near &= low <= item.low * _MAX_COUNT_FACTOR
        is_whole = math.floor(high * (1 + 1e-9)) >= low * (1 - 1e-9)
        return (low, high) if is_near and is_whole else None
    return low, high
