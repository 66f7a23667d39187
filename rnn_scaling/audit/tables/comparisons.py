"""Columns that a header sets against each other: "speedup (FP32 to mixed)", "Sequential | Parallel | Speedup".

Only two columns of one quantity and one unit are compared, and only those that the header names.
"""

from __future__ import annotations

from collections.abc import Sequence

from rnn_scaling.audit.tables import columns
from rnn_scaling.audit.tables.columns import COMPARED, Column, words_of
from rnn_scaling.audit.tables.grid import Grid
from rnn_scaling.audit.tables.kinds import Pair

_FALLS = ("seconds",)  # less is faster: the first is above the line


def stated(table: Grid, kinds: Sequence[Column], pair: Pair | None) -> dict[str, tuple[str, str]]:
    """Column -> (column above the line, column below it) of each comparison that a header states.

    Args:
      table: the grid.
      kinds: what each of its columns says.
      pair: its "Sequential | Parallel", if there is one.
    """
    out: dict[str, tuple[str, str]] = {}
    names = table.columns
    if pair:
        gains = [k for k, kind in enumerate(kinds) if kind.role == "speedup"]
        if len(gains) == 1:
            out[names[gains[0]]] = _pair_above(table, pair)
        return out
    for k, kind in enumerate(kinds):
        if kind.role != COMPARED:
            continue
        pair_of_columns = _named(table, kinds, k)
        if pair_of_columns:
            out[names[k]] = pair_of_columns
    return out


def _pair_above(table: Grid, pair: Pair) -> tuple[str, str]:
    """Time on one over time on several; where the two are rates, the other way round."""
    alone, together = table.columns[pair.alone], table.columns[pair.together]
    return (together, alone) if columns.recognise(table.base[pair.alone]).role == "rate" else (alone, together)


def _named(table: Grid, kinds: Sequence[Column], k: int) -> tuple[str, str] | None:
    """The two columns that "speedup (A to B)" names, of one quantity; None where none or several may be meant."""
    match = columns.FROM_TO.fullmatch(columns.plain(table.columns[k]))
    if not match:
        return None
    first, second = words_of(match["first"]), words_of(match["second"])
    pairs = [
        (a, b)
        for a in _holding(table, kinds, k, first, second)
        for b in _holding(table, kinds, k, second, first) or _holding(table, kinds, k, second, frozenset())
        if a != b
        and kinds[a].quantity == kinds[b].quantity
        and _rest(table, a, first | second) == _rest(table, b, first | second)
    ]
    wanted = columns.recognise(match["of"].replace("speedup", "").strip()).role
    pairs = [pair for pair in pairs if kinds[pair[0]].role == wanted] or pairs if wanted else pairs
    rates = [pair for pair in pairs if kinds[pair[0]].role in columns.RATES]
    pairs = rates or [pair for pair in pairs if kinds[pair[0]].role in _FALLS]
    if len(pairs) != 1:
        return None
    a, b = pairs[0]
    names = table.columns
    return (names[a], names[b]) if kinds[a].role in _FALLS else (names[b], names[a])


def _holding(table: Grid, kinds: Sequence[Column], k: int, wanted: frozenset[str], other: frozenset[str]) -> list[int]:
    """Measured columns whose headers hold all of the wanted words, and not all of the other's."""
    return [
        i
        for i, kind in enumerate(kinds)
        if i != k and kind.role in columns.TIMED and wanted <= words_of(table.columns[i])
        and not (other - wanted and other <= words_of(table.columns[i]))
    ]  # fmt: skip


def _rest(table: Grid, k: int, but: frozenset[str]) -> frozenset[str]:
    return words_of(table.columns[k]) - but - {"precision"}
