"""A reading: one relation applied to the rows of a table, and the evidence for it.

Evidence is counted in bits. A number that is predicted to within 1 % would be there by
chance about once in a hundred tables: 6 bits. A number that is missed costs MISS bits,
about what it costs to name the cell in a finding. A reading is judged after the
smallest repair of what it misses.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from rnn_scaling.analysis.audit import repairs, slips
from rnn_scaling.analysis.audit.instances import Instance, Term
from rnn_scaling.analysis.audit.relations import (
    NO_SHIFT,
    SAME_WORK,
    Factor,
    Relation,
    Shift,
)
from rnn_scaling.records.tables.measurements import SMALLEST, Column, Measurements

LEAST = 4.0  # bits of a believed reading, which fits by accident once in 16 columns
_LEAST_OF_WORK = 7.0  # and of one with faults between rows of the same work
MISS = 6.0
_MOST_BITS = 10.0
# Tolerances for numbers that were computed from unprinted ones, and their prices.
TOLERANCES = ((0.0, 0.0), (0.01, 3.0), (0.03, 5.0))
_EXACT = 1e-9  # of the arithmetic
_SPREAD = 1.0  # natural logarithm of the range in which a number is expected, at most
_NARROWEST = 0.25  # smallest range of a column: one of equal numbers proves little
_TRIVIAL = 2.0  # times the rounding of a sum, below which a part proves nothing
_FAR = 0.1  # relative: by which the only number of a table must miss its relation
_MOST_MISSED = 0.25  # of the rows, unless one repair explains all of them
_FEW = 2  # misses of a relation that is not certain: an exchange
_GUESS = 1.5  # bits of a relation with a baseline that many tables break
PRIOR = -4.0  # bits of a relation that no header states
_MOST_REPAIRED = 16  # missed rows for which a common repair is looked for
_MOST_BASELINES = 20  # rows that are tried as another baseline
_PATTERN_BITS = MISS + 2.0  # price of a fault of several rows
_FACTORS = (100.0, 0.01, 10.0, 0.1, 1e3, 1e-3)  # of a wrong decimal point or unit
_NEAR_ONE = 0.05  # natural logarithm: closer to 1 a number is nearly its inverse
# Kinds of faults of several rows.
SHIFTED = "shifted"
OTHER_BASELINE = "other-baseline"
PATTERNS = (
    SHIFTED,
    OTHER_BASELINE,
    *("inverse", "not-divided", "per-device", "scaled"),
)

Ends = tuple[np.ndarray, np.ndarray]  # lower and upper bounds by row


@functools.lru_cache(maxsize=256)
def _ends(column: Column, shift: Shift, is_log: bool) -> Ends:
    """Return the bounds of shift + sign * number, or of its logarithm, by row."""
    by, sign = shift
    low, high = (by + sign * column.low, by + sign * column.high)[::sign]
    if not is_log:
        return low, high
    low = np.where(high > 0, np.maximum(low, SMALLEST), np.nan)
    return np.log(low), np.log(np.where(high > 0, high, np.nan))


def prints_one(column: Column, shift: Shift = NO_SHIFT) -> np.ndarray:
    """Return by row whether a number is printed as 1 or 100 %, or as no change."""
    one = shift[1] * (1.0 - shift[0])
    # The bounds allow numbers that were cut off, too.
    rounded = column.low + 2 / 3 * (column.high - column.low)
    return (column.low <= one) & (one <= rounded + _EXACT)


def inner_range(column: Column, shift: Shift = NO_SHIFT) -> float:
    """Return log(second largest / second smallest) of shift + sign * number."""
    values = shift[0] + shift[1] * column.middle
    values = np.sort(values[values > 0])
    if len(values) > 4:
        values = values[1:-1]
    return min(_SPREAD, float(np.log(values[-1] / values[0]))) if len(values) else 0.0


def ends_of(
    found: Measurements,
    relation: Relation,
    columns: Sequence[int],
    base: np.ndarray,
    is_one: bool = False,
) -> Ends:
    """Return the bounds of what must be 0, see Reading.

    Args:
      found: The table.
      relation: The relation.
      columns: Those of its target and sources.
      base: The baseline row of each row.
      is_one: Whether the baselines count as 1, even if they print another number.
    """
    parts = list(_parts(found, relation, columns, base))
    if relation.has_baseline and not is_one:
        parts.append(_printed_baseline(found.columns[columns[0]], relation, base))
    low = np.sum([low for low, _ in parts], axis=0)
    high = np.sum([high for _, high in parts], axis=0)
    if relation.is_sum:
        sizes = _sizes(found, columns)
        return low / sizes, high / sizes
    if relation.has_baseline:
        low = np.where(base == np.arange(len(base)), np.nan, low)
    return low, high


def _factors(
    relation: Relation, columns: Sequence[int]
) -> Iterator[tuple[Factor, int, Shift]]:
    """Yield every factor of a relation, its column, and how the numbers count."""
    names = (relation.target, *relation.sources)
    for factor in relation.factors:
        is_target = factor.name == relation.target
        shift = relation.shift if is_target else NO_SHIFT
        yield factor, columns[names.index(factor.name)], shift


def _parts(
    found: Measurements, relation: Relation, columns: Sequence[int], base: np.ndarray
) -> Iterator[Ends]:
    """Yield the bounds of every factor of a relation."""
    for factor, k, shift in _factors(relation, columns):
        low, high = _ends(found.columns[k], shift, not relation.is_sum)
        if factor.is_baseline:
            low = np.where(base < 0, np.nan, low[base])
            high = np.where(base < 0, np.nan, high[base])
        yield (low, high) if factor.exponent > 0 else (-high, -low)


def _printed_baseline(column: Column, relation: Relation, base: np.ndarray) -> Ends:
    """Return the bounds of the target of the baselines, unless they print 1.

    The baseline of the baseline may be outside of the table.
    """
    low, high = _ends(column, relation.shift, True)
    is_one = (prints_one(column, relation.shift) | np.isnan(low))[base]
    return np.where(is_one, 0.0, -high[base]), np.where(is_one, 0.0, -low[base])


def _sizes(found: Measurements, columns: Sequence[int]) -> np.ndarray:
    """Return what the error of a sum is compared with, by row."""
    ends = [_ends(found.columns[k], NO_SHIFT, False) for k in columns]
    sizes = [np.maximum(np.abs(low), np.abs(high)) for low, high in ends]
    largest = np.max(sizes, axis=0)
    return np.where(largest > 0, largest, 1.0)


@dataclasses.dataclass(frozen=True, eq=False)
class Reading:
    """A relation of a target column, applied to rows."""

    found: Measurements
    relation: Relation
    columns: tuple[int, ...]  # the target and the sources of the relation
    base: np.ndarray  # the baseline row of each row; -1 if it has none
    # Bounds, by row, of what must be 0; NaN for rows that are not compared. They are
    # relative to the numbers.
    ends: Ends
    grouping: str = ""  # how the baselines were chosen, see baselines.py
    rule: str = ""
    price: float = 0.0  # bits of that choice
    spread: float = 0.0  # range of the target, if not that of its column
    tolerance: float = 0.0
    bits: float = 0.0
    pattern: str = ""  # of PATTERNS, if one explains all that is missed
    is_repaired: bool = False  # whether one change explains all that is missed

    @property
    def target(self) -> int:
        return self.columns[0]

    @property
    def column(self) -> Column:
        """The target column."""
        return self.found.columns[self.columns[0]]

    @property
    def rows(self) -> np.ndarray:
        """The rows that are compared."""
        return np.flatnonzero(~np.isnan(self.ends[0] + self.ends[1]))

    def holds(self, tolerance: float, ends: Ends | None = None) -> np.ndarray:
        """Return by row whether the relation holds."""
        low, high = ends or self.ends
        return (low - tolerance <= _EXACT) & (high + tolerance >= -_EXACT)

    @property
    def missed(self) -> np.ndarray:
        """The rows in which the relation does not hold."""
        return self.rows[~self.holds(self.tolerance)[self.rows]]

    def gains(self, tolerance: float, ends: Ends | None = None) -> np.ndarray:
        """Return by row what a number proves that falls into bounds of this width."""
        low, high = ends or self.ends
        spread = np.asarray(self.spread or _spread(self.column))
        width = np.maximum(high - low + 2 * tolerance, _EXACT)
        if self.relation.is_generic and self.relation.has_baseline:
            # A number like the baseline proves nothing.
            logs = np.mean(_ends(self.column, self.relation.shift, True), axis=0)
            distance = 2.0 * np.abs(logs - logs[self.base])
            distance = np.where(np.isnan(distance), _SPREAD, distance)
            spread = np.minimum(spread, np.maximum(distance, _EXACT))
        bits = np.clip(-np.log2(width / spread), 0.0, _MOST_BITS)
        if self.relation.is_sum:  # which may hold without a small part
            parts = [abs(self.found.columns[k].middle) for k in self.columns]
            sizes = _sizes(self.found, self.columns)
            is_trivial = np.min(parts, axis=0) < _TRIVIAL * width * sizes
            bits = np.where(is_trivial, 0.0, bits)
        return bits

    def instances(self, rows: Iterable[int]) -> list[Instance]:
        """Return the numbers that the relation connects in some rows."""
        return [self._instance(int(row)) for row in rows]

    def _instance(self, row: int) -> Instance:
        relation = self.relation
        base = int(self.base[row])
        terms = []
        for factor, k, shift in _factors(relation, self.columns):
            item = self.found.columns[k].items[base if factor.is_baseline else row]
            if item:
                terms.append(Term(item, factor.exponent, *shift))
        first = self.column.items[base]
        if relation.has_baseline and first:
            low = relation.shift[0] + relation.shift[1] * first.high
            if low > 0 and not prints_one(self.column, relation.shift)[base]:
                terms.append(Term(first, -1, *relation.shift))
        return Instance(relation, row, tuple(terms), self.tolerance)

    def devices(self, row: int) -> float:
        """Return the number of devices of a row; 1 if it is unknown."""
        item = self.found.devices.items[row] if self.found.devices else None
        return item.low if item else 1.0

    @functools.cached_property
    def is_guess(self) -> bool:
        """Whether many tables break the relation, so that few misses prove nothing."""
        if self.relation.is_generic:
            return self.relation.bits <= PRIOR
        return self.relation.has_baseline and self.relation.bits <= _GUESS

    @property
    def is_believed(self) -> bool:
        """Whether the evidence suffices.

        Two rows give none; there the header words and a baseline of 1 must do.
        """
        num_rows = len(self.rows)
        num_missed = len(self.missed)
        if num_rows == 1 and self.bits < LEAST:
            is_stated = self.relation.sources == ("rate",) and self.rule == "devices"
            is_far = not self.holds(_FAR)[self.rows].any()
            if num_missed:
                return is_stated and is_far
            return not self.relation.is_generic
        is_work = self.relation.name == SAME_WORK
        least = _LEAST_OF_WORK if is_work and num_missed else LEAST
        if not num_rows or self.bits < least or self.pattern:
            return bool(num_rows and self.pattern) and self.bits >= LEAST
        if is_work:
            return num_missed <= _FEW
        if self.is_guess:
            return num_missed <= 1
        return self.is_repaired or num_missed <= max(2, _MOST_MISSED * num_rows)


def _spread(column: Column) -> float:
    values = column.high[column.high > 0]
    if not len(values):
        return _SPREAD
    inside = float(np.log(values.max() / values.min()))
    return min(_SPREAD, max(_NARROWEST, inside))


def scored(reading: Reading) -> Reading:
    """Return the reading with its bits, at the tolerance that gives most."""
    best = None
    for tolerance, cost in TOLERANCES:
        tried = dataclasses.replace(reading, tolerance=tolerance)
        for judged in _judged(tried):
            if best is None or judged.bits - cost > best.bits:
                best = dataclasses.replace(judged, bits=judged.bits - cost)
    assert best
    prior = reading.relation.bits - reading.price
    return dataclasses.replace(best, bits=best.bits + prior)


def _judged(reading: Reading) -> Iterator[Reading]:
    """Yield the reading with its bits as it is, and after the repairs of its misses."""
    tolerance = reading.tolerance
    gains = reading.gains(tolerance)
    missed = reading.missed
    num_missed = len(missed)
    held = float(gains[np.setdiff1d(reading.rows, missed)].sum())
    bits = held - MISS * num_missed
    regained = float(gains[missed].sum()) + held - MISS
    if num_missed == 1:
        bits += _slip_bits(reading, int(missed[0]), float(gains[missed[0]]))
    if num_missed == 2:
        bits += MISS  # they may be exchanged
    yield dataclasses.replace(reading, bits=bits)
    if not 1 < num_missed <= _MOST_REPAIRED:
        return
    # One change repairs two rows, or all that have one baseline.
    is_shared = num_missed == 2 or len(set(reading.base[missed])) == 1
    if not tolerance and regained > bits and is_shared:
        for fault in repairs.faults(reading.instances(reading.rows), slack=0.0):
            if len(fault.broken) < num_missed:
                break
            if fault.changes[0].kind == "number":  # one row determines the number
                regained -= float(gains[missed].max())
            yield dataclasses.replace(reading, bits=regained, is_repaired=True)
    relation = reading.relation
    if is_shared and relation.has_baseline and not relation.is_generic:
        # The baseline must be 1, and prints another number.
        of_all = reading.found, relation, reading.columns, reading.base
        ends = ends_of(*of_all, is_one=True)
        explained = reading.rows[reading.holds(tolerance, ends)[reading.rows]]
        num_wrong = 1 + len(reading.rows) - len(explained)
        bits = float(reading.gains(tolerance, ends)[explained].sum())
        bits -= MISS * num_wrong
        yield dataclasses.replace(reading, bits=bits, is_repaired=True)
    is_proportion = relation.is_generic and relation.has_baseline
    if not reading.column.is_derived or relation.is_sum or is_proportion:
        return
    for kind, ends in _patterns(reading, missed):
        explained = missed[reading.holds(tolerance, ends)[missed]]
        if len(explained) >= max(2, num_missed - (kind == SHIFTED)):
            price = _PATTERN_BITS + math.log2(len(reading.rows))
            bits = held + float(reading.gains(tolerance, ends)[explained].sum()) - price
            yield dataclasses.replace(reading, bits=bits, pattern=kind)


def _slip_bits(reading: Reading, row: int, gain: float) -> float:
    """Return what a missed number gives back if a slip explains it."""
    (instance,) = reading.instances([row])
    found = []
    for k, term in enumerate(instance.terms):
        column = None if k else reading.column
        bounds = instance.fits(term.item.place)
        slip = slips.cheapest(term.item, bounds, reading.devices(row), column)
        if slip:
            found.append(slip.bits)
    price = min(found, default=math.inf) + math.log2(len(instance.terms))
    return max(0.0, MISS + gain - price)


def _patterns(reading: Reading, missed: np.ndarray) -> Iterator[tuple[str, Ends]]:
    """Yield the kinds of faults of several rows, and the bounds without the fault."""
    relation = reading.relation
    own = np.array(_ends(reading.column, relation.shift, True))
    devices = np.array([reading.devices(row) for row in range(len(reading.base))])
    logs = np.log(np.maximum(devices, 1.0))
    moved = []  # what the target would be
    is_run = missed[-1] - missed[0] <= len(missed)
    if is_run and len({number.text for number in reading.column.numbers}) > 2:
        moved += [(SHIFTED, np.roll(own, step, axis=1)) for step in (1, -1)]
    if np.max(np.abs(own[:, missed])) > _NEAR_ONE:
        moved.append(("inverse", -own[::-1]))
    if np.all(devices[missed] > 1) and len(set(devices)) > 1:
        is_efficiency = relation.target == "efficiency"
        kind = "not-divided" if is_efficiency else "per-device"
        moved += [(kind, own - logs), ("per-device", own + logs)]
    moved += [("scaled", own + math.log(factor)) for factor in _FACTORS]
    for kind, target in moved:
        low, high = reading.ends - own + target
        yield kind, (low, high)
    if relation.has_baseline:
        for row in np.setdiff1d(reading.rows, missed)[:_MOST_BASELINES]:
            base = np.full_like(reading.base, row)
            of_all = reading.found, relation, reading.columns, base
            yield OTHER_BASELINE, ends_of(*of_all, is_one=True)
