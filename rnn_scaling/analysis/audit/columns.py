"""Find columns whose values are not what their headings say."""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np

from rnn_scaling.analysis.audit import candidates, readings
from rnn_scaling.analysis.audit.readings import LEAST, Reading
from rnn_scaling.analysis.audit.relations import MISTAKES, RELATIONS
from rnn_scaling.records.tables.headers import Quantity
from rnn_scaling.records.tables.measurements import Measurements

_OWN = (Quantity.SPEEDUP, Quantity.EFFICIENCY)
_MOST_TARGETS = 8  # columns that are exchanged
_FEWEST = 2  # rows that must confirm each column of a swap
_CERTAIN = 8.0  # bits of a mistake of a whole column
_EXPLICIT = 4.0  # prior bits of a relation that the header words state
_MOST_BROKEN = 0.6  # of the rows, above which a column does not follow from others
_SPEEDUP = re.compile(r"sp(?:eed)?[-. ]{0,2}up")
Swap = tuple[Reading, Reading]  # of both columns, as they hold without the swap


def swapped(found: Measurements) -> Iterator[Swap]:
    """Yield the pairs of columns whose headings are swapped, each column once.

    Speedups and efficiencies follow from the rates or times of a table. If those of
    two columns follow from each other's and not from their own, the headings are
    swapped.
    """
    found = candidates.first_rows(found)
    targets = [k for quantity in _OWN for k in found.find_columns(quantity)]
    targets = [k for k in targets if not _holds(found, k)]
    seen: set[int] = set()
    for pair in itertools.combinations(targets[:_MOST_TARGETS], 2):
        if seen.isdisjoint(pair):
            exchanged = _exchanged(found, *pair)
            first, second = (_clean(exchanged, k) for k in pair)
            if first and second:
                seen |= set(pair)
                yield first, second


def _exchanged(found: Measurements, first: int, second: int) -> Measurements:
    """Return measurements in which the numbers of two columns are exchanged."""
    columns = list(found.columns)
    one = columns[first]
    other = columns[second]
    columns[first] = dataclasses.replace(one, items=other.items, factor=other.factor)
    columns[second] = dataclasses.replace(other, items=one.items, factor=one.factor)
    return dataclasses.replace(found, columns=tuple(columns))


def _informative(reading: Reading) -> np.ndarray:
    rows = reading.rows
    return rows[reading.gains(0.0)[rows] > 0]


def _trials(found: Measurements, target: int) -> Iterator[Reading]:
    for relation in RELATIONS:
        if relation.name not in ("scaling", "weak efficiency"):
            yield from candidates.trials(found, target, relation)


def _holds(found: Measurements, target: int) -> bool:
    """Return whether half of the rows follow from what the heading says."""
    for trial in _trials(found, target):
        rows = _informative(trial)
        if 2 * np.count_nonzero(trial.holds(0.0)[rows]) >= len(rows) > 0:
            return True
    return False


def _clean(found: Measurements, target: int) -> Reading | None:
    """Return the best reading that misses no row."""
    clean = []
    for trial in _trials(found, target):
        is_clean = trial.holds(0.0)[trial.rows].all()
        if is_clean and len(_informative(trial)) >= _FEWEST:
            clean.append(readings.scored(trial))
    clean = [reading for reading in clean if reading.bits >= LEAST]
    return max(clean, key=lambda reading: reading.bits, default=None)


def mistakes(found: Measurements, believed: Sequence[Reading]) -> Iterator[Reading]:
    """Yield what is wrong with whole columns; the relation's name says what."""
    found = candidates.first_rows(found)
    clean = [reading for reading in believed if not len(reading.missed)]
    right = {r.target for r in clean if r.relation.name != "scaling"}
    speedups = set(found.find_columns(Quantity.SPEEDUP))
    for target in speedups - right:
        if right & speedups or not _SPEEDUP.search(found.columns[target].name.lower()):
            continue  # "Speedup Ratio" beside a speedup, or "Weak scaling"
        tried = list(candidates.stated(found, target, MISTAKES))
        tried = [r for r in tried if r.bits >= _CERTAIN and not len(r.missed)]
        if tried:
            yield max(tried, key=lambda reading: reading.bits)
    yield from _contradictions(found, believed)


def _contradictions(
    found: Measurements, believed: Sequence[Reading]
) -> Iterator[Reading]:
    """Yield columns that follow from confirmed ones only by their header."""
    confirmed = {reading.target for reading in believed}
    confirmed |= set(found.find_columns(Quantity.DEVICES))
    for target in (
        *found.find_columns(Quantity.EFFICIENCY),
        *found.find_columns(Quantity.SPEEDUP),
    ):
        name = found.columns[target].name
        is_bound = any(_names(name, found.columns[k].name) for k in confirmed)
        if target in confirmed or is_bound:  # "speedup_low"
            continue
        for reading in candidates.stated(found, target, RELATIONS):
            is_due = reading.relation.bits >= _EXPLICIT
            is_due &= set(reading.columns[1:]) <= confirmed and not reading.is_repaired
            num_rows = len(reading.rows)
            is_broken = len(reading.missed) > _MOST_BROKEN * num_rows
            if is_due and num_rows > 2 and is_broken and _has_its_baseline(reading):
                yield reading
                break


def _has_its_baseline(reading: Reading) -> bool:
    """Return whether the rows that others are compared with print 1.

    If they do not, the numbers may be relative to rows outside of the table.
    """
    if not reading.rule:
        return True
    column = reading.column
    firsts = np.setdiff1d(np.flatnonzero(~np.isnan(column.low)), reading.rows)
    return len(firsts) > 0 and bool(readings.prints_one(column)[firsts].all())


def _names(header: str, label: str) -> bool:
    """Return whether a header has all words of a name."""
    words = re.findall(r"[a-z0-9]+", label.lower().partition("(")[0])
    is_name = len(words) > 0 and len(label) > 1 and not label.isdigit()
    return is_name and set(words) <= set(re.findall(r"[a-z0-9]+", header.lower()))
