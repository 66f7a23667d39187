"""The tables of a file: Markdown, HTML, CSV, TSV, JSON, JSON Lines, and plain columns of text."""

import contextlib
import csv
import html.parser
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rnn_scaling.analysis.audit import group_cells, headers
from rnn_scaling.analysis.audit.tables import Table
from rnn_scaling.records import printed_number
from rnn_scaling.system.files import input_files

MOST_ROWS = 20_000  # a longer table is read in pieces, each checked by itself
MOST_BYTES = 1 << 20  # of a line that are read
MOST_CELLS = 2_000_000  # of an HTML table
MOST_CAPTION = 1000  # characters
_OF_RULES = re.compile(r"[\s|:+=-]*")
_LINE = re.compile(r"[-=]{2}")
_CORNERS = "┌┬┐├┼┤└┴┘╔╦╗╠╬╣╚╩╝╒╤╕╞╪╡╘╧╛┏┳┓┡╇┩┣╋┫┗┻┛"
_BOXES = str.maketrans(f"│┃║─━═{_CORNERS}", f"|||---{'+' * len(_CORNERS)}")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GAPS = (re.compile(r"\t+"), re.compile(r"\s{2,}"), re.compile(r"\s+"))
_COMMENTED = re.compile(r"#\s*\S+(?:\s{2,}\S+){3}")  # the header of nccl-tests
_UNITS = re.compile(r"[#\s]*(?:\([\w/%]+\)\s*)+")  # a line below a header
_CLOSING = "# \t"  # of a heading
_HEADING = re.compile(r"\s{0,3}#{1,6}(?=\s)")

Row = tuple[int, tuple[str, ...]]


class UnreadableError(ValueError):
    """A file that holds nothing of what is read; the text says why."""


def tables(path: Path) -> Iterator[Table]:
    """Yields every table of a file, in order. Raises OSError, and UnreadableError for JSON that is cut or wrong."""
    with input_files.open_regular(path) as file:
        start = file.peek(4096)[:4096]
        if b"\0" in start:
            kind = (
                "UTF-16 text"
                if start[:2] in (b"\xff\xfe", b"\xfe\xff")
                else "a binary file"
            )
            raise UnreadableError(f"{path}: {kind}; expected UTF-8 text")
        lines = _lines(file)
        head = list(itertools.islice(lines, 20))
        every = itertools.chain(head, lines)
        texts = [text for _, text in head if text.strip()][:8]
        kind = _format(path.suffix, texts)
        if kind == "csv":
            yield from _delimited(
                str(path), every, "\t" if path.suffix == ".tsv" else _delimiter(texts)
            )
        elif kind == "json lines":
            found = (
                (number, item)
                for number, text in every
                if (item := _object(text)) is not None
            )
            while piece := list(itertools.islice(found, MOST_ROWS)):
                yield from _of_objects(str(path), piece, "")
        elif kind == "json":
            try:
                document = input_files.parse_json("\n".join(text for _, text in every))
            except input_files.JsonError as e:
                raise UnreadableError(f"{path}: {e}") from None
            yield from of_json(str(path), document, "")
        else:
            yield from of_text(str(path), every)


def _format(suffix: str, texts: Sequence[str]) -> str:
    """What a file holds, by its name and its first lines that are not empty."""
    first = texts[0].lstrip()[:1] if texts else ""
    if suffix in (".csv", ".tsv"):
        return "csv"
    if suffix == ".jsonl" or (
        first == "{"
        and len(texts) > 1
        and all(_object(t) is not None for t in texts[:2])
    ):
        return "json lines"
    if suffix == ".json" or (first in ("{", "[") and suffix != ".md"):
        return "json"
    return (
        "csv"
        if suffix not in (".md", ".html", ".htm")
        and first != "<"
        and _is_delimited(texts)
        else "text"
    )


def _lines(file: Any) -> Iterator[tuple[int, str]]:
    """Numbered lines without colours; of a long one only its beginning."""
    for number in itertools.count(1):
        line = file.readline(MOST_BYTES)
        if not line:
            return
        while (
            not line.endswith(b"\n")
            and (more := file.readline(MOST_BYTES))
            and not more.endswith(b"\n")
        ):
            pass
        text = line.decode(
            "utf-8-sig" if number == 1 else "utf-8", errors="replace"
        ).rstrip("\r\n")
        yield number, _ESCAPES.sub("", text) if "\x1b" in text else text


