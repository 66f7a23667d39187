"""Try relations on the columns of a table, and believe those that explain most."""

import dataclasses
import functools
import itertools
import math
import operator
import re
from collections.abc import Iterable, Iterator, Sequence, Set

import numpy as np

from rnn_scaling.analysis.audit import baselines, readings
from rnn_scaling.analysis.audit.readings import PRIOR, Reading
from rnn_scaling.analysis.audit.relations import (
    CHANGES,
    GENERIC,
    RELATIONS,
    SAME_WORK,
    Relation,
)
from rnn_scaling.records.tables import headers
from rnn_scaling.records.tables.headers import CHOSEN, DERIVED, MEASURES, Quantity
from rnn_scaling.records.tables.measurements import (
    MOST_COLUMNS,
    Column,
    Measurements,
)

HEAD = 60  # rows of a long table in which relations are looked for
_MOST_BROKEN = 0.05  # of all rows; above that the first ones are no sample
_MOST_TRIED = 100  # ratios of one column
_MOST_SOURCES = 6  # columns of one quantity that are tried
_NEAREST = 10  # columns that are tried with another one
_MOST_NAMED = 3  # parts of a sum that are named
_CLOSE = 0.1  # natural logarithm: by which a row may miss a relation worth a look
_TOLERANT = readings.TOLERANCES[-1][0]
_LIKELY = (
    -2.0
)  # bits of a relation that is tried even if few rows fit: they may have slipped
_NARROW = 0.02  # range of a column that is as good as constant
_CLEAR = 10.0  # bits of a reading that leaves nothing to explain
_PREFERRED = 4.0  # bits by which a reading with a miss must be better than one without
_SAME_BASELINE = 6.0  # bits of a baseline that another column confirms
_UNLIKE = 3.0  # price of a ratio between unlike things
_NAMED = 4.0  # bits of a ratio whose header names both columns
_ONLY = 3.0  # bits of a speedup from the only two other columns
_SHARED_WORD = 2.0
_TOTAL = 2.0  # bits of a sum that its header announces
_MOST_EFFICIENT = 1.3  # of weak scaling
_WORD = re.compile(r"\w+")
_TWO_PARTS = re.compile(r"\s*(?:/|÷|\bvs\.?|\bover\b|\s(?:to|-|–|—|->|=>|→)\s)\s*")
# Quantities without totals.
_NO_PARTS = (
    *CHOSEN,
    Quantity.SPEEDUP,
    Quantity.EFFICIENCY,
    Quantity.CHANGE,
)


def believed(found: Measurements) -> list[Reading]:
    """Return the believed readings of every column, and of rows of totals."""
    head = first_rows(found)
    by_target = [list(stated(head, k, RELATIONS)) for k in range(len(head.columns))]
    every = itertools.chain.from_iterable(by_target)
    clear = [r for r in every if r.bits >= _CLEAR and not len(r.missed)]
    connected = {frozenset((r.target, k)) for r in clear for k in r.columns[1:]}
    explained = {reading.target for reading in clear}
    for target, tried in enumerate(by_target):
        if target not in explained:
            tried += _unstated(head, target, connected)
    # The baseline of a column without a miss is likely that of the others.
    clean = [
        [r for r in tried if r.rule and r.is_believed and not len(r.missed)]
        for tried in by_target
    ]
    best = [max(tried, key=lambda r: r.bits) for tried in clean if tried]
    confirmed = {(reading.grouping, reading.rule) for reading in best}
    kept = []
    for tried in by_target:
        kept += _best([r for r in tried if r.is_believed], confirmed)
    kept = _without_repeats(kept)
    if head is not found:
        kept = [one for one in (_on_all_rows(found, r) for r in kept) if one]
    return [*kept, *_totals(found)]


def first_rows(found: Measurements) -> Measurements:
    if len(found.lines) <= HEAD:
        return found
    columns = [dataclasses.replace(c, items=c.items[:HEAD]) for c in found.columns]
    return Measurements(
        found.table,
        tuple(columns),
        found.labels[:HEAD],
        found.lines[:HEAD],
        found.parts[:HEAD],
    )


def _on_all_rows(found: Measurements, reading: Reading) -> Reading | None:
    """Return a reading of the first rows for all; None if too many rows break it."""
    columns = [found.columns[k] for k in reading.columns]
    relation = reading.relation
    base = np.arange(len(found.lines))
    if relation.has_baseline:
        choice = (relation.shift, reading.grouping, reading.rule)
        base = baselines.chosen(found, columns[0], columns[1:], *choice)
    ends = readings.ends_of(found, relation, reading.columns, base)
    applied = dataclasses.replace(reading, found=found, base=base, ends=ends)
    most = max(HEAD, _MOST_BROKEN * len(applied.rows))
    return applied if len(applied.missed) <= most else None


