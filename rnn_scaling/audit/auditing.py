"""A file or folder of records -> every check on every table of it, and the findings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from rnn_scaling import registry
from rnn_scaling.audit import work_model
from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.finding import Finding
from rnn_scaling.audit.scaling_table import ScalingTable
from rnn_scaling.audit.tables import reading

MAX_FINDINGS = 10_000  # kept in memory; the others are counted


@dataclasses.dataclass
class FileReport:
    """What was read of one file, and its findings, the first MAX_FINDINGS of the `found` ones."""

    source: str
    tables: int = 0
    numbers: int = 0
    comparisons: int = 0
    found: int = 0  # a key of the JSON, as all these names are
    findings: list[Finding] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    facts: list[str] = dataclasses.field(default_factory=list)
    error: str = ""


def audit(path: Path, items_per_sample: float | None = None) -> FileReport:
    """Puts one file or record folder through every check on every table; what was good is kept when the rest fails."""
    report, previous = FileReport(str(path)), None
    try:
        for table in reading.tables(path):
            if _is_about_results(table):
                _audit_table(report, table, Context(previous, items_per_sample))
                previous = table
    except OSError as e:
        report.error = f"{path}: {e.strerror or e}"
    except reading.UnreadableError as e:
        report.error = str(e)
    if not report.error and not report.tables:
        report.error = f"{path}: no table of results in it; --help says what is read"
    return report


def outcomes(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """One for each comparison that every check of registry.CHECKS makes: a finding, or None where it holds."""
    for name in registry.CHECKS:
        yield from registry.load(registry.CHECKS, name).check(table, context)


def _is_about_results(table: ScalingTable) -> bool:
    """Prose may look like columns: a table without a column that is understood counts only if it is mostly numbers."""
    if table.rows:
        return True
    cells = [cell for line in table.grid for cell in line.cells[1:]]
    return bool(cells) and bool(table.columns[0]) and 3 * sum(cell is not None for cell in cells) >= len(cells)


def _audit_table(report: FileReport, table: ScalingTable, context: Context) -> None:
    report.tables += 1
    report.numbers += sum(cell is not None for line in table.grid for cell in line.cells)
    if not table.grid:
        fields = ("seconds", "rate", "speedup", "efficiency", "work", "batch_size", "batches")
        report.numbers += sum(getattr(row, field) is not None for row in table.rows for field in fields)
        report.numbers += sum(len(row.extra) for row in table.rows)
    report.notes += table.notes[: MAX_FINDINGS - len(report.notes)]
    if len(report.facts) < 200:
        report.facts += [f"{_place(table)}: {fact}" for fact in work_model.facts(table.rows)]
    for outcome in outcomes(table, context):
        report.comparisons += 1
        if outcome is None:
            continue
        report.found += 1
        if len(report.findings) < MAX_FINDINGS:
            report.findings.append(outcome)


def _place(table: ScalingTable) -> str:
    return f"{table.source}:{table.line}" if table.line else table.source
