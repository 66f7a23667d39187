"""Numbers that no measurement gives: negative, not a number, no devices or half a one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.finding import IMPOSSIBLE, Finding, name_line, name_row
from rnn_scaling.audit.scaling_table import ASIDE, Cell, ScalingTable

NAME = "values"
_NOT_A_NUMBER = re.compile(r"[-+]?(?:nan|inf(?:inity)?)(?:\s*[%x])?", re.IGNORECASE)
# No worker beside the process itself, no accelerator beside the processor.
_NONE_IS_MEANT = re.compile(r"thread|worker|process|gpu|tpu|npu|accelerator|\bcards?\b|cuda")
_FIELDS = ("batch_size", "global_batch_size", "batches", "seconds", "rate", "speedup", "efficiency", "work")


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each number that cannot be, in the columns that are understood."""
    fields = {k: table.roles[name] for k, name in enumerate(table.columns) if table.roles.get(name, ASIDE) != ASIDE}
    fields = {k: field for k, field in fields.items() if field != "devices" or _counts(table, k)}
    for k in (k for k, field in fields.items() if field == "efficiency"):
        yield from _sign_lost(table, k)
    none_is_meant = {k for k, field in fields.items() if field == "devices" and _starts_without(table, k)}
    for line in table.grid:
        for k, field in fields.items():
            cell, text = line.cells[k], line.texts[k]
            if not text or (cell is not None and cell.value > 0 and field != "devices"):
                continue
            if k in none_is_meant and cell is not None and cell.value == 0:
                continue  # "0 GPUs": on the processor alone
            wrong = _wrong(field, cell, text, table.columns[k])
            if wrong:
                yield Finding(
                    NAME, IMPOSSIBLE, table.source, line.line, name_line(table, line), table.columns[k], text, *wrong
                )
    if table.grid:
        return
    for row in table.rows:
        for field in _FIELDS:
            cell = getattr(row, field)
            wrong = _wrong(field, cell, cell.text) if cell else None
            if wrong:
                yield Finding(NAME, IMPOSSIBLE, row.source, row.line, name_row(row), field, cell.text, *wrong)


def _sign_lost(table: ScalingTable, k: int) -> Iterator[Finding]:
    """The only number of a column that has no per cent sign, and is as large as theirs."""
    cells = [(line, cell) for line in table.grid if (cell := line.cells[k])]
    bare = [(line, cell) for line, cell in cells if cell.unit != "%"]
    if len(bare) == 1 and len(cells) > 2 and bare[0][1].value not in (1.0, 100.0):
        line, cell = bare[0]
        others = [100 * other.value for _, other in cells if other is not cell]
        if min(others) / 2 < cell.value < 2 * max(others):
            yield Finding(
                NAME, IMPOSSIBLE, table.source, line.line, name_line(table, line), table.columns[k], cell.text,
                f"{cell.text}%", "the per cent sign, which the other numbers of the column have, is missing",
            )  # fmt: skip


def _counts(table: ScalingTable, k: int) -> bool:
    """Whether most numbers of a column are whole: "1.152" thousands of GPUs, or a load, is no count that is wrong."""
    values = [float(cell.value).is_integer() for line in table.grid for cell in line.numbers([k])]
    return 2 * sum(values) > len(values)


def _starts_without(table: ScalingTable, k: int) -> bool:
    """Whether the counts begin at 0 again and again, or several rows have none."""
    return sum(cell.value == 0 for line in table.grid for cell in line.numbers([k])) > 1


def _wrong(field: str, cell: Cell | None, text: str, header: str = "") -> tuple[str, str] | None:
    """(expected, cause), or None when the number can be."""
    if cell is None:
        if _NOT_A_NUMBER.fullmatch(text):
            return "a number", "a division by zero or a failed run; the row is left out of the comparisons"
        return None
    if field == "devices" and cell.value == 0 and _NONE_IS_MEANT.search(header.lower()):
        return None
    if field == "devices" and (cell.value < 1 or not float(cell.value).is_integer()):
        return "a whole number from 1 up", "no run has this many devices; the row is left out of the comparisons"
    if cell.value < 0 and text != "-1" and not (field == "speedup" and cell.unit == "%"):  # -1: not measured
        return "a number above 0", "a wrong sign, or a clock that was set back; left out of the comparisons"
    return None
