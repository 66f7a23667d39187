"""The audit's checks on imported rates: of all logs together, since one log seldom holds more than one run.

Rows are checked with those that have the same baseline, so that no check compares different work.
"""

from __future__ import annotations

from collections.abc import Sequence

from rnn_scaling.audit import auditing
from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.finding import Finding
from rnn_scaling.audit.scaling_table import ScalingRow
from rnn_scaling.files.markdown import Table
from rnn_scaling.importers import baselines
from rnn_scaling.importers.common import scaling_table

COLUMNS = ("Where", "Kind", "Check", "Row", "Number", "Stands", "Expected", "Likely cause")


def findings(rows: Sequence[ScalingRow]) -> tuple[list[Finding], int]:
    """What the audit's checks find in the rows of one unit, and how many comparisons were made."""
    ordered = sorted(rows, key=lambda row: (row.series, row.devices or 0))
    comparable: dict[tuple, list[ScalingRow]] = {}
    for row, one in zip(ordered, baselines.derive(ordered)):
        first = one.baseline[0] if one.baseline else row
        comparable.setdefault((bool(one.baseline), first.series, *baselines.works(first)[0]), []).append(row)
    tables = [scaling_table("imported logs", "Rates", members) for members in comparable.values()]
    outcomes = [outcome for table in tables for outcome in auditing.outcomes(table, Context())]
    return [outcome for outcome in outcomes if outcome is not None], len(outcomes)


def as_table(faults: Sequence[Finding], comparisons: int) -> Table:
    """The findings as a table; its title says how much was compared."""
    rows = tuple(
        (f"{f.source}:{f.line}", f.kind, f.check, f.row, f.column, f.stands, f.expected, f.cause) for f in faults
    )
    return Table(f"Findings of the audit: {len(rows)} in {comparisons} comparisons", COLUMNS, rows)
