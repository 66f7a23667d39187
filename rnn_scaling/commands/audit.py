"""python -m rnn_scaling audit FILE...: numbers in tables of scaling results that cannot be."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rnn_scaling import registry
from rnn_scaling.audit import work_model
from rnn_scaling.audit.checks.context import Context
from rnn_scaling.audit.finding import Finding
from rnn_scaling.audit.scaling_table import ScalingTable
from rnn_scaling.audit.tables import reading
from rnn_scaling.reports.markdown import markdown_table

USAGE = """\
python -m rnn_scaling audit FILE... [--format=text|markdown|json] [--items_per_sample=N]    (or ./run.sh audit ...)

Finds numbers that cannot be in tables of scaling results: speedups that are not the ratio of their rates, efficiencies
that are not speedup / devices, rate x seconds that is not the work of the settings, rates of one worker printed as
totals, rows of another number of devices, sums, exchanged columns, superlinear points, mixed scalings. A number that
fits within the rounding of what is printed is never reported.

FILE is Markdown or any text with tables in it (pipes, tabs, blanks), CSV, TSV, JSON, JSON Lines, one of our reports or
run records, or a folder of these. docs/audit.md lists the headers that are understood; other columns, and cells that
are no numbers, are named on stderr.

    --format            text: FILE:LINE, one finding each (default); markdown: a table; json: "rnn_scaling.audit/1"
    --items_per_sample  words a sample (a sentence pair, say) when they are known and the same everywhere: then
                        rate x seconds of every row is compared with batch size x devices x batches x N

Exit status: 0 nothing found, 1 findings, 2 none found but a file cannot be read or holds no table, or wrong use."""

FORMATS = ("text", "markdown", "json")
MAX_FINDINGS = 10_000  # kept in memory; the others are counted
MAX_NOTES = 20  # printed a file


@dataclasses.dataclass
class FileReport:
    """What was read of one file and found in it."""

    source: str
    tables: int = 0
    numbers: int = 0
    comparisons: int = 0
    found: int = 0
    findings: list[Finding] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    facts: list[str] = dataclasses.field(default_factory=list)
    error: str = ""


@dataclasses.dataclass(frozen=True)
class _Options:
    files: tuple[str, ...]
    format: str = "text"
    items_per_sample: float | None = None


def main(argv: Sequence[str] | None = None) -> int:
    """Audits the files; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if any(word in ("--help", "-h") for word in words):
        print(USAGE)
        return 0
    try:
        options = _parse(words)
    except ValueError as e:
        print(f"error: {e}; --help explains", file=sys.stderr)
        return 2
    reports = [audit(Path(name), options.items_per_sample) for name in options.files]
    for report in reports:
        _say_what_was_left_out(report)
    try:
        print(RENDER[options.format](reports))
        sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # the reader has gone: nothing is left to flush at exit
    if any(report.found for report in reports):
        return 1
    return 2 if any(report.error for report in reports) else 0


def _parse(words: Sequence[str]) -> _Options:
    files, values = [], {}
    for word in words:
        name, equals, value = word.partition("=")
        if not word.startswith("--"):
            files.append(word)
        elif name not in ("--format", "--items_per_sample") or not equals:
            raise ValueError(f"{word}: expected --format=... or --items_per_sample=...")
        else:
            values[name[2:]] = value
    if values.get("format", "text") not in FORMATS:
        raise ValueError(f"--format={values['format']} must be one of {', '.join(FORMATS)}")
    if not files:
        raise ValueError("expected a file or a folder of run records")
    items = None
    if "items_per_sample" in values:
        try:
            items = float(values["items_per_sample"])
        except ValueError:
            items = math.nan
        if not (math.isfinite(items) and items > 0):
            raise ValueError(f"--items_per_sample={values['items_per_sample']} must be a number above 0")
    return _Options(tuple(files), values.get("format", "text"), items)


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
    for name in registry.CHECKS:
        for outcome in registry.load(registry.CHECKS, name).check(table, context):
            report.comparisons += 1
            if outcome is None:
                continue
            report.found += 1
            if len(report.findings) < MAX_FINDINGS:
                report.findings.append(outcome)


def _place(table: ScalingTable) -> str:
    return f"{table.source}:{table.line}" if table.line else table.source


def _say_what_was_left_out(report: FileReport) -> None:
    if report.error:
        print(f"error: {report.error}", file=sys.stderr)
    for note in report.notes[:MAX_NOTES]:
        print(f"note: {note if note.startswith(report.source) else f'{report.source}: {note}'}", file=sys.stderr)
    if len(report.notes) > MAX_NOTES:
        print(f"note: {report.source}: {len(report.notes) - MAX_NOTES} more of the kind", file=sys.stderr)


def _sum_line(report: FileReport) -> str:
    return (
        f"{report.source}: {report.tables} tables, {report.numbers} numbers, {report.comparisons} comparisons, "
        f"{report.found} findings"
    )


def _where(finding: Finding) -> str:
    return f"{finding.source}:{finding.line}" if finding.line else finding.source


def render_text(reports: Sequence[FileReport]) -> str:
    """One line a finding, and one a file."""
    lines = []
    for report in reports:
        for f in sorted(report.findings, key=lambda f: f.line):
            lines.append(
                f"{_where(f)}: {f.kind} [{f.check}] {f.row}: {f.column} is {f.stands}, expected {f.expected}; {f.cause}"
            )
        lines += [f"{fact} [derived]" for fact in report.facts]
        if report.found > len(report.findings):
            lines.append(f"{report.source}: {report.found - len(report.findings)} more findings are not shown")
        lines.append(_sum_line(report))
    return "\n".join(lines)


def render_markdown(reports: Sequence[FileReport]) -> str:
    """A table of all findings."""
    head = ["Where", "Kind", "Check", "Row", "Column", "Stands", "Expected", "Likely cause"]
    rows = [
        [_where(f), f.kind, f.check, f.row, f.column, f.stands, f.expected, f.cause]
        for report in reports
        for f in sorted(report.findings, key=lambda f: f.line)
    ]
    summary = [f"- {_sum_line(report)}" for report in reports]
    facts = [f"- {fact}" for report in reports for fact in report.facts]
    return "\n".join(
        [markdown_table(head, rows, padded=False), *summary, *(["", "Derived:", "", *facts] if facts else [])]
    )


def render_json(reports: Sequence[FileReport]) -> str:
    """The reports as they are, under the schema "rnn_scaling.audit/1"."""
    return json.dumps({"schema": "rnn_scaling.audit/1", "files": [dataclasses.asdict(r) for r in reports]}, indent=1)


RENDER: dict[str, Callable[[Sequence[FileReport]], str]] = {
    "text": render_text,
    "markdown": render_markdown,
    "json": render_json,
}
