"""A part of a report as data: tables and statements. HTML is made in `page`.

Every report is made of these parts. A table is a `Grid`, whatever its format.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.reports.wording import sentence
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
            note if isinstance(note, str) else sentence(note) for note in self.notes
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
