"""One relation between some printed numbers, and which numbers would satisfy it."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import NamedTuple

from rnn_scaling.analysis.audit.relations import Relation
from rnn_scaling.records.tables.measurements import SMALLEST, Item, Place

_EXACT = 1e-9  # of the arithmetic
_LARGEST_LOG = 700.0
Bounds = tuple[float, float]
_AS_PRINTED: Mapping[Place, Bounds] = {}
Mark = frozenset[tuple[Place, int]]


class Term(NamedTuple):
    """A number of an instance. It counts as shift + sign * number."""

    item: Item
    exponent: int  # in a product; +1 or -1 in a sum
    shift: float = 0.0
    sign: int = 1


@dataclasses.dataclass(frozen=True)
class Instance:
    """The numbers of one row, and of its baseline, that a relation connects."""

    relation: Relation
    row: int
    terms: tuple[Term, ...]
    tolerance: float  # relative

    @functools.cached_property
    def places(self) -> list[Place]:
        """The cells that may be wrong; not numbers in the header."""
        places = [term.item.place for term in self.terms]
        return [place for place in places if place[0] >= 0]

    @functools.cached_property
    def mark(self) -> Mark:
        """What two instances have in common that say the same."""
        sign = min(self.terms, key=lambda term: term.item.place).exponent
        return frozenset((term.item.place, sign * term.exponent) for term in self.terms)

    @functools.cached_property
    def _slack(self) -> float:
        if not self.relation.is_sum:
            return self.tolerance
        return self.tolerance * max(abs(term.item.high) for term in self.terms)

    def _part(self, term: Term, moved: Mapping[Place, Bounds]) -> Bounds:
        """Return the bounds of a term in the sum, or in the sum of logarithms."""
        bounds = moved.get(term.item.place, (term.item.low, term.item.high))
        ends = sorted(term.shift + term.sign * end for end in bounds)
        if not self.relation.is_sum:
            ends = [math.log(max(end, SMALLEST)) for end in ends]
        low, high = sorted(term.exponent * end for end in ends)
        return low, high

    def _bounds(self, moved: Mapping[Place, Bounds]) -> Bounds:
        """Return the bounds of what must be 0."""
        parts = [self._part(term, moved) for term in self.terms]
        low = sum(low for low, _ in parts) - self._slack
        return low, sum(high for _, high in parts) + self._slack

    def holds(
        self, moved: Mapping[Place, Bounds] = _AS_PRINTED, slack: float = 0.0
    ) -> bool:
        """Return whether the relation holds, with other numbers at some places."""
        low, high = self._bounds(moved)
        return low - slack <= _EXACT and high + slack >= -_EXACT

    def fits(self, place: Place) -> Bounds:
        """Return the bounds of the number at a place that satisfy the relation.

        The bounds are empty, (inf, -inf), for a number that is its own baseline: it
        cancels out.
        """
        terms = [term for term in self.terms if term.item.place == place]
        if len(terms) != 1:
            return math.inf, -math.inf
        term = terms[0]
        low, high = self._bounds(_AS_PRINTED)
        own_low, own_high = self._part(term, _AS_PRINTED)
        values = [(own_low - low) / term.exponent, (own_high - high) / term.exponent]
        if not self.relation.is_sum:
            values = [math.exp(min(value, _LARGEST_LOG)) for value in values]
        low, high = sorted(term.sign * (value - term.shift) for value in values)
        return low, high
