"""Try relations on the columns of a table, and believe the best explanations.

`checking` asks which relations a table follows; `evidence` judges each.
"""

import dataclasses
import functools
import itertools
import math
import operator
import re
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from rnn_scaling.analysis.audit import baselines, evidence
from rnn_scaling.analysis.audit.baselines import Choice
from rnn_scaling.analysis.audit.readings import PRIOR, Reading
from rnn_scaling.analysis.audit.relations import (
    CHANGES,
    GENERIC,
    RELATIONS,
    Relation,
    Shift,
)
from rnn_scaling.records.tables import headers
from rnn_scaling.records.tables.headers import CHOSEN, DERIVED, MEASURES, Quantity
from rnn_scaling.records.tables.measurements import Column, Measurements

_MAX_HEAD_ROWS = 60  # rows of a long table in which relations are looked for
# Share of all rows. If more are broken, the first rows do not represent the table.
_MAX_BROKEN = 0.05
_MAX_RATIOS = 100  # tried for one column
_MAX_SOURCES = 6  # columns of one quantity that are tried
_MAX_NEIGHBOURS = 10  # nearest columns that are combined with a column
# Natural logarithm of the factor by which a row may miss a relation worth a look.
_MAX_LOG_ERROR = 0.1
# Bits of a relation that is tried even if few rows fit, because numbers may be wrong.
_MIN_BITS = -2.0
_MAX_RELATIVE_RANGE = 0.02  # range of a column that is as good as constant
_NAMED = 4.0  # bits of a ratio whose header names both columns
_ONLY = 3.0  # bits of a speedup from the only two other columns
_SHARED_WORD = 2.0
_WORD = re.compile(r"\w+")
_TWO_PARTS = re.compile(r"\s*(?:/|÷|\bvs\.?|\bover\b|\s(?:to|-|–|—|->|=>|→)\s)\s*")


def choose_readings(layout: Measurements) -> list[Reading]:
    """Return the believed readings of the columns."""
    head = select_first_rows(layout)
    by_target = [
        list(propose_stated(head, k, RELATIONS)) for k in range(len(head.columns))
    ]
    selected = []
    for target, readings in enumerate(by_target):
        if not any(reading.is_clear for reading in readings):
            readings += _propose_unstated_relations(head, target)
        selected += _select_agreeing_readings(filter(evidence.is_believed, readings))
    # If a relation computes the same numbers for two columns, and only one has faults,
    # that column is something else, such as "efficiency vs ceiling".
    clean = {
        _list_relation_sources(reading) for reading in selected if reading.is_clean
    }
    believed = []
    for reading in selected:
        if reading.is_clean or _list_relation_sources(reading) not in clean:
            believed.append(_extend_to_all_rows(layout, reading))
    return list(filter(None, believed))


def _list_relation_sources(reading: Reading) -> tuple[str, tuple[int, ...]]:
    return reading.relation.text, reading.columns[1:]


def _select_agreeing_readings(believed: Iterable[Reading]) -> list[Reading]:
    """Return the best reading of a column, and others that blame no other rows."""
    ranked = sorted(believed, key=lambda reading: -reading.bits)
    chosen_readings: dict[str, Reading] = {}
    explained_columns: set[int] = set()
    for reading in ranked:
        # Two rows are believed with less than no bits, because of their headers.
        is_likely = reading is ranked[0] or reading.bits >= ranked[0].bits / 2
        is_likely &= set(reading.missed) <= set(ranked[0].missed)
        is_repeated = reading.relation.is_generic and explained_columns >= set(
            reading.columns
        )
        if is_likely and not is_repeated:
            chosen_readings.setdefault(reading.relation.text, reading)
            explained_columns |= set(reading.columns)
    return list(chosen_readings.values())


def select_first_rows(layout: Measurements) -> Measurements:
    """Return the rows of a long table that show how it is made."""
    if len(layout.lines) <= _MAX_HEAD_ROWS:
        return layout
    columns = [
        dataclasses.replace(c, items=c.items[:_MAX_HEAD_ROWS]) for c in layout.columns
    ]
    return dataclasses.replace(
        layout,
        columns=tuple(columns),
        labels=layout.labels[:_MAX_HEAD_ROWS],
        lines=layout.lines[:_MAX_HEAD_ROWS],
    )


def _extend_to_all_rows(layout: Measurements, reading: Reading) -> Reading | None:
    """Return a reading of the first rows for all; None if too many rows break it."""
    if reading.layout is layout:
        return reading
    choice = baselines.choose_again(layout, reading.columns, reading.choice)
    extended_reading = dataclasses.replace(reading, layout=layout, choice=choice)
    max_missed = max(_MAX_HEAD_ROWS, _MAX_BROKEN * len(extended_reading.rows))
    return extended_reading if len(extended_reading.missed) <= max_missed else None


def propose_stated(
    layout: Measurements, target: int, relations: Iterable[Relation]
) -> Iterator[Reading]:
    """Yield the readings of the relations for the quantity of a column."""
    is_clear = False
    for relation in relations:
        if relation.bits >= 0 or not is_clear:
            for reading in filter(
                _may_hold, _propose_readings(layout, target, relation)
            ):
                judged_reading = evidence.judge(reading)
                is_clear |= judged_reading.is_clear
                yield judged_reading


def _propose_readings(
    layout: Measurements, target: int, relation: Relation
) -> Iterator[Reading]:
    """Yield a relation for the quantity of a column, with all sources and baselines."""
    if relation.target == layout.columns[target].quantity:
        sources = [
            _find_source_columns(layout, target, name) for name in relation.sources
        ]
        for columns in itertools.product(*sources):
            yield from _apply_relation(layout, relation, (target, *columns))


