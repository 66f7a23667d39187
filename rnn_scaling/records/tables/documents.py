"""Find the tables of a file.

The syntax follows from the name of the file and its first lines. Every parser yields
tables of texts; what the columns mean is decided in measurements.py.

`audit` and `predict` read every file with `read_tables`. A new syntax is a parser here.
"""

import contextlib
import csv
import enum
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from rnn_scaling.records import cell_numbers
from rnn_scaling.records.tables import text_tables
from rnn_scaling.records.tables.grids import MAX_ROWS, make_tables
from rnn_scaling.records.tables.table import Row, Table
from rnn_scaling.system.files import input_files

_MAX_LINE_BYTES = 1 << 20  # bytes of a line that are read
_FIRST_LINES = 20  # lines in which the syntax is recognized
# By the key of an interval in this suite's JSON.
_MARKS = {
    "corrected": cell_numbers.CORRECTED_MARK,
    "all_batches": cell_numbers.ALL_BATCHES_MARK,
}
# Columns of this suite's CSV that contain corrected numbers, by the column that says
# so.
_CORRECTED_COLUMNS = {
    "rate_corrected": re.compile(r"(?!measured_)\w+_per_second(?:_low|_high)?"),
    "speedup_corrected": re.compile(r"(?:speedup|efficiency)(?:_low|_high)?"),
}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class Syntax(enum.Enum):
    """The syntax of a file."""

    CSV = enum.auto()  # cells between commas, semicolons or tabs
    JSON_LINES = enum.auto()  # one object per line
    JSON = enum.auto()
    TEXT = enum.auto()  # Markdown, HTML, or columns of a terminal


class UnreadableError(ValueError):
    """A file cannot be read; the message has the reason."""


def read_tables(path: Path) -> Iterator[Table]:
    """Yield every table of a file, in order.

    Raises:
      OSError: If the file cannot be read.
      UnreadableError: For binary files, and for JSON that is cut off or wrong.
    """
    with input_files.open_regular(path) as file:
        start = file.peek(4096)[:4096]
        if b"\0" in start:
            kind = "UTF-16 text" if start[:2] in _UTF16 else "a binary file"
            raise UnreadableError(f"{path}: this is {kind}; expected UTF-8 text")
        lines = _read_lines(file)
        head = list(itertools.islice(lines, _FIRST_LINES))
        all_lines = itertools.chain(head, lines)
        texts = [text for _, text in head if text.strip()][:8]
        syntax = _detect_syntax(path.suffix, texts)
        if syntax is Syntax.CSV:
            delimiter = "\t" if path.suffix == ".tsv" else _find_delimiter(texts)
            yield from _read_csv_tables(str(path), all_lines, delimiter)
        elif syntax is Syntax.JSON_LINES:
            parsed = ((number, _parse_object(text)) for number, text in all_lines)
            objects = ((number, item) for number, item in parsed if item is not None)
            while piece := list(itertools.islice(objects, MAX_ROWS)):
                yield from _read_objects_table(str(path), piece, "")
        elif syntax is Syntax.JSON:
            try:
                document = input_files.parse_json(
                    "\n".join(text for _, text in all_lines)
                )
            except input_files.JsonError as e:
                raise UnreadableError(f"{path}: {e}") from None
            yield from find_json_tables(str(path), document, "")
        else:
            yield from text_tables.find_tables(str(path), all_lines)


def _detect_syntax(suffix: str, texts: Sequence[str]) -> Syntax:
    """Return the syntax of a file.

    The suffix of CSV decides before the lines do. Lines decide between JSON and JSON
    lines, because programs use the suffix .json for both.

    Args:
      suffix: The suffix of its name.
      texts: Its first lines that are not empty.
    """
    first = texts[0].lstrip()[:1] if texts else ""
    if suffix in (".csv", ".tsv"):
        return Syntax.CSV
    begins_objects = (
        first == "{" and len(texts) > 1 and all(map(_parse_object, texts[:2]))
    )
    if suffix == ".jsonl" or begins_objects:
        return Syntax.JSON_LINES
    if suffix == ".json" or (first in ("{", "[") and suffix != ".md"):
        return Syntax.JSON
    is_markup = suffix in (".md", ".html", ".htm") or first == "<"
    if not is_markup and _is_delimited(texts):
        return Syntax.CSV
    return Syntax.TEXT


def _read_lines(file: IO[bytes]) -> Iterator[tuple[int, str]]:
    """Yield numbered lines without colours, and only the beginning of long lines."""
    for number in itertools.count(1):
        line = file.readline(_MAX_LINE_BYTES)
        if not line:
            return
        piece = line
        while piece and not piece.endswith(b"\n"):
            piece = file.readline(_MAX_LINE_BYTES)
        encoding = "utf-8-sig" if number == 1 else "utf-8"
        text = line.decode(encoding, errors="replace").rstrip("\r\n")
        yield number, text_tables.strip_colours(text)


def _find_delimiter(texts: Sequence[str]) -> str:
    """Return the delimiter with which all lines have equally many cells; else ","."""
    for delimiter in (",", ";", "\t"):
        widths = {len(_split_cells(text, delimiter)) for text in texts}
        if len(texts) > 1 and len(widths) == 1 and max(widths) > 1:
            return delimiter
    return ","


def _split_cells(line: str, delimiter: str) -> tuple[str, ...]:
    """Return the cells of a line, or () if csv refuses it (a cell of 128 KiB)."""
    with contextlib.suppress(csv.Error):
        line = line.replace("\r", " ")
        return tuple(next(csv.reader([line], delimiter=delimiter), ()))
    return ()


