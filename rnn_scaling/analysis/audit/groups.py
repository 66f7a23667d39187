"""Series and baselines: which rows of a view are compared with which, and which of them break a relation."""

import functools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from rnn_scaling.analysis.audit import headers
from rnn_scaling.analysis.audit.relations import Relation, Shift
from rnn_scaling.analysis.audit.tables import SMALLEST, Column, View, logs_of, rows_by

SETTINGS = ("setting", "batch", "global_batch", "epochs", "work")
# Quantities of columns that may separate series, those that do so more often first.
PARAMETERS = (
    "setting",
    "batch",
    "",
    "aside",
    "bytes",
    "work",
    "epochs",
    "global_batch",
)
# Price in bits of the rules that choose a baseline.
RULES = {
    "stated": -1.0,
    "fewest devices": 0.0,
    "unit": 1.0,
    "blank": 0.5,
    "named": 1.0,
    "first": 1.5,
    "last": 5.0,
}
MOST_SIBLINGS = 60  # rows of a broken row's series, in a long table
MOST_BROKEN = 0.05  # of all rows of a long table, above which the first rows are no sample of the others
Groups = dict[str, list[list[int]]]


@functools.lru_cache(maxsize=2)
def groupings(view: View) -> Groups:
    """Ways to put rows into series, by name: all of a table, by labels, settings, one of them, and runs of devices."""
    width = len(view.labels[0]) if view.labels else 0
    settings = [column for column in view.columns if column.quantity in SETTINGS]
    keys: dict[str, Callable[[int], Hashable]] = {"all": lambda row: ()}
    if width:
        keys["labels"] = lambda row: view.labels[row]
    if settings:
        keys["settings"] = lambda row: (
            view.labels[row],
            tuple(_value(column, row) for column in settings),
        )
    if separating := separators(view):
        keys["series"] = lambda row: (
            view.labels[row],
            tuple(_value(column, row) for column in separating),
        )
    for k in range(min(width, 4) if width > 1 else 0):
        keys[f"label {k}"] = lambda row, k=k: view.labels[row][k]  # type: ignore[misc]
    for k, column in enumerate(view.columns):
        if _is_repeated(column):
            keys[f"column {k}"] = lambda row, column=column: _value(column, row)  # type: ignore[misc]
    runs = _runs(view)
    keys["runs"] = lambda row: runs[row]
    found: Groups = {}
    if len(set(view.parts)) > 1:
        found["everything"] = [list(range(len(view.lines)))]
    for name, key in keys.items():
        rows = list(
            rows_by((part, key(row)) for row, part in enumerate(view.parts)).values()
        )
        if rows not in found.values() and len(rows) < max(2, len(view.lines)):
            found[name] = rows
    return found


@functools.lru_cache(maxsize=2)
def separators(view: View) -> tuple[Column, ...]:
    """Return the parameters, as numbers, that separate the series of a view.

    Such a column (a batch size, a sequence length) has several values for one number
    of devices, and each of its values has several numbers of devices. A global batch
    that grows with the devices does not separate them.
    """
    devices = next((view.columns[k] for k in view.of("devices")), None)
    if devices is None:
        return ()
    candidates = [
        column
        for column in view.columns
        if column.quantity in PARAMETERS and _holds_parameters(column)
    ]
    candidates.sort(key=lambda column: PARAMETERS.index(column.quantity))
    found: tuple[Column, ...] = ()
    for column in candidates:
        before = _series_by(view, devices, found)
        after = _series_by(view, devices, (*found, column))
        is_needed = any(len(set(counts)) < len(counts) for counts in before)
        num_alone = sum(len(counts) for counts in after if len(set(counts)) < 2)
        is_finer = len(after) > len(before)
        if is_needed and is_finer and 2 * num_alone <= sum(map(len, after)):
            found = (*found, column)
    return found


def _holds_parameters(column: Column) -> bool:
    """Return whether a column holds at least two different whole numbers."""
    values = {item.number.value for item in column.items if item}
    return len(values) > 1 and all(value % 1 == 0 for value in values)


def _series_by(
    view: View, devices: Column, columns: Sequence[Column]
) -> list[list[float]]:
    """Return the numbers of devices of every series, given what separates them."""
    keys = (
        (part, labels, tuple(_value(column, row) for column in columns))
        for row, (part, labels) in enumerate(zip(view.parts, view.labels))
    )
    found = []
    for rows in rows_by(keys).values():
        counts = [item.low for row in rows if (item := devices.items[row])]
        if counts:
            found.append(counts)
    return found


def _is_repeated(column: Column) -> bool:
    """Whether a column holds few whole numbers that repeat, as a parameter of the runs does."""
    values = [item.number for item in column.items if item]
    is_whole = all(number.value == int(number.value) for number in values)
    return is_whole and 1 < len({number.value for number in values}) <= len(values) / 2


def _runs(view: View) -> list[int]:
    """The number of each row's run of rising numbers of devices."""
    devices = next((view.columns[k] for k in view.of("devices")), None)
    found, before = [0] * len(view.lines), math.inf
    for row in range(1, len(view.lines)):
        now, last = (devices.items[k] if devices else None for k in (row, row - 1))
        before = last.low if last else before
        found[row] = found[row - 1] + bool(now and now.low <= before < math.inf)
    return found


def _value(column: Column, row: int) -> float | None:
    item = column.items[row]
    return item.number.value if item else None


