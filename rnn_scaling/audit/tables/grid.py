"""A table as text -> a grid with one number a cell: second header lines folded in, "12 [5 / 7]" taken apart."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from rnn_scaling.audit.scaling_table import GridRow, parse_cell, strip_marks
from rnn_scaling.audit.tables import columns

PAIR = re.compile(r"(?P<whole>[^\[\]()]*?)\s*[\[(]\s*(?P<parts>[^\[\]()]+?(?:\s*/\s*[^\[\]()/]+?)+)\s*[\])]\s*")


@dataclasses.dataclass(frozen=True)
class RawTable:
    """A table as a parser found it.

    line: of the header; header: its texts; lines: (line number, texts) of what follows.
    """

    source: str
    line: int
    title: str
    header: Sequence[str]
    lines: Sequence[tuple[int, Sequence[str]]]
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Grid:
    """A rectangular table.

    columns: unique names; base: the header of each without the second header line; sub: that of the second.
    quantity: what the body of a matrix holds ("Speedup" in its corner), else "".
    parts: name of a column -> names of the columns that its brackets hold.
    """

    columns: tuple[str, ...]
    base: tuple[str, ...]
    sub: tuple[str, ...]
    rows: tuple[GridRow, ...]
    quantity: str = ""
    parts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    notes: tuple[str, ...] = ()


def build(raw: RawTable) -> Grid:
    """The grid of a raw table; rows of another length are kept as far as they go, and named in the notes."""
    header = [strip_marks(text) for text in raw.header]
    width, lines, notes = len(header), [], list(raw.notes)
    for number, texts in raw.lines:
        if len(texts) > width and any(text.strip() for text in texts[width:]):
            notes.append(f"line {number}: {len(texts)} cells under {width} headers; the last are left out")
        elif len(texts) < width:
            notes.append(f"line {number}: {len(texts)} of {width} cells; the missing are taken as empty")
        lines.append((number, [*texts[:width], *[""] * (width - len(texts))]))
    header, lines = _transposed(header, lines)
    sub, lines = _second_header(header, lines)
    quantity = ""
    if sub and columns.recognise(sub[0]).role == "devices":
        quantity, header = header[0], [sub[0], *header[1:]]
        sub = ["", *sub[1:]]
    base, sub, lines, parts_of = _expand(header, sub or [""] * len(header), lines)
    corner = f"{quantity}, " if quantity else ""
    names = _unique([f"{corner if k else ''}{b} ({s})" if s else b for k, (b, s) in enumerate(zip(base, sub))])
    rows = tuple(
        GridRow(number, tuple(strip_marks(text) for text in texts), tuple(parse_cell(text) for text in texts))
        for number, texts in lines
    )
    parts = tuple((names[whole], tuple(names[k] for k in members)) for whole, members in parts_of)
    return Grid(tuple(names), tuple(base), tuple(sub), rows, quantity, parts, tuple(notes))


def _transposed(header: list[str], lines: list) -> tuple[list[str], list]:
    """Turns "GPUs | 1 | 2 | 4" with a quantity a line into a quantity a column; line numbers are then the header's."""
    counts = [parse_cell(text) for text in header[1:]]
    across = len(counts) >= 2 and all(c and c.value >= 1 and float(c.value).is_integer() for c in counts)
    roles = [columns.recognise(strip_marks(texts[0])).role for _, texts in lines if texts]
    if not across or columns.recognise(header[0]).role != "devices" or not any(roles) or not lines:
        return header, lines
    turned = [
        (lines[0][0], [header[k], *[texts[k] for _, texts in lines]]) for k in range(1, len(header))
    ]  # a column has no line of its own: the first line of the body stands for it
    return [header[0], *[strip_marks(texts[0]) for _, texts in lines]], turned


def _second_header(header: list[str], lines: list) -> tuple[list[str], list]:
    """The texts of a second header line, or [], and the lines after it."""
    if not lines:
        return [], lines
    texts = [strip_marks(text) for text in lines[0][1]]
    words = [text for text in texts if text]
    corner = columns.recognise(header[0]).role in ("speedup", "efficiency", "rate", "seconds")
    names_a_column = corner and bool(texts[0]) and columns.recognise(texts[0]).role == "devices"
    below_empty = not texts[0] and words and not any(parse_cell(text) for text in words) and len(lines) > 1
    if names_a_column or (below_empty and len(words) >= 2):
        return texts, lines[1:]
    return [], lines


def _expand(header: list[str], sub: list[str], lines: list) -> tuple[list[str], list[str], list, list]:
    """Gives each number of "12 [5 / 7]" a column of its own, where most cells of a column look so."""
    base_out, sub_out, parts_of = [], [], []
    out: list[list[str]] = [[] for _ in lines]
    for k, text in enumerate(header):
        cells = [strip_marks(texts[k]) for _, texts in lines]
        matches = [PAIR.fullmatch(cell) for cell in cells]
        counts = {len(m["parts"].split("/")) for m in matches if m}
        filled = sum(bool(cell) for cell in cells)
        named = PAIR.fullmatch(text)
        base_out.append(named["whole"] if named and counts else text)
        sub_out.append(sub[k])
        if len(counts) != 1 or 2 * sum(map(bool, matches)) <= filled:
            for line, cell in zip(out, cells):
                line.append(cell)
            continue
        size, whole = counts.pop(), len(base_out) - 1
        labels = [part.strip() for part in named["parts"].split("/")] if named else []
        labels = labels if len(labels) == size else [f"part {i + 1}" for i in range(size)]
        base_out += [f"{base_out[whole]}: {label}" for label in labels]
        sub_out += [sub[k]] * size
        parts_of.append((whole, list(range(whole + 1, whole + 1 + size))))
        for line, cell, match in zip(out, cells, matches):
            line.append(match["whole"] if match else cell)
            line += [part.strip() for part in match["parts"].split("/")] if match else [""] * size
    return base_out, sub_out, [(number, texts) for (number, _), texts in zip(lines, out)], parts_of


def _unique(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return out
