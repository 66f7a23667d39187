"""CSV and TSV files: comma, semicolon or tab, quoted cells, a header in the first line. Reads row by row."""

from __future__ import annotations

import csv
from collections.abc import Iterator

from rnn_scaling.audit.tables.grid import RawTable
from rnn_scaling.audit.tables.pipes import MAX_ROWS, too_long

DELIMITERS = (",", ";", "\t")


def delimiter_of(head: list[str]) -> str:
    """The delimiter that gives the first lines as many cells, two at least; "" when none does.

    Args:
      head: the first lines that are not empty, two at least.
    """
    for delimiter in DELIMITERS:
        widths = {len(row) for row in csv.reader(head, delimiter=delimiter)}
        if len(head) > 1 and len(widths) == 1 and widths.pop() > 1:
            return delimiter
    return ""


def _rows(texts: Iterator[str], delimiter: str) -> Iterator[list[str]]:
    """The cells of each row; a line of which csv makes none (a cell of 128 KiB) is one cell, and no number."""
    reader = csv.reader(texts, delimiter=delimiter)
    while True:
        try:
            yield next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield ["\N{HORIZONTAL ELLIPSIS}"]


def tables(lines: Iterator[tuple[int, str]], delimiter: str) -> Iterator[RawTable]:
    """Yields the table of a delimited file, in pieces of MAX_ROWS rows; an empty line starts another table."""
    number = 0

    def texts() -> Iterator[str]:
        nonlocal number
        for at, line in lines:
            number = at
            yield line.replace("\r", " ")  # of another program's line ends, which csv refuses

    header: list[str] | None = None
    rows: list[tuple[int, list[str]]] = []
    start, pieces = 0, 0
    for row in _rows(texts(), delimiter):
        if not any(cell.strip() for cell in row):
            if header and rows:
                yield RawTable(start, header, rows)
            header, rows = None, []
            continue
        if header is None:
            header, start = row, number
            continue
        rows.append((number, row))
        if len(rows) >= MAX_ROWS:
            yield RawTable(start, header, rows, () if pieces else too_long([(start, header), *rows]))
            rows, pieces = [], pieces + 1
    if header and rows:
        yield RawTable(start, header, rows)
