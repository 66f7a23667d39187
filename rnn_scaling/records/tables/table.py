"""The texts of a table with their line numbers.

Parsers make a `Table`, and `measurements` reads it; line numbers are those of the file.
"""

import dataclasses
import functools

from rnn_scaling.records import cell_numbers

Row = tuple[int, tuple[str, ...]]  # line number, texts of the cells


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of a file."""

    source: str
    line: int  # the line of the header
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    title: str = ""  # the heading above it
    caption: str = ""  # the line above it

    @functools.cached_property
    def count(self) -> int:
        """The number of cells with a number."""
        count = 0
        for _, texts in self.rows:
            count += sum(cell_numbers.parse_cell(text) is not None for text in texts)
        return count
