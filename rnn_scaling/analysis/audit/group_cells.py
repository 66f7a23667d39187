"""Fill in cells that hold for several rows: empty cells and shortened rows.

batch | dtype | GPUs | samples/s            batch | dtype | GPUs | samples/s
128   | fp32  | 1    | 5210.40              128   | fp32  | 1    | 5210.40
      |       | 2    | 8120.10       ->     128   | fp32  | 2    | 8120.10
      | fp16  | 1    | 7000.20              128   | fp16  | 1    | 7000.20
"""

import itertools
from collections.abc import Sequence

from rnn_scaling.analysis.audit import headers
from rnn_scaling.records import printed_number
from rnn_scaling.records.printed_number import Printed

Row = tuple[int, tuple[str, ...]]  # line number, texts of the cells
_COUNTED = ("devices", "batch", "global_batch")
_DITTO = ("", '"', "\u2033", "\u3003", "''", "^^")
# Quantities of columns that are measured. An empty cell there is a missing number.
_MEASURED = (
    "rate",
    "each",
    "seconds",
    "speedup",
    "efficiency",
    "share",
    "change",
    "aside",
    "algbw",
    "busbw",
    "cost",
    "energy",
    "power",
)


def aligned(header: Sequence[str], rows: Sequence[Row]) -> list[Row]:
    """Return rows as wide as the header.

    A short row is filled up at its end. If numbers would then be below names, or
    decimals below a number of devices, and not so with empty cells in front, the row lacks
    the cells of its group and is filled up in front.
    """
    width = len(header)
    if all(len(texts) == width for _, texts in rows):
        return list(rows)
    whole_rows = [texts for _, texts in rows if len(texts) == width]
    kinds = list(map(_kind_of_column, header, zip(*whole_rows)))
    found = []
    for number, texts in rows:
        gap = ("",) * (width - len(texts))
        cells = (*texts[:width], *gap)
        if gap and kinds and _misfits(cells, kinds):
            shifted = (*gap, *texts)
            if not _misfits(shifted, kinds):
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


def _misfits(cells: Sequence[str], kinds: Sequence[str]) -> int:
    """Return how many cells do not fit their columns."""
    unlike = {
        ("whole", "text"),
        ("decimal", "text"),
        ("decimal", "whole"),
        ("text", "whole"),
        ("text", "decimal"),
    }
    return sum((_kind(cell), kind) in unlike for cell, kind in zip(cells, kinds))


def filled(header: Sequence[str], rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows with the cells of their groups filled downwards.

    Empty cells at the start of a row belong to a group. So do those of a column that
    has a text exactly where the number of devices starts again.
    """
    if not any(_is_empty(cell) for _, texts in rows for cell in texts):
        return tuple(rows)
    quantities = [headers.read(title).quantity for title in header]
    is_measured = [quantity in _MEASURED for quantity in quantities]
    inner: set[int] = set()
    if "devices" in quantities:
        devices = quantities.index("devices")
        counts = [printed_number.parse(texts[devices]) for _, texts in rows]
        for column in range(devices + 1, len(header)):
            cells = [texts[column] for _, texts in rows]
            if not is_measured[column] and _restarts_with(counts, cells):
                inner.add(column)
    found: list[Row] = []
    for number, texts in rows:
        if not found or not any(map(printed_number.parse, texts)):
            found.append((number, texts))
            continue
        above = found[-1][1]
        leading = len(list(itertools.takewhile(_is_empty, texts)))
        cells = list(texts)
        for column, cell in enumerate(texts):
            is_of_group = column < leading or column in inner
            if is_of_group and _is_empty(cell) and not is_measured[column]:
                cells[column] = above[column]
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
        if number is None or before is None:
            return False
        if has and number.value > before.value:
            return False
    return True
