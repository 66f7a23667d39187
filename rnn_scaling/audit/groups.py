"""Series and baselines: which rows of a view are compared with which."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rnn_scaling.audit import headers
from rnn_scaling.audit.tables import Column, Item, View

SETTINGS = ("setting", "batch", "global_batch", "epochs", "work")
RULES = {"fewest devices": 0.0, "unit": 1.0, "named": 1.0, "first": 1.5, "last": 5.0}  # their price in bits

Groups = dict[str, list[list[int]]]


def groupings(view: View) -> Groups:
    """Ways to put rows into series, by name: all together, by labels, by labels and settings, by one label."""
    width = len(view.labels[0]) if view.labels else 0
    settings = [column for column in view.columns if column.quantity in SETTINGS]
    keys: dict[str, Callable[[int], object]] = {"all": lambda row: ()}
    if width:
        keys["labels"] = lambda row: view.labels[row]
    if settings:
        keys["settings"] = lambda row: (view.labels[row], tuple(_value(column, row) for column in settings))
    for k in range(min(width, 4) if width > 1 else 0):
        keys[f"label {k}"] = lambda row, k=k: view.labels[row][k]  # type: ignore[misc]
    found: Groups = {}
    for name, key in keys.items():
        parts: dict[object, list[int]] = {}
        for row in range(len(view.lines)):
            parts.setdefault(key(row), []).append(row)
        rows = list(parts.values())
        if rows not in found.values() and len(rows) < max(2, len(view.lines)):
            found[name] = rows
    return found


def _value(column: Column, row: int) -> float | None:
    item = column.items[row]
    return item.number.value if item else None


def baselines(
    view: View, target: Column, sources: Sequence[Column], parts: Sequence[Sequence[int]]
) -> dict[str, dict[int, int]]:
    """By rule of RULES the baseline row of each row; of rules that choose the same rows only the first."""
    devices = next((view.columns[k] for k in view.of("devices")), None)
    by_rule: dict[str, dict[int, int]] = {}
    for rows in parts:
        usable = [row for row in rows if all(column.items[row] for column in sources)]
        for rule, baseline in _chosen(view, devices, target, usable):
            by_rule.setdefault(rule, {}).update(dict.fromkeys(rows, baseline))
    unique: dict[tuple[int, ...], str] = {}
    for rule in RULES:
        if rule in by_rule:
            unique.setdefault(tuple(sorted(set(by_rule[rule].values()))), rule)
    return {rule: by_rule[rule] for rule in unique.values()}


def _chosen(view: View, devices: Column | None, target: Column, rows: Sequence[int]) -> Iterator[tuple[str, int]]:
    """(rule, baseline) of the rows of one series that have all numbers."""
    if not rows:
        return
    counted = [(item.low, row) for row in rows if devices and (item := devices.items[row])]
    if counted:
        yield "fewest devices", min(counted)[1]
    units = [(abs(item.low + item.high - 2), row) for row in rows if (item := target.items[row]) and is_one(item)]
    if units:
        yield "unit", min(units)[1]
    named = [row for row in rows if any(headers.is_baseline(label) for label in view.labels[row])]
    if named:
        yield "named", named[0]
    yield "first", rows[0]
    yield "last", rows[-1]


def is_one(item: Item) -> bool:
    """Whether a number is printed as 1 or 100 %."""
    return item.low <= 1.0 <= item.high
