"""Find the tables of a file.

The syntax follows from the name of the file and its first lines. Every parser yields
tables of texts; what the columns mean is decided in measurements.py.
"""

import contextlib
import csv
import itertools
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from rnn_scaling.records import printed_number
from rnn_scaling.records.tables import text_tables
from rnn_scaling.records.tables.grids import MOST_ROWS, table_of
from rnn_scaling.records.tables.table import Row, Table
from rnn_scaling.system.files import input_files

MOST_BYTES = 1 << 20  # of a line that are read
_FIRST_LINES = 20  # that show the syntax
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


class UnreadableError(ValueError):
    """A file that holds nothing that can be read; the text says why."""


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
            raise UnreadableError(f"{path}: {kind}; expected UTF-8 text")
        lines = _lines(file)
        head = list(itertools.islice(lines, _FIRST_LINES))
        every = itertools.chain(head, lines)
        texts = [text for _, text in head if text.strip()][:8]
        syntax = _syntax(path.suffix, texts)
        if syntax == "csv":
            delimiter = "\t" if path.suffix == ".tsv" else _delimiter(texts)
            yield from _delimited(str(path), every, delimiter)
        elif syntax == "json lines":
            parsed = ((number, _object(text)) for number, text in every)
            objects = ((number, item) for number, item in parsed if item is not None)
            while piece := list(itertools.islice(objects, MOST_ROWS)):
                yield from _of_objects(str(path), piece, "")
        elif syntax == "json":
            try:
                document = input_files.parse_json("\n".join(text for _, text in every))
            except input_files.JsonError as e:
                raise UnreadableError(f"{path}: {e}") from None
            yield from find_json_tables(str(path), document, "")
        else:
            yield from text_tables.find_tables(str(path), every)


def _syntax(suffix: str, texts: Sequence[str]) -> str:
    """Return what a file holds, from its name and its first lines that are not empty."""
    first = texts[0].lstrip()[:1] if texts else ""
    if suffix in (".csv", ".tsv"):
        return "csv"
    begins_objects = first == "{" and len(texts) > 1 and all(map(_object, texts[:2]))
    if suffix == ".jsonl" or begins_objects:
        return "json lines"
    if suffix == ".json" or (first in ("{", "[") and suffix != ".md"):
        return "json"
    is_markup = suffix in (".md", ".html", ".htm") or first == "<"
    return "csv" if not is_markup and _is_delimited(texts) else "text"


def _lines(file: IO[bytes]) -> Iterator[tuple[int, str]]:
    """Yield numbered lines without colours; of a long line only its beginning."""
    for number in itertools.count(1):
        line = file.readline(MOST_BYTES)
        if not line:
            return
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(MOST_BYTES)
        encoding = "utf-8-sig" if number == 1 else "utf-8"
        text = line.decode(encoding, errors="replace").rstrip("\r\n")
        yield number, text_tables.without_colours(text)


def _delimiter(texts: Sequence[str]) -> str:
    for delimiter in (",", ";", "\t"):
        widths = {len(_cells(text, delimiter)) for text in texts}
        if len(texts) > 1 and len(widths) == 1 and max(widths) > 1:
            return delimiter
    return ","


def _cells(line: str, delimiter: str) -> tuple[str, ...]:
    """Return the cells of a line; none if csv refuses it (a cell of 128 KiB)."""
    with contextlib.suppress(csv.Error):
        line = line.replace("\r", " ")
        return tuple(next(csv.reader([line], delimiter=delimiter), ()))
    return ()


def _is_delimited(texts: Sequence[str]) -> bool:
    delimiter = _delimiter(texts)
    counts = {text.count(delimiter) for text in texts}
    is_prose = any("|" in text or ". " in text for text in texts)
    return len(texts) > 2 and len(counts) == 1 and 0 not in counts and not is_prose


def _delimited(
    source: str, lines: Iterable[tuple[int, str]], delimiter: str
) -> Iterator[Table]:
    """Yield the tables of a CSV file, which an empty line ends."""
    rows: list[Row] = []
    for number, line in lines:
        if not rows and line.startswith("#") and delimiter not in line:
            continue  # a comment
        cells = _cells(line, delimiter)
        is_empty = not any(map(str.strip, cells))
        if rows and (is_empty or len(rows) > MOST_ROWS):
            yield from table_of(source, rows)
            is_continued = bool(cells) and len(rows) > 1
            rows = rows[:1] if is_continued else []
        if not is_empty:
            rows.append((number, cells))
    yield from table_of(source, rows)


def _object(text: str) -> dict[str, Any] | None:
    """Return the JSON object of a line; None for anything else."""
    try:
        found = input_files.parse_json(text) if text.strip() else None
    except input_files.JsonError:
        return None
    return found if isinstance(found, dict) else None


def find_json_tables(source: str, document: Any, name: str) -> Iterator[Table]:
    """Yield every list of objects, and every object of lists of the same length.

    The line of a row is its place in the list, from 1.
    """
    if isinstance(document, list):
        yield from _of_list(source, document, name)
        return
    if not isinstance(document, dict):
        return
    flat = {key: value for key, value in document.items() if _is_flat_list(value)}
    if len(flat) > 1 and len(set(map(len, flat.values()))) == 1:
        rows = [dict(zip(flat, row)) for row in zip(*flat.values())]
        yield from _of_objects(source, list(enumerate(rows, 1)), name)
        return
    values = document.values()
    if len(document) > 1 and all(isinstance(value, dict) for value in values):
        named = [{"name": key, **value} for key, value in document.items()]
        yield from _of_objects(source, list(enumerate(named, 1)), name)
    yield from _of_members(source, document, name)


def _is_flat_list(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return not any(isinstance(item, (list, dict)) for item in value)


def _of_list(source: str, document: Sequence[Any], name: str) -> Iterator[Table]:
    numbered = list(enumerate(document, 1))
    objects = [(k, item) for k, item in numbered if isinstance(item, dict)]
    if objects:
        yield from _of_objects(source, objects, name)
        for _, item in objects:
            lists = {k: value for k, value in item.items() if isinstance(value, list)}
            yield from _of_members(source, lists, name)
    elif len(document) > 1 and all(isinstance(row, list) and row for row in document):
        rows = [(k, tuple(map(_text, row))) for k, row in numbered]
        yield from table_of(source, rows, name)


def _of_members(source: str, document: Mapping[str, Any], name: str) -> Iterator[Table]:
    for key, value in document.items():
        yield from find_json_tables(
            source, value, f"{name}.{key}" if name else str(key)
        )


def _of_objects(
    source: str, objects: Sequence[tuple[int, Mapping[str, Any]]], name: str
) -> Iterator[Table]:
    flat = [(number, _flat(item)) for number, item in objects]
    header = tuple(dict.fromkeys(key for _, item in flat for key in item))
    if len(header) < 2 or len(flat) < 2:
        return
    rows = []
    for number, item in flat:
        rows.append((number, tuple(_text(item.get(key)) for key in header)))
    titles = tuple(key[: printed_number.LONGEST] for key in header)
    title = name[: text_tables.MOST_CAPTION]
    yield Table(source, rows[0][0], titles, tuple(rows), title)


def _flat(item: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in item.items():
        if isinstance(value, Mapping):
            found.update(_flat(value, f"{prefix}{key}."))
        elif not isinstance(value, list):
            found[f"{prefix}{key}"] = value
    return found


def _text(value: Any) -> str:
    if value is None or isinstance(value, float) and not math.isfinite(value):
        return ""
    return json.dumps(value) if isinstance(value, (int, float)) else str(value)
