"""Make a table of rows of cells: header lines are joined, and cells of groups filled.

batch | dtype | GPUs | samples/s            batch | dtype | GPUs | samples/s
128   | fp32  | 1    | 5210.40              128   | fp32  | 1    | 5210.40
      |       | 2    | 8120.10       ->     128   | fp32  | 2    | 8120.10
      | fp16  | 1    | 7000.20              128   | fp16  | 1    | 7000.20
"""

import itertools
from collections.abc import Iterator, Sequence

from rnn_scaling.records import printed_number
from rnn_scaling.records.printed_number import Printed
from rnn_scaling.records.tables import headers
from rnn_scaling.records.tables.headers import MEASURED, Quantity
from rnn_scaling.records.tables.table import Row, Table

MOST_ROWS = 20_000  # a longer table is read in pieces
_COUNTED = (Quantity.DEVICES, Quantity.BATCH, Quantity.GLOBAL_BATCH)
_MILDER = ("whole", "decimal")  # a whole number may be below decimals
_DITTO = ("", '"', "\u2033", "\u3003", "''", "^^")


def table_of(
    source: str, rows: Sequence[Row], title: str = "", caption: str = ""
) -> Iterator[Table]:
    """Yield the tables of rows, whose first one is the header; empty rows end tables."""
    if len(rows) < 2 or len(rows[0][1]) < 2:
        return
    header = list(map(printed_number.plain, rows[0][1]))
    body = list(rows[1:])
    if len(body) > 1 and _is_second_header(header, body[0][1]):
        below = list(map(printed_number.plain, body.pop(0)[1]))
        for column, (top, sub) in enumerate(zip(header, below)):
            if top != sub:
                header[column] = f"{top} {sub}".strip()
    squared = _squared(header, body)
    for is_filled, part in itertools.groupby(squared, lambda row: any(row[1])):
        if is_filled:
            filled = _filled(header, list(part))
            yield Table(source, rows[0][0], tuple(header), filled, title, caption)


def _is_second_header(header: Sequence[str], texts: Sequence[str]) -> bool:
    is_repeated = len(set(header)) < len(header) or "" in header[1:]
    filled = [text for text in texts if text.strip()]
    numbers = [text for text in filled if printed_number.parse(text)]
    return is_repeated and len(filled) > 1 and all(map(headers.devices_in, numbers))


def _squared(header: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    """Return rows as wide as the header.

    A short row is filled up at its end. If numbers would then be below names, or
    decimals below a number of devices, and not so with empty cells in front, the row
    lacks the cells of its group and is filled up in front.
    """
    width = len(header)
    whole_rows = [texts for _, texts in rows if len(texts) == width]
    if len(whole_rows) == len(rows):
        return list(rows)
    kinds = list(map(_kind_of_column, header, zip(*whole_rows)))
    found = []
    for number, texts in rows:
        gap = ("",) * (width - len(texts))
        cells = (*texts[:width], *gap)
        shifted = (*gap, *texts[:width])
        if _misfits(cells, kinds) and not _misfits(shifted, kinds):
            cells = shifted
        found.append((number, cells))
    return found


def _kind_of_column(title: str, cells: Sequence[str]) -> str:
    """Return what a column holds, see `_kind`; "" if that is not clear."""
    kinds = [kind for kind in map(_kind, cells) if kind]
    num_texts = kinds.count("text")
    if 2 * num_texts > len(kinds):
        return "text"
    if not kinds or num_texts:
        return ""
    is_count = headers.read(title).quantity in _COUNTED
    return "whole" if is_count and "decimal" not in kinds else "decimal"


def _kind(cell: str) -> str:
    """Return "whole", "decimal" or "text"; "" for a cell that fits everywhere."""
    number = printed_number.parse(cell)
    if number:
        return "whole" if number.value % 1 == 0 and number.step >= 1 else "decimal"
    return "text" if sum(map(str.isalpha, cell)) > 1 else ""


def _misfits(cells: Sequence[str], kinds: Sequence[str]) -> bool:
    """Return whether a cell does not fit its column."""
    for cell, expected in zip(cells, kinds):
        kind = _kind(cell)
        if kind and expected and kind != expected and (kind, expected) != _MILDER:
            return True
    return False


def _filled(header: Sequence[str], rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows with the cells of their groups filled downwards.

    Empty cells at the start of a row belong to a group. So do those of a column that
    has a text exactly where the number of devices starts again.
    """
    if not any(_is_empty(cell) for _, texts in rows for cell in texts):
        return tuple(rows)
    quantities = [headers.read(title).quantity for title in header]
    inner: set[int] = set()
    if Quantity.DEVICES in quantities:
        devices = quantities.index(Quantity.DEVICES)
        counts = [printed_number.parse(texts[devices]) for _, texts in rows]
        for column in range(devices + 1, len(header)):
            if _restarts_with(counts, [texts[column] for _, texts in rows]):
                inner.add(column)
    found: list[Row] = []
    for number, texts in rows:
        cells = list(texts)
        if found and any(map(printed_number.parse, texts)):
            leading = len(list(itertools.takewhile(_is_empty, texts)))
            for column in {*range(leading), *inner}:
                if _is_empty(cells[column]) and quantities[column] not in MEASURED:
                    cells[column] = found[-1][1][column]
        found.append((number, tuple(cells)))
    return tuple(found)


def _is_empty(cell: str) -> bool:
    return cell.strip() in _DITTO


def _restarts_with(counts: Sequence[Printed | None], cells: Sequence[str]) -> bool:
    """Return whether a column has texts only where the numbers of devices restart."""
    has_text = [not _is_empty(cell) for cell in cells]
    if not has_text[0] or all(has_text):
        return False
    for number, before, has in zip(counts[1:], counts, has_text[1:]):
        if number is None or before is None or (has and number.value > before.value):
            return False
    return True
