"""Find the tables in Markdown, HTML and plain text.

Only `documents` calls these parsers. What columns mean is decided in `measurements`.
"""

import html
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from rnn_scaling.records import cell_numbers
from rnn_scaling.records.tables.grids import MAX_ROWS, make_tables
from rnn_scaling.records.tables.table import Row, Table

_MAX_CELLS = 2_000_000  # cells of an HTML table
MAX_CAPTION = 1000  # characters
_OF_RULES = re.compile(r"[\s|:+=-]*")
_LINE = re.compile(r"[-=]{2}")
_CORNERS = "┌┬┐├┼┤└┴┘╔╦╗╠╬╣╚╩╝╒╤╕╞╪╡╘╧╛┏┳┓┡╇┩┣╋┫┗┻┛"
_BOXES = str.maketrans(f"│┃║─━═{_CORNERS}", f"|||---{'+' * len(_CORNERS)}")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_GAPS = (re.compile(r"\t+"), re.compile(r"\s{2,}"), re.compile(r"\s+"))
_COMMENTED = re.compile(r"#\s*\S+(?:\s{2,}\S+){3}")  # the header of nccl-tests
_UNITS = re.compile(r"[#\s]*(?:\([\w/%]+\)\s*)+")  # a line below a header
_CLOSING = "# \t"  # the end of a heading
_TR = re.compile(r"<tr\b", re.IGNORECASE)
_TD = re.compile(r"<t[dh]\b", re.IGNORECASE)
_END = re.compile(r"</t[dhr]|</table", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]*>")
_HEADING = re.compile(r"\s{0,3}#{1,6}(?=\s)")

Lines = Sequence[tuple[int, str]]  # numbered


def find_tables(source: str, lines: Iterable[tuple[int, str]]) -> Iterator[Table]:
    """Yield the tables of Markdown, HTML and plain text, given as numbered lines."""
    title = ""
    caption = ""
    stream = iter(lines)
    for kind, block in _split_into_blocks(stream):
        if kind == "heading":
            title = block[0][1]
        elif kind == "html":
            yield from _read_html_table(source, block[0], stream, title)
        elif kind == "pipes":
            yield from make_tables(source, _read_piped_rows(block), title, caption)
            caption = ""
        elif len(block) > 2:
            yield from make_tables(source, _read_spaced_rows(block), title, caption)
            caption = ""
        else:
            caption = block[-1][1].strip()[:MAX_CAPTION]


def strip_colours(text: str) -> str:
    """Return a line without the escape sequences of terminals."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def _split_into_blocks(
    lines: Iterable[tuple[int, str]],
) -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """Yield lines of one kind that follow each other: (kind, lines)."""
    block: list[tuple[int, str]] = []
    kind = ""
    for number, line in lines:
        next_kind, text = _classify_line(
            line if line.isascii() else line.translate(_BOXES), kind
        )
        if next_kind in ("html", "heading"):
            if block and next_kind == "heading":
                yield kind, block
                block = []
                kind = ""
            yield next_kind, [(number, text)]
            continue
        if next_kind == "columns" and kind == "pipes" and len(block) < 3:
            kind = next_kind  # only the header has frames, as that of benchstat
        if block and (next_kind != kind or len(block) > MAX_ROWS):
            yield kind, block
            block = [block[0]] if next_kind == kind else []
        kind = next_kind
        if next_kind:
            block.append((number, text))
    if block:
        yield kind, block


def _classify_line(line: str, kind_above: str) -> tuple[str, str]:
    """Return the kind of a line, and its text.

    Args:
      line: The line.
      kind_above: The kind of the line above it.
    """
    if "<" in line and "<table" in line.lower():
        return "html", line
    text = line.strip().removeprefix(">").strip()
    heading = _HEADING.match(line) if text[:1] == "#" else None
    if heading and not _COMMENTED.match(text):
        return "heading", cell_numbers.strip_markup(
            line[heading.end() :].rstrip(_CLOSING)
        )
    is_below = kind_above == "pipes" and ("|" in text or _is_rule(text))
    is_rule = "|" in text and _is_rule(text)
    if text.count("|") > 1 or text.startswith("+-") or is_below or is_rule:
        return "pipes", text
    return "columns" if text else "", line


def _read_piped_rows(block: Lines) -> list[Row]:
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
    if inner.endswith("|") and not inner.endswith("\\|"):
        inner = inner[:-1]
    if "\\" not in inner:
        return tuple(map(str.strip, inner.split("|")))
    cells = re.split(r"(?<!\\)\|", inner)
    return tuple(cell.replace("\\|", "|").strip() for cell in cells)


def _read_spaced_rows(block: Lines) -> list[Row]:
    """Return a header and the lines below it.

    The lines have the same number of fields as the header, and each has a number.
    """
    lines = []
    for number, text in block:
        if not _UNITS.fullmatch(text) and not _is_rule(text.strip()):
            bare = _separate_fields(text.lstrip("# ")).strip()
            lines.append((number, bare))
    splits: list[Callable[[str], list[str]]] = [lambda text: text.split(",")]
    splits += [gap.split for gap in _GAPS]
    for split_line in splits:
        rows = []
        for number, text in lines:
            rows.append((number, tuple(map(str.strip, split_line(text)))))
        for start in range(len(rows) - 2):
            width = len(rows[start + 1][1])
            number, head = rows[start]
            if len(head) == width - 1:
                head = ("", *head)  # names without a header
            if (
                len(head) != width
                or width < 2
                or any(map(cell_numbers.parse_cell, head))
            ):
                continue
            table_rows = [(number, head)]
            for row in rows[start + 1 :]:
                if len(row[1]) != width or not any(
                    map(cell_numbers.parse_cell, row[1])
                ):
                    break
                table_rows.append(row)
            if len(table_rows) > 2:
                return table_rows
    return []


def _separate_fields(text: str) -> str:
    """Return a line without benchstat's frames, and with "56.44µ ± 5%" as one field."""
    if "±" not in text and "|" not in text:
        return text
    return " ± ".join(map(str.strip, text.replace("|", "  ").split("±")))


