"""A table as text -> a grid with one number a cell: second header lines folded in, "12 [5 / 7]" taken apart."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from rnn_scaling.audit.scaling_table import GridRow, decimal_comma, parse_bare, parse_cell, strip_marks
from rnn_scaling.audit.tables import columns, compound, counts
from rnn_scaling.audit.tables.columns import MEASURED, Column

_Lines = list[tuple[int, list[str]]]
_NO_SETTING = ("accuracy", "loss", "memory", "power", "utilisation", "bandwidth", "latency", "compute rate")
_MAX_NOTES = 1000
_COMMA = re.compile(
    r"[-+~≈]?\d{1,3}(?:[. \u2009\u202f\xa0]\d{3})*,\d+(?:\s*[x×%].*|\s*(?:±|\+/-).*|\s*\(.*\)|\s+[a-z/]+)?",
    re.IGNORECASE,
)
_ONLY_A_DECIMAL_COMMA = re.compile(r"0,\d+.*|\d+,(?:\d{1,2}|\d{4,})(?!\d).*|\d{1,3}(?:\.\d{3})+,\d.*")
_POINT = re.compile(r".*\d\.(?:\d{1,2}|\d{4,})(?!\d).*")


@dataclasses.dataclass(frozen=True)
class RawTable:
    """A table as a parser found it.

    line: of the header; header: its texts; lines: (line number, texts) of what follows.
    title: the heading above it; caption: a short line right above it; "" for none.
    """

    line: int
    header: Sequence[str]
    lines: Sequence[tuple[int, Sequence[str]]]
    notes: tuple[str, ...] = ()
    title: str = ""
    caption: str = ""


@dataclasses.dataclass(frozen=True)
class Grid:
    """A rectangular table.

    columns: unique names; base: the header of each without the second header line; sub: that of the second.
    given: what each column says by its cells, None where the header is to say it.
    quantity: what the body of a matrix holds ("Speedup" in its corner), else "".
    parts: name of a column -> names of the columns that its brackets hold.
    """

    columns: tuple[str, ...]
    base: tuple[str, ...]
    sub: tuple[str, ...]
    rows: tuple[GridRow, ...]
    given: tuple[Column | None, ...] = ()
    quantity: str = ""
    parts: tuple[tuple[str, tuple[str, ...]], ...] = ()
    notes: tuple[str, ...] = ()


def build(raw: RawTable) -> Grid:
    """The grid of a raw table; rows of another length are kept as far as they go, and named in the notes."""
    header, lines, notes = _squared(raw)
    header, lines = _transposed(header, lines)
    sub, lines = _second_header(header, lines)
    quantity = ""
    if sub and not header[0]:
        header, sub = [sub[0], *header[1:]], ["", *sub[1:]]
    elif sub and columns.recognise(sub[0]).role == "devices":
        quantity, header = header[0], [sub[0], *header[1:]]
        sub = ["", *sub[1:]]
    lines = _filled_down(header, _in_decimal_points(header, lines))
    base, subs, given, cells, parts_of = _expand(header, sub or [""] * len(header), lines)
    corner = f"{quantity}, " if quantity else ""
    names = _unique([f"{corner if k else ''}{b} ({s})" if s else b for k, (b, s) in enumerate(zip(base, subs))])
    numbers = [[parse_bare(text) for text in texts] for texts in cells]
    rows = tuple(
        GridRow(number, texts, values) for (number, _), texts, values in zip(lines, zip(*cells), zip(*numbers))
    )
    parts = tuple((names[whole], tuple(names[k] for k in members)) for whole, members in parts_of)
    return Grid(tuple(names), tuple(base), tuple(subs), rows, tuple(given), quantity, parts, tuple(notes))


def _squared(raw: RawTable) -> tuple[list[str], _Lines, list[str]]:
    """Header, lines of its length without marks, and a note for each line of another length."""
    header = [strip_marks(text) for text in raw.header]
    width, lines, notes = len(header), [], list(raw.notes)
    for number, texts in raw.lines:
        if len(texts) != width and len(notes) < _MAX_NOTES:
            if len(texts) > width and any(text.strip() for text in texts[width:]):
                notes.append(f"line {number}: {len(texts)} cells under {width} headers; the last are left out")
            elif len(texts) < width:
                notes.append(f"line {number}: {len(texts)} of {width} cells; the missing are taken as empty")
        cells = [strip_marks(text) for text in texts[:width]]
        lines.append((number, cells if len(cells) == width else [*cells, *[""] * (width - len(cells))]))
    return header, lines, notes


def _transposed(header: list[str], lines: _Lines) -> tuple[list[str], _Lines]:
    """Turns "GPUs | 1 | 2 | 4" with a quantity a line into a quantity a column; line numbers are then the header's."""
    if len(header) < 3 or not lines or not _counts_across(header):
        return header, lines
    roles = [columns.recognise(texts[0]) for _, texts in lines]
    understood = sum(bool(kind.quantity) for kind in roles)
    if not any(kind.role in MEASURED for kind in roles) or 2 * understood <= len(roles):
        return header, lines
    bare = columns.recognise(header[0]).role == "devices"
    named = [text if bare else str(count.number) if (count := counts.in_header(text)) else "" for text in header]
    turned = [
        (lines[0][0], [named[k], *[texts[k] for _, texts in lines]]) for k in range(1, len(header))
    ]  # a column has no line of its own: the first line of the body stands for it
    return [header[0] if bare else "devices", *[texts[0] for _, texts in lines]], turned


