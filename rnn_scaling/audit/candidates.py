"""Candidate readings of a column: relations that its header names, and relations of any columns."""

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

import numpy as np

from rnn_scaling.audit import groups, headers, long_tables
from rnn_scaling.audit.instances import MISS, Instance, Product, Sum, Term
from rnn_scaling.audit.relations import CHANGES, CUMULATIVE, GENERIC, RELATIONS, SUM, Relation
from rnn_scaling.audit.scoring import TOLERANCES, Reading, most_missed, scored
from rnn_scaling.audit.tables import DERIVED, Column, Item, Ref, View, logs_of

MOST_SOURCES = 6  # columns of one quantity that are tried
MOST_NAMED = 3  # parts of a sum that are named
NEAREST = 10  # columns that are tried as sources of any other, the nearest ones
_MOST_RATIOS = 20  # that are tried even if few rows fit: a column may have slipped
_MOST_INSTANCES = 30_000  # of a table, about, that generic relations make
_FEWEST_READ = 12  # readings of a column that are worked out in any table
_WORD = re.compile(r"\w+")
COUNTS = ("devices", "batch", "global_batch", "setting", "epochs")
MEASURES = ("rate", "each", "seconds", "speedup")
CLEAR = 10.0  # bits of a reading that leaves nothing to explain
_CLOSE = 0.1  # by which a row may miss a relation that is worth a closer look (natural logarithm)
_SAME = 0.002  # by which neighbours differ that prove something (natural logarithm)
_NARROW = 0.02  # range of a column that is as good as constant
_MOST_EFFICIENT = 1.3  # of weak scaling
_PRIOR, _FAR_FETCHED = -4.0, -8.0  # bits of a relation that no header states, and of one between unlike things
_NAMED = 4.0  # bits of a ratio whose header names both columns
_ONLY = 3.0  # bits of a speedup from the only two other columns
_MOST_TOLERANCE = max(tolerance for tolerance, _ in TOLERANCES)
_IS_PRINTED = 1.5  # bits if the baseline row prints 1, and price if it does not


@dataclasses.dataclass(frozen=True)
class Trial:
    """A reading that is not worked out yet. price: of its baseline, in bits; num_broken: rows that it misses."""

    reading: Reading
    baselines: Mapping[int, int]
    num_broken: int
    price: float
    spread: float


def of_all(view: View) -> list[list[Reading]]:
    """The candidates of every column. Columns that a stated relation connects well are not tried with others."""
    by_target = [list(stated(view, target, RELATIONS)) for target in range(len(view.columns))]
    clear = [r for tried in by_target for r in tried if r.bits >= CLEAR and not r.missed]
    connected = {frozenset((r.target, source)) for r in clear for source in r.sources}
    explained = {reading.target for reading in clear}
    for target, tried in enumerate(by_target):
        if target not in explained:
            tried += unstated(view, target, connected)
    return by_target


def candidates(view: View, target: int) -> Iterator[Reading]:
    """Readings of every relation that may hold in a column, with their bits."""
    yield from stated(view, target, RELATIONS)
    yield from unstated(view, target, set())


def unstated(view: View, target: int, connected: Set[frozenset[int]]) -> Iterator[Reading]:
    """Readings of relations that no header states, except between columns that others connect."""
    column = view.columns[target]
    if column.quantity not in COUNTS and not column.is_exact and not column.meaning.is_statistic:
        yield from _generic(view, target, column, connected)
    if column.quantity not in (*DERIVED, *COUNTS):
        yield from _sums(view, target, column)
    yield from _along(view, target, column)


def stated(view: View, target: int, relations: Sequence[Relation]) -> Iterator[Reading]:
    """Readings of the relations for the quantity of a column."""
    is_clear = False
    for relation in relations:
        if relation.target != view.columns[target].quantity or not _is_possible(view.columns[target], relation):
            continue
        if relation.bits >= 0 or not is_clear:
            assignments = _assignments(view, target, relation)
            trials = itertools.chain.from_iterable(_trials(view, target, relation, columns) for columns in assignments)
            for reading in _read(view, trials):
                is_clear |= reading.bits >= CLEAR and not reading.missed
                yield reading


def _is_possible(column: Column, relation: Relation) -> bool:
    """An efficiency far above 1 is none of weak scaling: it was not divided by the devices."""
    return relation.name != "weak efficiency" or all(not item or item.low < _MOST_EFFICIENT for item in column.items)