def of_text(source: str, lines: Iterable[tuple[int, str]]) -> Iterator[Table]:
    """Yields the tables of Markdown, HTML and plain text, given as the (number, text) of each line."""
    title = caption = ""
    stream = iter(lines)
    for kind, block in _blocks(stream):
        if kind == "heading":
            title = block[0][1]
        elif kind == "html":
            yield from _html(source, block[0], stream, title)
        elif kind == "pipes":
            yield from _table(source, _piped(block), title, caption)
            caption = ""
        elif len(block) > 2:
            yield from _columns(source, block, title, caption)
            caption = ""
        else:
            caption = block[-1][1].strip()[:MOST_CAPTION]


def _blocks(
    lines: Iterable[tuple[int, str]],
) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Yields lines of one kind that follow each other: (kind, lines)."""
    block: list[tuple[int, str]] = []
    kind = ""
    for number, line in lines:
        now, text = _kind(line if line.isascii() else line.translate(_BOXES), kind)
        if now in ("html", "heading"):
            if block and now == "heading":
                yield kind, block
                block, kind = [], ""
            yield now, [(number, text)]
            continue
        if now == "columns" and kind == "pipes" and len(block) < 3:
            kind = now  # only the header has frames, as that of benchstat
        if block and (now != kind or len(block) > MOST_ROWS):
            yield kind, block
            block = [block[0]] if now == kind else []
        kind = now
        if now:
            block.append((number, text))
    if block:
        yield kind, block


def _kind(line: str, before: str) -> tuple[str, str]:
    """What a line below one of another kind holds, and its text."""
    if "<" in line and "<table" in line.lower():
        return "html", line
    text = line.strip().removeprefix(">").strip()
    if (
        text[:1] == "#"
        and (heading := _HEADING.match(line))
        and not _COMMENTED.match(text)
    ):
        return "heading", printed_number.plain(line[heading.end() :].rstrip(_CLOSING))
    has_pipe, is_below = "|" in text, before == "pipes"
    is_rule = (has_pipe or is_below) and _is_rule(text)
    if (
        text.count("|") > 1
        or text.startswith("+-")
        or (has_pipe and is_below)
        or is_rule
    ):
        return "pipes", text
    return "columns" if text else "", line


def _piped(block: Sequence[tuple[int, str]]) -> list[Row]:
    """Return the cells of lines with pipes, without the rules between them.

    If the header has no pipe in front, a pipe in front of a shorter row follows an
    empty first cell.
    """
    lines = [(number, text) for number, text in block if not _is_rule(text)]
    rows: list[Row] = []
    is_framed = bool(lines) and lines[0][1].startswith("|")
    for number, text in lines:
        cells = _split(text)
        is_short = bool(rows) and len(cells) < len(rows[0][1])
        if is_short and not is_framed and text.startswith("|"):
            cells = ("", *cells)
        rows.append((number, cells))
    return rows


def _split(text: str) -> tuple[str, ...]:
    inner = text.removeprefix("|")
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    if "\\" not in inner:
        return tuple(map(str.strip, inner.split("|")))
    return tuple(
        cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", inner)
    )


def _columns(
    source: str, block: Sequence[tuple[int, str]], title: str, caption: str
) -> Iterator[Table]:
    """Plain columns: a header, then lines of the same number of fields with numbers in most."""
    block = [
        (number, _spaced(text.lstrip("# ")))
        for number, text in block
        if not _UNITS.fullmatch(text)
    ]
    rows = [
        (number, _without_remark(text.strip()))
        for number, text in block
        if not _is_rule(text.strip())
    ]
    splits: list[Callable[[str], list[str]]] = [_at_commas]
    splits += [gap.split for gap in _GAPS]
    for split in splits:
        fields = [tuple(split(text)) for _, text in rows]
        for start in range(len(fields) - 2):
            width, end = len(fields[start + 1]), start + 1
            head = (
                fields[start] if len(fields[start]) == width else ("", *fields[start])
            )  # names without a header
            if len(head) != width or width < 2 or any(map(printed_number.parse, head)):
                continue
            while (
                end < len(fields)
                and len(fields[end]) == width
                and any(map(printed_number.parse, fields[end]))
            ):
                end += 1
            if end > start + 2:
                body = [(rows[k][0], fields[k]) for k in range(start + 1, end)]
                yield from _table(
                    source, [(rows[start][0], head), *body], title, caption
                )
                return


def _spaced(text: str) -> str:
    """Return a line without benchstat's frames, and with "56.44µ ± 5%" as one field."""
    if "±" not in text and "|" not in text:
        return text
    return " ± ".join(map(str.strip, text.replace("|", "  ").split("±")))


