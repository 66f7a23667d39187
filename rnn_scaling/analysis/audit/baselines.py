"""Choose the rows that other rows are compared with.

The rows of a table are grouped, and each group has one baseline. All groupings and all
rules that choose a baseline are tried; the prices say which are more usual.

`candidates` tries the result of `list_choices` for each relation.
"""

import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rnn_scaling.analysis.audit.relations import NO_SHIFT, Shift
from rnn_scaling.records.tables import headers
from rnn_scaling.records.tables.measurements import Column, Measurements, group_rows
from rnn_scaling.records.tables.series import make_series_keys

# Price in bits of the rules that choose a baseline among the rows of a group.
_RULES = {
    "devices": 0.0,  # the fewest
    "named": 0.0,  # the name of the row, or the text instead of a number
    "first": 1.5,
}
_PRINTED_ONE = 1.5  # bits if the baselines print 1, and price if they do not
_MAX_LABELS = 4
_EXACT = 1e-9  # rounding errors of floating point
Keys = Callable[[Measurements], Iterable[Hashable]]  # the group of each row


class Choice(NamedTuple):
    """A baseline for every row."""

    base: np.ndarray  # the baseline row of each row; -1 without a baseline
    keys: Keys | None = None  # how the rows were put into groups
    rule: str = ""  # how the baseline of a group was chosen
    price: float = 0.0  # bits


def does_print_one(column: Column, shift: Shift = NO_SHIFT) -> np.ndarray:
    """Return by row whether a number is printed as 1 or 100 %, or as no change."""
    one = shift[1] * (1.0 - shift[0])
    # The bounds also allow numbers that were cut off.
    upper_limit = column.low + 2 / 3 * (column.high - column.low)
    return (column.low <= one) & (one <= upper_limit + _EXACT)


def _label_keys(k: int, layout: Measurements) -> Iterable[Hashable]:
    return [names[k] for names in layout.labels]


def _list_value_keys(k: int, layout: Measurements) -> Iterable[Hashable]:
    items = layout.columns[k].items
    return [item and item.number.value for item in items]


@functools.lru_cache(maxsize=4)
def _list_groupings(layout: Measurements) -> list[tuple[Keys, list[list[int]]]]:
    """Return the keys and the groups of every grouping."""
    num_rows = len(layout.lines)
    all_keys: list[Keys] = [
        lambda layout: [0] * len(layout.lines),
        make_series_keys,
    ]
    num_labels = len(layout.labels[0]) if layout.labels else 0
    all_keys += [functools.partial(_label_keys, k) for k in range(num_labels)][
        :_MAX_LABELS
    ]
    for k, column in enumerate(layout.columns):
        values = column.value_counts
        if 1 < len(values) <= num_rows / 2 and all(value % 1 == 0 for value in values):
            all_keys.append(functools.partial(_list_value_keys, k))
    groupings: list[tuple[Keys, list[list[int]]]] = []
    for keys in all_keys:
        groups = list(group_rows(keys(layout)).values())
        is_new = all(groups != others for _, others in groupings)
        if is_new and len(groups) < max(2, num_rows):
            groupings.append((keys, groups))
    return groupings


def list_choices(
    layout: Measurements, columns: Sequence[int], shift: Shift
) -> Iterator[Choice]:
    """Yield the ways to choose baselines, without two that choose the same rows.

    Args:
      layout: The table.
      columns: The target and the sources of a relation.
      shift: The shift and the sign of the target; see `relations.Shift`.
    """
    seen_rows = set()
    for keys, groups in _list_groupings(layout):
        for rule, price in _RULES.items():
            base = _choose(layout, columns, groups, rule)
            mark = base.tobytes()
            if mark not in seen_rows and (base >= 0).any():
                seen_rows.add(mark)
                rows = np.unique(base[base >= 0])
                price += _compute_improbability(layout.columns[columns[0]], rows, shift)
                yield Choice(base, keys, rule, price)


def choose_again(
    layout: Measurements, columns: Sequence[int], choice: Choice
) -> Choice:
    """Return a choice in the first rows of a table for all of its rows."""
    if choice.keys is None:
        return Choice(np.arange(len(layout.lines)))
    groups = list(group_rows(choice.keys(layout)).values())
    base = _choose(layout, columns, groups, choice.rule)
    return choice._replace(base=base)


def _choose(
    layout: Measurements,
    columns: Sequence[int],
    groups: Sequence[Sequence[int]],
    rule: str,
) -> np.ndarray:
    """Return the baseline row of each row by a rule, or -1."""
    target, *sources = [layout.columns[k] for k in columns]
    base = np.full(len(layout.lines), -1)
    has_sources = np.all([~np.isnan(source.low) for source in sources], axis=0)
    devices = layout.devices.low if layout.devices else np.full(len(base), np.nan)
    for group in groups:
        rows = [row for row in group if has_sources[row]]
        with_devices = [row for row in rows if not np.isnan(devices[row])]
        if rule == "devices":
            rows = sorted(with_devices, key=devices.__getitem__)
        elif rule == "named":
            rows = [row for row in rows if _names_baseline(layout, target, row)]
        if rows:
            base[group] = rows[0]
    return base


def _names_baseline(layout: Measurements, target: Column, row: int) -> bool:
    """Return whether a row is called a baseline, or its cell instead of a number."""
    texts = list(layout.labels[row])
    table_rows = layout.table.rows
    if not target.items[row] and len(table_rows) == len(layout.lines):
        (_, k), *_ = [item.position for item in target.items if item]
        texts += table_rows[row][1][k : k + 1]
    return headers.is_baseline(" ".join(texts))


def _compute_improbability(target: Column, rows: np.ndarray, shift: Shift) -> float:
    """Return how much less likely it is that these rows are the baselines."""
    printed_rows = rows[~np.isnan(target.low[rows])]
    is_one = bool(does_print_one(target, shift)[printed_rows].all())
    if not len(printed_rows) or not (target.is_derived or is_one):
        return 0.0
    return -_PRINTED_ONE if is_one else _PRINTED_ONE
