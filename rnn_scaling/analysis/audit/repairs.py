"""The smallest change to a table that satisfies the relations which it breaks.

Broken relations that share a number have one cause. The cause is looked for in the order of size: one number, two
exchanged numbers, a factor on a column. Where several changes of one size explain all, each is named.
"""

import bisect
import collections
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from rnn_scaling.analysis.audit import patterns
from rnn_scaling.analysis.audit.instances import Instance, Mark, Sum, slip_of
from rnn_scaling.analysis.audit.scoring import LEAST, MOST_MISSED, Reading, exchanged
from rnn_scaling.analysis.audit.tables import Item, Ref, View, rows_by

MOST_ALTERNATIVES = 3  # changes that are named as "one of these"
MOST_MISCOUNTED = 10.0  # times by which a count of devices may be wrong
FARTHEST = 1e7  # times by which a number may be wrong
_CONFIRMS = 8.0  # bits of a reading that confirms its numbers
MATERIAL = 0.005  # relative; smaller differences come from medians and numbers that were not printed
_INSIDE = 3.0  # times around the numbers of a column: within may lie another one
MOST_SWAPS = 400  # pairs of numbers that are tried


@dataclasses.dataclass(frozen=True)
class Change:
    """What would satisfy the relations: for each place bounds of what fits."""

    kind: str  # "number", "exchange"
    places: tuple[Ref, ...]
    fits: tuple[tuple[float, float], ...]

    @property
    def fit_of(self) -> list[tuple[Ref, tuple[float, float]]]:
        return list(zip(self.places, self.fits))


@dataclasses.dataclass(frozen=True)
class Fault:
    """Broken relations of one cause, and the smallest changes, one or a few, that each mend all of them."""

    broken: tuple[Instance, ...]
    changes: tuple[Change, ...]
    bits: float


class Items:
    """All numbers of a table, by place; places by row; sorted numbers by column."""

    def __init__(self, view: View) -> None:
        self.of = {ref: item for ref, (_, _, item) in view.places.items()}
        self.of_row: dict[int, list[Ref]] = {}
        self.of_column: dict[int, list[float]] = {}
        for ref, item in sorted(self.of.items(), key=lambda pair: pair[0]):
            self.of_column.setdefault(ref[1], []).append(item.number.value)
            if item.low < item.high:
                self.of_row.setdefault(ref[0], []).append(ref)
        for values in self.of_column.values():
            values.sort()


def faults(view: View, readings: Sequence[Reading]) -> list[Fault]:
    """The faults of a table, from the relations of all its believed readings."""
    readings = [reading for reading in readings if _is_repairable(reading)]
    instances = list(
        {i.mark: i for reading in readings for i in reading.instances}.values()
    )
    by_ref = _by_ref(instances)
    bits = {i.mark: reading.bits for reading in readings for i in reading.instances}
    confirming = {mark for mark, found in bits.items() if found >= _CONFIRMS}
    found = [_of_pattern(reading) for reading in readings if reading.pattern]
    explained = {
        ref for fault in found for change in fault.changes for ref in change.places
    }
    broken_ones = [
        i for i in instances if not i.holds and explained.isdisjoint(_refs(i))
    ]
    if broken_ones:
        items = Items(view)
    for joined in _connected(broken_ones):
        parts = [joined]
        while parts:
            broken = parts.pop()
            changes = _misplaced(broken, by_ref, items) or _single(
                broken, by_ref, confirming
            )
            changes = changes or _exchanged(broken, by_ref)
            rows = {instance.row for instance in broken}
            if changes:
                found.append(
                    Fault(
                        tuple(broken), tuple(changes), max(bits[i.mark] for i in broken)
                    )
                )
            elif len(rows) > 1:  # two faults that share a baseline
                parts += [[i for i in broken if i.row == row] for row in sorted(rows)]
    judged = [(fault, fault.broken[0].relation) for fault in found]
    return [
        fault
        for fault, rule in judged
        if fault.bits >= LEAST or rule.is_sum or not rule.is_generic
    ]


