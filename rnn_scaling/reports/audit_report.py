"""The findings of an audit as text, Markdown or JSON.

Programs of users read the JSON, schema "rnn_scaling.audit/3". Its keys are the field
names of `FileReport`, `Finding` and `Statement`: never rename one.
"""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

from rnn_scaling.analysis.audit.auditing import FileReport
from rnn_scaling.analysis.audit.finding import Finding, Place
from rnn_scaling.analysis.audit.relations import EFFICIENCIES, INVERSE
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.reports import wording
from rnn_scaling.system.files import input_files
from rnn_scaling.system.files.markdown import format_table
from rnn_scaling.system.files.terminal import format_count

_SCHEMA = "rnn_scaling.audit/3"
_MAX_FILES = 3  # files with a summary each
# Relations of a whole column that have separate templates.
_COLUMN_RELATIONS = (INVERSE, EFFICIENCIES)


def _format_expected(place: Place) -> str:
    """Return the number that should be in a cell: "3.78", or "0.372 to 0.398".

    It has the fewest digits with which the middle is still between the bounds.
    """
    if not math.isfinite(place.low + place.high):
        return "another number"
    unit = "%" if place.printed.endswith("%") else ""
    middle = 0.5 * (place.low + place.high)
    for digits in range(2, 8):
        low, high, rounded_middle = (
            float(f"{number:.{digits}g}") for number in (place.low, place.high, middle)
        )
        if place.low <= rounded_middle <= place.high:
            is_narrow = place.high - place.low < 0.05 * abs(place.high)
            if is_narrow:
                return f"{rounded_middle:,.10g}{unit}"
            return f"{low:,.10g}{unit} to {high:,.10g}{unit}"
    return f"{middle:.9g}{unit}"


def _name_row(place: Place, finding: Finding) -> str:
    """Return a row's name, or its line if the name is the number or not unique."""
    names = []
    is_first_column = False
    if finding.excerpt:
        (_, head), *rows = finding.excerpt
        is_first_column = head[0] == place.column
        names = [texts[0] for _, texts in rows]
    if place.row and not is_first_column and names.count(place.row) < 2:
        return f'row "{place.row}"'
    return f"line {place.line}"


def make_statements(finding: Finding) -> list[Statement]:
    """Return the finding and, if it is known, the likely mistake."""
    first = finding.places[0]
    places = []
    for place in finding.places:
        row = _name_row(place, finding)
        expected = _format_expected(place)
        text = f"{place.column} {place.printed} in {row} (should be {expected})"
        places.append(text)
    values: dict[str, Any] = {
        "column": first.column,
        "printed": first.printed,
        "row": _name_row(first, finding),
        "relation": finding.relation,
        "strength": finding.strength,
        "line": first.line,
        "fits": _format_expected(first),
        "places": places,
        "choices": " or ".join(places),
    }
    if finding.kind == "swapped-headings":
        values["headings"] = [f'"{place.column}"' for place in finding.places]
    kind = f"audit-{finding.kind}"
    if finding.kind == "column" and finding.relation in _COLUMN_RELATIONS:
        kind = f"audit-column-{finding.relation}"
    statements = [state(kind, finding.source, **values)]
    if first.hint and finding.kind == "number":
        statements.append(state("audit-hint", finding.source, hint=first.hint))
    return statements


def _format_location(finding: Finding) -> str:
    """Return the file and line; only the file if the finding has no line (0)."""
    line = finding.places[0].line
    return f"{finding.source}:{line}" if line else finding.source


def _format_excerpt(finding: Finding) -> str:
    """Return the rows of the finding, with marked cells."""
    if not finding.excerpt:
        return ""
    # Each row of an excerpt has its line and its cells; the first is the header.
    (_, head), *rows = finding.excerpt
    marked = {(place.line, place.column, place.printed) for place in finding.places}
    lines = []
    for line, texts in rows:
        cells = []
        for title, text in zip(head, texts):
            is_marked = (line, title, text) in marked
            cells.append(f">{text}<" if is_marked else text)
        lines.append(cells)
    return format_table(head, lines)


def _make_summary_line(report: FileReport) -> str:
    findings = format_count(len(report.findings), "finding")
    tables = format_count(report.tables, "table")
    numbers = format_count(report.numbers, "number")
    comparisons = format_count(report.comparisons, "comparison")
    return f"{report.source}: {findings} in {tables} with {numbers} ({comparisons})"


def _make_summary_line_of_all(reports: Sequence[FileReport]) -> str:
    """Return a line for many files, and a line for files without any comparison."""
    total = FileReport(format_count(len(reports), "file"))
    for report in reports:
        total.findings += report.findings
        total.tables += report.tables
        total.numbers += report.numbers
        total.comparisons += report.comparisons
    text = _make_summary_line(total)
    empty = [report.source for report in reports if report.is_empty]
    if empty:
        text += f"\nnothing to compare in {wording.join_names(empty)}"
    return text


def render_text(reports: Sequence[FileReport]) -> str:
    """Return a paragraph and an excerpt per finding, and a summary of the files."""
    return "\n".join(_make_report_lines(reports))


def _make_report_lines(reports: Sequence[FileReport]) -> Iterator[str]:
    for report in reports:
        for finding in report.findings:
            sentences = wording.write_sentences(make_statements(finding))
            yield f"{_format_location(finding)}: {finding.strength}: {sentences}"
            yield _format_excerpt(finding)
        is_unread = bool(report.error) and not report.tables and not report.is_empty
        if len(reports) <= _MAX_FILES and not is_unread:
            yield _make_summary_line(report)
    if len(reports) > _MAX_FILES:
        yield _make_summary_line_of_all(reports)


def render_markdown(reports: Sequence[FileReport]) -> str:
    """Return a table of findings, and a summary of each file."""
    lines = []
    for report in reports:
        for finding in report.findings:
            sentences = wording.write_sentences(make_statements(finding))
            lines.append([_format_location(finding), finding.strength, sentences])
    table = format_table(["Where", "Strength", "Finding"], lines, padded=False)
    return "\n".join(
        [table, *(f"- {_make_summary_line(report)}" for report in reports)]
    )


def render_json(reports: Sequence[FileReport]) -> str:
    """Return the reports as data under SCHEMA, with the statements of every finding."""
    files = []
    for report in reports:
        fields = dataclasses.asdict(report)
        fields["findings"] = list(map(_make_finding_data, report.findings))
        files.append(fields)
    return input_files.format_json({"schema": _SCHEMA, "files": files}).rstrip("\n")


def _make_finding_data(finding: Finding) -> dict[str, Any]:
    fields = dataclasses.asdict(finding)
    fields["statements"] = list(map(dataclasses.asdict, make_statements(finding)))
    return fields


RENDER = {"text": render_text, "markdown": render_markdown, "json": render_json}