def _assignments(view: View, target: int, relation: Relation) -> Iterator[tuple[int, ...]]:
    """Columns for the sources of a relation; if some share a word with the target, only those."""
    words = view.columns[target].meaning.words
    choices = []
    for name in relation.sources:
        columns = [k for k in view.of(name) if k != target]
        alike = [k for k in columns if words & view.columns[k].meaning.words]
        choices.append((alike or columns)[:MOST_SOURCES])
    yield from itertools.product(*choices)


def _trials(
    view: View, target: int, relation: Relation, sources: tuple[int, ...], spread: float = 0.0
) -> Iterator[Trial]:
    """The relation with every grouping and baseline, without those that miss too many rows."""
    column = view.columns[target]
    columns = [view.columns[k] for k in sources]
    named = {relation.target: column, **dict(zip(relation.sources, columns))}
    most = most_missed(column, relation)
    tried: Iterable[tuple[str, str, dict[int, int]]] = [("", "", same_rows(view))]
    if relation.has_baseline:
        tried = (
            (grouping, rule, baselines)
            for grouping, parts in groups.groupings(view).items()
            for rule, baselines in groups.baselines(view, column, columns, parts, relation.shift).items()
        )
    for grouping, rule, baselines in tried:
        num_broken = len(long_tables.broken_rows(relation, named, baselines, _MOST_TOLERANCE))
        if num_broken <= most:
            price = _price(column, rule, baselines, relation) if rule else 0.0
            reading = Reading(relation, target, sources, (), relation.bits - price, grouping, rule)
            yield Trial(reading, baselines, num_broken, price, spread)


def _price(column: Column, rule: str, baselines: Mapping[int, int], relation: Relation) -> float:
    """Bits of the rule that chooses the baselines: less if these print 1."""
    firsts = [item for row in set(baselines.values()) if (item := column.items[row])]
    is_one = all(groups.is_one(item, relation.shift) for item in firsts)
    is_known = firsts and (column.quantity in DERIVED or is_one)
    return groups.RULES[rule] + (0.0 if not is_known else -_IS_PRINTED if is_one else _IS_PRINTED)


