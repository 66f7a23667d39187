"""Find headings that belong to the values of another column.

Speedups and efficiencies follow from the rates or times of a table. If those of two
columns follow from each other's rates and not from their own, two headings are swapped.
"""

import itertools
import re
from collections.abc import Iterator, Sequence

from rnn_scaling.analysis.audit import candidates
from rnn_scaling.analysis.audit.instances import Instance
from rnn_scaling.analysis.audit.relations import RELATIONS, Relation
from rnn_scaling.analysis.audit.scoring import LEAST, Reading
from rnn_scaling.analysis.audit.tables import HEAD, View

Swap = tuple[Reading, Reading]  # of both columns, as they hold without the swap
_MOST_EFFICIENT = 1.3  # a larger value is not an efficiency
_WORD = re.compile(r"\w+")
_FEWEST = 2  # rows that must confirm each column
_OWN = ("speedup", "efficiency")
_AS_EFFICIENCY = (
    Relation("efficiency", "speedup = rate / rate0 / devices * devices0"),
    Relation("efficiency", "speedup = seconds0 / seconds / devices * devices0"),
)
_AS_SPEEDUP = (
    Relation("speedup", "efficiency = rate / rate0"),
    Relation("speedup", "efficiency = seconds0 / seconds"),
)


def swapped(view: View) -> Iterator[Swap]:
    """Yield the pairs of columns whose headings are swapped, each column once."""
    view = view.head(HEAD)
    targets = [k for quantity in _OWN for k in view.of(quantity)]
    seen: set[int] = set()
    for first, second in itertools.combinations(targets, 2):
        if {first, second} & seen:
            continue
        quantities = view.columns[first].quantity, view.columns[second].quantity
        if quantities[0] == quantities[1]:
            swap = _of_one_quantity(view, first, second)
        else:
            swap = _of_both_quantities(view, first, second)
        if swap:
            seen |= {first, second}
            yield swap


def _of_one_quantity(view: View, first: int, second: int) -> Swap | None:
    """Return how two speedups, or two efficiencies, hold with swapped headings."""
    for relation in RELATIONS:
        if relation.target != view.columns[first].quantity:
            continue
        own = [_named_sources(view, target, relation) for target in (first, second)]
        if None in own or own[0] == own[1]:
            continue
        named = [
            (target, sources)
            for target, sources in zip((first, second), own)
            if sources
        ]
        if any(_holds_partly(view, *each, relation, True) for each in named):
            continue
        there = _clean(view, first, [relation], own[1] or ())
        back = _clean(view, second, [relation], own[0] or ())
        if not there or not back:
            continue
        # Columns of nearly equal values roughly hold as they are, too.
        instances = (*there.instances, *back.instances)
        if all(instance.holds_within(0.0) for instance in instances):
            return there, back
        if not any(_holds_partly(view, *each, relation, False) for each in named):
            return there, back
    return None


def _named_sources(
    view: View, target: int, relation: Relation
) -> tuple[int, ...] | None:
    """Return the columns that a heading names as its sources; None if it names none."""
    found = []
    is_named = False
    for name in relation.sources:
        columns = view.of(name)
        if len(columns) > 1:
            columns = _named(view, target, columns)
            is_named = True
        if len(columns) != 1:
            return None
        found += columns
    return tuple(found) if is_named else None


def _named(view: View, target: int, columns: Sequence[int]) -> list[int]:
    """Return the columns that share most distinctive words with a heading."""
    words = {k: set(_WORD.findall(view.columns[k].name.lower())) for k in columns}
    common = set.intersection(*words.values())
    wanted = set(_WORD.findall(view.columns[target].name.lower()))
    shared = {k: len(wanted & (words[k] - common)) for k in columns}
    most = max(shared.values())
    return [k for k in columns if most and shared[k] == most]


def _of_both_quantities(view: View, first: int, second: int) -> Swap | None:
    """Return how a speedup and an efficiency hold with swapped headings."""
    speedup, efficiency = first, second
    values = [
        item.number.value for item in view.columns[efficiency].items if item is not None
    ]
    if not values or max(values) < _MOST_EFFICIENT:
        return None
    there = _clean(view, speedup, _AS_EFFICIENCY)
    back = _clean(view, efficiency, _AS_SPEEDUP)
    if not there or not back:
        return None
    for target in (speedup, efficiency):
        stated = candidates.stated(view, target, RELATIONS)
        if any(r.relation.name != "scaling" and not r.missed for r in stated):
            return None
    return there, back


def _clean(
    view: View,
    target: int,
    relations: Sequence[Relation],
    sources: tuple[int, ...] = (),
) -> Reading | None:
    """Return the best reading that misses no row, with some or any sources."""
    found = []
    for relation in relations:
        if sources:
            readings = candidates.with_sources(view, target, relation, sources)
        else:
            readings = candidates.stated(view, target, [relation])
        found += [
            reading
            for reading in readings
            if not reading.missed
            and reading.bits >= LEAST
            and sum(map(_is_informative, reading.instances)) >= _FEWEST
        ]
    return max(found, key=lambda reading: reading.bits, default=None)


def _is_informative(instance: Instance) -> bool:
    return len({term.item.ref[0] for term in instance.terms}) > 1


def _holds_partly(
    view: View,
    target: int,
    sources: tuple[int, ...],
    relation: Relation,
    is_exact: bool,
) -> bool:
    """Return whether half of the rows follow from the sources in the heading.

    Args:
      view: The table.
      target: The column with the heading.
      sources: The columns that the heading names.
      relation: How the column follows from them.
      is_exact: Whether the printed digits must say so, without any tolerance.
    """
    for reading in candidates.with_sources(view, target, relation, sources):
        rows = list(filter(_is_informative, reading.instances))
        held = sum(
            instance.holds_within(0.0) if is_exact else instance.holds
            for instance in rows
        )
        if 2 * held >= len(rows):
            return True
    return False