def _is_delimited(texts: Sequence[str]) -> bool:
    """Return whether lines without a suffix to go by are CSV, and not prose."""
    delimiter = _find_delimiter(texts)
    counts = {text.count(delimiter) for text in texts}
    is_prose = any("|" in text or ". " in text for text in texts)
    return len(texts) > 2 and len(counts) == 1 and 0 not in counts and not is_prose


def _read_csv_tables(
    source: str, lines: Iterable[tuple[int, str]], delimiter: str
) -> Iterator[Table]:
    """Yield the tables of a CSV file, which an empty line ends."""
    rows: list[Row] = []
    for number, line in lines:
        if not rows and line.startswith("#") and delimiter not in line:
            continue  # a comment
        cells = _split_cells(line, delimiter)
        is_empty = not any(map(str.strip, cells))
        if rows and (is_empty or len(rows) > MAX_ROWS):
            yield from make_tables(source, _mark_corrected(rows))
            # A table that is cut because of its length continues under the same header;
            # an empty line has no cells, or only empty ones.
            is_continued = bool(cells) and len(rows) > 1
            rows = rows[:1] if is_continued else []
        if not is_empty:
            rows.append((number, cells))
    yield from make_tables(source, _mark_corrected(rows))


def _mark_corrected(rows: list[Row]) -> list[Row]:
    """Return the rows of a CSV file with the marks of this suite's reports."""
    header = rows[0][1] if rows else ()
    indices = {name: k for k, name in enumerate(header)}
    flags = {name: indices[name] for name in _CORRECTED_COLUMNS if name in indices}
    if not flags:
        return rows
    marked_rows = []
    for number, cells in rows:
        texts = list(cells)
        for name, flag in flags.items():
            if cells[flag : flag + 1] != ("True",):
                continue
            for k, (title, text) in enumerate(zip(header, cells)):
                if text and _CORRECTED_COLUMNS[name].fullmatch(title):
                    texts[k] = f"{text}{cell_numbers.CORRECTED_MARK}"
        marked_rows.append((number, tuple(texts)))
    return marked_rows


def _parse_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object of a line; None for anything else."""
    try:
        document = input_files.parse_json(text) if text.strip() else None
    except input_files.JsonError:
        return None
    return document if isinstance(document, dict) else None


def find_json_tables(source: str, document: Any, name: str) -> Iterator[Table]:
    """Yield every list of objects, and every object of lists of the same length.

    The line of a row is its place in the list, from 1.
    """
    members: list[tuple[str, Any]] = []
    if isinstance(document, list):
        yield from _read_rows_table(source, document, name)
        for row in document:
            items = row.items() if isinstance(row, dict) else ()
            members += [(key, item) for key, item in items if isinstance(item, list)]
    elif isinstance(document, dict):
        lists = {key: item for key, item in document.items() if _is_flat_list(item)}
        if len(lists) > 1 and len(set(map(len, lists.values()))) == 1:
            rows = [dict(zip(lists, row)) for row in zip(*lists.values())]
            yield from _read_rows_table(source, rows, name)
            document = {k: v for k, v in document.items() if k not in lists}
        members += document.items()
        if members and all(isinstance(item, dict) for _, item in members):
            rows = [{"name": key, **item} for key, item in members]
            yield from _read_rows_table(source, rows, name)
    for key, item in members:
        yield from find_json_tables(source, item, f"{name}.{key}" if name else key)


def _is_flat_list(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return not any(isinstance(item, (list, dict)) for item in value)


def _read_rows_table(source: str, items: Sequence[Any], name: str) -> Iterator[Table]:
    """Yield the table of several objects, with a column per key, or of several lists."""
    rows: list[Row] = []
    if all(isinstance(item, list) for item in items):
        for place, item in enumerate(items, 1):
            rows.append((place, tuple(map(_format_cell, item))))
        yield from make_tables(source, rows, name)
        return
    numbered = list(enumerate(items, 1))
    yield from _read_objects_table(source, numbered, name)


def _read_objects_table(
    source: str, items: Iterable[tuple[int, Any]], name: str
) -> Iterator[Table]:
    """Yield the table of several objects, with a column per key."""
    objects = []
    header: dict[str, None] = {}
    for place, item in items:
        if isinstance(item, dict):
            objects.append((place, _flatten(item)))
            header.update(dict.fromkeys(objects[-1][1]))
    if len(header) > 1 and len(objects) > 1:
        rows = []
        for place, item in objects:
            rows.append((place, tuple(_format_cell(item.get(key)) for key in header)))
        titles = tuple(key[: cell_numbers.MAX_CELL_CHARACTERS] for key in header)
        title = name[: text_tables.MAX_CAPTION]
        yield Table(source, rows[0][0], titles, tuple(rows), title)


def _flatten(item: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return an object's values by dotted path; lists are left out.

    Numbers in an interval of this suite's reports get the marks of its tables.
    """
    values: dict[str, Any] = {}
    marks = "".join(mark for key, mark in _MARKS.items() if item.get(key) is True)
    for key, value in item.items():
        if isinstance(value, Mapping):
            values.update(_flatten(value, f"{prefix}{key}."))
        elif not isinstance(value, list):
            is_marked = marks and isinstance(value, float) and math.isfinite(value)
            values[f"{prefix}{key}"] = f"{value}{marks}" if is_marked else value
    return values


def _format_cell(value: Any) -> str:
    """Return a JSON value as a cell; "" for null and for numbers that are not finite."""
    if value is None or isinstance(value, float) and not math.isfinite(value):
        return ""
    return json.dumps(value) if isinstance(value, (int, float)) else str(value)
