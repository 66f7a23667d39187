"""A part of a report as data: tables and statements. HTML is made in `page`.

Every report is made of these parts. A table is a `Grid`, whatever its format. Statements
explain the marks that numbers have in it.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.interval_kinds import Note
from rnn_scaling.analysis.metrics import SPEEDUP, find_common_unit
from rnn_scaling.analysis.rows import Row
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.reports.wording import MARKS, write_sentence
from rnn_scaling.system.files.markdown import format_table

Columns = dict[str, Callable[[Any], str]]  # heading -> the cell of an item


@dataclasses.dataclass(frozen=True)
class Grid:
    """A table; the first cell of a line is its header."""

    caption: str
    head: Sequence[str]
    lines: Sequence[Sequence[str]]
    text_columns: tuple[int, ...] = ()  # aligned to the left


def make_grid(caption: str, columns: Columns, items: Iterable[Any]) -> Grid:
    """Return a table with a line for each item."""
    lines = []
    for item in items:
        lines.append([cell(item) for cell in columns.values()])
    return Grid(caption, [*columns], lines)


@dataclasses.dataclass(frozen=True)
class Section:
    """Tables, and statements or finished sentences about them."""

    title: str
    grids: Sequence[Grid] = ()
    notes: Sequence[Statement | str] = ()

    @property
    def sentences(self) -> list[str]:
        return [
            note if isinstance(note, str) else write_sentence(note)
            for note in self.notes
        ]


def format_markdown(sections: Sequence[Section], level: int = 2) -> str:
    """Return the sections as Markdown.

    Args:
      sections: The sections.
      level: The level of the headings; 0: a title is a line that ends in a colon.
    """
    parts = []
    for section in sections:
        if section.title and level:
            parts.append(f"{'#' * level} {section.title}\n")
        elif section.title:
            parts.append(f"{section.title}:\n")
        for grid in section.grids:
            if grid.caption:
                parts.append(f"{grid.caption}:\n")
            parts.append(format_table(grid.head, grid.lines))
        if section.notes:
            parts.append("".join(f"- {line}\n" for line in section.sentences))
    return "\n".join(parts)


def explain_numbers(numbers: Iterable[Interval | None]) -> list[Statement]:
    """Return a line for each mark of some numbers."""
    notes: set[Note] = set()
    for number in numbers:
        if number is not None:
            notes.update(number.kind.inherited_notes)
    found = []
    if Note.CORRECTED in notes:
        found.append(state("mark-corrected", MARKS[Note.CORRECTED]))
    if Note.ALL_BATCHES in notes:
        found.append(state("mark-all-batches", MARKS[Note.ALL_BATCHES]))
    if Note.DISTURBED in notes:
        found.append(state("mark-disturbed", MARKS[Note.DISTURBED]))
    return found


def explain_rows(rows: Sequence[Row]) -> list[Statement]:
    """Return a line for each mark of the rates and speedups of rows.

    The line about corrected rates has the measured rates. A further line has the number
    of speedups that load hides.
    """
    numbers: list[Interval | None] = []
    for row in rows:
        numbers += [row.rate, row.shown_metric(SPEEDUP)]
    found = []
    for statement in explain_numbers(numbers):
        if statement.kind == "mark-corrected":
            statement = _with_measured_rates(statement, rows)
        found.append(statement)
    found += explain_hidden(sum(row.is_speedup_hidden for row in rows))
    return found


def explain_hidden(speedups: int) -> list[Statement]:
    """Return the number of speedups that load hides; [] if it is 0."""
    return [state("mark-hidden", speedups=speedups)] if speedups else []


def _with_measured_rates(statement: Statement, rows: Sequence[Row]) -> Statement:
    """Return the line about corrected rates with the rates that were measured."""
    rates = []
    units = []
    for row in with_baselines(rows):
        if row.corrected is not None and row.measured_rate is not None:
            rates.append(row.measured_rate.value)
            units.append(row.unit)
    if not rates:
        return statement
    kind = "mark-corrected-rate" if len(rates) == 1 else "mark-corrected-rates"
    return state(
        kind,
        statement.subject,
        least=min(rates),
        most=max(rates),
        unit=find_common_unit(units),
    )


def with_baselines(rows: Sequence[Row]) -> list[Row]:
    """Return rows and their baselines, each once."""
    found: dict[Row, None] = {}
    for row in rows:
        found[row] = None
        if row.baseline is not None:
            found[row.baseline] = None
    return list(found)