def _of_pattern(reading: Reading) -> Fault:
    """The wrong targets of several rows, with what fits there; of shifted ones either column may have slipped."""
    assert reading.pattern
    is_mutual = (
        reading.pattern.kind == patterns.SHIFTED
        and not reading.rule
        and len(reading.sources) == 1
    )
    changes = []
    for k in range(1 + is_mutual):
        places = [instance.terms[k].item.ref for instance in reading.missed]
        fits = [instance.fits(ref) for instance, ref in zip(reading.missed, places)]
        changes.append(Change(reading.pattern.kind, tuple(places), tuple(fits)))
    return Fault(reading.missed, tuple(changes), reading.bits)


def _is_repairable(reading: Reading) -> bool:
    """Whether a reading misses few rows, or one number or exchange mends all that it misses."""
    missed = reading.missed
    if reading.pattern or len(missed) <= max(2, MOST_MISSED * len(reading.instances)):
        return True
    by_ref = _by_ref(reading.instances)
    return any(_fit(ref, by_ref[ref]) for ref in reading.suspects) or bool(
        _exchanged(missed, by_ref)
    )


def _by_ref(instances: Iterable[Instance]) -> dict[Ref, list[Instance]]:
    by_ref: dict[Ref, list[Instance]] = {}
    for instance in instances:
        for term in instance.terms:
            by_ref.setdefault(term.item.ref, []).append(instance)
    return by_ref


def _refs(instance: Instance) -> list[Ref]:
    return [term.item.ref for term in instance.terms if term.item.ref[0] >= 0]


def _connected(broken: Sequence[Instance]) -> Iterator[list[Instance]]:
    """Broken instances in groups that share numbers; a number in nearly all of them does not join them by itself."""
    parent = list(range(len(broken)))

    def root(k: int) -> int:
        while parent[k] != k:
            k = parent[k]
        return k

    seen: dict[Ref, int] = {}
    counts = collections.Counter(
        ref for instance in broken for ref in set(_refs(instance))
    )
    has_many = len({instance.row for instance in broken}) > 2
    for k, instance in enumerate(broken):
        for ref in _refs(instance):
            if has_many and ref[0] != instance.row and 2 < counts[ref] < len(broken):
                continue  # the baseline of several faults
            if ref in seen:
                parent[root(k)] = root(seen[ref])
            seen[ref] = k
    for group in rows_by(map(root, range(len(broken)))).values():
        yield [broken[k] for k in group]


def _fit(ref: Ref, instances: Sequence[Instance]) -> tuple[float, float] | None:
    """Bounds of the number that satisfies all instances at once; None if there is none."""
    low, high = -math.inf, math.inf
    for instance in instances:
        a, b = instance.fits(ref)
        low, high = max(low, a), min(high, b)
    term = next(term for term in instances[0].terms if term.item.ref == ref)
    item = term.item
    if low > high + MATERIAL * abs(high) or (
        high <= 0
        and not term.shift
        and (item.low >= 0 or not isinstance(instances[0], Sum))
    ):
        return None
    low, high = min(low, high), max(low, high)
    if max(-low, high) > FARTHEST * max(abs(item.low), abs(item.high)):
        return None
    return (
        None
        if item.low == item.high and not _may_be_count(item.low, low, high)
        else (low, high)
    )


def _may_be_count(printed: float, low: float, high: float) -> bool:
    """Whether a whole number near the printed one fits."""
    is_near = printed / MOST_MISCOUNTED <= high and low <= printed * MOST_MISCOUNTED
    return is_near and math.floor(high * (1 + 1e-9)) >= low * (1 - 1e-9)


