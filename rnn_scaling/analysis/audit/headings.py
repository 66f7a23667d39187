"""Find columns whose values contradict their headings.

`checking` asks after the numbers of the table were judged.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Sequence

import numpy as np

from rnn_scaling.analysis.audit import candidates
from rnn_scaling.analysis.audit.baselines import does_print_one
from rnn_scaling.analysis.audit.readings import MIN_BITS, Reading
from rnn_scaling.analysis.audit.relations import MISTAKES, RELATIONS
from rnn_scaling.records.tables.headers import Quantity
from rnn_scaling.records.tables.measurements import Measurements

_MAX_TARGETS = 8  # columns that are exchanged
_MIN_ROWS = 2  # rows that must confirm each column of a swap
_CERTAIN = 8.0  # bits of a mistake of a whole column
_EXPLICIT = 4.0  # prior bits of a relation that the header words state
# Share of broken rows. If more are broken, a column does not follow from others.
_MAX_BROKEN = 0.6
_UNCERTAIN = ("scaling", "weak efficiency")  # other readings of an unclear header
_SPEEDUP = re.compile(r"sp(?:eed)?[-. ]{0,2}up")
Swap = tuple[Reading, Reading]  # the readings of both columns without the swap


def _list_target_columns(layout: Measurements) -> list[int]:
    speedups = layout.find_columns(Quantity.SPEEDUP)
    return speedups + layout.find_columns(Quantity.EFFICIENCY)


def find_swapped(layout: Measurements) -> Iterator[Swap]:
    """Yield the pairs of columns whose headings are swapped, each column once.

    Speedups and efficiencies follow from the rates or times of a table. If the numbers
    of two columns fit only to each other's headings, the headings are swapped.
    """
    layout = candidates.select_first_rows(layout)
    targets = [k for k in _list_target_columns(layout) if not _find_clean(layout, k)]
    swapped_columns: set[int] = set()  # columns of the swaps so far
    for pair in itertools.combinations(targets[:_MAX_TARGETS], 2):
        if swapped_columns.isdisjoint(pair):
            exchanged = _exchange_columns(layout, *pair)
            first, second = (_find_clean(exchanged, k) for k in pair)
            if first and second:
                swapped_columns |= set(pair)
                yield first, second


def _exchange_columns(layout: Measurements, first: int, second: int) -> Measurements:
    """Return measurements in which the numbers of two columns are exchanged."""
    columns = list(layout.columns)
    for k, source in ((first, second), (second, first)):
        numbers = layout.columns[source]
        columns[k] = dataclasses.replace(
            layout.columns[k], items=numbers.items, factor=numbers.factor
        )
    return dataclasses.replace(layout, columns=tuple(columns))


def _find_clean(layout: Measurements, target: int) -> Reading | None:
    """Return a reading that all rows of a column satisfy, and several confirm."""
    for reading in candidates.propose_stated(layout, target, RELATIONS):
        is_certain = reading.bits >= MIN_BITS and reading.is_clean
        if is_certain and reading.relation.name not in _UNCERTAIN:
            gains = reading.gains(reading.tolerance)[reading.rows]
            if np.count_nonzero(gains) >= _MIN_ROWS:
                return reading
    return None


def find_mistakes(
    layout: Measurements, accepted_readings: Sequence[Reading]
) -> Iterator[Reading]:
    """Yield readings of wrong columns; the relation has the name of the mistake.

    A column may contain another quantity than its header names, or break the relation
    that its header states in most rows.

    Args:
      layout: The measurements.
      accepted_readings: The readings of columns that the audit has accepted.
    """
    layout = candidates.select_first_rows(layout)
    confirmed = {reading.target for reading in accepted_readings}
    uncertain = set()
    for reading in accepted_readings:
        if reading.relation.name in _UNCERTAIN:
            uncertain.add(reading.target)
    confirmed |= set(layout.find_columns(Quantity.DEVICES))
    names = [layout.columns[k].name for k in confirmed - uncertain]
    speedups = set(layout.find_columns(Quantity.SPEEDUP))
    has_speedup = not speedups.isdisjoint(confirmed - uncertain)
    for target in _list_target_columns(layout):
        title = layout.columns[target].name
        if title in names or layout.columns[target].meaning.is_end:
            continue
        mistakes = []
        # The header is not "Weak scaling", and there is no other speedup.
        if _SPEEDUP.search(title.lower()) and not has_speedup:
            for reading in candidates.propose_stated(layout, target, MISTAKES):
                # A speedup of 1 is its own inverse.
                is_one = does_print_one(reading.column)[reading.rows]
                if reading.bits >= _CERTAIN and reading.is_clean and not is_one.all():
                    mistakes.append(reading)
        if target not in confirmed and not mistakes:
            tried = candidates.propose_stated(layout, target, RELATIONS)
            mistakes += [reading for reading in tried if _is_broken(reading, confirmed)]
        yield from mistakes[:1]


def _is_broken(reading: Reading, confirmed: set[int]) -> bool:
    """Return whether a column contradicts confirmed columns by its header.

    The rows that others are compared with must print 1. If they do not, the numbers may
    be relative to rows outside of the table.
    """
    column = reading.column
    is_stated = reading.relation.bits >= _EXPLICIT
    is_stated &= confirmed.issuperset(reading.columns[1:])
    num_rows = len(reading.rows)
    is_broken = num_rows > 2 and len(reading.missed) > _MAX_BROKEN * num_rows
    firsts = np.setdiff1d(np.flatnonzero(~np.isnan(column.low)), reading.rows)
    has_one = len(firsts) > 0 and bool(does_print_one(column)[firsts].all())
    return is_stated and is_broken and (has_one or not reading.choice.rule)
