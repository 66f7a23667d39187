"""What is no quantity of its own: columns that bound the column before them, counts of runs, cells without a number."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from rnn_scaling.audit.scaling_table import ASIDE, Cell
from rnn_scaling.audit.tables import columns
from rnn_scaling.audit.tables.columns import Column
from rnn_scaling.audit.tables.grid import Grid

_MEASURED = ("seconds", "rate", "speedup", "efficiency", "work")
_MISSING = re.compile(
    r"n/?a|n\.a\.|[-–—]+|\?|error|failed|interrupted|crash(?:ed)?|oom|none|null|[-+]?(?:nan|inf(?:inity)?)(?:\s*[%x])?",
    re.IGNORECASE,
)


def apply(table: Grid, kinds: Sequence[Column]) -> tuple[Grid, list[Column]]:
    """Gives bounds, deviations and counts of runs the role ASIDE, and the numbers that they bound their spread."""
    out, bounds, value = list(kinds), {}, 0
    alone = _ends_without_a_number(table.columns)
    for k, name in enumerate(table.columns):
        bound = columns.bound(name)
        if columns.is_about_runs(name) or k in alone:
            out[k] = Column(ASIDE)
        elif bound and k > 0 and _bounds(table, kinds, value, bound[0]):
            out[k], bounds[k] = Column(ASIDE), (value, bound[1])
        else:
            value = k
    if not bounds:
        return table, out
    rows = tuple(dataclasses.replace(row, cells=_with_spreads(row.cells, bounds)) for row in table.rows)
    return dataclasses.replace(table, rows=rows), out


def _ends_without_a_number(names: Sequence[str]) -> set[int]:
    """The columns "within_run_low" and "within_run_high" of an interval whose number is under another name."""
    ends = {k: bound for k, name in enumerate(names) if (bound := columns.bound(name)) and bound[0]}
    stems = {"low": {stem for stem, end in ends.values() if end == "low"}}
    stems["high"] = {stem for stem, end in ends.values() if end == "high"}
    both = stems["low"] & stems["high"] - {columns.plain(name) for name in names}
    return {k for k, (stem, end) in ends.items() if stem in both and not columns.recognise(stem).role}


def _bounds(table: Grid, kinds: Sequence[Column], value: int, stem: str) -> bool:
    """Whether a bound of `stem` ("" where it says no more) is one of the column `value`."""
    if not any(row.cells[value] for row in table.rows):
        return False
    role = kinds[value].role
    if not stem:
        return role in _MEASURED
    same = columns.words_of(stem) <= columns.words_of(table.columns[value])
    return same or (role in _MEASURED and columns.recognise(stem).role == role)


def _with_spreads(cells: Sequence[Cell | None], bounds: Mapping[int, tuple[int, str]]) -> tuple[Cell | None, ...]:
    out = list(cells)
    for k, (value, end) in bounds.items():
        cell, limit = out[value], cells[k]
        if cell is None or limit is None:
            continue
        distance = {"low": cell.value - limit.value, "high": limit.value - cell.value, "width": limit.value}[end]
        out[value] = dataclasses.replace(cell, spread=max(cell.spread, distance))
    return tuple(out)


def is_missing(text: str) -> bool:
    """Whether a cell says that there is no number: "n/a", "-", "failed", ..."""
    return not text or _MISSING.fullmatch(text) is not None


def not_understood(table: Grid, kinds: Sequence[Column], roles: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each cell that is not a number, and says something, under a header that promises one.

    Args:
      table: the grid.
      kinds: what each of its columns is.
      roles: header -> field or ASIDE, of the columns that were read.
    """
    for k, name in enumerate(table.columns):
        odd = [row for row in table.rows if row.cells[k] is None and not is_missing(row.texts[k])]
        if not odd:
            continue
        if roles.get(name, ASIDE) != ASIDE:
            yield from (f"line {row.line}: {row.texts[k]!r} under {name!r} is no number; left out" for row in odd)
        elif not kinds[k].role and (said := columns.recognise(table.base[k])).sure and said.role in _MEASURED:
            example = f"{odd[0].texts[k]!r} at line {odd[0].line}"
            yield f"column {name!r}: no cell of it is a number ({example}); not compared"