# Every line of any file is looked at here, so each of these takes linear time, which
# a regular expression with two neighbouring repeats does not.
def _is_rule(text: str) -> bool:
    """Return whether a line is drawn between rows: "|---|---:|", "+==+", "|-|"."""
    if not _OF_RULES.fullmatch(text):
        return False
    if _LINE.search(text):
        return True
    bare = text.strip("| \t").removeprefix(":")
    return bare.startswith("-") and not {"+", "="} & set(text)


def _without_remark(text: str) -> str:
    """Return a line without the remark in brackets at its end, which has no header."""
    if not text.endswith(")"):
        return text
    before, _, remark = text.rpartition("(")
    has_gap = before != before.rstrip()
    return before.rstrip() if has_gap and ")" not in remark[:-1] else text


def _at_commas(text: str) -> list[str]:
    return [field.strip() for field in text.split(",")]


def _table(
    source: str, rows: Sequence[Row], title: str, caption: str
) -> Iterator[Table]:
    """The table of rows, the first of them its header; a second header line is folded into the first."""
    if len(rows) < 2 or len(rows[0][1]) < 2:
        return
    header = [printed_number.plain(text) for text in rows[0][1]]
    width, body = len(header), rows[1:]
    if len(body) > 1 and _is_second_header(header, body[0][1]):
        below = [*map(printed_number.plain, body[0][1]), *[""] * width]
        header = [
            top if top == sub else f"{top} {sub}".strip()
            for top, sub in zip(header, below)
        ]
        body = body[1:]
    squared = group_cells.aligned(header, body)
    for is_filled, part in itertools.groupby(
        squared, lambda row: any(row[1])
    ):  # an empty row ends a series
        if is_filled:
            filled = group_cells.filled(header, list(part))
            yield Table(source, rows[0][0], tuple(header), filled, title, caption)


def _is_second_header(header: Sequence[str], texts: Sequence[str]) -> bool:
    filled = [text for text in texts if text.strip()]
    is_repeated = len(set(header)) < len(header) or "" in header[1:]
    return (
        is_repeated
        and len(filled) > 1
        and all(headers.devices_in(t) or not printed_number.parse(t) for t in filled)
    )


