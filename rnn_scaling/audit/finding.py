"""What a check reports: where, what stands there, what should, and the likely cause."""

from __future__ import annotations

import bisect
import dataclasses

from rnn_scaling.audit import misprints
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import Cell, GridRow, ScalingRow, ScalingTable, parse_cell

IMPOSSIBLE = "impossible"  # contradicts other numbers of the table by more than their rounding
UNLIKELY = "unlikely"  # possible, but out of line with what stands beside it


@dataclasses.dataclass(frozen=True)
class Finding:
    """One number, or one column, that does not fit.

    kind: IMPOSSIBLE or UNLIKELY.
    row: the row in the table's own words ("kuza55, 7gforce, 4 devices").
    stands, expected: the number as printed, and what it should be with the bounds that rounding leaves.
    others: further lines of the same cause.
    """

    check: str
    kind: str
    source: str
    line: int
    row: str
    column: str
    stands: str
    expected: str
    cause: str
    others: tuple[int, ...] = ()


def of_row(
    check: str, kind: str, table: ScalingTable, row: ScalingRow, field: str, expected: Bounds | str, cause: str,
    also: str = "", stands: str = "",
) -> Finding:  # fmt: skip
    """The finding of one number of a point.

    Args:
      check, kind, cause: of the finding.
      table, row, field: whose number it is.
      expected: what it should be.
      also: words for the rows that the finding is of as well.
      stands: what is printed, where that is more than the number.
    """
    value = getattr(row, field)
    cell = value if isinstance(value, Cell) else None
    return Finding(
        check, kind, row.source, row.line, name_row(row) + also, column_of(table, field, row),
        stands or (cell.text if cell else str(value)),
        expected if isinstance(expected, str) else expect(expected, cell), cause,
    )  # fmt: skip


def of_cell(check: str, table: ScalingTable, line: GridRow, k: int, expected: Bounds, cause: str) -> Finding:
    """The finding that one number of a grid cannot be, with a guess at why not.

    Args:
      check: whose finding it is.
      table, line, k: table, line and column of the number.
      expected: what it should be.
      cause: what it is not.
    """
    cell = line.cells[k]
    assert cell
    where = (table.source, line.line, name_line(table, line), table.columns[k])
    guess = misprints.guess(cell, expected)
    return Finding(check, IMPOSSIBLE, *where, cell.text, expect(expected, cell), f"{cause}: {guess}")


def name_line(table: ScalingTable, line: GridRow) -> str:
    """A line of a table by its first cell, or its first two where the first repeats."""
    first = line.texts[0] if line.texts else ""
    if not first:
        return f"line {line.line}"
    repeated = sum(row.texts[0] == first for row in table.grid[:1000]) > 1 and len(line.texts) > 1
    column = table.columns[0]
    return ", ".join([f"{column} {first}", *([f"{table.columns[1]} {line.texts[1]}"] if repeated else [])])


def name_row(row: ScalingRow) -> str:
    """A row in the words of its table."""
    devices = "" if row.devices is None else f"{row.devices} device{'s' if row.devices != 1 else ''}"
    return ", ".join(part for part in (row.series, devices) if part) or f"line {row.line}"


def column_of(table: ScalingTable, field: str, row: ScalingRow) -> str:
    """The header of the column that was read as `field`, or the field's own name.

    Args:
      table: whose columns they are.
      field: of ScalingRow.
      row: of several columns that were read so ("speedup" once a precision) that counts in which its number stands.
    """
    columns = [column for column, role in table.roles.items() if role == field]
    value = getattr(row, field, None)
    if value is None or len(columns) < 2:
        return columns[0] if columns else field.replace("_", " ")
    at = bisect.bisect_left(table.grid, row.line, key=lambda line: line.line)
    lines = table.grid[at : at + 1]
    text = str(value) if isinstance(value, int) else value.text
    holding = [c for c in columns for line in lines if text in line.texts[table.columns.index(c)]]
    named = [c for c in holding or columns if any(part and part in c for part in row.series.split(" / "))]
    return (named or holding or columns)[0]


def show(value: float, like: Cell | None = None) -> str:
    """A number with the decimals and the unit of the cell that it is compared with, and one decimal more."""
    if like is None:
        return f"{value:.6g}"
    percent = like.unit == "%"
    raw = None if percent else parse_cell(like.text)
    if raw and raw.value and like.value and raw.unit != "%":  # milliseconds, as they are printed
        value, like = value * (raw.value / like.value), raw
    digits = max(0, min(9, like.digits - (2 if percent else 0)) + 1)
    if like.digits >= 9:
        return f"{value:.9g}"
    unit = "%" if percent else "x" if like.unit in ("x", "X", "×") else ""
    return f"{value * (100 if percent else 1):.{digits}f}{unit}"


def expect(bounds: Bounds, like: Cell | None = None) -> str:
    """Expected value with its bounds."""
    return f"{show(bounds.middle, like)} [{show(bounds.low, like)}, {show(bounds.high, like)}]"