def _single(
    broken: Sequence[Instance],
    by_ref: Mapping[Ref, Sequence[Instance]],
    confirming: Set[Mark],
) -> list[Change]:
    shared = set.intersection(*(set(_refs(instance)) for instance in broken))
    certain = confirming | {instance.mark for instance in broken}
    tried = {
        ref: [instance for instance in by_ref[ref] if instance.mark in certain]
        for ref in sorted(shared)
    }
    fitting = [
        (ref, fit) for ref, instances in tried.items() if (fit := _fit(ref, instances))
    ]
    if (
        len(fitting) > 1
    ):  # a number that other relations confirm is blamed only if no other is left
        confirmed = {
            ref: sum(i.holds and i.mark in confirming for i in by_ref[ref])
            for ref, _ in fitting
        }
        least = min(confirmed.values())
        fitting = [(ref, fit) for ref, fit in fitting if confirmed[ref] == least]
    if len(fitting) > MOST_ALTERNATIVES:  # of a sum a slip, or its total
        items = {
            term.item.ref: term.item for instance in broken for term in instance.terms
        }
        slips = [(ref, fit) for ref, fit in fitting if slip_of(items[ref], *fit)]
        if len(slips) == 1:
            return [Change("number", slips[0][:1], slips[0][1:])]
        totals = {
            term.item.ref
            for instance in broken
            if isinstance(instance, Sum)
            for term in instance.terms[:1]
        }
        fitting = [(ref, fit) for ref, fit in fitting if ref in totals]
    # People compute the target from the other numbers, so it is named first.
    targets = {
        instance.terms[0].item.ref
        for instance in broken
        if not isinstance(instance, Sum)
    }
    fitting.sort(key=lambda pair: pair[0] not in targets)
    return [Change("number", (ref,), (fit,)) for ref, fit in fitting]


def _misplaced(
    broken: Sequence[Instance], by_ref: Mapping[Ref, Sequence[Instance]], items: Items
) -> list[Change]:
    """Two numbers of a row, each of which lies among those of the other one's column, that satisfy all exchanged."""
    found = []
    for row in {ref[0] for instance in broken for ref in _refs(instance)}:
        for a, b in itertools.islice(
            itertools.combinations(items.of_row.get(row, ()), 2), MOST_SWAPS
        ):
            if _lies_in(a, b, items) and _lies_in(b, a, items):
                found += _exchange(a, b, items.of, broken, by_ref)
    return found if len(found) == 1 else []


def _lies_in(ref: Ref, at: Ref, items: Items) -> bool:
    """Whether a number is among those of the column at another place, and not among the others of its own."""
    ranges = []
    for place in (at, ref):
        values = items.of_column[place[1]]
        k = bisect.bisect_left(
            values, items.of[place].number.value
        )  # of this row, which does not count
        if len(values) < 3:
            return False
        ranges.append((values[k == 0], values[-2 if k == len(values) - 1 else -1]))
    (low, high), (a, b) = ranges
    return (b < low or high < a) and low / _INSIDE <= items.of[
        ref
    ].number.value <= high * _INSIDE


def _exchange(
    a: Ref,
    b: Ref,
    items: Mapping[Ref, Item],
    broken: Sequence[Instance],
    by_ref: Mapping[Ref, Sequence[Instance]],
) -> list[Change]:
    """The exchange of two numbers, if it satisfies all instances that have one of them."""
    touched = {i.mark: i for i in (*by_ref.get(a, ()), *by_ref.get(b, ()))}
    places = {a: _moved(items[a], items[b]), b: _moved(items[b], items[a])}
    if not all(i.mark in touched for i in broken) or not all(
        exchanged(i, places).holds_within(max(i.tolerance, MATERIAL))
        for i in touched.values()
    ):
        return []
    return [
        Change(
            "exchange",
            (a, b),
            tuple((places[ref].low, places[ref].high) for ref in (a, b)),
        )
    ]


def _exchanged(
    broken: Sequence[Instance], by_ref: Mapping[Ref, Sequence[Instance]]
) -> list[Change]:
    """Two numbers of one column or one row that satisfy all when they change places."""
    items = {
        term.item.ref: term.item
        for i in broken
        for term in i.terms
        if term.item.ref in set(_refs(i))
    }
    found = []
    pairs = [
        (a, b)
        for a, b in itertools.combinations(sorted(items), 2)
        if a[0] == b[0] or a[1] == b[1]
    ]
    for a, b in pairs[:MOST_SWAPS]:
        found += _exchange(a, b, items, broken, by_ref)
    return found if len(found) <= MOST_ALTERNATIVES else []


def _moved(to: Item, source: Item) -> Item:
    """The number of another place in the unit of this one."""
    factor = (
        (to.high / to.number.high if to.number.high else 1.0)
        if to.ref[1] != source.ref[1]
        else 0.0
    )
    if factor:
        return Item(
            source.number,
            to.ref,
            source.number.low * factor,
            source.number.high * factor,
        )
    return Item(source.number, to.ref, source.low, source.high)
