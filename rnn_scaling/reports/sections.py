"""A part of a report as data: tables and statements. Markdown is made here, HTML in `page`."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.reports.wording import sentence
from rnn_scaling.system.files.markdown import markdown_table

Columns = dict[str, Callable[[Any], str]]  # title -> the cell of an item


@dataclasses.dataclass(frozen=True)
class Grid:
    """A table; the first cell of a line is its header, and `text_columns` are aligned to the left."""

    caption: str
    head: Sequence[str]
    lines: Sequence[Sequence[str]]
    text_columns: tuple[int, ...] = ()


def make_grid(caption: str, columns: Columns, items: Iterable[Any]) -> Grid:
    return Grid(
        caption,
        [*columns],
        [[cell(item) for cell in columns.values()] for item in items],
    )


@dataclasses.dataclass(frozen=True)
class Section:
    """Tables and what they show, as statements or finished sentences."""

    title: str
    grids: tuple[Grid, ...] = ()
    notes: tuple[Statement | str, ...] = ()

    @property
    def sentences(self) -> list[str]:
        return [
            note if isinstance(note, str) else sentence(note) for note in self.notes
        ]


def markdown(sections: Sequence[Section], level: int = 2) -> str:
    """The sections below headings of this level; 0: a title is a line that ends in a colon."""
    parts = []
    for section in sections:
        heading = f"{'#' * level} {section.title}\n" if level else f"{section.title}:\n"
        parts += [heading] if section.title else []
        for grid in section.grids:
            parts += [f"{grid.caption}:\n"] if grid.caption else []
            parts.append(markdown_table(grid.head, grid.lines))
        parts += (
            ["".join(f"- {line}\n" for line in section.sentences)]
            if section.notes
            else []
        )
    return "\n".join(parts)
