"""Weigh the evidence for a reading.

Evidence is counted in bits. A number that is predicted to within 1 % would occur by
chance about once in a hundred tables, which is 6 bits. A number that is missed costs
MISS bits, about as much as the name of the cell in a finding. A reading is judged by
the cheapest explanation of all numbers that it misses: each is wrong by itself, or one
number of their baseline is wrong.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from rnn_scaling.analysis.audit import slips
from rnn_scaling.analysis.audit.readings import MIN_BITS, Reading

_MISS = 6.0
# Tolerances for numbers that were computed from unprinted ones, and their prices.
_TOLERANCES = ((0.0, 0.0), (0.01, 3.0))
# Relative difference by which the only computed number of a table must miss.
_MIN_RELATIVE_MISS = 0.1
_PAIR = 2  # misses that often have one cause, such as exchanged numbers
_MAX_CHANGES = 0.25  # share of the rows that may be changed
_MAX_REPAIRED = 16  # missed rows for which a common explanation is looked for


class _Explanation(NamedTuple):
    """An explanation of the missed rows, with the bits that the reading then has."""

    bits: float
    tolerance: float
    num_changes: int = 1  # changes that explain all


def judge(reading: Reading) -> Reading:
    """Return the reading with its bits, by the best explanation of its misses."""
    best = max(_explain_misses(reading), key=lambda explanation: explanation.bits)
    prior = reading.relation.bits - reading.choice.price
    return dataclasses.replace(
        reading,
        bits=best.bits + prior,
        tolerance=best.tolerance,
        num_changes=best.num_changes,
    )


def _explain_misses(reading: Reading) -> Iterator[_Explanation]:
    for tolerance, price in _TOLERANCES:
        gains = reading.gains(tolerance)
        missed = reading.find_missed(tolerance)
        gained = float(gains[np.setdiff1d(reading.rows, missed)].sum()) - price
        bits = gained - _MISS * len(missed)
        if len(missed) == 1:
            bits += _count_slip_bits(reading, int(missed[0]), float(gains[missed[0]]))
        if len(missed) == _PAIR:
            bits += _MISS
        yield _Explanation(bits, tolerance, len(missed))
        if not 1 < len(missed) <= _MAX_REPAIRED:
            continue
        for bits in _count_bits_after_change(reading, missed, tolerance):
            yield _Explanation(bits - price, tolerance)


def _count_slip_bits(reading: Reading, row: int, gain: float) -> float:
    """Return the bits that a missed number gives back if a slip explains it."""
    (instance,) = reading.instances([row])
    devices = float(reading.layout.device_counts[row])
    prices = []
    for term in instance.terms:
        bounds = instance.fits(term.item.position)
        slip = slips.find_cheapest(term.item, bounds, devices)
        if slip:
            prices.append(slip[0])
    price = min(prices, default=math.inf) + math.log2(len(instance.terms))
    return max(0.0, _MISS + gain - price)


def _count_bits_after_change(
    reading: Reading, missed: np.ndarray, tolerance: float
) -> Iterator[float]:
    """Yield the bits of all rows after a change of a number of their one baseline."""
    bases = set(reading.base[missed])
    if not reading.relation.has_baseline or len(bases) > 1:
        return
    (base,) = bases
    rows = reading.rows[reading.base[reading.rows] == base]
    # The baseline of the target counts as 1, although it is printed differently.
    ends = reading.without(reading.shares[-1][3])
    explained_rows = rows[reading.holds(tolerance, ends)[rows]]
    if not reading.relation.is_generic:
        gained = float(reading.gains(tolerance, ends)[explained_rows].sum())
        yield gained - _MISS * (1 + len(rows) - len(explained_rows))
    low, high = reading.ends
    error = np.median(low[rows] + high[rows]) / 2
    if reading.holds(tolerance, (low - error, high - error))[rows].all():
        # One row determines the number.
        gains = reading.gains(tolerance)[reading.rows]
        yield float(gains.sum() - gains.max()) - _MISS


def is_believed(reading: Reading) -> bool:
    """Return whether the evidence suffices.

    Two rows, of which one is the baseline, give no evidence, so that the header words
    and a baseline of 1 must suffice.
    """
    if reading.bits < MIN_BITS and len(reading.rows) < 2:
        if reading.is_clean:
            return not reading.relation.is_generic
        is_stated = (
            reading.relation.sources == ("rate",) and reading.choice.rule == "devices"
        )
        return is_stated and not reading.holds(_MIN_RELATIVE_MISS)[reading.rows].any()
    most_changes = max(2, _MAX_CHANGES * len(reading.rows))
    # A measured number follows from no other, unless its header says so.
    is_guess = reading.relation.bits < 0 and not reading.column.is_derived
    if is_guess and len(reading.missed) > 1:
        return False
    return reading.bits >= MIN_BITS and reading.num_changes <= most_changes
