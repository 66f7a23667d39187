"""Candidate readings that add: columns that are the sum of others, running sums, and rows of totals."""

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from rnn_scaling.analysis.audit import headers
from rnn_scaling.analysis.audit.instances import Instance, Sum, Term
from rnn_scaling.analysis.audit.relations import CUMULATIVE, SUM, Relation
from rnn_scaling.analysis.audit.scoring import (
    CLOSE,
    FAR_FETCHED,
    NARROW,
    PRIOR,
    Reading,
    inner_range,
    scored,
)
from rnn_scaling.analysis.audit.tables import Column, View

NEAREST = 10  # columns that are tried as parts, the nearest ones
MOST_NAMED = 3  # parts of a sum that are named
COUNTS = ("devices", "batch", "global_batch", "setting", "epochs")
_NO_PARTS = (
    "speedup",
    "efficiency",
    "change",
    "devices",
    "batch",
)  # quantities without totals


def of_columns(view: View, target: int, column: Column) -> Iterator[Reading]:
    """A column as the sum of the columns before it, after it, of its name, or of all of its quantity."""
    prior, spread = 1.0 if headers.is_total(column.name) else PRIOR, inner_range(column)
    if spread < NARROW:
        return
    alike = [
        k for k, addend in enumerate(view.columns)
        if k != target and addend.quantity in (column.quantity, "") and not headers.is_total(addend.name)
    ]  # fmt: skip
    words = column.meaning.words
    runs = [alike, [k for k in alike if words & view.columns[k].meaning.words]]
    runs += [
        list(range(start, target)) for start in range(max(0, target - 8), target - 1)
    ]
    runs += [
        list(range(target + 1, end))
        for end in range(target + 3, min(len(view.columns), target + 9) + 1)
    ]
    runs += [
        run[:k] + run[k + 1 :]
        for run in runs[:1]
        if len(run) <= NEAREST
        for k in range(len(run))
    ]
    near = sorted(sorted(alike, key=lambda k: abs(k - target))[:NEAREST])
    runs += [list(pair) for pair in itertools.combinations(near, 2)]
    tried = sorted(
        {tuple(run) for run in runs if len(run) > 1 and set(run) <= set(alike)}
    )
    for parts in tried:
        if _adds_up(column, [view.columns[k] for k in parts]):
            names = [view.columns[k].name for k in parts]
            formula = (
                " + ".join(names)
                if len(names) <= MOST_NAMED
                else f"sum of {len(names)} columns"
            )
            relation = Relation(
                f"{column.name} = {formula}", SUM, prior - math.log2(len(tried)) / 2
            )
            instances = of_rows(view, target, relation, parts, range(len(view.lines)))
            if len(instances) > 1:
                yield scored(
                    column,
                    Reading(relation, target, parts, instances, 0.0),
                    0.0,
                    spread,
                )


def _adds_up(column: Column, parts: Sequence[Column]) -> bool:
    """Whether the sum of a third of the rows is right roughly."""
    added = sum(part.low for part in parts)
    off = np.abs(added - column.low)
    num_fitting = np.count_nonzero(
        off <= CLOSE * np.maximum(np.abs(column.low), np.abs(added))
    )
    return bool(3 * num_fitting >= np.count_nonzero(~np.isnan(off)) > 0)


def running(view: View, target: int, column: Column) -> Iterator[Reading]:
    """A column as the running sum of another."""
    spread = inner_range(column)
    if column.quantity in COUNTS or column.is_exact or spread < NARROW:
        return
    for source, increments in enumerate(view.columns):
        if (
            source == target
            or increments.quantity in COUNTS
            or not _runs_up(view, column, increments)
        ):
            continue
        prior = 1.0 if headers.is_total(column.name) else FAR_FETCHED
        relation = Relation(
            f"{column.name} = {CUMULATIVE} of {increments.name}", CUMULATIVE, prior
        )
        instances = of_rows(view, target, relation, (source,), range(len(view.lines)))
        yield scored(
            column, Reading(relation, target, (source,), instances, 0.0), 0.0, spread
        )


def _runs_up(view: View, column: Column, increments: Column) -> bool:
    """Whether half of the steps from row to row, and of the first numbers, are roughly those of another column."""
    is_later = np.append(False, view.part_of[1:] == view.part_of[:-1])
    bounds = column.low, column.high
    low, high = (
        bound - np.where(is_later, np.roll(before, 1), 0.0)
        for bound, before in zip(bounds, bounds[::-1])
    )
    size = np.maximum(np.abs(increments.low), np.abs(increments.high))
    slack = CLOSE * np.where(size > 0, size, 1.0)
    is_compared = ~np.isnan(low - increments.low)
    fits = (low - increments.high <= slack) & (high - increments.low >= -slack)
    return bool(2 * np.count_nonzero(fits) >= np.count_nonzero(is_compared) > 2)


def of_rows(
    view: View,
    target: int,
    relation: Relation,
    parts: Sequence[int],
    rows: Sequence[int],
) -> tuple[Instance, ...]:
    """A sum for every row that has all numbers."""
    found = []
    for row in rows:
        total = view.columns[target].items[row]
        places = [(k, row, -1) for k in parts]
        if relation.text == CUMULATIVE:
            places += (
                [(target, row - 1, -1)]
                if row and view.parts[row] == view.parts[row - 1]
                else []
            )
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
            total, *members = column.items[row], *column.items[first:row]
            if total and all(members) and column.quantity not in _NO_PARTS:
                relation = Relation(f"{column.name} = sum of the rows above", SUM, 2.0)
                terms = [
                    Term(total, 1),
                    *(Term(member, -1) for member in members if member),
                ]
                found.append(
                    scored(
                        column,
                        Reading(
                            relation, target, (), (Sum.of(relation, terms, row),), 0.0
                        ),
                    )
                )
    held = [
        r
        for r in found
        if not r.missed
        and r.bits >= r.relation.bits
        and r.instances[0].terms[0].item.number.value
    ]
    return found if len(held) >= sum(bool(reading.missed) for reading in found) else []
