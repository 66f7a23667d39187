"""Imported logs -> tables: all rates with speedup and efficiency, then the other tables of each log."""

from collections.abc import Sequence

from rnn_scaling.audit.finding import Finding
from rnn_scaling.audit.numbers import Printed
from rnn_scaling.files.markdown import Table, Value
from rnn_scaling.importers import baselines, checked, mlperf_scores
from rnn_scaling.importers.common import ImportedLog
from rnn_scaling.importers.points import ScalingRow

Audited = list[tuple[list[Finding], int]] | None  # findings and comparisons by unit; None without --audit


def by_unit(logs: Sequence[ImportedLog]) -> dict[str, list[ScalingRow]]:
    """The points of all logs by the unit of their rates."""
    units: dict[str, list[ScalingRow]] = {}
    for log in logs:
        for row in log.rows:
            units.setdefault(row.rate_unit, []).append(row)
    return units


def tables_of(logs: Sequence[ImportedLog], audited: Audited) -> list[Table]:
    """Every table of the logs: the rates of all of them together, the audit's findings, then the others in order."""
    tables = [_rate_table(rows, unit) for unit, rows in by_unit(logs).items()]
    tables += [checked.as_table(findings, comparisons) for findings, comparisons in audited or []]
    scores = mlperf_scores.table(logs)
    tables += [scores] if scores else []
    for log in logs:
        for table in log.tables:
            title = table.title if len(logs) == 1 else f"{log.source}: {table.title}"
            tables.append(Table(title, table.columns, table.rows))
    return tables


def _rate_table(rows: Sequence[ScalingRow], unit: str) -> Table:
    """The rows of one unit by series and devices, with speedup and efficiency against their runs on one device."""
    ordered = sorted(rows, key=lambda row: (row.series, row.devices or 0))
    derived = baselines.derive(ordered)
    extras = list(dict.fromkeys(name for row in ordered for name in row.extra))
    columns: dict[str, list[Value]] = {
        "File": [f"{row.source}:{row.line}" for row in ordered],
        "Series": [row.series or None for row in ordered],
        "Devices": [row.devices for row in ordered],
        "Batch size a device": [_text(row.batch_size) for row in ordered],
        "Global batch size": [_text(row.global_batch_size) for row in ordered],
        "Seconds": [_text(row.seconds) for row in ordered],
        f"Rate ({unit})": [_text(row.rate) for row in ordered],
        "Speedup": [result.speedup for result in derived],
        "Efficiency": [result.efficiency for result in derived],
        "Scaling": [result.scaling or None for result in derived],
        "Speedup as printed": [_text(row.speedup) for row in ordered],
        **{name[:1].upper() + name[1:]: [_text(row.extra.get(name)) for row in ordered] for name in extras},
    }
    wanted = {"Rate", "Speedup", "Efficiency", "File", "Devices"}
    kept = {name: cells for name, cells in columns.items() if any(cells) or name.partition(" (")[0] in wanted}
    return Table("Rates", tuple(kept), tuple(zip(*kept.values())))


def _text(cell: Printed | None) -> str | None:
    return None if cell is None else cell.text
