"""Rows of a long table that need a closer look: those that break a relation, and those of the same series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import numpy as np

from rnn_scaling.audit import groups
from rnn_scaling.audit.relations import Relation
from rnn_scaling.audit.tables import Column

MOST_SIBLINGS = 60  # rows of a broken row's series
MOST_BROKEN = 0.05  # of all rows, above which the first rows are no sample of the others
_SMALLEST = 1e-300


def broken_rows(
    relation: Relation, columns: Mapping[str, Column], baselines: Mapping[int, int], tolerance: float
) -> set[int]:
    """Rows in which a product does not hold. columns: by quantity."""
    target = columns[relation.target]
    rows = np.fromiter(baselines.keys(), int, len(baselines))
    firsts = np.fromiter(baselines.values(), int, len(baselines))
    low, high = np.full(len(rows), -tolerance - 1e-9), np.full(len(rows), tolerance + 1e-9)
    is_printed = np.array([item is not None and not groups.is_one(item, relation.shift) for item in target.items])
    for name, exponent in relation.factors:
        quantity = name.removesuffix("0")
        a, b = _logs(columns[quantity], *(relation.shift if quantity == relation.target else (0.0, 1)), exponent)
        at = firsts if name.endswith("0") else rows
        low, high = low + a[at], high + b[at]
        if relation.has_baseline and name == relation.target:  # over the printed number of the baseline, unless it is 1
            low -= np.where(is_printed, b, 0.0)[firsts]
            high -= np.where(is_printed, a, 0.0)[firsts]
    is_broken = (low > 0) | (high < 0)
    if relation.has_baseline:
        is_broken &= rows != firsts
    return set(rows[is_broken].tolist())


def siblings(broken: Set[int], baselines: Mapping[int, int]) -> set[int]:
    """Rows with the same baseline as a broken one, at most MOST_SIBLINGS of each."""
    left = dict.fromkeys((baselines[row] for row in broken), MOST_SIBLINGS)
    found = set()
    for row, baseline in baselines.items() if left else ():
        if left.get(baseline, 0):
            left[baseline] -= 1
            found.add(row)
    return found


def broken_sums(target: Column, parts: Sequence[Column], tolerance: float) -> set[int]:
    """Rows in which a sum does not hold."""
    low, high = target.ends
    size = np.maximum(np.abs(low), np.abs(high))
    for part in parts:
        a, b = (np.where(np.isnan(ends), 0.0, ends) for ends in part.ends)
        low, high, size = low - b, high - a, np.maximum(size, np.maximum(np.abs(a), np.abs(b)))
    return set(np.flatnonzero((low > tolerance * size) | (high < -tolerance * size)).tolist())


def _logs(column: Column, shift: float, sign: int, exponent: int) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of exponent x log(shift + sign * number); NaN, which compares as false, without a number above 0."""
    lows, highs = column.ends
    lows = np.where(highs > 0, lows, np.nan)
    ends = np.sort([shift + sign * lows, shift + sign * highs], axis=0)
    a, b = exponent * np.log(np.maximum(ends, _SMALLEST))
    return (a, b) if exponent > 0 else (b, a)
