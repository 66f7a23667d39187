"""Two columns exchanged in some rows: their shares mirror those of the other rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.finding import IMPOSSIBLE, UNLIKELY, Finding, name_line
from rnn_scaling.audit.scaling_table import ASIDE, Cell, ScalingTable

NAME = "swapped"
# Put right, the logarithms of the ratios of the two columns must agree this well, against their size and by themselves
# (0.25: the ratios within 28 %); honest columns that cross do not mirror.
_SPREAD, _WIDEST = 0.15, 0.25
_LINES = 4
_DISTINCT = 0.2  # columns whose ratio is nearer to 1 look the same when exchanged
_NOT_PAIRED = ("devices", "batch_size", "global_batch_size", "batches", "speedup", "efficiency", ASIDE)


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each row in which two neighbouring columns are exchanged; None for each that is in order."""
    numeric = [
        k for k, name in enumerate(table.columns)
        if table.roles.get(name) not in _NOT_PAIRED and sum(c is not None for c in (r.cells[k] for r in table.grid)) > 2
    ]  # fmt: skip
    for a, b in zip(numeric, numeric[1:]):
        whole = f"{table.columns[a]}: "
        if b == a + 1 and table.columns[b].startswith(whole):
            continue  # a sum and its first part
        if b == a + 1 and (unit := _unit(table, a)) is not None and unit == _unit(table, b):
            yield from _pair(table, a, b)


def _unit(table: ScalingTable, k: int) -> str | None:
    """Role and unit: only like quantities are exchanged without it being seen. None: the lines have several."""
    units = {cell.unit for line in table.grid for cell in line.numbers([k])}
    return f"{table.roles.get(table.columns[k], '')}/{min(units, default='')}" if len(units) <= 1 else None


def _pair(table: ScalingTable, a: int, b: int) -> Iterator[Finding | None]:
    lines = [
        (line, first, second) for line in table.grid
        if (first := line.cells[a]) and (second := line.cells[b]) and _apart(first, second)
    ]  # fmt: skip
    if len(lines) < _LINES or all(cell.value < 100 and cell.digits <= 0 for _, *pair in lines for cell in pair):
        return  # too few to mirror each other, or small counts, of which many do by chance
    ratios = [math.log(first.value / second.value) for _, first, second in lines]
    above = [ratio > 0 for ratio in ratios]
    put_right = [abs(ratio) for ratio in ratios]
    middle = statistics.median(put_right)
    mixed = any(above) and not all(above)
    if not mixed or middle < _DISTINCT or max(put_right) - min(put_right) > min(_SPREAD * middle, _WIDEST):
        yield from (None for _ in lines)
        return
    pairs = {(first.value, second.value) for _, first, second in lines if max(first.digits, second.digits) <= 0}
    if any((second, first) in pairs for first, second in pairs):
        return  # shapes: one line has exactly the numbers of another, the other way round
    usual = 2 * sum(above) > len(above) if 2 * sum(above) != len(above) else above[0]
    columns = f"{table.columns[a]} / {table.columns[b]}"
    cause = (
        f"the two columns are exchanged here, or in the {above.count(usual)} of {len(lines)} rows that are the other "
        f"way round: the larger one is {100 / (1 + math.exp(-middle)):.0f} % of both in every row"
    )
    kind = IMPOSSIBLE if 4 * above.count(usual) >= 3 * len(lines) else UNLIKELY
    for (line, first, second), high in zip(lines, above):
        yield None if high == usual else Finding(
            NAME, kind, table.source, line.line, name_line(table, line), columns,
            f"{first.text} / {second.text}", f"{second.text} / {first.text}", cause,
        )  # fmt: skip


def _apart(one: Cell, other: Cell) -> bool:
    """Whether both are above zero, and one is larger beyond the spread that is printed beside it."""
    return min(one.value, other.value) > 0 and abs(one.value - other.value) > one.spread + other.spread
