"""Make a table of rows of cells, joining header lines and filling cells of groups.

batch | dtype | GPUs | samples/s            batch | dtype | GPUs | samples/s
128   | fp32  | 1    | 5210.40              128   | fp32  | 1    | 5210.40
      |       | 2    | 8120.10       ->     128   | fp32  | 2    | 8120.10
      | fp16  | 1    | 7000.20              128   | fp16  | 1    | 7000.20
"""

import itertools
from collections.abc import Iterator, Sequence

from rnn_scaling.records import cell_numbers
from rnn_scaling.records.tables import headers
from rnn_scaling.records.tables.headers import MEASURED
from rnn_scaling.records.tables.table import Row, Table

MAX_ROWS = 20_000  # a longer table is read in pieces
_DITTO = ("", '"', "\u2033", "\u3003", "''", "^^")


def make_tables(
    source: str, rows: Sequence[Row], title: str = "", caption: str = ""
) -> Iterator[Table]:
    """Split rows into tables at empty rows; the first row is the header of all.

    Args:
      source: The file, for messages.
      rows: Line number and texts of each row.
      title: The heading above the table.
      caption: The paragraph above the table.
    """
    if len(rows) < 2 or len(rows[0][1]) < 2:
        return
    header = list(map(cell_numbers.strip_markup, rows[0][1]))
    body = list(rows[1:])
    if len(body) > 1 and _is_second_header(header, body[0][1]):
        cells_below = list(map(cell_numbers.strip_markup, body.pop(0)[1]))
        for column, (top, sub) in enumerate(zip(header, cells_below)):
            if top != sub:
                header[column] = f"{top} {sub}".strip()
    squared = _fill_up_rows(header, body)
    for has_text, group in itertools.groupby(squared, lambda row: any(row[1])):
        if has_text:
            filled_rows = _fill_groups(header, list(group))
            yield Table(source, rows[0][0], tuple(header), filled_rows, title, caption)


def _is_second_header(header: Sequence[str], texts: Sequence[str]) -> bool:
    """Return whether a row continues the header.

    Titles of the header repeat or are empty, and the numbers below are device counts.
    """
    is_repeated = len(set(header)) < len(header) or "" in header[1:]
    filled = [text for text in texts if text.strip()]
    numbers = [text for text in filled if cell_numbers.parse_cell(text)]
    return is_repeated and len(filled) > 1 and all(map(headers.find_devices, numbers))


def _fill_up_rows(header: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    """Return rows as wide as the header; short rows lack their last cells."""
    width = len(header)
    filled_rows = []
    for number, texts in rows:
        gap = ("",) * (width - len(texts))
        filled_rows.append((number, (*texts[:width], *gap)))
    return filled_rows


def _fill_groups(header: Sequence[str], rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows with the cells of their groups filled downwards.

    Empty cells at the start of a row belong to a group, unless they are measured.
    """
    quantities = [headers.read_header(title).quantity for title in header]
    filled_rows: list[Row] = []
    for number, texts in rows:
        cells = list(texts)
        if filled_rows and any(map(cell_numbers.parse_cell, texts)):
            for column, text in enumerate(texts):
                if text.strip() not in _DITTO:
                    break
                if quantities[column] not in MEASURED:
                    cells[column] = filled_rows[-1][1][column]
        filled_rows.append((number, tuple(cells)))
    return tuple(filled_rows)