# These functions see every line of a file, so they must take linear time. A regular
# expression with two neighbouring repeats takes quadratic time.
def _is_rule(text: str) -> bool:
    """Return whether a line separates rows, such as "|---|---:|", "+==+" and "|-|"."""
    if not _OF_RULES.fullmatch(text):
        return False
    if _LINE.search(text):
        return True
    bare = text.strip("| \t").removeprefix(":")
    return bare.startswith("-") and not {"+", "="} & set(text)


def _read_html_table(
    source: str, opened: tuple[int, str], lines: Iterator[tuple[int, str]], title: str
) -> Iterator[Table]:
    """Yield the table that a line opens; spans are repeated."""
    texts = []
    depth = 0
    for _, text in itertools.chain([opened], lines):
        texts.append(text)
        lower = text.lower()
        depth += lower.count("<table") - lower.count("</table")
        if depth < 1:
            break
    text_before, *parts = _TR.split("\n".join(texts))
    _, _, caption = text_before.partition("<caption>")
    line = opened[0] + text_before.count("\n")
    rows: list[Row] = []
    spanning: dict[int, tuple[int, str]] = {}  # rows left and text, by column
    num_cells = 0
    for part in parts:
        cells: list[str] = []
        cells_below: dict[int, tuple[int, str]] = {}
        for attributes, content in _find_html_cells(part):
            num_cells += _parse_span(attributes, "colspan")
            if num_cells > _MAX_CELLS:
                break
            _fill(cells, spanning)
            num_rows = _parse_span(attributes, "rowspan")
            for _ in range(_parse_span(attributes, "colspan")):
                cells_below[len(cells)] = (num_rows, content)
                cells.append(content)
        _fill(cells, spanning)
        remaining_spans = {**spanning, **cells_below}
        spanning = {
            k: (n - 1, text) for k, (n, text) in remaining_spans.items() if n > 1
        }
        if cells:
            rows.append((line, tuple(cells)))
        line += part.count("\n")
    caption = " ".join(_TAG.sub(" ", caption.partition("<")[0]).split())
    yield from make_tables(source, rows, title, caption[:MAX_CAPTION])


def _find_html_cells(row: str) -> Iterator[tuple[str, str]]:
    """Yield the attributes and the text of each cell."""
    for cell in _TD.split(row)[1:]:
        attributes, _, content = cell.partition(">")
        content = _TAG.sub(" ", _END.split(content)[0])
        yield attributes, " ".join(html.unescape(content).split())


def _parse_span(attributes: str, name: str) -> int:
    """Return the number of columns or rows that a cell spans."""
    match = re.search(name + r"\W{0,3}(\d{1,6})", attributes[:MAX_CAPTION])
    return max(1, min(int(match[1]), 1000)) if match else 1


def _fill(cells: list[str], spanning: Mapping[int, tuple[int, str]]) -> None:
    """Add the cells of rows above that span the next columns."""
    while len(cells) in spanning:
        cells.append(spanning[len(cells)][1])
