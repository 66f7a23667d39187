"""Readings: a relation applied to the rows of a view, and the bits that it gains."""

import collections
import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from rnn_scaling.analysis.audit import patterns
from rnn_scaling.analysis.audit.instances import (
    MISS,
    SPREAD,
    Instance,
    Product,
    bits_of_width,
)
from rnn_scaling.analysis.audit.patterns import Pattern
from rnn_scaling.analysis.audit.relations import SAME_WORK, Relation, Shift
from rnn_scaling.analysis.audit.tables import Column, Item, Ref

LEAST_OF_WORK = 7.0  # and of one between rows of the same work, which nothing states
LEAST = (
    4.0  # bits of a reading that is believed: it fits by accident once in 16 columns
)
EXPLICIT = 4.0  # prior bits of a relation that the header words state
TOLERANCES = (
    (0.0, 0.0),
    (0.01, 3.0),
    (0.03, 5.0),
)  # of numbers made from unprinted ones, and its price in bits
_FAR = 0.1  # relative: by which the only number of a table must miss the relation that its header states
_NARROWEST = 0.25  # smallest range of a column: one of equal numbers proves little
PRIOR, FAR_FETCHED = (
    -4.0,
    -8.0,
)  # bits of a relation that no header states, and of one between unlike things
CLOSE = 0.1  # by which a row may miss a relation that is worth a closer look (natural logarithm)
NARROW = 0.02  # range of a column that is as good as constant
_FEW = 2  # misses of a relation that is not certain: an exchange
_WEAK = 1.5  # and of a stated one that many tables break
MOST_MISSED = 0.25  # of the rows, unless all that are missed have a number in common
_MOST_EXCHANGED = 20  # rows of a table in which exchanges with the baseline are tried


@dataclasses.dataclass(frozen=True)
class Reading:
    """A relation of a target column, applied to rows."""

    relation: Relation
    target: int
    sources: tuple[int, ...]  # columns of the relation's quantities
    instances: tuple[Instance, ...]
    bits: float
    grouping: str = ""  # of groups.py, as the rule; without a baseline ""
    rule: str = ""
    compared: int = 0  # rows of a long table that were compared, of which only some have an instance
    pattern: Pattern | None = None  # what explains all that is missed

    @property
    def missed(self) -> tuple[Instance, ...]:
        return tuple(instance for instance in self.instances if not instance.holds)

    @property
    def suspects(self) -> frozenset[Ref]:
        """Numbers that all missed instances have in common."""
        refs = [{term.item.ref for term in instance.terms} for instance in self.missed]
        return frozenset(set.intersection(*refs)) if refs else frozenset()

    @property
    def is_believed(self) -> bool:
        """Whether the evidence suffices. Two rows give none; there the header words and a baseline of 1 must do."""
        num_missed = len(self.missed)
        if len(self.instances) == 1 and self.bits < LEAST:
            is_stated = (
                self.relation.sources == ("rate",) and self.rule == "fewest devices"
            )  # times: weak scaling
            is_far = not self.instances[0].holds_within(_FAR)
            return is_stated and is_far if num_missed else not self.relation.is_generic
        if len(self.instances) < 2 or self.pattern:
            return bool(self.instances) and self.bits >= LEAST
        is_work = self.relation.name == SAME_WORK and num_missed > 0
        most = most_missed(self.relation)
        is_repairable = num_missed <= max(2, MOST_MISSED * len(self.instances)) or bool(
            self.suspects
        )
        is_few = num_missed <= most if most < math.inf else is_repairable
        return self.bits >= (LEAST_OF_WORK if is_work else LEAST) and is_few


def most_missed(relation: Relation) -> float:
    """Rows that a relation may miss if no pattern explains them; one that is a guess may miss one."""
    is_guess = relation.bits <= (
        PRIOR if relation.is_generic else _WEAK * relation.has_baseline
    )
    return _FEW if relation.name == SAME_WORK else 1 if is_guess else math.inf


def scored(
    column: Column, reading: Reading, price: float = 0.0, spread: float = 0.0
) -> Reading:
    """The reading with its bits, at the tolerance that gives most. spread: of the column by default."""
    spread = spread or _spread(column)
    bits, tolerance = max(
        (_gained(reading.instances, t, spread, column.values) - cost, t)
        for t, cost in TOLERANCES
    )
    pattern = None
    if column.is_derived and all(
        isinstance(instance, Product) for instance in reading.instances
    ):
        for slack, cost in TOLERANCES:
            found = patterns.best(reading.instances, slack, spread)  # type: ignore[arg-type]
            if found and found.bits - cost > bits:
                pattern, bits, tolerance = found, found.bits - cost, slack
    instances = tuple(
        dataclasses.replace(i, tolerance=tolerance, spread=spread)
        for i in reading.instances
    )
    return dataclasses.replace(
        reading,
        instances=instances,
        bits=bits + reading.relation.bits - price,
        pattern=pattern,
    )


