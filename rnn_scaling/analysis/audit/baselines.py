"""Choose the rows that others are compared with."""

import functools
import math
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from rnn_scaling.analysis.audit.readings import prints_one
from rnn_scaling.analysis.audit.relations import Shift
from rnn_scaling.records.tables import headers
from rnn_scaling.records.tables.measurements import Column, Measurements, rows_by
from rnn_scaling.records.tables.series import rows_of_series

# Price in bits of the rules that choose a baseline among the rows of a group.
RULES = {
    "stated": -1.0,  # the cell of the target says so
    "devices": 0.0,  # the fewest
    "one": 1.0,  # the target prints 1
    "named": 1.0,  # the name of the row says so
    "first": 1.5,
    "last": 5.0,
}
_PRINTED_ONE = 1.5  # bits if the baselines print 1, and price if they do not
_MOST_LABELS = 4
Choice = tuple[str, str, float, np.ndarray]  # grouping, rule, price, baseline by row


@functools.lru_cache(maxsize=4)
def groupings(found: Measurements) -> dict[str, list[list[int]]]:
    """Return ways to put rows into groups of one baseline, by name."""
    num_rows = len(found.lines)
    keys: dict[str, Sequence[Hashable]] = {
        "all": found.parts,
        "labels": found.labels,
        "runs": _runs(found),
    }
    for k, names in enumerate([*zip(*found.labels)][:_MOST_LABELS]):
        keys[f"label {k}"] = names
    for k, column in enumerate(found.columns):
        numbers = [item.number.value if item else None for item in column.items]
        is_whole = all(number is None or number % 1 == 0 for number in numbers)
        if is_whole and 1 < len(set(numbers)) <= num_rows / 2:
            keys[f"column {k}"] = numbers
    made = {"everything": [list(range(num_rows))], "series": rows_of_series(found)}
    for name, values in keys.items():
        made[name] = list(rows_by(zip(found.parts, values)).values())
    unique: dict[str, list[list[int]]] = {}
    for name, groups in made.items():
        if groups not in unique.values() and len(groups) < max(2, num_rows):
            unique[name] = groups
    return unique


def _runs(found: Measurements) -> list[int]:
    """Return the number of each row's run of rising numbers of devices."""
    runs = []
    run = 0
    before = math.inf
    for item in found.devices.items if found.devices else [None] * len(found.lines):
        run += bool(item and item.low <= before < math.inf)
        before = item.low if item else before
        runs.append(run)
    return runs


def choices(
    found: Measurements, target: Column, sources: Sequence[Column], shift: Shift
) -> Iterator[Choice]:
    """Yield the ways to choose baselines, without two that choose the same rows."""
    seen = set()
    for grouping in groupings(found):
        for rule in RULES:
            base = chosen(found, target, sources, shift, grouping, rule)
            mark = base.tobytes()
            if mark not in seen and (base >= 0).any():
                seen.add(mark)
                rows = np.unique(base[base >= 0])
                price = RULES[rule] + _price(target, rows, shift)
                yield grouping, rule, price, base


def chosen(
    found: Measurements,
    target: Column,
    sources: Sequence[Column],
    shift: Shift,
    grouping: str,
    rule: str,
) -> np.ndarray:
    """Return the baseline row of each row by a rule; -1 if there is none."""
    base = np.full(len(found.lines), -1)
    for rows in groupings(found).get(grouping, ()):
        usable = [row for row in rows if all(source.items[row] for source in sources)]
        row = _by_rule(found, target, usable, shift, rule)
        if row is not None:
            base[rows] = row
    return base


def _by_rule(
    found: Measurements, target: Column, rows: Sequence[int], shift: Shift, rule: str
) -> int | None:
    devices = found.devices.items if found.devices else ()
    counted = [row for row in rows if devices and devices[row]]
    if rule == "devices":
        return min(counted, key=lambda row: devices[row].low, default=None)  # type: ignore[union-attr]
    if rule == "stated":
        rows = [row for row in rows if _calls_itself_baseline(found, target, row)]
    elif rule == "named":
        names = [(row, " ".join(found.labels[row])) for row in rows]
        rows = [row for row, name in names if headers.is_baseline(name)]
    elif rule in ("one", "last") and counted:
        return None
    elif rule == "one":
        is_one = prints_one(target, shift)
        rows = [row for row in rows if is_one[row]]
    elif rule == "last":
        rows = rows[::-1]
    return rows[0] if rows else None


def _calls_itself_baseline(found: Measurements, target: Column, row: int) -> bool:
    """Return whether the text of a cell, which has no number, names a baseline."""
    if target.items[row] or len(found.table.rows) != len(found.lines):
        return False
    columns = [item.place[1] for item in target.items if item]
    texts = found.table.rows[row][1]
    return columns[0] < len(texts) and headers.is_baseline(texts[columns[0]])


def _price(target: Column, rows: np.ndarray, shift: Shift) -> float:
    """Return how much less likely it is that these rows are the baselines."""
    printed = rows[~np.isnan(target.low[rows])]
    is_one = bool(prints_one(target, shift)[printed].all())
    if not len(printed) or not (target.is_derived or is_one):
        return 0.0
    return -_PRINTED_ONE if is_one else _PRINTED_ONE
