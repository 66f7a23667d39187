"""Candidate readings of a column: relations that its header names, and relations of any columns."""

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set

import numpy as np

from rnn_scaling.analysis.audit import groups, headers, scoring, sums
from rnn_scaling.analysis.audit.instances import MISS, Instance, Product, Term
from rnn_scaling.analysis.audit.relations import (
    CHANGES,
    GENERIC,
    RELATIONS,
    Relation,
    Shift,
)
from rnn_scaling.analysis.audit.scoring import CLOSE, TOLERANCES, Reading, scored
from rnn_scaling.analysis.audit.sums import COUNTS, NEAREST
from rnn_scaling.analysis.audit.tables import DERIVED, Column, Item, Ref, View, logs_of

MOST_SOURCES = 6  # columns of one quantity that are tried
_MOST_RATIOS = 20  # that are tried even if few rows fit: a column may have slipped
MOST_INSTANCES = 30_000  # of a table, about, that generic relations make
FEWEST_READ = 12  # readings of a column that are worked out in any table
_WORD = re.compile(r"\w+")
_REPLACED = re.compile(r" (?:to|-|–|—|->|=>|→) ")
MEASURES = ("rate", "each", "seconds", "speedup")
CLEAR = 10.0  # bits of a reading that leaves nothing to explain
_SAME = 0.002  # by which neighbours differ that prove something (natural logarithm)
_MOST_EFFICIENT = 1.3  # of weak scaling
_NAMED = 4.0  # bits of a ratio whose header names both columns
_ONLY = 3.0  # bits of a speedup from the only two other columns
_MOST_TOLERANCE = max(tolerance for tolerance, _ in TOLERANCES)
_IS_PRINTED = 1.5  # bits if the baseline row prints 1, and price if it does not


Trial = tuple[
    float, Callable[[], Reading]
]  # bits that a reading promises, and what works it out


def of_all(view: View) -> list[list[Reading]]:
    """The candidates of every column. Columns that a stated relation connects well are not tried with others."""
    by_target = [
        list(stated(view, target, RELATIONS)) for target in range(len(view.columns))
    ]
    clear = [
        r for tried in by_target for r in tried if r.bits >= CLEAR and not r.missed
    ]
    connected = {frozenset((r.target, source)) for r in clear for source in r.sources}
    explained = {reading.target for reading in clear}
    for target, tried in enumerate(by_target):
        if target not in explained:
            tried += unstated(view, target, connected)
    return by_target


def unstated(
    view: View, target: int, connected: Set[frozenset[int]]
) -> Iterator[Reading]:
    """Readings of relations that no header states, except between columns that others connect."""
    column = view.columns[target]
    if (
        column.quantity not in COUNTS
        and not column.is_exact
        and not column.meaning.is_statistic
    ):
        yield from _generic(view, target, column, connected)
    if column.quantity not in (*DERIVED, *COUNTS):
        yield from sums.of_columns(view, target, column)
    yield from sums.running(view, target, column)


def stated(view: View, target: int, relations: Sequence[Relation]) -> Iterator[Reading]:
    """Readings of the relations for the quantity of a column."""
    is_clear = False
    for relation in relations:
        if relation.target != view.columns[target].quantity or not _is_possible(
            view.columns[target], relation
        ):
            continue
        if relation.bits >= 0 or not is_clear:
            assignments = _assignments(view, target, relation)
            trials = itertools.chain.from_iterable(
                _trials(view, target, relation, columns) for columns in assignments
            )
            for reading in _read(view, trials):
                is_clear |= reading.bits >= CLEAR and not reading.missed
                yield reading


def with_sources(
    view: View, target: int, relation: Relation, sources: tuple[int, ...]
) -> Iterator[Reading]:
    """Return the readings of a relation whose source columns are given."""
    return _read(view, _trials(view, target, relation, sources))


def _is_possible(column: Column, relation: Relation) -> bool:
    """Return whether a relation can be what a column's header says.

    An efficiency far above 1 is not one of weak scaling: it was not divided by the
    devices.
    """
    return relation.name != "weak efficiency" or all(
        not item or item.low < _MOST_EFFICIENT for item in column.items
    )


def _assignments(
    view: View, target: int, relation: Relation
) -> Iterator[tuple[int, ...]]:
    """Columns for the sources of a relation; if some share a word with the target, only those."""
    words = view.columns[target].meaning.words
    choices = []
    for name in relation.sources:
        columns = [k for k in view.of(name) if k != target]
        alike = [k for k in columns if words & view.columns[k].meaning.words]
        choices.append((alike or columns)[:MOST_SOURCES])
    yield from itertools.product(*choices)


