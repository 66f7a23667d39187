"""The answer of a report for the terminal: one table and the answer, or everything.

`report_files` prints the text. No number is computed here.
"""

from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.reports import (
    cautions,
    conclusions,
    learning,
    log_findings,
    table,
)
from rnn_scaling.reports.sections import Section, explain_rows, format_markdown
from rnn_scaling.reports.summary import Summary
from rnn_scaling.reports.wording import has_interval, write_sentence, write_sentences
from rnn_scaling.system.files.markdown import escape

# How an interval is written -> the text that shows that a table contains one.
_SIGNS_OF_INTERVALS = {"±": " ± ", "[low, high]": " ["}
_MAX_COMMANDS = 3
_MAX_LEARNED = 2


def _state_hints(summary: Summary, most_hand_made: int) -> list[Statement]:
    """Return strong scaling that was set up by hand, and faults of losses and programs."""
    return [
        *cautions.find_hand_made_strong_scaling(summary)[:most_hand_made],
        *cautions.state_losses(summary),
        *cautions.state_program_output(summary),
    ]


def _state_learning(summary: Summary) -> list[Statement]:
    if summary.learning is None:
        return []
    return learning.make_statements(summary.learning, summary.row_titles)


def format_briefly(summary: Summary, folder: Path) -> str:
    """Return one table, one footnote, the answer and the path of the page."""
    statements = [
        *_state_hints(summary, 1),
        *log_findings.state_summary(summary),
        *_state_learning(summary)[:_MAX_LEARNED],
    ]
    if commands := conclusions.list_all_missing_run_commands(summary):
        statements.append(state("more-runs", runs=len(commands)))
    headlines, details = conclusions.answer_paragraphs(summary)
    tables = format_markdown(make_brief_sections(summary), level=3)
    paragraphs = [
        _format_footnote(summary, tables),
        "\n".join(headlines),
        _format_bullets([*details, *map(write_sentence, statements)]),
        _format_page("page-written", folder),
    ]
    return escape(tables) + "".join(f"\n{text}\n" for text in paragraphs if text)


def make_brief_sections(summary: Summary) -> list[Section]:
    """Return the tables of the series, with the columns that a terminal shows."""
    sections = []
    brief_sections = table.make_sections(summary, is_brief=True)
    for section, (_, series) in zip(brief_sections, summary.tables):
        if len(series) == 1:
            # The rates of a single series, on each number of devices.
            grids = table.list_series_rates(series[0]).grids[:1]
            notes = explain_rows(series[0].rows)
            section = Section(section.title, grids, tuple(notes))
        sections.append(section)
    return sections


def format_in_full(summary: Summary, folder: Path) -> str:
    """Return all tables, the answer, the kinds of intervals, and missing runs."""
    headlines, details = conclusions.answer_paragraphs(summary)
    lines = [*headlines, "", _format_bullets(details)] if details else headlines
    lines += filter(None, [conclusions.format_overview(summary)])
    for kind in conclusions.list_interval_kinds(summary.series):
        lines.append(f"±: half of the interval, or its longer half: {kind}.")
    hints = _state_hints(summary, _MAX_COMMANDS)
    lines += map(write_sentence, (*hints, *_state_learning(summary)))
    if commands := conclusions.list_all_missing_run_commands(summary):
        lines += ["", "Runs that would complete the analysis:"]
        lines += [f"  {command}" for command in commands]
    page = _format_page("page-after-full", folder)
    return "\n".join([table.format_text(summary), *lines, "", page, ""])


def _format_bullets(texts: Sequence[str]) -> str:
    """Return a list with a line for each text; a single text stays a paragraph."""
    if len(texts) < 2:
        return "".join(texts)
    return "\n".join(f"- {text}" for text in texts)


def _format_page(kind: str, folder: Path) -> str:
    return write_sentence(state(kind, page=str(folder / "report.html")))


def _format_footnote(summary: Summary, tables: str) -> str:
    """Return the meaning of intervals and units, and which kernels ran on CPUs.

    Args:
      summary: The report.
      tables: The tables whose intervals are explained.
    """
    run_counts: set[int] = set()
    for row in summary.rows:
        if row.rate and has_interval(row.rate):
            run_counts.update(row.rate.run_counts)
    signs = [sign for sign, mark in _SIGNS_OF_INTERVALS.items() if mark in tables]
    statements = []
    if run_counts and signs:
        kind = "plus-minus" if len(run_counts) == 1 else "plus-minus-range"
        statements.append(
            state(kind, signs=signs, least=min(run_counts), most=max(run_counts))
        )
    measured = [row for row in summary.rows if row.good_runs]
    statements += cautions.state_units(measured)
    return write_sentences([*statements, *cautions.state_kernels(summary)])
