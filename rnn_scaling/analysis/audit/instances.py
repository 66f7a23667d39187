"""One relation between some printed numbers: whether it holds, what that proves, and which numbers would satisfy it.

Evidence is counted in bits. A number that is predicted to within 1 % would be there by chance about once in a hundred
tables: 6 bits. A number that is missed costs MISS bits, about what it costs to name the cell in a finding.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rnn_scaling.analysis.audit import slips
from rnn_scaling.analysis.audit.relations import CUMULATIVE, Relation
from rnn_scaling.analysis.audit.slips import Slip
from rnn_scaling.analysis.audit.tables import SMALLEST, Item, Ref

MISS, MOST_BITS = 6.0, 10.0
_PART = 2.0  # times the rounding of a sum, below which a part proves nothing
_EXACT = 1e-9  # of the arithmetic
Mark = tuple[tuple[Ref, int], ...]
SPREAD = (
    1.0  # natural logarithm of the range in which a number is expected anyway, at most
)


def bits_of_width(width: float, spread: float = SPREAD) -> float:
    """What a number proves that falls into a range of this width where `spread` was open (natural logarithms)."""
    return min(MOST_BITS, max(0.0, -math.log2(max(width / max(spread, 1e-9), 1e-9))))


def slip_of(
    item: Item,
    low: float,
    high: float,
    devices: float | None = None,
    values: Mapping[float, int] | None = None,
) -> Slip | None:
    """The likeliest slip by which a number is outside of bounds in the unit of its column; none for counts."""
    if item.low == item.high or not item.number.high:
        return None
    factor = item.high / item.number.high
    return slips.cheapest(item.number, low / factor, high / factor, devices, values)


class Term(NamedTuple):
    """A number of an instance. exponent: in a product; +1 or -1 in a sum. It counts as shift + sign * number."""

    item: Item
    exponent: int
    shift: float = 0.0
    sign: int = 1

    @property
    def ends(self) -> tuple[float, float]:
        """Bounds of shift + sign * number."""
        a, b = (
            self.shift + self.sign * self.item.low,
            self.shift + self.sign * self.item.high,
        )
        return (a, b) if a <= b else (b, a)

    def logs(self) -> tuple[float, float]:
        """Bounds of its part of a product, as logarithms."""
        low, high = self.ends
        a, b = (
            self.exponent * math.log(max(low, SMALLEST)),
            self.exponent * math.log(max(high, SMALLEST)),
        )
        return (a, b) if self.exponent > 0 else (b, a)


@dataclasses.dataclass(frozen=True)
class Instance(abc.ABC):
    """Numbers of one row, and of its baseline, that a relation connects."""

    relation: Relation
    terms: tuple[Term, ...]
    row: int
    low: float  # bounds of what must be 0, relative to the numbers
    high: float
    tolerance: float = 0.0  # relative slack of the relation
    spread: float = SPREAD  # range of the target in its column: a column of equal numbers proves little
    devices: float = 1.0  # of the row

    @abc.abstractmethod
    def fits(self, ref: Ref) -> tuple[float, float]:
        """Bounds of the number at `ref`, in the unit of its column, that satisfy the relation given all others."""

    def holds_within(self, tolerance: float) -> bool:
        """Whether the relation holds with this tolerance."""
        return self.low - tolerance <= _EXACT and self.high + tolerance >= -_EXACT

    @property
    def mark(self) -> Mark:
        """What two instances have in common that say the same."""
        terms = sorted((term.item.ref, term.exponent) for term in self.terms)
        return tuple((ref, exponent * terms[0][1]) for ref, exponent in terms)

    @property
    def holds(self) -> bool:
        return self.holds_within(self.tolerance)

    def bits(self, tolerance: float, spread: float) -> float:
        """What it proves if it holds, and costs otherwise."""
        width = self.high - self.low + 2 * tolerance
        if not self.holds_within(tolerance):
            return -MISS
        if isinstance(self, Sum):
            if self.is_trivial(tolerance):
                return 0.0
            width = max(
                width, self.is_whole / _size(self.relation, self.terms)
            )  # counts can hit by one in so many
        return bits_of_width(width, spread)

    def slip_bits(
        self, tolerance: float, spread: float, values: Mapping[float, int]
    ) -> float:
        """What a missed number gives back if a slip explains it: then what it would prove counts, too.

        values: how often each number stands in the column of the target.
        """
        bits = bits_of_width(self.high - self.low + 2 * tolerance, spread)
        if MISS + bits <= slips.LEAST:
            return 0.0
        tried = dataclasses.replace(self, tolerance=tolerance)
        found = [
            slip_of(
                term.item, *tried.fits(term.item.ref), self.devices, {} if k else values
            )
            for k, term in enumerate(self.terms)
        ]
        price = min(
            (slip.bits for slip in found if slip), default=math.inf
        ) + math.log2(len(self.terms))
        return max(0.0, MISS + bits - price)

    def _term(self, ref: Ref) -> Term:
        return next(term for term in self.terms if term.item.ref == ref)


class Product(Instance):
    """The product of all terms is 1."""

    @staticmethod
    def of(
        relation: Relation, terms: Sequence[Term], row: int, devices: float = 1.0
    ) -> Product:
        """The instance of some terms."""
        logs = [term.logs() for term in terms]
        low, high = sum(a for a, _ in logs), sum(b for _, b in logs)
        return Product(relation, tuple(terms), row, low, high, devices=devices)

    @functools.cached_property
    def _distance(self) -> float:
        """How far the target is from that of the baseline: a number like it proves nothing."""
        if not (self.relation.is_generic and self.relation.has_baseline):
            return math.inf
        first, *others = self.terms
        alike = [
            first,
            *(term for term in others if term.item.ref[1] == first.item.ref[1]),
        ]
        return 2.0 * abs(sum(sum(term.logs()) / 2 for term in alike))

    def bits(self, tolerance: float, spread: float) -> float:
        return super().bits(tolerance, min(spread, self._distance))

    def fits(self, ref: Ref) -> tuple[float, float]:
        term = self._term(ref)
        a, b = term.logs()
        low, high = (
            self.low - self.tolerance - a,
            self.high + self.tolerance - b,
        )  # of the other terms
        logs = sorted((-low / term.exponent, -high / term.exponent))
        values = sorted(
            term.sign * (math.exp(min(value, 700.0)) - term.shift) for value in logs
        )
        return values[0], values[1]


class Sum(Instance):
    """The sum of all terms with their signs is 0."""

    @staticmethod
    def of(relation: Relation, terms: Sequence[Term], row: int) -> Sum:
        """The instance of some terms."""
        size = _size(relation, terms)
        low = sum(
            term.ends[0] if term.exponent > 0 else -term.ends[1] for term in terms
        )
        high = sum(
            term.ends[1] if term.exponent > 0 else -term.ends[0] for term in terms
        )
        return Sum(relation, tuple(terms), row, low / size, high / size)

    @property
    def is_whole(self) -> bool:
        """Whether all numbers are printed as whole ones, as counts are."""
        return all(term.item.number.step == 1.0 for term in self.terms)

    def without_rounding(self) -> Sum:
        """The same sum of the printed numbers themselves."""
        terms = [
            t._replace(item=t.item._replace(low=t.item.value, high=t.item.value))
            for t in self.terms
        ]
        return Sum.of(self.relation, terms, self.row)

    def is_trivial(self, tolerance: float) -> bool:
        """Whether one part is so small that the sum would hold without it."""
        smallest = min(max(abs(end) for end in term.ends) for term in self.terms)
        return smallest < _PART * (self.high - self.low + 2 * tolerance) * _size(
            self.relation, self.terms
        )

    def fits(self, ref: Ref) -> tuple[float, float]:
        term, size = self._term(ref), _size(self.relation, self.terms)
        low, high = (
            (self.low - self.tolerance) * size,
            (self.high + self.tolerance) * size,
        )
        a, b = term.ends
        return (a - low, b - high)[::-1] if term.exponent > 0 else (b + low, a + high)


def _size(relation: Relation, terms: Sequence[Term]) -> float:
    """What the error of a sum is compared with: the largest number; of a running sum what was added."""
    measured = terms[1:2] if relation.text == CUMULATIVE else terms
    return max(max(abs(end) for end in term.ends) for term in measured) or 1.0