class _Html(html.parser.HTMLParser):
    """Rows of the outermost table, with spans repeated."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.depth = self.cells = 0
        self.rows: list[tuple[int, list[str]]] = []
        self.caption = ""
        self._text: list[str] | None = None
        self._span, self._is_open = (1, 1), False
        self._below: dict[int, tuple[int, str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.depth += tag == "table"
        if tag == "tr":
            self._end_row()
            self.rows.append((self.getpos()[0], []))
            self._is_open = True
        elif tag in ("td", "th", "caption"):
            self._end_cell()
            self._text, given = [], dict(attrs)
            self._span = _span(given.get("colspan")), _span(given.get("rowspan"))
        elif tag == "br" and self._text is not None:
            self._text.append(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag == "caption" and self._text is not None:
            self.caption, self._text = (
                " ".join("".join(self._text).split())[:MOST_CAPTION],
                None,
            )
        elif tag in ("td", "th"):
            self._end_cell()
        elif tag in ("tr", "table"):
            self._end_row()
        self.depth -= tag == "table"

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def _end_cell(self) -> None:
        if self._text is None:
            return
        text, self._text = " ".join("".join(self._text).split()), None
        self.cells += self._span[0]
        if not self.rows or self.cells > MOST_CELLS:
            return
        row = self.rows[-1][1]
        self._fill(row)
        for _ in range(self._span[0]):
            if self._span[1] > 1:
                self._below[len(row)] = (self._span[1], text)
            row.append(text)

    def _end_row(self) -> None:
        self._end_cell()
        if not self._is_open:
            return
        self._is_open = False
        self._fill(self.rows[-1][1])
        self._below = {
            k: (left - 1, text) for k, (left, text) in self._below.items() if left > 1
        }

    def _fill(self, row: list[str]) -> None:
        while len(row) in self._below and self._below[len(row)][0] > 0:
            row.append(self._below[len(row)][1])


def _span(text: str | None) -> int:
    return (
        min(int(text), 1000)
        if text and re.fullmatch(r"[1-9]\d{0,5}", text.strip())
        else 1
    )


def _html(
    source: str, opened: tuple[int, str], lines: Iterator[tuple[int, str]], title: str
) -> Iterator[Table]:
    """The table that a line opens."""
    parser = _Html()
    for _, text in itertools.chain([opened], lines):
        parser.feed(text + "\n")
        if parser.depth < 1 and "</table" in text.lower():
            break
    parser.handle_endtag("tr")
    rows = [
        (opened[0] + line - 1, tuple(texts)) for line, texts in parser.rows if texts
    ]
    yield from _table(source, rows, title, parser.caption)


def _delimiter(texts: Sequence[str]) -> str:
    for delimiter in (",", ";", "\t"):
        widths = {len(row) for row in _parsed(texts, delimiter)}
        if len(texts) > 1 and len(widths) == 1 and max(widths) > 1:
            return delimiter
    return ","


def _parsed(texts: Iterable[str], delimiter: str) -> list[list[str]]:
    """The cells of each line; a line that csv refuses (a cell of 128 KiB) has none."""
    rows = []
    for text in texts:
        with contextlib.suppress(csv.Error):
            rows.append(
                next(csv.reader([text.replace("\r", " ")], delimiter=delimiter), [])
            )
    return rows


def _is_delimited(texts: Sequence[str]) -> bool:
    delimiter = _delimiter(texts)
    is_even = all(
        0 < text.count(delimiter) == texts[0].count(delimiter) for text in texts
    )
    return (
        len(texts) > 2
        and is_even
        and not any("|" in text or ". " in text for text in texts)
    )


def _delimited(
    source: str, lines: Iterable[tuple[int, str]], delimiter: str
) -> Iterator[Table]:
    """Tables of a CSV file, which an empty line ends."""
    header: Row | None = None
    rows: list[Row] = []
    for number, line in lines:
        if header is None and line.startswith("#") and delimiter not in line:
            continue  # a comment
        row = tuple(itertools.chain.from_iterable(_parsed([line], delimiter)))
        if not any(cell.strip() for cell in row) or len(rows) >= MOST_ROWS:
            if header:
                yield from _table(source, [header, *rows], "", "")
            header, rows = (header if row and rows else None), []
        if header is None and any(cell.strip() for cell in row):
            header = (number, row)
        elif row:
            rows.append((number, row))
    if header:
        yield from _table(source, [header, *rows], "", "")


def _object(text: str) -> dict[str, Any] | None:
    """The JSON object of a line, None for anything else."""
    try:
        found = input_files.parse_json(text) if text.strip() else None
    except input_files.JsonError:
        return None
    return found if isinstance(found, dict) else None


def of_json(source: str, document: Any, name: str) -> Iterator[Table]:
    """Yields every list of objects and every object of equally long lists; a row's line is its place, from 1."""
    if isinstance(document, list):
        yield from _of_list(source, document, name)
    elif isinstance(document, dict):
        lists = [
            (key, value)
            for key, value in document.items()
            if isinstance(value, list) and value
        ]
        flat = {
            key: value
            for key, value in lists
            if not any(isinstance(item, (list, dict)) for item in value)
        }
        if len(flat) > 1 and len({len(value) for value in flat.values()}) == 1:
            rows = (dict(zip(flat, row)) for row in zip(*flat.values()))
            yield from _of_objects(source, list(enumerate(rows, 1)), name)
            return
        if len(document) > 1 and all(
            isinstance(value, dict) for value in document.values()
        ):
            named = [
                (k, {"name": key, **value})
                for k, (key, value) in enumerate(document.items(), 1)
            ]
            yield from _of_objects(source, named, name)
        yield from _of_members(source, document, name)


def _of_list(source: str, document: Sequence[Any], name: str) -> Iterator[Table]:
    objects = [
        (k, item) for k, item in enumerate(document, 1) if isinstance(item, dict)
    ]
    if objects:
        yield from _of_objects(source, objects, name)
        for _, item in objects:
            yield from _of_members(
                source, {k: v for k, v in item.items() if isinstance(v, list)}, name
            )
    elif len(document) > 1 and all(isinstance(row, list) and row for row in document):
        rows = [
            (k, tuple(_text(value) for value in row))
            for k, row in enumerate(document, 1)
        ]
        yield from _table(source, rows, name, "")


def _of_members(source: str, document: Mapping[str, Any], name: str) -> Iterator[Table]:
    for key, value in document.items():
        yield from of_json(source, value, f"{name}.{key}" if name else str(key))


def _of_objects(
    source: str, objects: Sequence[tuple[int, Mapping[str, Any]]], name: str
) -> Iterator[Table]:
    flat = [(number, _flat(item)) for number, item in objects]
    header = tuple(dict.fromkeys(key for _, item in flat for key in item))
    rows = tuple(
        (number, tuple(_text(item.get(key)) for key in header)) for number, item in flat
    )
    if len(header) > 1 and len(rows) > 1:
        titles = tuple(key[: printed_number.LONGEST] for key in header)
        yield Table(source, rows[0][0], titles, rows, name[:MOST_CAPTION], "")


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
