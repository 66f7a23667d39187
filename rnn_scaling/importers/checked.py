"""The audit of imported rates: of all logs together, since a log seldom holds more than one run.

Rows are checked with those that have the same baseline, so that different work is never compared.
"""

from collections.abc import Sequence

from rnn_scaling.audit import auditing, tables
from rnn_scaling.audit.finding import Finding
from rnn_scaling.files.markdown import Table
from rnn_scaling.importers import baselines
from rnn_scaling.importers.points import ScalingRow

COLUMNS = ("Where", "Strength", "Row", "Number", "Printed", "Relation")
_FIELDS = {
    "batch_size": "batch size", "global_batch_size": "global batch size", "seconds": "seconds", "rate": "rate",
    "speedup": "speedup",
}  # fmt: skip


def findings(rows: Sequence[ScalingRow]) -> tuple[list[Finding], int]:
    """What the audit finds in the rows of one unit, and the number of comparisons."""
    ordered = sorted(rows, key=lambda row: (row.series, row.devices or 0))
    comparable: dict[tuple, list[ScalingRow]] = {}
    for row, derived in zip(ordered, baselines.derive(ordered)):
        first = derived.baseline[0] if derived.baseline else row
        comparable.setdefault((bool(derived.baseline), first.series, *baselines.works(first)[0]), []).append(row)
    found, compared = [], 0
    for members in comparable.values():
        count, made = auditing.check(_table(members))
        compared += count
        found += made
    return found, compared


def _table(rows: Sequence[ScalingRow]) -> tables.Table:
    """The rows as a table of texts."""
    fields = [name for name in _FIELDS if any(getattr(row, name) for row in rows)]
    header = ("series", "devices", *(_FIELDS[name] for name in fields))
    texts = []
    for row in rows:
        cells = [getattr(row, name) for name in fields]
        texts.append((row.line, (row.series, str(row.devices or ""), *(cell.text if cell else "" for cell in cells))))
    return tables.Table(rows[0].source, 0, header, tuple(texts))


def as_table(faults: Sequence[Finding], comparisons: int) -> Table:
    """The findings as a table; its title says how much was compared."""
    rows = []
    for fault in faults:
        for cell in fault.places:
            where = f"{fault.source}:{cell.line}"
            rows.append((where, fault.strength, cell.row, cell.column, cell.printed, fault.relation))
    return Table(f"Findings of the audit: {len(faults)} in {comparisons} comparisons", COLUMNS, tuple(rows))
