"""Two columns exchanged in some rows: their shares mirror those of the other rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from rnn_scaling.audit.checks.context import Context, name_line
from rnn_scaling.audit.finding import IMPOSSIBLE, UNLIKELY, Finding
from rnn_scaling.audit.scaling_table import ASIDE, Cell, GridRow, ScalingTable

NAME = "swapped"
# Put right, the logarithms of the ratios of the two columns must agree this well, against their size and by themselves
# (0.25: the ratios within 28 %); honest columns that cross do not mirror.
_SPREAD, _WIDEST = 0.15, 0.25
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
        if b == a + 1 and _unit(table, a) == _unit(table, b):
            yield from _pair(table, a, b)


def _unit(table: ScalingTable, k: int) -> str:
    """Role and unit: only like quantities are exchanged by mistake without it being seen."""
    units = {line.cells[k].unit for line in table.grid if line.cells[k]}
    return f"{table.roles.get(table.columns[k], '')}/{min(units, default='')}"


def _pair(table: ScalingTable, a: int, b: int) -> Iterator[Finding | None]:
    lines = [line for line in table.grid if _positive(line, a) and _positive(line, b)]
    lines = [line for line in lines if _apart(line.cells[a], line.cells[b])]
    if len(lines) < 3:
        return
    ratios = [math.log(line.cells[a].value / line.cells[b].value) for line in lines]
    above = [ratio > 0 for ratio in ratios]
    put_right = [abs(ratio) for ratio in ratios]
    middle = statistics.median(put_right)
    mixed = any(above) and not all(above)
    if not mixed or middle < _DISTINCT or max(put_right) - min(put_right) > min(_SPREAD * middle, _WIDEST):
        yield from (None for _ in lines)
        return
    usual = 2 * sum(above) > len(above) if 2 * sum(above) != len(above) else above[0]
    for line, high in zip(lines, above):
        yield (
            None
            if high == usual
            else _finding(table, line, a, b, 1 / (1 + math.exp(-middle)), len(lines), above.count(usual))
        )


def _positive(line: GridRow, k: int) -> bool:
    return line.cells[k] is not None and line.cells[k].value > 0


def _apart(one: Cell, other: Cell) -> bool:
    """Whether one number is larger beyond the spread that is printed beside it."""
    return abs(one.value - other.value) > one.spread + other.spread


def _finding(table: ScalingTable, line: GridRow, a: int, b: int, share: float, count: int, usual: int) -> Finding:
    first, second = line.cells[a].text, line.cells[b].text
    columns = f"{table.columns[a]} / {table.columns[b]}"
    cause = (
        f"the two columns are exchanged here, or in the {usual} of {count} rows that are the other way round: the "
        f"larger one is {100 * share:.0f} % of both in every row"
    )
    clear = usual >= 3 * (count - usual)
    return Finding(
        NAME, IMPOSSIBLE if clear else UNLIKELY, table.source, line.line, name_line(table, line), columns,
        f"{first} / {second}", f"{second} / {first}", cause,
    )  # fmt: skip