def _find_source_columns(layout: Measurements, target: int, quantity: str) -> list[int]:
    """Return the columns of a quantity, or only the ones that the target names."""
    indices = [k for k in layout.find_columns(quantity) if k != target]
    words: dict[int, set[str]] = {
        k: _list_header_words(layout.columns[k]) for k in indices
    }
    if not words:
        return []
    common = functools.reduce(operator.and_, words.values())
    target_words = _list_header_words(layout.columns[target]) - common
    highest = max(len(target_words & words[k]) for k in words)
    return [k for k in words if len(target_words & words[k]) == highest][:_MAX_SOURCES]


def _list_header_words(column: Column) -> set[str]:
    return set(_WORD.findall(column.name.lower()))


def _apply_relation(
    layout: Measurements,
    relation: Relation,
    columns: tuple[int, ...],
    spread: float = 0.0,
) -> Iterator[Reading]:
    """Yield a relation of some columns with every baseline, without its evidence."""
    choices: Iterable[Choice] = [Choice(np.arange(len(layout.lines)))]
    if relation.has_baseline:
        if any(layout.columns[k].meaning.is_end for k in columns):
            return
        choices = baselines.list_choices(layout, columns, relation.shift)
    for choice in choices:
        yield Reading(layout, relation, columns, choice, spread)


def _may_hold(reading: Reading) -> bool:
    """Return whether a reading does not miss so many rows that it has no evidence."""
    num_rows = len(reading.rows)
    is_likely = reading.relation.bits >= _MIN_BITS
    is_near = 2 * len(reading.find_missed(_MAX_LOG_ERROR)) <= num_rows
    return num_rows > 0 and (is_likely or is_near)


def _propose_unstated_relations(layout: Measurements, target: int) -> Iterator[Reading]:
    """Yield the readings of relations that no header states."""
    column = layout.columns[target]
    excluded = (*CHOSEN, Quantity.ASIDE)
    meaning = column.meaning
    is_statistic = meaning.is_statistic or meaning.is_end
    if column.quantity in excluded or column.is_exact or is_statistic:
        return
    readings = _propose_ratios(layout, target)
    yield from map(evidence.judge, filter(_may_hold, readings))


def _propose_ratios(layout: Measurements, target: int) -> Iterator[Reading]:
    """Yield a column as the ratio of two others, or in proportion to one."""
    column = layout.columns[target]
    spread = 0.0
    if not column.is_derived:
        spread = min(_MAX_LOG_ERROR, column.inner_range)
        if spread < _MAX_RELATIVE_RANGE:
            return
    excluded = DERIVED if column.is_derived else (Quantity.ASIDE,)
    usable = []
    for k, source in enumerate(layout.columns):
        is_excluded = source.quantity in excluded or source.meaning.is_statistic
        if k != target and not is_excluded and not source.meaning.is_end:
            usable.append(k)
    usable = sorted(sorted(usable, key=lambda k: abs(k - target))[:_MAX_NEIGHBOURS])
    is_percent = column.factor == 0.01 and column.quantity != Quantity.EFFICIENCY
    may_change = column.quantity == Quantity.CHANGE or is_percent
    for relation in GENERIC if column.is_derived else GENERIC[:1]:
        column_tuples = list(itertools.permutations(usable, len(relation.sources)))
        price = math.log2(max(1, len(column_tuples) / 2))
        if len(column_tuples) == 2 and column.quantity == Quantity.SPEEDUP:
            price = -_ONLY
        for source_columns in column_tuples[:_MAX_RATIOS]:
            sources = [layout.columns[k] for k in source_columns]
            prior = _count_header_bits(column, sources)
            for shift in CHANGES if may_change else CHANGES[:1]:
                named = dataclasses.replace(
                    relation,
                    name=_name(column, sources, relation, shift),
                    bits=prior - price,
                    shift=shift,
                )
                columns = (target, *source_columns)
                yield from _apply_relation(
                    layout, named, columns, 0 if prior > 0 else spread
                )


def _name(
    column: Column, sources: Sequence[Column], relation: Relation, shift: Shift
) -> str:
    """Return a generic relation with the names of columns, which may hold braces."""
    names = dict(zip(relation.sources, (source.name for source in sources)))
    names["target"] = column.name
    if shift[0]:
        names["target"] = f"1 {'+' if shift[1] > 0 else '-'} {column.name}"
    return re.sub(r"{(\w+)}", lambda match: names[match[1]], relation.name)


def _count_header_bits(column: Column, sources: Sequence[Column]) -> float:
    """Return how many bits the header words give to a generic relation."""
    bits = 0.0 if column.is_derived else PRIOR
    words = [source.meaning.words for source in sources]
    if column.meaning.words & functools.reduce(operator.xor, words):
        bits += _SHARED_WORD
    if len(sources) == 2 and _does_header_name_both(column, *sources):
        bits += _NAMED
    return bits


def _does_header_name_both(column: Column, first: Column, second: Column) -> bool:
    """Return whether a header compares two columns.

    It names both ("old / new", "TF32 to mixed"), or one of them is called a baseline.
    """
    is_first = headers.is_baseline(first.name)
    is_second = headers.is_baseline(second.name)
    is_comparison = column.quantity in (Quantity.SPEEDUP, Quantity.CHANGE)
    measures = {first.quantity, second.quantity}
    if is_comparison and is_first != is_second and measures <= set(MEASURES):
        return True
    parts = [set(_WORD.findall(part)) for part in _TWO_PARTS.split(column.name.lower())]
    if len(parts) != 2:
        return False
    only_first = _list_header_words(first) - _list_header_words(second)
    only_second = _list_header_words(second) - _list_header_words(first)
    left, right = parts
    is_in_order = left & only_first and right & only_second
    return bool(is_in_order or (left & only_second and right & only_first))
