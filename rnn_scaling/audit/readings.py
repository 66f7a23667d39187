"""Which relations hold in a view: the readings of its columns, series and baselines that explain most numbers."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

from rnn_scaling.audit import groups, headers, long_tables
from rnn_scaling.audit.instances import Instance, Product, Sum, Term
from rnn_scaling.audit.relations import MISTAKES, RELATIONS, Relation
from rnn_scaling.audit.scoring import EXPLICIT, LEAST, Reading, scored
from rnn_scaling.audit.tables import HEAD, Column, Item, Ref, View

MOST_SOURCES = 6  # columns of one quantity that are tried
CLOSE = 4.0  # bits: a reading without a miss is preferred to one that is better by less
_COUNTS = ("devices", "batch", "global_batch", "setting", "epochs")
_DERIVED = ("speedup", "efficiency", "share", "change")
_FORMS = ("{} = {} / {}", (0.0, 1)), ("{} = {} / {} - 1", (1.0, 1)), ("{} = 1 - {} / {}", (1.0, -1))


def readings(view: View) -> list[Reading]:
    """The believed readings of every target column, without those that a better one contradicts."""
    found: list[Reading] = []
    head = view.head(HEAD)
    for target, column in enumerate(head.columns):
        candidates = sorted(_candidates(head, target, column), key=lambda reading: -reading.bits)
        candidates = [reading for reading in candidates if reading.is_believed]
        if candidates:
            best = candidates[0]
            clean = [reading for reading in candidates if not reading.missed and reading.bits >= best.bits - CLOSE]
            found += clean[:1] if best.missed and clean else _agreeing(candidates)
    if head is not view:
        found = _applied_to(view, found)
    return [*found, *_totals(view)]


def _agreeing(candidates: Sequence[Reading]) -> list[Reading]:
    """The best reading, and those of other relations that miss no rows but its own."""
    best = candidates[0]
    missed = {instance.row for instance in best.missed}
    kept = [best]
    for reading in candidates[1:]:
        is_new = all(reading.relation.text != other.relation.text for other in kept)
        if is_new and {instance.row for instance in reading.missed} <= missed and reading.bits >= 0.5 * best.bits:
            kept.append(reading)
    return kept


def mistakes(view: View, believed: Sequence[Reading]) -> list[Reading]:
    """Relations that hold in a whole column and must not."""
    view = view.head(HEAD)
    right_targets = {reading.target for reading in believed if not reading.missed}
    found: list[Reading] = []
    if not any(item and item.low > 1 for k in view.of("devices") for item in view.columns[k].items):
        return found
    for target, column in enumerate(view.columns):
        if target in right_targets:
            continue
        made = [reading for reading in _stated(view, target, MISTAKES) if not reading.missed]
        right = max((reading.bits for reading in _candidates(view, target, column)), default=0.0)
        best = max(made, key=lambda reading: reading.bits, default=None)
        if best and best.bits >= LEAST + CLOSE and best.bits > CLOSE + max(right, 0.0):
            found.append(best)
    return found


def contradictions(view: View, believed: Sequence[Reading]) -> list[Reading]:
    """Columns that follow from confirmed ones by their header, and from nothing by their numbers."""
    view = view.head(HEAD)
    confirmed = {reading.target for reading in believed} | set(view.of("devices"))
    found = []
    for target, column in enumerate(view.columns):
        if target in confirmed or column.quantity not in ("efficiency", "speedup"):
            continue
        for reading in _stated(view, target, RELATIONS):
            is_due = reading.relation.bits >= EXPLICIT and set(reading.sources) <= confirmed
            if is_due and len(reading.instances) > 2 and len(reading.missed) > 0.6 * len(reading.instances):
                found.append(reading)
                break
    return found


def _candidates(view: View, target: int, column: Column) -> Iterator[Reading]:
    yield from _stated(view, target, RELATIONS)
    if column.quantity in (*_DERIVED, ""):
        yield from _ratios(view, target, column)
    if column.quantity not in (*_DERIVED, *_COUNTS):
        yield from _sums(view, target, column)


def _stated(view: View, target: int, relations: Sequence[Relation]) -> Iterator[Reading]:
    """Readings of the relations for the quantity of a column."""
    for relation in relations:
        if relation.target == view.columns[target].quantity:
            for sources in _assignments(view, target, relation):
                yield from _applied(view, target, relation, sources)


def _assignments(view: View, target: int, relation: Relation) -> Iterator[tuple[int, ...]]:
    """Columns for the sources of a relation; if some share a word with the target, only those."""
    words = view.columns[target].meaning.words
    choices = []
    for name in relation.sources:
        columns = [k for k in view.of(name) if k != target]
        alike = [k for k in columns if words & view.columns[k].meaning.words]
        choices.append((alike or columns)[:MOST_SOURCES])
    yield from itertools.product(*choices)


def _applied(view: View, target: int, relation: Relation, sources: tuple[int, ...]) -> Iterator[Reading]:
    """The relation with every grouping and baseline."""
    column = view.columns[target]
    if not relation.has_baseline:
        instances = _instances(view, target, relation, sources, _rows(view))
        yield scored(column, Reading(relation, target, sources, instances, 0.0))
        return
    columns = [view.columns[k] for k in sources]
    for grouping, parts in groups.groupings(view).items():
        for rule, baselines in groups.baselines(view, column, columns, parts).items():
            instances = _instances(view, target, relation, sources, baselines)
            reading = Reading(relation, target, sources, instances, 0.0, grouping, rule)
            yield scored(column, reading, groups.RULES[rule])


def _applied_to(view: View, found: Sequence[Reading]) -> list[Reading]:
    """Readings of a sample, on the sample and on the rows of a long view that break one."""
    rows = set(range(HEAD))
    baselines: list[Mapping[int, int]] = []
    for reading in found:
        target, columns = view.columns[reading.target], [view.columns[k] for k in reading.sources]
        tolerance = max((instance.tolerance for instance in reading.instances), default=0.0)
        baselines.append(_rows(view))
        if reading.relation.is_sum:
            rows |= long_tables.broken_sums(target, columns, tolerance)
            continue
        if reading.rule:
            parts = groups.groupings(view).get(reading.grouping) or [list(range(len(view.lines)))]
            baselines[-1] = groups.baselines(view, target, columns, parts).get(reading.rule, {})
        named = {reading.relation.target: target, **dict(zip(reading.relation.sources, columns))}
        rows |= long_tables.broken_rows(reading.relation, named, baselines[-1], tolerance)
    applied = []
    for reading, of_rows in zip(found, baselines):
        target, relation, sources = reading.target, reading.relation, reading.sources
        if relation.is_sum:
            instances = _sum_instances(view, target, relation, sources, sorted(rows))
        else:
            chosen = {row: of_rows[row] for row in sorted(rows) if row in of_rows}
            instances = _instances(view, target, relation, sources, chosen)
        again = dataclasses.replace(reading, instances=instances, bits=0.0)
        applied.append(dataclasses.replace(scored(view.columns[target], again), compared=len(of_rows)))
    return applied


def _rows(view: View) -> dict[int, int]:
    return {row: row for row in range(len(view.lines))}


def _instances(
    view: View, target: int, relation: Relation, sources: Sequence[int], baselines: Mapping[int, int]
) -> tuple[Instance, ...]:
    columns = {relation.target: view.columns[target]}
    columns |= {name: view.columns[k] for name, k in zip(relation.sources, sources)}
    found = []
    for row, baseline in baselines.items():
        factors = relation.factors
        if relation.has_baseline and row != baseline:
            factors = (*factors, *_printed_baseline(columns[relation.target].items[baseline], relation))
        terms = _terms(columns, relation, factors, row, baseline)
        if len(terms) > 1:
            found.append(Product.of(relation, tuple(terms.values()), row))
    return tuple(found)


def _terms(
    columns: Mapping[str, Column], relation: Relation, factors: Sequence[tuple[str, int]], row: int, baseline: int
) -> dict[Ref, Term]:
    """The numbers of one instance; none if one is missing, without those that cancel."""
    terms: dict[Ref, Term] = {}
    for name, exponent in factors:
        item = columns[name.removesuffix("0")].items[baseline if name.endswith("0") else row]
        if item is None or item.high <= 0:
            return {}
        before = terms.pop(item.ref, None)
        exponent += before.exponent if before else 0
        if exponent:
            shift, sign = relation.shift if name.removesuffix("0") == relation.target else (0.0, 1)
            terms[item.ref] = Term(item, exponent, shift, sign)
    return terms


def _printed_baseline(item: Item | None, relation: Relation) -> tuple[tuple[str, int], ...]:
    """The target of the baseline row as a factor, unless it is 1: its own baseline may be outside of the table."""
    return () if item is None or groups.is_one(item) else ((f"{relation.target}0", -1),)


def _ratios(view: View, target: int, column: Column) -> Iterator[Reading]:
    """A column as the ratio of two others, or the change from one to the other."""
    measured = [
        k for k, other in enumerate(view.columns)
        if k != target and other.quantity not in (*_DERIVED, *_COUNTS) and sum(map(bool, other.items)) > 1
    ][: 2 * MOST_SOURCES]  # fmt: skip
    may_change = column.quantity == "change" or (column.quantity in ("", "share", "speedup") and column.factor == 0.01)
    for top, bottom in itertools.permutations(measured, 2):
        a, b = view.columns[top], view.columns[bottom]
        if a.quantity != b.quantity and column.quantity not in ("", "share"):
            continue
        bits = _prior_of_ratio(column, a, b) - math.log2(max(1, len(measured) - 1))
        for form, shift in _FORMS if may_change else _FORMS[:1]:
            relation = Relation(form.format(column.name, a.name, b.name), "target = a / b", bits, shift)
            instances = _instances(view, target, relation, (top, bottom), _rows(view))
            yield scored(column, Reading(relation, target, (top, bottom), instances, 0.0))


def _prior_of_ratio(column: Column, a: Column, b: Column) -> float:
    """How much the header words speak for column = a / b."""
    words = column.meaning.words
    bits = 2.0 if words & (a.meaning.words ^ b.meaning.words) else 0.0
    if column.quantity == "speedup" and headers.is_baseline((a if a.quantity == "seconds" else b).name):
        bits += 1.0
    return bits if column.quantity else bits - 4.0


def _sums(view: View, target: int, column: Column) -> Iterator[Reading]:
    """A column as the sum of the columns before it, after it, or of all of its quantity."""
    prior = 1.0 if headers.is_total(column.name) else -4.0
    alike = [
        k for k, other in enumerate(view.columns)
        if k != target and other.quantity in (column.quantity, "") and not headers.is_total(other.name)
    ]  # fmt: skip
    runs = [alike]
    runs += [list(range(start, target)) for start in range(max(0, target - 8), target - 1)]
    runs += [list(range(target + 1, end)) for end in range(target + 3, min(len(view.columns), target + 9) + 1)]
    for parts in sorted({tuple(run) for run in runs if len(run) > 1 and set(run) <= set(alike)}):
        relation = Relation(f"{column.name} = sum of {len(parts)} columns", "target = parts", prior)
        instances = _sum_instances(view, target, relation, parts, range(len(view.lines)))
        if len(instances) > 1:
            yield scored(column, Reading(relation, target, parts, instances, 0.0))


def _sum_instances(
    view: View, target: int, relation: Relation, parts: Sequence[int], rows: Sequence[int]
) -> tuple[Instance, ...]:
    found = []
    for row in rows:
        total = view.columns[target].items[row]
        members = [member for k in parts if (member := view.columns[k].items[row])]
        if total and len(members) > 1:
            found.append(Sum.of(relation, (Term(total, 1), *(Term(member, -1) for member in members)), row))
    return tuple(found)


def _totals(view: View) -> list[Reading]:
    """Rows that are the sums of the rows above them, a reading for each column."""
    found = []
    for row, labels in enumerate(view.labels):
        if row < 2 or not any(headers.is_total(label) for label in labels[:1]):
            continue
        for target, column in enumerate(view.columns):
            total, members = column.items[row], [item for item in column.items[:row] if item]
            if total and len(members) == row and column.quantity not in (*_DERIVED, "devices", "batch"):
                relation = Relation(f"{column.name} = sum of the rows above", "target = parts", 2.0)
                instance = Sum.of(relation, (Term(total, 1), *(Term(member, -1) for member in members)), row)
                found.append(scored(column, Reading(relation, target, (), (instance,), 0.0)))
    held = [reading for reading in found if not reading.missed]
    return found if 2 * len(held) >= len(found) else []
