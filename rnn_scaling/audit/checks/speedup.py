"""Speedup = measured / measured of the baseline: the cell, or the column, that contradicts the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

from rnn_scaling.audit import misprints, rounding, verdicts
from rnn_scaling.audit.checks.context import Context, Judged
from rnn_scaling.audit.finding import IMPOSSIBLE, Finding, column_of, name_row, of_row
from rnn_scaling.audit.relations import TOTAL
from rnn_scaling.audit.rounding import Bounds
from rnn_scaling.audit.scaling_table import ScalingTable
from rnn_scaling.audit.verdicts import EFFICIENCY, SPEEDUP, Verdict, Wrong
from rnn_scaling.audit.whole_columns import WrongColumn

NAME = "speedup"


def check(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """Yields a finding for each speedup, baseline or column that does not fit; None for each comparison that holds."""
    for judged in context.judged(table):
        of_speedups = [finding for field, finding in findings(table, judged) if field != EFFICIENCY]
        yield from of_speedups
        yield from [None] * (judged.verdict.comparisons() - len(of_speedups))


def findings(table: ScalingTable, judged: Judged) -> Iterator[tuple[str, Finding]]:
    """(field, finding) of each wrong column and cell of one series; of the field EFFICIENCY another check tells."""
    for column in judged.columns:
        yield column.field, _of_column(table, column)
    for wrong in verdicts.wrong_cells(judged.rest):
        if getattr(wrong.row, wrong.field) is None:
            continue  # it is no number, which the notes say
        yield wrong.field, _of_cell(table, judged.rest, wrong)


def _of_column(table: ScalingTable, column: WrongColumn) -> Finding:
    row = column.rows[0]
    if column.against:
        name = column_of(table, column.field, row)
        fits = f"fits {column.against}" if not column.hits else f"fits in {column.hits} of the rows only"
        cause = f"the whole column {name} {fits}" + (f": {column.cause}" if column.cause else "")
    else:
        last = column.rows[-1]
        cause = column.cause
        if column.field == "rate" and last.rate and last.devices and "worker" in cause:
            total = last.devices * last.rate.value
            cause += f" in {len(column.rows)} rows (the last: {last.devices} x {last.rate.text} = {total:.6g})"
    rest = len(column.rows) - 1
    others = f" and {rest} other row{'s' if rest > 1 else ''}" if rest else ""
    by = EFFICIENCY if column.field == EFFICIENCY else SPEEDUP
    finding = of_row(by, IMPOSSIBLE, table, row, column.field, column.expected[0], cause, others)
    return dataclasses.replace(finding, others=tuple(other.line for other in column.rows[1:]))


def _of_cell(table: ScalingTable, verdict: Verdict, wrong: Wrong) -> Finding:
    by = EFFICIENCY if wrong.field == EFFICIENCY or not verdict.by_speedup and not verdict.within else SPEEDUP
    expected: Bounds | str = wrong.expected
    if wrong.field == "devices":
        expected = f"{wrong.expected.low:.0f}"
        cause = f"everything else in this row is of {expected} devices"
    else:
        cause = _cause(verdict, wrong)
    return of_row(by, IMPOSSIBLE, table, wrong.row, wrong.field, expected, cause)


def _cause(verdict: Verdict, wrong: Wrong) -> str:
    row, cell = wrong.row, getattr(wrong.row, wrong.field)
    if wrong.baseline and wrong.field != SPEEDUP and wrong.field != EFFICIENCY:
        number = "time" if wrong.field == "seconds" else "rate"
        return f"the other rows are against this other {number}: the baseline was mistyped, or measured again"
    devices, printed = row.devices or 1, rounding.of(cell)
    of_worker = wrong.field == "rate" and verdict.reading is TOTAL and printed.meets(wrong.expected / devices)
    if devices > 1 and (of_worker or (wrong.field == SPEEDUP and printed.meets(wrong.expected * devices))):
        return f"the rate is one worker's, not the total of {devices}"
    return misprints.guess(cell, wrong.expected, _elsewhere(verdict, wrong))


def _elsewhere(verdict: Verdict, wrong: Wrong) -> dict[str, Bounds]:
    """What stands under the same header in the rows beside."""
    rows: Sequence = verdict.rows
    at = next(k for k, row in enumerate(rows) if row is wrong.row)
    near = [rows[k] for k in (at - 1, at + 1, at - 2, at + 2) if 0 <= k < len(rows)]
    return {
        f"the row of {name_row(row)}": rounding.of(getattr(row, wrong.field))
        for row in near
        if getattr(row, wrong.field)
    }