def _best(tried: Sequence[Reading], confirmed: Set[tuple[str, str]]) -> list[Reading]:
    """Return the readings of one column that go together, the best first."""

    def rank(reading: Reading) -> float:
        is_confirmed = (reading.grouping, reading.rule) in confirmed
        return reading.bits + _SAME_BASELINE * is_confirmed

    ranked = sorted(tried, key=rank, reverse=True)
    if not ranked:
        return []
    best = ranked[0]
    missed = set(best.missed)
    close = [r for r in ranked if r.bits >= best.bits - _PREFERRED]
    close = [r for r in close if not len(r.missed) and not _is_part(r, best)]
    if missed and close:
        return close[:1]
    kept = [best]
    for reading in ranked[1:]:
        is_new = reading.relation.text not in [r.relation.text for r in kept]
        if is_new and set(reading.missed) <= missed and reading.bits >= best.bits / 2:
            kept.append(reading)
    # What the header states holds too, but for a fault.
    stated_ones = [r for r in ranked if not r.relation.is_generic and r.bits >= _CLEAR]
    if best.relation.is_generic:
        kept += [r for r in stated_ones if len(r.missed) == 1][:1]
    return kept


def _is_part(reading: Reading, whole: Reading) -> bool:
    """Return whether all that a reading compares holds in one that compares more."""
    if reading.columns != whole.columns or len(whole.rows) <= len(reading.rows):
        return False
    rows = reading.rows
    is_same = (reading.base[rows] == whole.base[rows]).all()
    return bool(is_same) and not set(rows) & set(whole.missed)


def _without_repeats(found: Sequence[Reading]) -> list[Reading]:
    """Return the readings; of generic ones of the same columns only the best.

    Of two columns that would be the same number, one with faults is another one
    ("efficiency vs ceiling").
    """
    clean = {
        (r.relation.text, r.columns[1:])
        for r in found
        if not len(r.missed) and r.relation.name != SAME_WORK
    }
    kept: list[Reading] = []
    for reading in sorted(found, key=_order):
        columns = set(reading.columns)
        is_repeated = any(columns <= set(other.columns) for other in kept)
        is_other = (reading.relation.text, reading.columns[1:]) in clean
        if len(reading.missed) and is_other:
            continue
        if not reading.relation.is_generic or not is_repeated:
            kept.append(reading)
    return kept


def _order(reading: Reading) -> tuple[bool, bool, float]:
    """Return a sort key: stated relations, and computed columns, come first."""
    is_measured = not reading.column.is_derived
    return reading.relation.is_generic, is_measured, -reading.bits


def stated(
    found: Measurements, target: int, relations: Iterable[Relation]
) -> Iterator[Reading]:
    """Yield the readings of the relations for the quantity of a column."""
    column = found.columns[target]
    is_clear = False
    for relation in relations:
        if relation.bits < 0 and is_clear:
            continue
        # An efficiency far above 1 was not divided by the devices.
        if relation.name == "weak efficiency" and (column.low > _MOST_EFFICIENT).any():
            continue
        for trial in trials(found, target, relation):
            for reading in _scored(trial):
                is_clear |= reading.bits >= _CLEAR and not len(reading.missed)
                yield reading


def trials(found: Measurements, target: int, relation: Relation) -> Iterator[Reading]:
    """Yield a relation for the quantity of a column, with all sources and baselines."""
    if relation.target == found.columns[target].quantity:
        for sources in itertools.product(*_sources(found, target, relation)):
            yield from _applied(found, relation, (target, *sources))


def _sources(
    found: Measurements, target: int, relation: Relation
) -> Iterator[list[int]]:
    """Yield the columns of each source: those that its header names, or else all."""
    wanted = _words(found.columns[target])
    for name in relation.sources:
        words = {
            k: _words(found.columns[k]) for k in found.find_columns(name) if k != target
        }
        common = set.intersection(*words.values()) if words else set()
        shared = {k: len(wanted & (own - common)) for k, own in words.items()}
        most = max(shared.values(), default=0)
        yield [k for k in shared if shared[k] == most][:_MOST_SOURCES]


def _words(column: Column) -> set[str]:
    return set(_WORD.findall(column.name.lower()))


