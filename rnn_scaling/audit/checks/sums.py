"""Totals that are not the sum of their parts: "12 [5 / 7]", a total column, a total line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rnn_scaling.audit.checks.context import Context, near
from rnn_scaling.audit.finding import Finding, of_cell
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import ASIDE, Cell, ScalingTable
from rnn_scaling.audit.tables.columns import plain

NAME = "sums"
_TOTAL = re.compile(r"\b(?:total|sum|altogether|overall|all)\b")
_VAGUE = ("overall", "all")
_NO_SUM = re.compile(
    r"speed-? ?up|ratio|gain|faster|improve|change|reduc|%|flops"
    r"|\b(?:mean|median|average|avg|p\d\d|max|min|peak|[mh]fu|util\w*)\b"
)
_NOT_SUMMED = (
    *("rate", "rate_each", "speedup", "efficiency", "devices", "batch_size", "batches", "global_batch_size"),
    ASIDE,
)


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each total that is not the sum of its parts; None for each that is."""
    parts_of: dict[str, list[int]] = {}
    for i, name in enumerate(table.columns):
        for end in (match.start() for match in re.finditer(": ", name)):
            parts_of.setdefault(name[:end], []).append(i)
    units = {k: {cell.unit for line in table.grid if (cell := line.cells[k])} for k in range(len(table.columns))}
    for k, name in enumerate(table.columns):
        parts = parts_of.get(name, [])
        if not parts and _TOTAL.search(plain(name)) and table.roles.get(name) not in _NOT_SUMMED:
            parts = [i for i in _addends(table, k) if units[i] == units[k]]
        if len(parts) > 1:
            yield from _column(table, k, parts)
    yield from _total_line(table)


def _addends(table: ScalingTable, k: int) -> list[int]:
    """Columns to the left that the total of column k may be made of: those with its words but for "total"."""
    words = set(re.findall(r"[a-z]+", _TOTAL.sub(" ", plain(table.columns[k]))))
    left = [i for i in near(table, k) if i < k and table.roles.get(table.columns[i]) not in _NOT_SUMMED]
    left = [i for i in left if any(line.cells[i] for line in table.grid)]
    return [i for i in left if words <= set(re.findall(r"[a-z]+", plain(table.columns[i])))]


def _column(table: ScalingTable, total: int, parts: Sequence[int]) -> Iterator[Finding | None]:
    lines = [
        (line, cell, addends) for line in table.grid
        if (cell := line.cells[total]) and len(addends := line.numbers(parts)) == len(parts)
    ]  # fmt: skip
    values = [_sum(addends) for _, _, addends in lines]
    holds = [_of(cell).meets(value) for (_, cell, _), value in zip(lines, values)]
    if not lines or 2 * sum(holds) < len(lines) or not any(holds):
        return  # another relation than a sum
    for (line, _, addends), value, good in zip(lines, values, holds):
        made_of = " + ".join(addend.text for addend in addends)
        yield None if good else of_cell(NAME, table, line, total, value, f"not the sum of {made_of}")


def _total_line(table: ScalingTable) -> Iterator[Finding | None]:
    lines = table.grid
    named = plain(next((text for text in lines[-1].texts if text), "")) if len(lines) > 2 else ""
    if not _TOTAL.fullmatch(named):
        return
    sums: list[tuple[int, Cell, Bounds, int]] = []
    for k, name in enumerate(table.columns):
        cells = [cell for line in lines[:-1] for cell in line.numbers([k])]
        total = lines[-1].cells[k]
        added = table.roles.get(name) not in ("speedup", "efficiency", ASIDE) and not _NO_SUM.search(plain(name))
        if total and len(cells) > 1 and added and len({cell.unit for cell in (*cells, total)} - {""}) < 2:
            sums.append((k, total, _sum(cells), len(cells)))
    if (named in _VAGUE or len(sums) > 1) and not any(_of(total).meets(value) for _, total, value, _ in sums):
        return  # the effect, or the mean, of all together
    for k, total, value, count in sums:
        good = _of(total).meets(value)
        cause = f"not the sum of the {count} lines above"
        yield None if good else of_cell(NAME, table, lines[-1], k, value, cause)


def _of(cell: Cell) -> Bounds:
    return Bounds(cell.low, cell.high)


def _sum(cells: Sequence[Cell]) -> Bounds:
    return sum(map(_of, cells), Bounds(0.0, 0.0))