def _trials(
    view: View,
    target: int,
    relation: Relation,
    sources: tuple[int, ...],
    spread: float = 0.0,
) -> Iterator[Trial]:
    """The relation with every grouping and baseline, without those that miss too many rows."""
    column = view.columns[target]
    columns = [view.columns[k] for k in sources]
    named = {relation.target: column, **dict(zip(relation.sources, columns))}
    most = (
        math.inf if column.is_derived else scoring.most_missed(relation)
    )  # a pattern may explain all
    tried: Iterable[tuple[str, str, dict[int, int]]] = [("", "", same_rows(view))]
    if relation.has_baseline:
        tried = (
            (grouping, rule, baselines)
            for grouping, parts in groups.groupings(view).items()
            for rule, baselines in groups.baselines(
                view, column, columns, parts, relation.shift
            ).items()
        )
    for grouping, rule, baselines in tried:
        num_broken = len(
            groups.broken_rows(relation, named, baselines, _MOST_TOLERANCE)
        )
        if num_broken <= most:
            price = _price(column, rule, baselines, relation) if rule else 0.0
            reading = Reading(relation, target, sources, (), 0.0, grouping, rule)
            promised = relation.bits - price - MISS * num_broken
            yield (
                promised,
                functools.partial(_worked_out, view, reading, baselines, price, spread),
            )


def _worked_out(
    view: View,
    reading: Reading,
    baselines: Mapping[int, int],
    price: float,
    spread: float,
) -> Reading:
    instances = products(
        view, reading.target, reading.relation, reading.sources, baselines
    )
    return scored(
        view.columns[reading.target],
        dataclasses.replace(reading, instances=instances),
        price,
        spread,
    )


def _price(
    column: Column, rule: str, baselines: Mapping[int, int], relation: Relation
) -> float:
    """Bits of the rule that chooses the baselines: less if these print 1."""
    firsts = [item for row in set(baselines.values()) if (item := column.items[row])]
    is_one = all(groups.is_one(item, relation.shift) for item in firsts)
    is_known = firsts and (column.quantity in DERIVED or is_one)
    return groups.RULES[rule] + (
        0.0 if not is_known else -_IS_PRINTED if is_one else _IS_PRINTED
    )


