"""A file or folder of records -> every check on every table of it, and the findings."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

from rnn_scaling import registry
from rnn_scaling.audit import derived, one_cause, work_model
from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.derived import Series
from rnn_scaling.audit.finding import IMPOSSIBLE, UNLIKELY, Finding
from rnn_scaling.audit.scaling_table import ASIDE, ScalingTable
from rnn_scaling.audit.tables import reading

MAX_NUMBERS = 100_000  # of a file; more than anybody reads, in a few seconds
MAX_FINDINGS = 10_000  # kept in memory; the others are counted
MAX_DERIVED = 200  # series and sentences of one file
_NO_COMPARISON = ("values", "copies")  # look at each number alone, or at its digits


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
    derived: list[Series] = dataclasses.field(default_factory=list)
    error: str = ""


def audit(path: Path, items_per_sample: float | None = None, max_numbers: int = MAX_NUMBERS) -> FileReport:
    """Puts one file or record folder through every check on every table; what was good is kept when the rest fails.

    Args:
      path: the file or folder.
      items_per_sample: words a sentence pair, where known.
      max_numbers: after the table, or piece of one, with which so many were read, the rest is left out, with an error.
    """
    report, context = FileReport(str(path)), Context(None, items_per_sample)
    try:
        for table in reading.tables(path):
            if _is_about_results(table):
                _audit_table(report, table, context)
                context = Context(table, items_per_sample, context.works)
            if report.numbers >= max_numbers:
                lines = table.grid[-1].line if table.grid else table.line
                report.error = (
                    f"{path}: the {report.numbers} numbers up to line {lines} were checked, the rest was not; "
                    "--max_numbers=N checks more, or split the file"
                )
                break
    except OSError as e:
        report.error = f"{path}: {e.strerror or e}"
    except reading.UnreadableError as e:
        report.error = str(e)
    _keep(report, _concluded(context))
    if not report.error and not report.tables:
        report.error = f"{path}: no table of results in it; --help says what is read"
    elif not report.error and not report.comparisons:
        report.error = f"{path}: nothing could be checked: {_why_nothing(context.previous)}"
    return report


def outcomes(table: ScalingTable, context: Context) -> Iterator[Finding | None]:
    """One for each comparison that the checks of registry.CHECKS make: a finding, or None where it holds.

    A cell has one finding, that of the first check, and so has a cause; what is only unlikely is left out where the row
    has worse, and all else where its number of devices is wrong.
    """
    findings: list[Finding] = []
    for name in registry.CHECKS:
        for outcome in registry.load(registry.CHECKS, name).check(table, context):
            if outcome is not None:
                findings.append(outcome)
            elif name not in _NO_COMPARISON:
                yield None
    miscounted = {(f.source, f.line, f.row) for f in findings if table.roles.get(f.column) == "devices"}
    findings = [
        f for f in findings if table.roles.get(f.column) == "devices" or (f.source, f.line, f.row) not in miscounted
    ]
    impossible = {(f.source, f.line, f.row) for f in findings if f.kind == IMPOSSIBLE}
    cells: set[tuple[object, ...]] = set()
    kept: list[Finding] = []
    for finding in findings:
        cell = (finding.source, finding.line, finding.column, finding.row if not finding.line else "")
        unlikely = finding.kind == UNLIKELY and (finding.source, finding.line, finding.row) in impossible
        if cell in cells or unlikely:
            continue
        cells.add(cell)
        kept.append(finding)
    merged_findings = one_cause.merged(kept, len(table.grid))
    yield from merged_findings
    yield from [None] * (len(kept) - len(merged_findings))


def _concluded(context: Context) -> Iterator[Finding | None]:
    """What is compared once all tables of a file are known."""
    for name in registry.CHECKS:
        check = registry.load(registry.CHECKS, name)
        if hasattr(check, "conclude"):
            yield from check.conclude(context)


def _why_nothing(table: ScalingTable | None) -> str:
    """Which columns were understood, and what they would be compared with."""
    fields = sorted(set(table.roles.values()) - {ASIDE}) if table else []
    if not fields:
        return "no header of a table says devices, rate, time, speedup or efficiency; docs/audit.md lists the words"
    words = ", ".join(field.replace("_", " ") for field in fields)
    return f"of the last table only {words} was understood, and nothing beside it that it must follow from"


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
    _keep(report, outcomes(table, context))
    judged = context.judged(table)
    if len(report.facts) < MAX_DERIVED:
        facts = [*work_model.facts(context.models(table)), *(said for one in judged for said in one.readings)]
        report.facts += [f"{_place(table)}: {fact}" for fact in facts]
    room = max(0, MAX_DERIVED - len(report.derived))
    report.derived += itertools.islice(derived.derive(table, [one.verdict for one in judged], report.notes), room)


def _keep(report: FileReport, made: Iterable[Finding | None]) -> None:
    for outcome in made:
        report.comparisons += 1
        if outcome is None:
            continue
        report.found += 1
        if len(report.findings) < MAX_FINDINGS:
            report.findings.append(outcome)


def _place(table: ScalingTable) -> str:
    return f"{table.source}:{table.line}" if table.line else table.source