def baselines(
    view: View,
    target: Column,
    sources: Sequence[Column],
    parts: Sequence[Sequence[int]],
    shift: Shift,
) -> dict[str, dict[int, int]]:
    """By rule of RULES the baseline row of each row; of rules that choose the same rows only the first."""
    by_rule: dict[str, dict[int, int]] = {}
    for rows in parts:
        usable = [row for row in rows if all(column.items[row] for column in sources)]
        for rule, tried in _by_rule(view, target, sources, usable, shift).items():
            if tried:
                by_rule.setdefault(rule, {}).update(dict.fromkeys(rows, tried[0]))
    unique: dict[tuple[int, ...], str] = {}
    for rule in RULES:
        if rule in by_rule:
            unique.setdefault(tuple(sorted(set(by_rule[rule].values()))), rule)
    return {rule: by_rule[rule] for rule in unique.values()}


def _by_rule(
    view: View,
    target: Column,
    sources: Sequence[Column],
    rows: Sequence[int],
    shift: Shift,
) -> dict[str, Sequence[int]]:
    """Baselines of one series by rule, the best first. rows: those that have all numbers."""
    devices = next((view.columns[k] for k in view.of("devices")), None)
    at = next((item.ref[1] for item in target.items if item), 0)
    baseline_value = shift[1] * (1.0 - shift[0])
    counted = [
        (item.low, row) for row in rows if devices and (item := devices.items[row])
    ]
    printed = [(item, row) for row in rows if (item := target.items[row])]
    units = [
        (abs(0.5 * (item.low + item.high) - baseline_value), row)
        for item, row in printed
        if is_one(item, shift)
    ]
    blank = [row for row in rows if target.items[row] is None]
    is_same = (
        len({tuple(_value(column, row) for column in sources) for row in blank}) == 1
    )
    return {
        "stated": [row for row in blank if _is_baseline(view, row, at)],
        "fewest devices": [row for _, row in sorted(counted)],
        "unit": [] if counted else [row for _, row in sorted(units)],
        "blank": blank if is_same else [],
        "named": [
            row
            for row in rows
            if any(headers.is_baseline(label) for label in view.labels[row])
        ],
        "first": rows,
        "last": [] if counted else rows[::-1],
    }


def _is_baseline(view: View, row: int, column: int) -> bool:
    """Whether the text of a cell calls its row the baseline."""
    texts = view.table.rows[row][1] if len(view.table.rows) == len(view.lines) else ()
    return column < len(texts) and headers.is_baseline(texts[column])


def is_one(printed: Any, shift: Shift = (0.0, 1)) -> Any:
    """Whether a number is printed as 1 or 100 %, or no change. printed: an Item, or a Column of them."""
    by, sign = shift
    rounded = printed.low + 2 / 3 * (
        printed.high - printed.low
    )  # the bounds allow numbers that were cut off, too
    return (printed.low <= sign * (1.0 - by)) & (sign * (1.0 - by) <= rounded + 1e-9)


def broken_rows(
    relation: Relation,
    columns: Mapping[str, Column],
    baselines: Mapping[int, int],
    tolerance: float,
) -> set[int]:
    """Rows in which a product does not hold. columns: by quantity."""
    target, (shift, sign) = columns[relation.target], relation.shift
    rows = np.fromiter(baselines.keys(), int, len(baselines))
    firsts = np.fromiter(baselines.values(), int, len(baselines))
    low, high = (
        np.full(len(rows), -tolerance - 1e-9),
        np.full(len(rows), tolerance + 1e-9),
    )
    for name, exponent in relation.factors:
        quantity = name.removesuffix("0")
        a, b = columns[quantity].log_bounds
        if quantity == relation.target and relation.shift != (0.0, 1):
            bounds = (target.low, target.high)[::sign]
            a, b = (
                logs_of(np.maximum(shift + sign * bound, SMALLEST)) for bound in bounds
            )
        at = firsts if name.endswith("0") else rows
        low, high = (
            (low + a[at], high + b[at]) if exponent > 0 else (low - b[at], high - a[at])
        )
        if (
            relation.has_baseline and name == relation.target
        ):  # over the printed number of the baseline, unless it is 1
            is_printed = ~np.isnan(a) & ~is_one(target, relation.shift)
            low -= np.where(is_printed, b, 0.0)[firsts]
            high -= np.where(is_printed, a, 0.0)[firsts]
    is_broken = (low > 0) | (high < 0)
    if relation.has_baseline:
        is_broken &= rows != firsts
    return set(rows[is_broken].tolist())


def siblings(broken: Set[int], baselines: Mapping[int, int]) -> set[int]:
    """Rows with the same baseline as a broken one, at most MOST_SIBLINGS of each."""
    left = dict.fromkeys((baselines[row] for row in broken), MOST_SIBLINGS)
    found = set()
    for row, baseline in baselines.items() if left else ():
        if left.get(baseline, 0):
            left[baseline] -= 1
            found.add(row)
    return found


def broken_sums(target: Column, parts: Sequence[Column], tolerance: float) -> set[int]:
    """Rows in which a sum does not hold."""
    low, high = target.low, target.high
    size = np.maximum(np.abs(low), np.abs(high))
    for part in parts:
        a, b = np.nan_to_num(part.low), np.nan_to_num(part.high)
        low, high, size = (
            low - b,
            high - a,
            np.maximum(size, np.maximum(np.abs(a), np.abs(b))),
        )
    return set(
        np.flatnonzero((low > tolerance * size) | (high < -tolerance * size)).tolist()
    )
