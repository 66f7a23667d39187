"""A table as it is in a file: texts with their line numbers."""

import dataclasses
import functools

from rnn_scaling.records import printed_number
from rnn_scaling.records.printed_number import Printed

MOST_LOOKED_AT = 1000  # rows that show whether a column holds numbers
Row = tuple[int, tuple[str, ...]]  # line number, texts of the cells


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of a file."""

    source: str
    line: int  # of the header
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    title: str = ""  # the heading above it
    caption: str = ""  # the line above it
    # The table of each row, if tables with the same header were joined.
    parts: tuple[int, ...] = ()

    @functools.cached_property
    def numbers(self) -> list[list[Printed | None]]:
        """The number of each cell, by row and column; None for texts."""
        return [list(map(printed_number.parse, texts)) for _, texts in self.rows]

    @property
    def part_of(self) -> tuple[int, ...]:
        return self.parts or (0,) * len(self.rows)

    @property
    def count(self) -> int:
        """The number of cells with a number."""
        return sum(len(row) - row.count(None) for row in self.numbers)

    def texts(self, column: int) -> list[str]:
        """Return the plain texts of a column."""
        return [printed_number.plain(texts[column]) for _, texts in self.rows]

    def is_numeric(self, column: int) -> bool:
        """Return whether a column holds numbers rather than names."""
        num_numbers = 0
        num_filled = 0
        for row, (_, texts) in zip(self.numbers, self.rows[:MOST_LOOKED_AT]):
            num_numbers += row[column] is not None
            num_filled += any(map(str.isalnum, texts[column]))
        return num_numbers > 0 and 2 * num_numbers >= num_filled
