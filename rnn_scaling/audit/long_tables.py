"""Rows of a long table that need a closer look: those that break a relation, and those of the same series."""

from collections.abc import Mapping, Sequence, Set

import numpy as np

from rnn_scaling.audit.groups import is_one
from rnn_scaling.audit.relations import Relation
from rnn_scaling.audit.tables import SMALLEST, Column, logs_of

MOST_SIBLINGS = 60  # rows of a broken row's series
MOST_BROKEN = 0.05  # of all rows, above which the first rows are no sample of the others


def broken_rows(
    relation: Relation, columns: Mapping[str, Column], baselines: Mapping[int, int], tolerance: float
) -> set[int]:
    """Rows in which a product does not hold. columns: by quantity."""
    target, (shift, sign) = columns[relation.target], relation.shift
    rows = np.fromiter(baselines.keys(), int, len(baselines))
    firsts = np.fromiter(baselines.values(), int, len(baselines))
    low, high = np.full(len(rows), -tolerance - 1e-9), np.full(len(rows), tolerance + 1e-9)
    for name, exponent in relation.factors:
        quantity = name.removesuffix("0")
        a, b = columns[quantity].log_bounds
        if quantity == relation.target and relation.shift != (0.0, 1):
            bounds = (target.low, target.high)[::sign]
            a, b = (logs_of(np.maximum(shift + sign * bound, SMALLEST)) for bound in bounds)
        at = firsts if name.endswith("0") else rows
        low, high = (low + a[at], high + b[at]) if exponent > 0 else (low - b[at], high - a[at])
        if relation.has_baseline and name == relation.target:  # over the printed number of the baseline, unless it is 1
            is_printed = ~np.isnan(a) & ~is_one(target, relation.shift)
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
    low, high = target.low, target.high
    size = np.maximum(np.abs(low), np.abs(high))
    for part in parts:
        a, b = np.nan_to_num(part.low), np.nan_to_num(part.high)
        low, high, size = low - b, high - a, np.maximum(size, np.maximum(np.abs(a), np.abs(b)))
    return set(np.flatnonzero((low > tolerance * size) | (high < -tolerance * size)).tolist())