def _read(view: View, trials: Iterable[Trial]) -> Iterator[Reading]:
    """Readings of the trials; of many trials of a large table only those that promise most."""
    trials = list(trials)
    most = max(_FEWEST_READ, _MOST_INSTANCES // (len(view.columns) * len(view.lines)))
    if len(trials) > most:
        ranked = sorted(range(len(trials)), key=lambda k: MISS * trials[k].num_broken - trials[k].reading.bits)
        trials = [trials[k] for k in sorted(ranked[:most])]
    for trial in trials:
        reading = trial.reading
        instances = products(view, reading.target, reading.relation, reading.sources, trial.baselines)
        reading = dataclasses.replace(reading, instances=instances)
        yield scored(view.columns[reading.target], reading, trial.price, trial.spread)


def same_rows(view: View) -> dict[int, int]:
    """Every row as its own baseline: of relations without one."""
    return {row: row for row in range(len(view.lines))}


def products(
    view: View, target: int, relation: Relation, sources: Sequence[int], baselines: Mapping[int, int]
) -> tuple[Instance, ...]:
    """A product for every row that has all numbers."""
    columns = {relation.target: view.columns[target]}
    columns |= {name: view.columns[k] for name, k in zip(relation.sources, sources)}
    devices = next((view.columns[k] for k in view.of("devices")), None)
    found = []
    for row, baseline in baselines.items():
        factors = relation.factors
        if relation.has_baseline and row != baseline:
            factors = (*factors, *_printed_baseline(columns[relation.target].items[baseline], relation))
        terms = _terms(columns, relation, factors, row, baseline)
        if len(terms) > 1:
            count = devices.items[row] if devices else None
            found.append(Product.of(relation, tuple(terms.values()), row, count.low if count else 1.0))
    return tuple(found)


def _terms(
    columns: Mapping[str, Column], relation: Relation, factors: Sequence[tuple[str, int]], row: int, baseline: int
) -> dict[Ref, Term]:
    """The numbers of one instance; none if one is missing, without those that cancel."""
    terms: dict[Ref, Term] = {}
    for name, exponent in factors:
        item = columns[name.removesuffix("0")].items[baseline if name.endswith("0") else row]
        shift, sign = relation.shift if name.removesuffix("0") == relation.target else (0.0, 1)
        if item is None or shift + sign * (item.low if sign > 0 else item.high) <= 0:
            return {}
        before = terms.pop(item.ref, None)
        exponent += before.exponent if before else 0
        if exponent:
            terms[item.ref] = Term(item, exponent, shift, sign)
    return terms


def _printed_baseline(item: Item | None, relation: Relation) -> tuple[tuple[str, int], ...]:
    """The target of the baseline row as a factor, unless it is 1: its own baseline may be outside of the table."""
    is_one = item is None or groups.is_one(item, relation.shift)
    return () if is_one or (item and item.low <= 0 and not relation.shift[0]) else ((f"{relation.target}0", -1),)


def _generic(view: View, target: int, column: Column, connected: Set[frozenset[int]]) -> Iterator[Reading]:
    """A column as the ratio or product of others, relative to a row, or in proportion to others."""
    spread = 0.0 if column.is_derived else min(_CLOSE, _inner_range(column))
    if not column.is_derived and spread < _NARROW:
        return
    sources, trials = _sources(view, target, column, connected), []
    for relation in GENERIC:
        usable = [k for k in sources if not relation.has_baseline or view.columns[k].quantity not in COUNTS]
        for columns, form, prior in _forms(view, column, usable, relation, view.before_brackets(target)):
            inner = _inner_range(column, form.shift) if form.shift[0] else spread
            if inner > _NARROW or not form.shift[0]:
                trials += _trials(view, target, form, columns, inner if prior < 0 else 0.0)
    yield from _read(view, trials)


def _sources(view: View, target: int, column: Column, connected: Set[frozenset[int]]) -> list[int]:
    """The nearest columns that may explain another one."""
    barred: set[str] = set(DERIVED) if column.is_derived else set()
    if column.quantity == "efficiency":  # what its header states says more
        barred |= set(MEASURES)
    found = [
        k for k, other in enumerate(view.columns) if k != target
        and other.quantity not in barred and sum(map(bool, other.items)) > 1
        and frozenset((k, target)) not in connected and not _is_copy(column, other)
        and not other.meaning.is_statistic
    ]  # fmt: skip
    return sorted(sorted(found, key=lambda k: abs(k - target))[:NEAREST])


def _forms(
    view: View, column: Column, sources: Sequence[int], relation: Relation, own: int | None = None
) -> Iterator[tuple[tuple[int, ...], Relation, float]]:
    """(columns, relation of these, its prior bits) of all that fit roughly, and have a column `own` if there is one."""
    choices = itertools.combinations if relation.is_symmetric else itertools.permutations
    chosen = [columns for columns in choices(sources, len(relation.sources)) if own is None or own in columns]
    price = math.log2(max(1, len(chosen) / 2))
    if column.quantity == "speedup" and relation.text == "target = a / b" and len(chosen) == 2:
        price = -_ONLY  # of the only two columns
    may_change = column.quantity == "change" or (column.quantity in ("", "share", "speedup") and column.factor == 0.01)
    for columns in chosen:
        named = [view.columns[k] for k in columns]
        if column.quantity == "speedup" and _is_inverse(relation, named):
            continue
        prior = _prior(column, named, relation)
        names = dict(zip(relation.sources, (source.name for source in named)))
        for shift in CHANGES if may_change else CHANGES[:1]:
            names["target"] = f"1 {'+' if shift[1] > 0 else '-'} {column.name}" if shift[0] else column.name
            form = dataclasses.replace(relation, name=_named(relation.name, names), bits=prior - price, shift=shift)
            is_ratio = column.is_derived and relation.text == "target = a / b" and len(chosen) <= _MOST_RATIOS
            if is_ratio or _is_close(view, column, named, form):
                yield columns, form, prior


def _is_copy(column: Column, other: Column) -> bool:
    """Whether half of the numbers are those of another column."""
    pairs = [(a.number.text, b.number.text) for a, b in zip(column.items, other.items) if a and b]
    return 2 * sum(a == b for a, b in pairs) >= max(1, len(pairs))


def _is_inverse(relation: Relation, sources: Sequence[Column]) -> bool:
    """Whether a speedup would fall as a rate rises, or rise with a time."""
    exponents = {name: exponent for name, exponent in relation.factors if not name.endswith("0")}
    signs = {(column.quantity, exponents[name]) for name, column in zip(relation.sources, sources)}
    return relation.has_baseline and not signs.isdisjoint({("rate", 1), ("seconds", -1)})


def _named(name: str, columns: Mapping[str, str]) -> str:
    """The name of a generic relation with names of columns, which may hold braces."""
    return re.sub(r"{(\w+)}", lambda match: columns[match[1]], name)


def _inner_range(column: Column, shift: tuple[float, int] = (0.0, 1)) -> float:
    """Natural logarithm of the ratio of the second largest to the second smallest shift + sign * number."""
    values = [shift[0] + shift[1] * item.number.value * column.factor for item in column.items if item]
    values = sorted(value for value in values if value > 0)
    values = values[1:-1] if len(values) > 4 else values
    return min(1.0, math.log(values[-1] / values[0])) if values else 0.0


def _prior(column: Column, sources: Sequence[Column], relation: Relation) -> float:
    """How much the header words speak for a relation."""
    words, quantities = column.meaning.words, {source.quantity for source in sources}
    is_aside = column.quantity == "aside" or (not column.is_derived and "aside" in quantities)
    bits = _FAR_FETCHED if is_aside else 0.0 if column.is_derived else _PRIOR
    if len(sources) == 2:
        a, b = sources
        bits += 2.0 if words & (a.meaning.words ^ b.meaning.words) else 0.0
        bits += _NAMED if relation.text == "target = a / b" and _is_stated(column, a, b) else 0.0
        if column.is_derived and len(quantities - {""}) > 1:
            bits -= 3.0
    elif words & sources[0].meaning.words:
        bits += 2.0
    return bits


def _is_stated(column: Column, a: Column, b: Column) -> bool:
    """Whether headers say that a column is a / b: it names both, or only one of them is called a baseline."""
    compared, baseline = (b, a) if column.quantity == "speedup" and a.quantity == "seconds" else (a, b)
    is_compared = column.quantity in ("speedup", "change") and {a.quantity, b.quantity} <= {"seconds", "rate"}
    is_known = headers.is_baseline(baseline.name) and not headers.is_baseline(compared.name)
    return (is_compared and is_known) or _names_both(column.name, a, b)


def _names_both(name: str, a: Column, b: Column) -> bool:
    """Whether a header reads "a / b" or "a vs b"."""
    parts = re.split(r"\s*(?:/|÷|\bvs\.?|\bover\b)\s*", name.lower())
    words = [set(_WORD.findall(part)) for part in parts]
    others = [set(_WORD.findall(column.name.lower())) for column in (a, b)]
    return len(parts) == 2 and all(
        word and word & other - same for word, other, same in zip(words, others, reversed(others))
    )


def _is_close(view: View, column: Column, sources: Sequence[Column], relation: Relation) -> bool:
    """Whether half of the rows fit roughly; if there is a baseline, whether a third of the steps between rows do."""
    exponents = {name: exponent for name, exponent in relation.factors if not name.endswith("0")}
    shift, sign = relation.shift
    target = logs_of(shift + sign * column.middle) if shift else column.logs
    constant = target + sum(exponents[name] * source.logs for name, source in zip(relation.sources, sources))
    compared = np.flatnonzero(~np.isnan(constant))
    target, constant, part = target[compared], constant[compared], view.part_of[compared]
    if not relation.has_baseline:
        return len(compared) > 0 and 2 * np.count_nonzero(np.abs(constant) < _CLOSE) >= len(compared)
    is_step = (part[1:] == part[:-1]) & (np.abs(target[1:] - target[:-1]) > _SAME)
    steps = np.abs(constant[1:] - constant[:-1])[is_step]
    return len(steps) > 0 and 3 * np.count_nonzero(steps < _CLOSE) >= len(steps)


def _sums(view: View, target: int, column: Column) -> Iterator[Reading]:
    """A column as the sum of the columns before it, after it, of its name, or of all of its quantity."""
    prior, spread = 1.0 if headers.is_total(column.name) else _PRIOR, _inner_range(column)
    if spread < _NARROW:
        return
    alike = [
        k for k, other in enumerate(view.columns)
        if k != target and other.quantity in (column.quantity, "") and not headers.is_total(other.name)
    ]  # fmt: skip
    words = column.meaning.words
    runs = [alike, [k for k in alike if words & view.columns[k].meaning.words]]
    runs += [list(range(start, target)) for start in range(max(0, target - 8), target - 1)]
    runs += [list(range(target + 1, end)) for end in range(target + 3, min(len(view.columns), target + 9) + 1)]
    runs += [run[:k] + run[k + 1 :] for run in runs[:1] if len(run) <= NEAREST for k in range(len(run))]
    near = sorted(sorted(alike, key=lambda k: abs(k - target))[:NEAREST])
    runs += [list(pair) for pair in itertools.combinations(near, 2)]
    tried = sorted({tuple(run) for run in runs if len(run) > 1 and set(run) <= set(alike)})
    for parts in tried:
        if _adds_up(column, [view.columns[k] for k in parts]):
            names = [view.columns[k].name for k in parts]
            formula = " + ".join(names) if len(names) <= MOST_NAMED else f"sum of {len(names)} columns"
            relation = Relation(f"{column.name} = {formula}", SUM, prior - math.log2(len(tried)) / 2)
            instances = sums(view, target, relation, parts, range(len(view.lines)))
            if len(instances) > 1:
                yield scored(column, Reading(relation, target, parts, instances, 0.0), 0.0, spread)


def _adds_up(column: Column, parts: Sequence[Column]) -> bool:
    """Whether the sum of a third of the rows is right roughly."""
    added = sum(part.low for part in parts)
    off = np.abs(added - column.low)
    num_fitting = np.count_nonzero(off <= _CLOSE * np.maximum(np.abs(column.low), np.abs(added)))
    return 3 * num_fitting >= np.count_nonzero(~np.isnan(off)) > 0


def _along(view: View, target: int, column: Column) -> Iterator[Reading]:
    """A column as the running sum of another."""
    spread = _inner_range(column)
    if column.quantity in COUNTS or column.is_exact or spread < _NARROW:
        return
    for source, other in enumerate(view.columns):
        if source == target or other.quantity in COUNTS or not _runs_up(view, column, other):
            continue
        is_stated = headers.is_total(column.name) or column.meaning.words & other.meaning.words
        prior = 1.0 if is_stated else _FAR_FETCHED
        relation = Relation(f"{column.name} = {CUMULATIVE} of {other.name}", CUMULATIVE, prior)
        instances = sums(view, target, relation, (source,), range(len(view.lines)))
        yield scored(column, Reading(relation, target, (source,), instances, 0.0), 0.0, spread)


def _runs_up(view: View, column: Column, other: Column) -> bool:
    """Whether half of the steps from row to row, and of the first numbers, are roughly those of another column."""
    is_later = np.append(False, view.part_of[1:] == view.part_of[:-1])
    bounds = column.low, column.high
    low, high = (bound - np.where(is_later, np.roll(before, 1), 0.0) for bound, before in zip(bounds, bounds[::-1]))
    size = np.maximum(np.abs(other.low), np.abs(other.high))
    slack = _CLOSE * np.where(size > 0, size, 1.0)
    is_compared = ~np.isnan(low - other.low)
    fits = (low - other.high <= slack) & (high - other.low >= -slack)
    return np.count_nonzero(is_compared) > 2 and 2 * np.count_nonzero(fits) >= np.count_nonzero(is_compared)


def sums(
    view: View, target: int, relation: Relation, parts: Sequence[int], rows: Sequence[int]
) -> tuple[Instance, ...]:
    """A sum for every row that has all numbers."""
    found = []
    for row in rows:
        total = view.columns[target].items[row]
        places = [(k, row, -1) for k in parts]
        if relation.text == CUMULATIVE:
            places += [(target, row - 1, -1)] if row and view.parts[row] == view.parts[row - 1] else []
        members = [(view.columns[k].items[at], sign) for k, at, sign in places]
        if total and all(member for member, _ in members):
            terms = [Term(member, sign) for member, sign in members if member]
            found.append(Sum.of(relation, (Term(total, 1), *terms), row))
    counted = [instance.without_rounding() for instance in found if instance.is_whole]
    exact = sum(instance.holds for instance in counted)
    return tuple(counted if 4 * exact >= max(3 * len(found), 12) else found)


def totals(view: View) -> list[Reading]:
    """Rows that are the sums of the rows above them, a reading for each column."""
    found = []
    for row, labels in enumerate(view.labels):
        if not any(headers.is_total(label) for label in labels[:1]):
            continue
        first = view.parts.index(view.parts[row])
        if row < first + 2:
            continue
        for target, column in enumerate(view.columns):
            total, members = column.items[row], [item for item in column.items[first:row] if item]
            if (
                total
                and len(members) == row - first
                and column.quantity not in ("speedup", "efficiency", "change", "devices", "batch")
            ):
                relation = Relation(f"{column.name} = sum of the rows above", SUM, 2.0)
                instance = Sum.of(relation, (Term(total, 1), *(Term(member, -1) for member in members)), row)
                found.append(scored(column, Reading(relation, target, (), (instance,), 0.0)))
    held = [
        r for r in found if not r.missed and r.bits >= r.relation.bits and r.instances[0].terms[0].item.number.value
    ]
    missed = [reading for reading in found if reading.missed]
    return found if len(held) >= len(missed) else []
