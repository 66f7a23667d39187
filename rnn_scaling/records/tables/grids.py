"""Make a table of rows of cells, joining header lines and filling cells of groups.

batch | dtype | GPUs | samples/s            batch | dtype | GPUs | samples/s
128   | fp32  | 1    | 5210.40              128   | fp32  | 1    | 5210.40
      |       | 2    | 8120.10       ->     128   | fp32  | 2    | 8120.10
      | fp16  | 1    | 7000.20              128   | fp16  | 1    | 7000.20
"""

import itertools
from collections.abc import Iterator, Sequence

from rnn_scaling.records import cell_numbers
from rnn_scaling.records.cell_numbers import PrintedNumber
from rnn_scaling.records.tables import headers
from rnn_scaling.records.tables.headers import MEASURED, Quantity
from rnn_scaling.records.tables.table import Row, Table

MOST_ROWS = 20_000  # a longer table is read in pieces
_COUNTED = (Quantity.DEVICES, Quantity.BATCH, Quantity.GLOBAL_BATCH)
_FITTING_KINDS = ("whole", "decimal")  # a whole number may be below decimals
_DITTO = ("", '"', "\u2033", "\u3003", "''", "^^")


def table_of(
    source: str, rows: Sequence[Row], title: str = "", caption: str = ""
) -> Iterator[Table]:
    """Yield the tables of rows, whose first one is the header; empty rows end tables."""
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
    is_repeated = len(set(header)) < len(header) or "" in header[1:]
    filled = [text for text in texts if text.strip()]
    numbers = [text for text in filled if cell_numbers.parse_cell(text)]
    return is_repeated and len(filled) > 1 and all(map(headers.find_devices, numbers))


def _fill_up_rows(header: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    """Return rows as wide as the header.

    A short row is filled up at its end. If numbers would then be below names, or
    decimals below a number of devices, and not so with empty cells in front, the row
    lacks the cells of its group and is filled up in front.
    """
    width = len(header)
    whole_rows = [texts for _, texts in rows if len(texts) == width]
    if len(whole_rows) == len(rows):
        return list(rows)
    kinds = list(map(_column_kind, header, zip(*whole_rows)))
    squared = []
    for number, texts in rows:
        gap = ("",) * (width - len(texts))
        cells = (*texts[:width], *gap)
        shifted = (*gap, *texts[:width])
        if _misfits(cells, kinds) and not _misfits(shifted, kinds):
            cells = shifted
        squared.append((number, cells))
    return squared


def _column_kind(title: str, cells: Sequence[str]) -> str:
    """Return the `_cell_kind` of most cells of a column; "" if they differ too much."""
    kinds = [kind for kind in map(_cell_kind, cells) if kind]
    num_texts = kinds.count("text")
    if 2 * num_texts > len(kinds):
        return "text"
    if not kinds or num_texts:
        return ""
    is_count = headers.read_header(title).quantity in _COUNTED
    return "whole" if is_count and "decimal" not in kinds else "decimal"


def _cell_kind(cell: str) -> str:
    """Return "whole", "decimal" or "text"; "" for a cell that fits everywhere."""
    number = cell_numbers.parse_cell(cell)
    if number:
        return "whole" if number.value % 1 == 0 and number.step >= 1 else "decimal"
    return "text" if sum(map(str.isalpha, cell)) > 1 else ""


def _misfits(cells: Sequence[str], kinds: Sequence[str]) -> bool:
    """Return whether a cell does not fit its column."""
    for cell, expected in zip(cells, kinds):
        kind = _cell_kind(cell)
        if (
            kind
            and expected
            and kind != expected
            and (kind, expected) != _FITTING_KINDS
        ):
            return True
    return False


def _fill_groups(header: Sequence[str], rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows with the cells of their groups filled downwards.

    Empty cells at the start of a row belong to a group. So do those of a column that
    has a text exactly where the number of devices starts again.
    """
    if not any(any(map(_is_empty, texts)) for _, texts in rows):
        return tuple(rows)
    quantities = [headers.read_header(title).quantity for title in header]
    group_columns: set[int] = set()
    if Quantity.DEVICES in quantities:
        devices = quantities.index(Quantity.DEVICES)
        counts = [cell_numbers.parse_cell(texts[devices]) for _, texts in rows]
        for column in range(devices + 1, len(header)):
            if _restarts_with_devices(counts, [texts[column] for _, texts in rows]):
                group_columns.add(column)
    filled_rows: list[Row] = []
    for number, texts in rows:
        cells = list(texts)
        if filled_rows and any(map(cell_numbers.parse_cell, texts)):
            leading = len(list(itertools.takewhile(_is_empty, texts)))
            for column in {*range(leading), *group_columns}:
                if _is_empty(cells[column]) and quantities[column] not in MEASURED:
                    cells[column] = filled_rows[-1][1][column]
        filled_rows.append((number, tuple(cells)))
    return tuple(filled_rows)


def _is_empty(cell: str) -> bool:
    return cell.strip() in _DITTO


def _restarts_with_devices(
    counts: Sequence[PrintedNumber | None], cells: Sequence[str]
) -> bool:
    """Return whether a column has texts only where the numbers of devices restart."""
    has_text = [not _is_empty(cell) for cell in cells]
    if not has_text[0] or all(has_text):
        return False
    for (previous, count), has in zip(itertools.pairwise(counts), has_text[1:]):
        if count is None or previous is None:
            return False
        if has and count.value > previous.value:
            return False
    return True