def _spread(column: Column) -> float:
    values = sorted(item.high for item in column.items if item and item.high > 0)
    return (
        min(SPREAD, max(_NARROWEST, math.log(values[-1] / values[0])))
        if values
        else SPREAD
    )


def inner_range(column: Column, shift: Shift = (0.0, 1)) -> float:
    """Natural logarithm of the ratio of the second largest to the second smallest shift + sign * number."""
    values = [
        shift[0] + shift[1] * item.number.value * column.factor
        for item in column.items
        if item
    ]
    values = sorted(value for value in values if value > 0)
    values = values[1:-1] if len(values) > 4 else values
    return min(1.0, math.log(values[-1] / values[0])) if values else 0.0


def _gained(
    instances: Sequence[Instance],
    tolerance: float,
    spread: float,
    values: Mapping[float, int],
) -> float:
    """Bits that the numbers gain after the smallest repair; a wrong baseline or an exchange costs one miss."""
    gained = sum(instance.bits(tolerance, spread) for instance in instances)
    missed = [
        instance for instance in instances if not instance.holds_within(tolerance)
    ]
    if len(missed) < 2:
        return gained + sum(
            instance.slip_bits(tolerance, spread, values) for instance in missed
        )
    if tolerance:
        return gained + (MISS if len(missed) == 2 else 0.0)
    shared = _shared(missed)
    repaired = [gained + (MISS if len(missed) == 2 else 0.0)]
    if 2 * len(missed) >= len(instances):
        repaired += [_with_baseline(instances, ref, spread) for ref in shared]
    if len(instances) <= _MOST_EXCHANGED and instances[0].relation.bits > PRIOR:
        repaired += [
            _with_exchange(instances, first, second, spread)
            for first, second in _pairs(missed, shared)
        ]
    return max(repaired)


def _pairs(
    missed: Sequence[Instance], shared: Mapping[Ref, Item]
) -> Iterator[tuple[Item, Item]]:
    """Numbers of one column that may have changed places: of two missed rows, or of the baseline and one of many."""
    items = [[term.item for term in instance.terms] for instance in missed]
    some = items[0] if len(missed) == 2 else shared.values()
    for first, others in itertools.product(
        some, items[1:] if len(missed) == 2 else items
    ):
        yield from (
            (first, item)
            for item in others
            if item.ref[1] == first.ref[1] and item.ref != first.ref
        )


def _shared(missed: Sequence[Instance]) -> dict[Ref, Item]:
    """Numbers that most of the missed instances have in common: baselines."""
    items = {term.item.ref: term.item for instance in missed for term in instance.terms}
    counts = collections.Counter(
        term.item.ref for instance in missed for term in instance.terms
    )
    return {
        ref: items[ref]
        for ref, count in counts.items()
        if count > 1 and 2 * count > len(missed)
    }


def _with_baseline(instances: Sequence[Instance], ref: Ref, spread: float) -> float:
    """Bits if the number at `ref` were 1, or the one on which most instances agree."""
    fits, gained = [], -MISS
    for instance in instances:
        if any(term.item.ref == ref for term in instance.terms):
            low, high = instance.fits(ref)
            if low > 0:
                fits.append((math.log(low), math.log(max(high, low))))
        else:
            gained += instance.bits(0.0, spread)
    ones = [high - low for low, high in fits if low - 1e-9 <= 0.0 <= high + 1e-9]
    expected = (
        gained
        + sum(bits_of_width(width, spread) for width in ones)
        - MISS * (len(fits) - len(ones))
    )
    if len(fits) < 3:
        return expected if len(ones) == 2 else -math.inf
    edges = sorted(
        [(low - 1e-9, 0) for low, _ in fits] + [(high + 1e-9, 1) for _, high in fits]
    )
    overlapping = most = 0
    for _, closes in edges:
        overlapping += -1 if closes else 1
        most = max(most, overlapping)
    widths = sorted(high - low for low, high in fits)[-most:]
    gained += sum(bits_of_width(width, spread) for width in widths[1:])
    return max(expected, gained - MISS * (len(fits) - most))


def _with_exchange(
    instances: Sequence[Instance], first: Item, second: Item, spread: float
) -> float:
    """Bits if two numbers change places."""
    moved = [
        exchanged(instance, {first.ref: second, second.ref: first})
        for instance in instances
    ]
    return sum(instance.bits(0.0, spread) for instance in moved) - MISS


def exchanged(instance: Instance, items: Mapping[Ref, Item]) -> Instance:
    """The instance with other numbers at some places."""
    if not any(term.item.ref in items for term in instance.terms):
        return instance
    moves = {ref: item._replace(ref=ref) for ref, item in items.items()}
    terms = [
        term._replace(item=moves.get(term.item.ref, term.item))
        for term in instance.terms
    ]
    moved = type(instance).of(instance.relation, terms, instance.row)  # type: ignore[attr-defined]
    return dataclasses.replace(
        moved, tolerance=instance.tolerance, spread=instance.spread
    )