def _applied(
    found: Measurements,
    relation: Relation,
    columns: tuple[int, ...],
    spread: float = 0.0,
) -> Iterator[Reading]:
    """Yield a relation of some columns with every baseline, without its evidence."""
    target, *sources = [found.columns[k] for k in columns]
    tried: Iterable[baselines.Choice]
    tried = [("", "", 0.0, np.arange(len(found.lines)))]
    if relation.has_baseline:
        tried = baselines.choices(found, target, sources, relation.shift)
    for grouping, rule, price, base in tried:
        ends = readings.ends_of(found, relation, columns, base)
        of_rule = (grouping, rule, price, spread)
        yield Reading(found, relation, columns, base, ends, *of_rule)


def _scored(trial: Reading) -> Iterator[Reading]:
    """Yield a reading with its evidence, unless it misses too many rows."""
    rows = trial.rows
    num_near = int(trial.holds(_CLOSE)[rows].sum())
    num_missed = len(rows) - int(trial.holds(_TOLERANT)[rows].sum())
    is_hopeless = trial.relation.bits < _LIKELY and 2 * num_near < len(rows)
    # A pattern may explain all rows of a column that is computed from others.
    is_hopeless |= num_missed > 1 and trial.is_guess and not trial.column.is_derived
    if len(rows) and not is_hopeless:
        yield readings.scored(trial)


def _unstated(
    found: Measurements, target: int, connected: Set[frozenset[int]]
) -> Iterator[Reading]:
    """Yield the readings of relations that no header states."""
    column = found.columns[target]
    if column.quantity in CHOSEN or column.is_exact or column.meaning.is_statistic:
        return
    if column.quantity != Quantity.ASIDE:
        yield from _ratios(found, target, connected)
    yield from _sums(found, target)


def _ratios(
    found: Measurements, target: int, connected: Set[frozenset[int]]
) -> Iterator[Reading]:
    """Yield a column as the ratio of two others, or in proportion to one."""
    column = found.columns[target]
    spread = 0.0
    if not column.is_derived:
        spread = min(_CLOSE, readings.inner_range(column))
        if spread < _NARROW:
            return
    usable = _explaining(found, target, connected)
    required = found.before_brackets(target)
    is_percent = column.factor == 0.01 and column.quantity != Quantity.EFFICIENCY
    may_change = column.quantity == Quantity.CHANGE or is_percent
    for relation in GENERIC if column.is_derived else GENERIC[:1]:
        tried = list(itertools.permutations(usable, len(relation.sources)))
        if required is not None:
            tried = [sources for sources in tried if required in sources]
        price = math.log2(max(1, len(tried) / 2))
        if len(tried) == 2 and column.quantity == Quantity.SPEEDUP:
            price = -_ONLY
        for sources in tried[:_MOST_TRIED]:
            named = [found.columns[k] for k in sources]
            if _is_impossible(column, named[0], relation):
                continue
            bits = _prior(column, named) - price
            for shift in CHANGES if may_change else CHANGES[:1]:
                name = _name(column, named, relation, shift)
                form = dataclasses.replace(relation, name=name, bits=bits, shift=shift)
                own = 0.0 if bits + price > 0 else spread
                for trial in _applied(found, form, (target, *sources), own):
                    yield from _scored(trial)


def _explaining(
    found: Measurements, target: int, connected: Set[frozenset[int]]
) -> list[int]:
    """Return the nearest columns that may explain another one."""
    column = found.columns[target]
    barred: tuple[Quantity, ...] = DERIVED if column.is_derived else ()
    if column.quantity == Quantity.EFFICIENCY:  # what its header states says more
        barred += MEASURES
    usable = []
    for k, source in enumerate(found.columns):
        is_known = frozenset((k, target)) in connected or k == target
        is_barred = source.quantity in barred or source.meaning.is_statistic
        if source.quantity == Quantity.ASIDE and not column.is_derived:
            is_barred = True
        is_same = np.isclose(source.middle, column.middle, rtol=1e-12)
        num_shared = int(np.isfinite(source.middle + column.middle).sum())
        is_copy = 2 * int(is_same.sum()) >= max(1, num_shared)
        if not (is_known or is_barred or is_copy):
            usable.append(k)
    return sorted(sorted(usable, key=lambda k: abs(k - target))[:_NEAREST])


def _name(
    column: Column,
    sources: Sequence[Column],
    relation: Relation,
    shift: tuple[float, int],
) -> str:
    """Return a generic relation with the names of columns, which may hold braces."""
    names = dict(zip(relation.sources, (source.name for source in sources)))
    names["target"] = column.name
    if shift[0]:
        names["target"] = f"1 {'+' if shift[1] > 0 else '-'} {column.name}"
    return re.sub(r"{(\w+)}", lambda match: names[match[1]], relation.name)


