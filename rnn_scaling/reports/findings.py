"""What the audit found -> text, Markdown, JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence

from rnn_scaling.audit.auditing import FileReport
from rnn_scaling.audit.finding import Finding
from rnn_scaling.reports.markdown import markdown_table

MAX_NOTES = 20  # printed a file


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


def left_out(report: FileReport) -> list[str]:
    """What of a file could not be used, for stderr."""
    lines = [f"error: {report.error}"] if report.error else []
    for note in report.notes[:MAX_NOTES]:
        lines.append(f"note: {note if note.startswith(report.source) else f'{report.source}: {note}'}")
    if len(report.notes) > MAX_NOTES:
        lines.append(f"note: {report.source}: {len(report.notes) - MAX_NOTES} more of the kind")
    return lines
