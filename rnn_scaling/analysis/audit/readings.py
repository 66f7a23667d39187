"""Apply a relation to the rows of a table.

The logarithms of the factors of a relation must add up to 0. The bounds of the printed
numbers give bounds of the sum. The relation holds in a row if 0 lies between them. What
the other numbers leave for one of them is the number that fits.

`candidates` creates a `Reading` for each relation, `checking` and `evidence` ask it for
bits and clean rows, and `repairs` changes the numbers of its instances.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from rnn_scaling.analysis.audit.baselines import Choice, does_print_one
from rnn_scaling.analysis.audit.relations import Factor, Relation
from rnn_scaling.records.tables.headers import CHOSEN
from rnn_scaling.records.tables.measurements import (
    CellNumber,
    CellPosition,
    Column,
    Measurements,
)

MIN_BITS = 4.0  # bits of a believed reading, which fits by accident once in 16 columns
_CLEAR = 10.0  # bits of a reading that leaves nothing to explain
PRIOR = -4.0  # bits of a relation that no header states
_MAX_BITS = 10.0  # most bits that one number can give
_EXACT = 1e-9  # rounding errors of floating point
_SPREAD = 1.0  # natural logarithm of the largest range in which a number is expected
_MIN_RANGE = 0.25  # smallest range, because a column of equal numbers proves little
_MAX_LOG = 700.0
_MIN_NUMBER = 1e-300  # smaller numbers count as this one, which has a logarithm

Bounds = tuple[float, float]
Ends = tuple[np.ndarray, np.ndarray]  # lower and upper bounds by row
Mark = frozenset[tuple[CellPosition, int]]


def count(low: Any, high: Any, factor: Factor) -> tuple[Any, Any]:
    """Return the bounds of the logarithms with which numbers count in a relation.

    Args:
      low: The lower bound of a number, or of each row's number.
      high: The upper bounds.
      factor: The place of the numbers in the relation.
    """
    offset, sign = factor.shift
    low, high = (offset + sign * low, offset + sign * high)[::sign]
    low = np.log(np.where(high > 0, np.maximum(low, _MIN_NUMBER), np.nan))
    high = np.log(np.where(high > 0, high, np.nan))
    return (low, high) if factor.exponent > 0 else (-high, -low)


@functools.lru_cache(maxsize=256)
def _count_column(column: Column, factor: Factor) -> Ends:
    return count(column.low, column.high, factor)


class Term(NamedTuple):
    """A printed number that counts in the sum of a row."""

    item: CellNumber
    factor: Factor
    low: float
    high: float


class Instance(NamedTuple):
    """The numbers of a row and its baseline that a relation connects."""

    relation: Relation
    terms: tuple[Term, ...]
    low: float  # bounds of the sum
    high: float
    is_exact: bool  # whether the sum has no tolerance

    @property
    def positions(self) -> list[CellPosition]:
        """The cells that may be wrong, without numbers in the header."""
        positions = [term.item.position for term in self.terms]
        return [position for position in positions if position.row >= 0]

    @property
    def mark(self) -> Mark:
        """A key that equivalent instances share."""
        sign = min(self.terms, key=lambda term: term.item.position).factor.exponent
        return frozenset(
            (t.item.position, sign * t.factor.exponent) for t in self.terms
        )

    def holds(
        self, changed: Mapping[CellPosition, Bounds] | None = None, slack: float = 0.0
    ) -> bool:
        """Return whether the relation holds, with other numbers at some positions."""
        low = self.low
        high = self.high
        for term in self.terms:
            if changed and term.item.position in changed:
                bounds = changed[term.item.position]
                ends = count(*bounds, term.factor)
                low += ends[0] - term.low
                high += ends[1] - term.high
        return bool(low - slack <= _EXACT and high + slack >= -_EXACT)

    def fits(self, position: CellPosition) -> Bounds:
        """Return the bounds of the number at a position that satisfy the relation.

        If a number is its own baseline, it cancels out, and the bounds are empty,
        (inf, -inf).
        """
        terms = [term for term in self.terms if term.item.position == position]
        if len(terms) != 1:
            return math.inf, -math.inf
        (term,) = terms
        ends = [term.low - self.low, term.high - self.high]
        offset, sign = term.factor.shift
        values = []
        for end in ends:
            value = math.exp(min(float(term.factor.exponent * end), _MAX_LOG))
            values.append(sign * (value - offset))
        return min(values), max(values)


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
    """A relation of a target column, applied to rows."""

    layout: Measurements
    relation: Relation
    columns: tuple[int, ...]  # the target and the sources of the relation
    choice: Choice  # the baselines
    spread: float = 0.0  # range of the target, if not the range of its column
    tolerance: float = 0.0
    bits: float = 0.0
    num_changes: int = 0  # numbers whose repair explains all missed rows

    @property
    def target(self) -> int:
        """The number of the target column."""
        return self.columns[0]

    @property
    def column(self) -> Column:
        """The target column."""
        return self.layout.columns[self.columns[0]]

    @property
    def base(self) -> np.ndarray:
        """The baseline row of each row."""
        return self.choice.base

    @functools.cached_property
    def shares(self) -> list[tuple[Factor, Column, np.ndarray, Ends]]:
        """Each factor with its column, the row of its number, and how that counts.

        The baseline of the baseline may be outside of the table. It does not count if
        it is printed as 1, or not at all; its row is then -1.
        """
        relation = self.relation
        shares = []
        for factor in relation.factors:
            k = self.columns[relation.quantities.index(factor.name)]
            column = self.layout.columns[k]
            rows = np.arange(len(self.base))
            low, high = _count_column(column, factor)
            if factor.is_baseline:
                rows = self.base
                low = np.where(rows < 0, np.nan, low[rows])
                high = np.where(rows < 0, np.nan, high[rows])
                if factor.name == relation.target:
                    is_one = does_print_one(column, factor.shift) | np.isnan(column.low)
                    rows = np.where(is_one[rows], -1, rows)
                    low = np.where(rows < 0, 0.0, low)
                    high = np.where(rows < 0, 0.0, high)
            shares.append((factor, column, rows, (low, high)))
        return shares

    @functools.cached_property
    def _mixes_marks(self) -> np.ndarray:
        """By row, whether the numbers were measured or computed in different ways.

        A derived number has a mark if a number has one from which it is computed. Other
        numbers all have it, or none has.
        """
        marks = []
        for factor, column, rows, _ in self.shares:
            # The speedup of a baseline is 1 by definition, and has no mark.
            is_base = factor.is_baseline and factor.name == self.relation.target
            if column.quantity not in CHOSEN and not is_base:
                marks.append((rows >= 0) & column.is_marked[rows])
        if len(marks) < 2:
            return np.zeros(len(self.base), bool)
        target, *sources = marks
        if self.column.is_derived:
            return target != np.any(sources, axis=0)
        return np.any(marks, axis=0) & ~np.all(marks, axis=0)

    @functools.cached_property
    def _is_baseline(self) -> np.ndarray:
        """By row, whether it is a baseline.

        A row that prints 1, on as many devices as its baseline, may have another one.
        """
        is_own = self.base == np.arange(len(self.base))
        if self.layout.devices is None or self.relation.is_generic:
            return is_own
        counts = self.layout.devices.low
        has_equal_count = counts == counts[self.base]
        is_one = does_print_one(self.column, self.relation.shift)
        return is_own | (has_equal_count & is_one)

    @functools.cached_property
    def ends(self) -> Ends:
        """Bounds, by row, of the sum; NaN for rows that are not compared."""
        low, high = np.sum([ends for _, _, _, ends in self.shares], axis=0)
        if self.relation.has_baseline:
            low = np.where(self._is_baseline, np.nan, low)
        low = np.where(self._mixes_marks, np.nan, low)
        return low, high

    @functools.cached_property
    def rows(self) -> np.ndarray:
        """The rows that are compared."""
        return np.flatnonzero(~np.isnan(self.ends[0] + self.ends[1]))

    def holds(self, tolerance: float, ends: Ends | None = None) -> np.ndarray:
        """Return by row whether the relation holds."""
        low, high = ends or self.ends
        return (low - tolerance <= _EXACT) & (high + tolerance >= -_EXACT)

    def find_missed(self, tolerance: float) -> np.ndarray:
        """Return the rows in which the relation does not hold."""
        return self.rows[~self.holds(tolerance)[self.rows]]

    @functools.cached_property
    def missed(self) -> np.ndarray:
        """The rows in which the relation does not hold."""
        return self.find_missed(self.tolerance)

    @property
    def is_clean(self) -> bool:
        """Whether the relation holds in all rows."""
        return not len(self.missed)

    @property
    def is_clear(self) -> bool:
        """Whether the relation holds in all rows, beyond doubt."""
        return self.bits >= _CLEAR and self.is_clean

    def gains(self, tolerance: float, ends: Ends | None = None) -> np.ndarray:
        """Return by row the evidence of a number that lies between the bounds."""
        low, high = ends or self.ends
        spread = np.asarray(self.spread or _compute_expected_range(self.column))
        width = np.maximum(high - low + 2 * tolerance, _EXACT)
        if self.relation.is_generic and self.relation.has_baseline:
            # A number that equals its baseline proves nothing.
            logs = np.mean(self.shares[0][3], axis=0)
            distance = 2.0 * np.abs(logs - logs[self.base])
            distance = np.where(np.isnan(distance), _SPREAD, distance)
            spread = np.minimum(spread, np.maximum(distance, _EXACT))
        return np.clip(-np.log2(width / spread), 0.0, _MAX_BITS)

    def without(self, share: Ends) -> Ends:
        """Return the ends without the share of one factor."""
        return self.ends[0] - share[0], self.ends[1] - share[1]

    def confirms(self, position: CellPosition) -> bool:
        """Return whether a number follows from others."""
        confirmed_rows = np.setdiff1d(self.rows, self.missed)
        for _, column, rows, _ in self.shares:
            for row in np.unique(rows[confirmed_rows]):
                item = column.items[row] if row >= 0 else None
                if item and item.position == position:
                    return True
        return False

    def instances(self, rows: Iterable[int]) -> list[Instance]:
        """Return the numbers that the relation connects in some rows."""
        return [self._make_instance(int(row)) for row in rows]

    def _make_instance(self, row: int) -> Instance:
        terms = []
        for factor, column, rows, (lows, highs) in self.shares:
            item = column.items[rows[row]] if rows[row] >= 0 else None
            if item:
                terms.append(Term(item, factor, float(lows[row]), float(highs[row])))
        low, high = (float(ends[row]) for ends in self.ends)
        slack = self.tolerance
        return Instance(
            self.relation,
            terms=tuple(terms),
            low=low - slack,
            high=high + slack,
            is_exact=not slack,
        )


def _compute_expected_range(column: Column) -> float:
    """Return the range in which a number of this column is expected, as a logarithm."""
    values = column.high[column.high > 0]
    if not len(values):
        return _SPREAD
    log_range = float(np.log(values.max() / values.min()))
    return min(_SPREAD, max(_MIN_RANGE, log_range))