def _is_impossible(column: Column, source: Column, relation: Relation) -> bool:
    """Return whether a column cannot be proportional to another one.

    A speedup does not fall as a rate rises, nor rise with a time.
    """
    if not relation.has_baseline:
        return False
    falling = {Quantity.RATE: "target = a_0 / a", Quantity.SECONDS: "target = a / a_0"}
    is_speedup = column.quantity == Quantity.SPEEDUP
    is_falling = falling.get(source.quantity) == relation.text
    return source.quantity in CHOSEN or (is_speedup and is_falling)


def _prior(column: Column, sources: Sequence[Column]) -> float:
    """Return how many bits the header words give to a generic relation."""
    bits = 0.0 if column.is_derived else PRIOR
    words = column.meaning.words
    shared = functools.reduce(operator.xor, (one.meaning.words for one in sources))
    if words & shared:
        bits += _SHARED_WORD
    if len(sources) == 2:
        if _names_both(column, *sources):
            bits += _NAMED
        quantities = {source.quantity for source in sources} - {Quantity.UNKNOWN}
        if column.is_derived and len(quantities) > 1:
            bits -= _UNLIKE
    return bits


def _names_both(column: Column, first: Column, second: Column) -> bool:
    """Return whether a header says that it compares two columns.

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
    names = [_words(first), _words(second)]
    own = [names[0] - names[1], names[1] - names[0]]
    return any(
        parts[0] & one and parts[1] & other for one, other in (own, reversed(own))
    )


def _sums(found: Measurements, target: int) -> Iterator[Reading]:
    """Yield a column as the sum of others."""
    column = found.columns[target]
    spread = readings.inner_range(column)
    if column.quantity in _NO_PARTS or spread < _NARROW:
        return
    alike = []
    for k, part in enumerate(found.columns):
        is_alike = part.quantity in (column.quantity, Quantity.UNKNOWN)
        if k != target and is_alike and not headers.is_total(part.name):
            alike.append(k)
    before = [k for k in alike if k < target]
    tried = {tuple(alike), *itertools.combinations(alike[:_NEAREST], 2)}
    for size in range(3, len(alike)):
        tried |= {tuple(before[-size:]), tuple(alike[len(before) :][:size])}
    tried = {parts for parts in tried if len(parts) > 1}
    prior = _TOTAL if headers.is_total(column.name) else PRIOR
    for parts in sorted(tried):
        names = [found.columns[k].name for k in parts]
        formula = " + ".join(names)
        if len(names) > _MOST_NAMED:
            formula = f"sum of {len(names)} columns"
        bits = prior - math.log2(len(tried)) / 2
        name = f"{column.name} = {formula}"
        yield from _added(found, name, (target, *parts), bits, spread)


def _added(
    found: Measurements,
    name: str,
    columns: tuple[int, ...],
    bits: float,
    spread: float,
) -> Iterator[Reading]:
    """Yield a sum, the total first, if it is right roughly in a third of the rows."""
    text = " + ".join(f"part{k}" for k in range(1, len(columns)))
    relation = Relation(name, f"target = {text}", bits)
    (trial,) = _applied(found, relation, columns, spread)
    rows = trial.rows
    if len(rows) > 1 and 3 * int(trial.holds(_CLOSE)[rows].sum()) >= len(rows):
        yield readings.scored(trial)


def _totals(found: Measurements) -> Iterator[Reading]:
    """Yield the rows that are the sums of the rows above them.

    The rows become columns, so that a total is one more sum of columns.
    """
    added = [column for column in found.columns if column.quantity not in _NO_PARTS]
    for row, labels in enumerate(found.labels):
        first = found.parts.index(found.parts[row])
        is_total = any(map(headers.is_total, labels[:1]))
        if not is_total or not 2 <= row - first < MOST_COLUMNS:
            continue
        columns = []
        for k in (row, *range(first, row)):
            items = tuple(column.items[k] for column in added)
            meaning = headers.read("")
            columns.append(Column("", meaning, Quantity.UNKNOWN, 1.0, items))
        none = ((),) * len(added)
        same = (0,) * len(added)
        turned = Measurements(found.table, tuple(columns), none, same, same)
        numbers = tuple(range(len(columns)))
        for reading in _added(turned, "sum of the rows above", numbers, _TOTAL, 1.0):
            if 2 * len(reading.missed) <= len(reading.rows):
                yield reading