def _counts_across(header: Sequence[str]) -> bool:
    """Whether every header but the first is a number of devices: "GPUs | 1 | 2", "| 1 GPU | 2 GPUs"."""
    if columns.recognise(header[0]).role == "devices":
        numbers = [parse_cell(text) for text in header[1:]]
        return all(c and c.value >= 1 and float(c.value).is_integer() for c in numbers)
    named = [counts.in_header(text) for text in header[1:]]
    return all(c and not columns.recognise(c.rest).role for c in named) and len({c.number for c in named if c}) > 1


def _second_header(header: list[str], lines: _Lines) -> tuple[list[str], _Lines]:
    """The texts of a second header line, or [], and the lines after it."""
    if len(lines) < 1:
        return [], lines
    texts = lines[0][1]
    if texts[0] and texts[0] == header[0]:  # a name that spans both lines
        texts = ["", *texts[1:]]
    filled = [text for text in texts if text]
    corner = columns.recognise(header[0]).role in ("speedup", "efficiency", "rate", "seconds")
    names_a_column = corner and bool(texts[0]) and columns.recognise(texts[0]).role == "devices"
    below_empty = not texts[0] and filled and not any(parse_cell(text) for text in filled) and len(lines) > 1
    if names_a_column or (below_empty and len(filled) >= 2):
        return texts, lines[1:]
    repeated = len(set(header[1:])) < len(header) - 1
    if not header[0] and texts[0] and repeated and len(lines) > 1 and not any(parse_cell(text) for text in filled):
        return texts, lines[1:]
    same = (
        texts[0] in ("", header[0]) and repeated and len(lines) > 1 and len(filled) >= 2
    )  # "GPUs | GPUs" over "1 | 2"
    if same and _names_devices(header, texts):
        return texts, lines[1:]
    return [], lines


def _names_devices(header: Sequence[str], texts: Sequence[str]) -> bool:
    """Whether a line gives the numbers of devices under headers that say "GPUs"."""
    under = [(columns.recognise(name).role, parse_cell(text)) for name, text in zip(header[1:], texts[1:]) if text]
    return all(role == "devices" and cell and cell.value >= 1 for role, cell in under)


def _filled_down(header: Sequence[str], lines: _Lines) -> _Lines:
    """The lines with empty cells of labels and settings as those above: the first columns of a row."""
    if not lines or all(texts[0] for _, texts in lines):
        return lines
    kept = 0
    for name in header:
        kind = columns.recognise(name)
        if kind.role in (*MEASURED, "devices", "ids", "work") or (kind.role == "" and kind.other in _NO_SETTING):
            break
        kept += 1
    if not kept or not lines[0][1][0]:
        return lines
    out: _Lines = []
    above = lines[0][1]
    for number, texts in lines:
        empty = next((k for k, text in enumerate(texts[:kept]) if text), kept)
        begins = empty > 0 and any(texts[kept:])
        texts = [*above[:empty], *texts[empty:]] if begins else texts
        out.append((number, texts))
        above = texts
    return out


def _in_decimal_points(header: Sequence[str], lines: _Lines) -> _Lines:
    """The lines with decimal points, where the measured columns have decimal commas ("1.446,3") and no points."""
    measured = [k for k, name in enumerate(header) if columns.recognise(name).role in MEASURED]
    sample = [texts[k] for _, texts in lines[:200] for k in measured if texts[k]]
    with_comma = [text for text in sample if "," in text and _COMMA.fullmatch(text)]
    if not any(_ONLY_A_DECIMAL_COMMA.fullmatch(text) for text in with_comma):
        return lines
    if any(_POINT.fullmatch(text) and "," not in text for text in sample) or 2 * len(with_comma) < len(sample):
        return lines
    counted = [columns.recognise(name).role in ("devices", "ids") for name in header]
    return [
        (
            number,
            [text if counted[k] or not text[:1].isdigit() else decimal_comma(text) for k, text in enumerate(texts)],
        )
        for number, texts in lines
    ]


def _expand(
    header: Sequence[str], sub: Sequence[str], lines: _Lines
) -> tuple[list[str], list[str], list[Column | None], list[Sequence[str]], list[tuple[int, list[int]]]]:
    """Gives each number of "12 [5 / 7]" and "1446 (12.1x)" a column of its own: headers, given, cells, sums."""
    base: list[str] = []
    subs: list[str] = []
    given: list[Column | None] = []
    cells: list[Sequence[str]] = []
    parts_of: list[tuple[int, list[int]]] = []
    by_column = list(zip(*(texts for _, texts in lines))) or [()] * len(header)
    for k, (name, texts) in enumerate(zip(header, by_column)):
        kind = columns.recognise(name).role
        apart = compound.take_apart(name, texts) if kind not in ("devices", "ids", "per_part") else None
        if apart is None:
            base.append(name)
            subs.append(sub[k])
            given.append(None)
            cells.append(texts)
            continue
        name, pieces = apart
        whole = len(base)
        for piece in pieces:
            mark = ": " if piece.is_part else ", "
            base.append(f"{name}{mark}{piece.label}" if piece.label else name)
            subs.append(sub[k])
            given.append(piece.given)
            cells.append(piece.texts)
        if pieces[-1].is_part:
            parts_of.append((whole, list(range(whole + 1, whole + len(pieces)))))
    return base, subs, given, cells, parts_of


def _unique(names: list[str]) -> list[str]:
    seen: dict[str, int] = {}
    out = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        out.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return out
