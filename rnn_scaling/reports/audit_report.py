"""What the audit found -> text, Markdown, JSON."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from rnn_scaling.analysis.audit.auditing import FileReport
from rnn_scaling.analysis.audit.finding import Finding, Place
from rnn_scaling.analysis.audit.relations import EFFICIENCIES, INVERSE
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.reports import wording
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import markdown_table

SCHEMA = "rnn_scaling.audit/3"
MOST_FILES = 3  # that have a summary of their own
_COLUMN_KINDS = (INVERSE, EFFICIENCIES)


def fits(place: Place) -> str:
    """What fits in a cell, with the digits that its bounds agree on: "3.78", "0.372 to 0.398"."""
    if not math.isfinite(place.low + place.high):
        return "another number"
    unit = "%" if place.printed.endswith("%") else ""
    for digits in range(2, 8):
        ends = place.low, place.high, 0.5 * (place.low + place.high)
        low, high, middle = (float(f"{end:.{digits}g}") for end in ends)
        if place.low <= middle <= place.high:
            is_narrow = place.high - place.low < 0.05 * abs(place.high)
            return (
                f"{middle:,.10g}{unit}"
                if is_narrow
                else f"{low:,.10g}{unit} to {high:,.10g}{unit}"
            )
    return f"{0.5 * (place.low + place.high):.9g}{unit}"


def _row(place: Place, finding: Finding) -> str:
    """Return a row's name, or its line if the name is the number or not unique."""
    is_first = bool(finding.excerpt) and finding.excerpt[0][1][0] == place.column
    names = [texts[0] for _, texts in finding.excerpt[1:]]
    is_named = place.row and not is_first and names.count(place.row) < 2
    return f'row "{place.row}"' if is_named else f"line {place.line}"


def statements(finding: Finding) -> list[Statement]:
    """The finding as one statement, and the likely slip as another."""
    first = finding.places[0]
    values: dict[str, Any] = {
        "column": first.column,
        "printed": first.printed,
        "row": _row(first, finding),
    }
    values |= {
        "relation": finding.relation,
        "strength": finding.strength,
        "line": first.line,
        "fits": fits(first),
    }
    places = [
        f"{p.column} {p.printed} in {_row(p, finding)} (should be {fits(p)})"
        for p in finding.places
    ]
    values |= {"places": places, "choices": " or ".join(places)}
    if finding.kind == "swapped-headings":
        values["headings"] = [f'"{place.column}"' for place in finding.places]
    if finding.kind == "copy":
        values["other"] = _row(finding.places[-1], finding)
    kind = f"audit-{finding.kind}"
    if finding.kind == "column" and finding.relation in _COLUMN_KINDS:
        kind = f"audit-column-{finding.relation}"
    made = [Statement(kind, finding.source, values)]
    if first.hint and finding.kind == "number":
        made.append(Statement("audit-hint", finding.source, {"hint": first.hint}))
    return made


def _where(finding: Finding) -> str:
    line = finding.places[0].line
    return f"{finding.source}:{line}" if line else finding.source


def _excerpt(finding: Finding) -> str:
    """The rows of the finding with the cells in question marked."""
    if not finding.excerpt:
        return ""
    (_, head), *rows = finding.excerpt
    marked = {(place.line, place.column, place.printed) for place in finding.places}
    cells = [
        [
            f">{text}<" if (line, title, text) in marked else text
            for title, text in zip(head, texts)
        ]
        for line, texts in rows
    ]
    return markdown_table(head, cells)


def _summary(report: FileReport) -> str:
    found = wording.counted(len(report.findings), "finding")
    tables, numbers = (
        wording.counted(report.tables, "table"),
        wording.counted(report.numbers, "number"),
    )
    return f"{report.source}: {found} in {tables} with {numbers} ({wording.counted(report.comparisons, 'comparison')})"


def _summary_of_all(reports: Sequence[FileReport]) -> str:
    """One line for many files, and one for those without anything to compare."""
    total = FileReport(wording.counted(len(reports), "file"))
    for report in reports:
        total.findings += report.findings
        total.tables += report.tables
        total.numbers += report.numbers
        total.comparisons += report.comparisons
    empty = [report.source for report in reports if report.is_empty]
    return _summary(total) + (
        f"\nnothing to compare in {wording.join_names(empty)}" if empty else ""
    )


def render_text(reports: Sequence[FileReport]) -> str:
    """Return a paragraph and an excerpt per finding, and a summary of the files."""
    return "\n".join(_lines(reports))


def _lines(reports: Sequence[FileReport]) -> Iterator[str]:
    for report in reports:
        for finding in report.findings:
            sentences = wording.sentences(statements(finding))
            yield f"{_where(finding)}: {finding.strength}: {sentences}"
            yield _excerpt(finding)
        is_unread = bool(report.error) and not report.tables and not report.is_empty
        if len(reports) <= MOST_FILES and not is_unread:
            yield _summary(report)
    if len(reports) > MOST_FILES:
        yield _summary_of_all(reports)


def render_markdown(reports: Sequence[FileReport]) -> str:
    head = ["Where", "Strength", "Finding"]
    findings = [finding for report in reports for finding in report.findings]
    rows = [
        [_where(found), found.strength, wording.sentences(statements(found))]
        for found in findings
    ]
    return "\n".join(
        [
            markdown_table(head, rows, padded=False),
            *(f"- {_summary(report)}" for report in reports),
        ]
    )


def render_json(reports: Sequence[FileReport]) -> str:
    """The reports as data under SCHEMA, with the statements of every finding."""
    files = []
    for report in reports:
        findings = [
            {
                **dataclasses.asdict(finding),
                "statements": [dataclasses.asdict(s) for s in statements(finding)],
            }
            for finding in report.findings
        ]
        files.append({**dataclasses.asdict(report), "findings": findings})
    return input_files.json_text({"schema": SCHEMA, "files": files}).rstrip("\n")


RENDER = {"text": render_text, "markdown": render_markdown, "json": render_json}
