"""Which two columns another one compares: by its header, by theirs, or by what most rows bear out.

"speedup (FP32 to mixed)", "Sequential | Parallel | Speedup", "old | new | gain": no speedup of devices. Only columns of
one quantity and one unit are compared.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Sequence

from rnn_scaling.audit import rounding
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import FLOAT_SLACK, Cell
from rnn_scaling.audit.tables import columns
from rnn_scaling.audit.tables import vocabulary as words
from rnn_scaling.audit.tables.columns import COMPARED, Column, words_of
from rnn_scaling.audit.tables.devices import Devices
from rnn_scaling.audit.tables.grid import Grid
from rnn_scaling.audit.tables.kinds import Pair

_FALLS = ("seconds",)  # less is faster: the first is above the line
_BEFORE = re.compile(rf"\b(?:{words.BEFORE})\b")
_AFTER = re.compile(rf"\b(?:{words.AFTER})\b")
_GAIN = re.compile(r"speed-? ?up|\bgain\b|faster|improvement|\bratio\b|reduction|overhead")
_SPEEDUP = frozenset({"speedup", "speed", "up", "x"})
_COMPARED = ("", "latency", "time", "compute rate")
_KNOWN = 0.06  # numbers that are known better do not fit by chance
_TRIED = 8  # columns on the left of a speedup that it may compare
_MANY = 32  # speedups of one table; of more, each is tried with the two columns beside it


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


def borne_out(table: Grid, kinds: Sequence[Column], devices: Devices) -> dict[int, tuple[int, int]]:
    """Speedup column -> (column above the line, column below it), where it compares two columns of its own row.

    It does when their headers say before and after, or when most rows bear it out and the devices do not.

    Args:
      table: the grid.
      kinds: what each of its columns says.
      devices: where its devices stand.
    """
    gains = [k for k, kind in enumerate(kinds) if kind.role == "speedup" or _says_gain(table, kinds, k)]
    numeric = [k for k, kind in enumerate(kinds) if _may_be_compared(kind) and any(row.cells[k] for row in table.rows)]
    numeric = [k for k in numeric if k not in devices.columns]
    tried = _TRIED if len(gains) <= _MANY else 2
    out: dict[int, tuple[int, int]] = {}
    for k in gains:
        at = bisect.bisect_left(numeric, k)
        near = numeric[max(0, at - tried) : at] or numeric[at : at + tried]
        pairs = [(a, b) for a in near for b in near if a != b and kinds[a].quantity == kinds[b].quantity]
        about = words_of(table.columns[k]) - _SPEEDUP  # "MCMC speedup" is of two columns that say MCMC
        named = [i for i in near if about <= words_of(table.columns[i])] or near
        said = [pair for pair in pairs if {*named} == {*pair} and _says(table, kinds, *pair)]
        said = said if kinds[k].role == "speedup" else []
        timed = [i for i in near if kinds[i].role] or near
        rows = {pair: _bearing_out(table, k, *pair, alone={*timed} == {*pair}) for pair in pairs}
        best = max(pairs, key=lambda pair: (rows[pair], k - 1 in pair), default=None)
        if len(timed) > 2 and columns.OF_SEVERAL.search(columns.plain(table.columns[k])):
            continue
        compared = best if best and rows[best] else said[0] if len(said) == 1 else None
        if compared and not _is_of_devices(table, k, kinds, devices):
            out[k] = compared
    return out


def _says_gain(table: Grid, kinds: Sequence[Column], k: int) -> bool:
    """Whether a header without another meaning names a comparison, of whatever, and not which columns it compares."""
    is_free = _named(table, kinds, k) is None if kinds[k].role == COMPARED else not kinds[k].quantity
    return is_free and _GAIN.search(columns.plain(table.columns[k])) is not None


def _may_be_compared(kind: Column) -> bool:
    return kind.role in columns.TIMED or (not kind.role and kind.other in _COMPARED)


def _says(table: Grid, kinds: Sequence[Column], top: int, bottom: int) -> bool:
    """Whether the headers say before and after: of times the first is above the line, of rates the second."""
    names = [columns.plain(table.columns[k]) for k in (top, bottom)]
    if kinds[top].role in columns.RATES:
        names.reverse()
    before, after = names
    return bool(_BEFORE.search(before) and _AFTER.search(after)) and not (
        _AFTER.search(before) and _BEFORE.search(after)
    )


def _bearing_out(table: Grid, k: int, top: int, bottom: int, alone: bool) -> int:
    """How many rows say that the speedup is the ratio of two columns; 0 unless two and half of them do, not always 1.

    Where no other columns may be meant (`alone`), it is enough that it is so in one row of two, or that every row is
    off by one factor.
    """
    rows = [
        (g, a, b) for row in table.rows if (g := row.cells[k]) and (a := row.cells[top]) and (b := row.cells[bottom])
    ]
    rows = [(g, a, b) for g, a, b in rows if min(g.value, a.value, b.value) > 0]
    fits = [g for g, a, b in rows if rounding.of(g).meets(rounding.of(a) / rounding.of(b))]
    good = sum(not rounding.of(g).meets(rounding.point(1.0)) for g in fits)
    if alone and len(rows) == len(table.rows) == 2:
        return good * all(cell.half_ulp < _KNOWN * cell.value for cells in rows for cell in cells)
    if alone and len(rows) > 2 and not good:
        ratios = [rounding.of(g) * rounding.of(b) / rounding.of(a) for g, a, b in rows]
        return 0 if rounding.one_factor(ratios) is None else len(rows)
    return len(fits) if good > 1 and 2 * len(fits) >= len(rows) else 0


def _is_of_devices(table: Grid, k: int, kinds: Sequence[Column], devices: Devices) -> bool:
    """Whether at least as many rows as not have the speedup that the rows on the fewest devices give."""
    if devices.values is None:
        return False
    counted = [(int(n.value), row) for n, row in zip(devices.values, table.rows) if n and n.value >= 1]
    first = min((n for n, _ in counted), default=0)
    for i, kind in enumerate(kinds):
        if kind.role not in columns.TIMED:
            continue
        bases = [cell for n, row in counted if n == first and (cell := row.cells[i]) and cell.value > 0]
        rest = [(g, cell) for n, row in counted if n > first and (g := row.cells[k]) and (cell := row.cells[i])]
        needed = [_base(g, cell, kind.role) for g, cell in rest if cell.value > 0]
        if rest and 2 * _meeting_any(needed, [rounding.of(cell) for cell in bases]) >= len(rest):
            return True
    return False


def _base(gain: Cell, cell: Cell, role: str) -> Bounds:
    """What a number is compared with where it is faster by `gain`."""
    return rounding.of(cell) * rounding.of(gain) if role == "seconds" else rounding.of(cell) / rounding.of(gain)


def _meeting_any(values: Sequence[Bounds], others: Sequence[Bounds]) -> int:
    """How many of the values meet one of the others."""
    by_low = sorted(others, key=lambda other: other.low)
    lows, highest = [other.low for other in by_low], list(itertools.accumulate((other.high for other in by_low), max))
    values = [value.widened(FLOAT_SLACK) for value in values]
    begun = [bisect.bisect_right(lows, value.high) for value in values]
    return sum(at > 0 and highest[at - 1] >= value.low for at, value in zip(begun, values))