def _read(view: View, trials: Iterable[Trial]) -> Iterator[Reading]:
    """Readings of the trials; of many trials of a large table only those that promise most."""
    trials = list(trials)
    most = max(FEWEST_READ, MOST_INSTANCES // (len(view.columns) * len(view.lines)))
    chosen = sorted(range(len(trials)), key=lambda k: -trials[k][0])[:most]
    return (trials[k][1]() for k in sorted(chosen))


def same_rows(view: View) -> dict[int, int]:
    """Every row as its own baseline: of relations without one."""
    return {row: row for row in range(len(view.lines))}


def products(
    view: View,
    target: int,
    relation: Relation,
    sources: Sequence[int],
    baselines: Mapping[int, int],
) -> tuple[Instance, ...]:
    """A product for every row that has all numbers."""
    columns = {relation.target: view.columns[target]}
    columns |= {name: view.columns[k] for name, k in zip(relation.sources, sources)}
    devices = next((view.columns[k] for k in view.of("devices")), None)
    found = []
    for row, baseline in baselines.items():
        factors = relation.factors
        if relation.has_baseline and row != baseline:
            factors = (
                *factors,
                *_printed_baseline(columns[relation.target].items[baseline], relation),
            )
        terms = _terms(columns, relation, factors, row, baseline)
        if len(terms) > 1:
            count = devices.items[row] if devices else None
            found.append(
                Product.of(
                    relation, tuple(terms.values()), row, count.low if count else 1.0
                )
            )
    return tuple(found)


def _terms(
    columns: Mapping[str, Column],
    relation: Relation,
    factors: Sequence[tuple[str, int]],
    row: int,
    baseline: int,
) -> dict[Ref, Term]:
    """The numbers of one instance; none if one is missing, without those that cancel."""
    terms: dict[Ref, Term] = {}
    for name, exponent in factors:
        item = columns[name.removesuffix("0")].items[
            baseline if name.endswith("0") else row
        ]
        shift, sign = (
            relation.shift if name.removesuffix("0") == relation.target else (0.0, 1)
        )
        if item is None or shift + sign * (item.low if sign > 0 else item.high) <= 0:
            return {}
        before = terms.pop(item.ref, None)
        exponent += before.exponent if before else 0
        if exponent:
            terms[item.ref] = Term(item, exponent, shift, sign)
    return terms


def _printed_baseline(
    item: Item | None, relation: Relation
) -> tuple[tuple[str, int], ...]:
    """The target of the baseline row as a factor, unless it is 1: its own baseline may be outside of the table."""
    is_one = item is None or groups.is_one(item, relation.shift)
    return (
        ()
        if is_one or (item and item.low <= 0 and not relation.shift[0])
        else ((f"{relation.target}0", -1),)
    )


def _generic(
    view: View, target: int, column: Column, connected: Set[frozenset[int]]
) -> Iterator[Reading]:
    """A column as the ratio or product of others, relative to a row, or in proportion to others."""
    spread = 0.0 if column.is_derived else min(CLOSE, scoring.inner_range(column))
    if not column.is_derived and spread < scoring.NARROW:
        return
    sources = _sources(view, target, column, connected)
    trials: list[Trial] = []
    for relation in GENERIC:
        usable = [
            k
            for k in sources
            if not relation.has_baseline or view.columns[k].quantity not in COUNTS
        ]
        for columns, form, prior in _forms(
            view, column, usable, relation, view.before_brackets(target)
        ):
            inner = scoring.inner_range(column, form.shift) if form.shift[0] else spread
            if inner > scoring.NARROW or not form.shift[0]:
                trials += _trials(
                    view, target, form, columns, inner if prior < 0 else 0.0
                )
    yield from _read(view, trials)


def _sources(
    view: View, target: int, column: Column, connected: Set[frozenset[int]]
) -> list[int]:
    """The nearest columns that may explain another one."""
    barred: set[str] = set(DERIVED) if column.is_derived else set()
    if column.quantity == "efficiency":  # what its header states says more
        barred |= set(MEASURES)
    found = [
        k for k, source in enumerate(view.columns) if k != target
        and source.quantity not in barred and sum(map(bool, source.items)) > 1
        and frozenset((k, target)) not in connected and not _is_copy(column, source)
        and not source.meaning.is_statistic
    ]  # fmt: skip
    return sorted(sorted(found, key=lambda k: abs(k - target))[:NEAREST])


def _forms(
    view: View,
    column: Column,
    sources: Sequence[int],
    relation: Relation,
    required: int | None = None,
) -> Iterator[tuple[tuple[int, ...], Relation, float]]:
    """(columns, relation of these, its prior bits) of all that fit roughly, and have column `required` if given."""
    choices = (
        itertools.combinations if relation.is_symmetric else itertools.permutations
    )
    chosen = [
        columns
        for columns in choices(sources, len(relation.sources))
        if required is None or required in columns
    ]
    price = math.log2(max(1, len(chosen) / 2))
    if (
        column.quantity == "speedup"
        and relation.text == "target = a / b"
        and len(chosen) == 2
    ):
        price = -_ONLY  # of the only two columns
    may_change = column.quantity == "change" or (
        column.quantity in ("", "share", "speedup") and column.factor == 0.01
    )
    is_sure = (
        column.is_derived
        and relation.text == "target = a / b"
        and len(chosen) <= _MOST_RATIOS
    )
    for columns in chosen:
        named = [view.columns[k] for k in columns]
        if column.quantity == "speedup" and _is_inverse(relation, named):
            continue
        prior = _prior(column, named, relation)
        for shift in CHANGES if may_change else CHANGES[:1]:
            if is_sure or _is_close(view, column, named, relation, shift):
                yield (
                    columns,
                    _form(column, named, relation, prior - price, shift),
                    prior,
                )


def _form(
    column: Column,
    sources: Sequence[Column],
    relation: Relation,
    bits: float,
    shift: Shift,
) -> Relation:
    """A generic relation with the names of columns, which may hold braces."""
    names = dict(zip(relation.sources, (source.name for source in sources)))
    names["target"] = (
        f"1 {'+' if shift[1] > 0 else '-'} {column.name}" if shift[0] else column.name
    )
    name = re.sub(r"{(\w+)}", lambda match: names[match[1]], relation.name)
    return dataclasses.replace(relation, name=name, bits=bits, shift=shift)


def _is_copy(column: Column, source: Column) -> bool:
    """Whether half of the numbers are those of another column."""
    pairs = [
        (a.number.text, b.number.text)
        for a, b in zip(column.items, source.items)
        if a and b
    ]
    return 2 * sum(a == b for a, b in pairs) >= max(1, len(pairs))


def _is_inverse(relation: Relation, sources: Sequence[Column]) -> bool:
    """Whether a speedup would fall as a rate rises, or rise with a time."""
    exponents = {
        name: exponent for name, exponent in relation.factors if not name.endswith("0")
    }
    signs = {
        (column.quantity, exponents[name])
        for name, column in zip(relation.sources, sources)
    }
    return relation.has_baseline and not signs.isdisjoint(
        {("rate", 1), ("seconds", -1)}
    )


def _prior(column: Column, sources: Sequence[Column], relation: Relation) -> float:
    """How much the header words speak for a relation."""
    words, quantities = column.meaning.words, {source.quantity for source in sources}
    is_aside = column.quantity == "aside" or (
        not column.is_derived and "aside" in quantities
    )
    bits = (
        scoring.FAR_FETCHED if is_aside else 0.0 if column.is_derived else scoring.PRIOR
    )
    if len(sources) == 2:
        a, b = sources
        bits += 2.0 if words & (a.meaning.words ^ b.meaning.words) else 0.0
        bits += (
            _NAMED
            if relation.text == "target = a / b" and _is_stated(column, a, b)
            else 0.0
        )
        if column.is_derived and len(quantities - {""}) > 1:
            bits -= 3.0
    elif words & sources[0].meaning.words:
        bits += 2.0
    return bits


def _is_stated(column: Column, a: Column, b: Column) -> bool:
    """Whether headers say that a column is a / b: it names both, or only one of them is called a baseline."""
    compared, baseline = (
        (b, a) if column.quantity == "speedup" and a.quantity == "seconds" else (a, b)
    )
    is_compared = column.quantity in ("speedup", "change") and {
        a.quantity,
        b.quantity,
    } <= {"seconds", "rate"}
    is_known = headers.is_baseline(baseline.name) and not headers.is_baseline(
        compared.name
    )
    is_named = _names_both(column.name, a, b) or _names_change(column, a, b)
    return (is_compared and is_known) or is_named


def _names_both(name: str, a: Column, b: Column) -> bool:
    """Whether a header reads "a / b" or "a vs b"."""
    parts = re.split(r"\s*(?:/|÷|\bvs\.?|\bover\b)\s*", name.lower())
    words = [set(_WORD.findall(part)) for part in parts]
    others = [set(_WORD.findall(column.name.lower())) for column in (a, b)]
    return len(parts) == 2 and all(
        word and word & column_words - same
        for word, column_words, same in zip(words, others, reversed(others))
    )


def _names_change(column: Column, a: Column, b: Column) -> bool:
    """Return whether a header names what was replaced and by what: "TF32 to mixed".

    The ratio a / b is the new rate over the old one, or the old time over the new one.
    """
    if column.quantity != "speedup" or a.quantity != b.quantity:
        return False
    parts = _REPLACED.split(column.name.lower())
    if len(parts) != 2 or a.quantity not in ("rate", "each", "seconds"):
        return False
    old, new = (a, b) if a.quantity == "seconds" else (b, a)
    old_words = set(_WORD.findall(old.name.lower()))
    new_words = set(_WORD.findall(new.name.lower()))
    before, after = (set(_WORD.findall(part)) for part in parts)
    return bool(before & (old_words - new_words) and after & (new_words - old_words))


def _is_close(
    view: View,
    column: Column,
    sources: Sequence[Column],
    relation: Relation,
    shift: Shift,
) -> bool:
    """Whether half of the rows fit roughly; if there is a baseline, whether a third of the steps between rows do."""
    exponents = {
        name: exponent for name, exponent in relation.factors if not name.endswith("0")
    }
    target = logs_of(shift[0] + shift[1] * column.middle) if shift[0] else column.logs
    constant = target + sum(
        exponents[name] * source.logs for name, source in zip(relation.sources, sources)
    )
    compared = np.flatnonzero(~np.isnan(constant))
    target, constant, part = (
        target[compared],
        constant[compared],
        view.part_of[compared],
    )
    if not relation.has_baseline:
        return bool(2 * np.count_nonzero(np.abs(constant) < CLOSE) >= len(compared) > 0)
    is_step = (part[1:] == part[:-1]) & (np.abs(target[1:] - target[:-1]) > _SAME)
    steps = np.abs(constant[1:] - constant[:-1])[is_step]
    return bool(3 * np.count_nonzero(steps < CLOSE) >= len(steps) > 0)
