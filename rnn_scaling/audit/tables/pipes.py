"""A block of lines with pipes -> its table: Markdown, Org, psql, AsciiDoc, and grids of "+---+" as in reStructuredText.

Markdown: https://github.github.com/gfm/#tables-extension-; a pipe block without a delimiter row is taken as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rnn_scaling.audit.tables.grid import RawTable

# A longer table is checked in pieces, so that memory stays bounded.
MAX_ROWS = 20_000

RULE = re.compile(r"(?:[\s|:+]|[-=](?![-=]))*[-=]{2}[\s|:+=-]*|[\s:]*\|[\s|:]*-[\s|:-]*")
_BOX_RULES = str.maketrans(
    {**dict.fromkeys("─━═╌╍┄┅┈┉", "-"), **dict.fromkeys("┌┬┐├┼┤└┴┘╔╦╗╠╬╣╚╩╝┏┳┓┣╋┫┗┻┛╒╤╕╞╪╡╘╧╛╓╥╖╟╫╢╙╨╜┡╇┩╭╮╰╯", "+")}
)
_BOX_BARS = str.maketrans(dict.fromkeys("│┃║┆┇┊┋", "|"))
_BOX = re.compile("[─-╿]")

Lines = Sequence[tuple[int, str]]


def without_boxes(line: str) -> str:
    """A line whose frame is drawn with box characters, with "|", "-" and "+" for them."""
    return line.translate(_BOX_BARS).translate(_BOX_RULES) if _BOX.search(line) else line


def table(block: Lines, caption: str) -> Iterator[RawTable]:
    """Yields the table of a block of (number, text) lines, if it is one; `caption` stands right above it."""
    loose = block[0][1].count("|") < 2  # one pipe is a table only above a delimiter row, or in prose by chance
    rules = [RULE.fullmatch(line) is not None for _, line in block]
    if len(block) < 2 or (loose and not rules[0] and not rules[1]):
        return
    frame = next((line for (_, line), rule in zip(block, rules) if rule and line.count("+") > 1), "")
    lines = _framed(block, rules, frame) if frame else _rows(block, rules)
    if len(lines) < 2:
        return
    width = len(lines[0][1])
    lines = [(number, _trim(texts, width)) for number, texts in lines]
    yield RawTable(lines[0][0], lines[0][1], lines[1:], too_long(lines), caption=caption)


def _rows(block: Lines, rules: Sequence[bool]) -> list[tuple[int, list[str]]]:
    """The cells of each line; where the header has no outer pipe, a pipe at the start is the end of an empty cell."""
    header = next((line for (_, line), rule in zip(block, rules) if not rule), "").strip()
    bars = 0 if header.startswith("|") else header.count("|")
    return [
        (number, split(line, outer=not (bars and line.count("|") == bars)))
        for (number, line), rule in zip(block, rules)
        if not rule
    ]


def split(line: str, outer: bool = True) -> list[str]:
    """The cells of a pipe row; an escaped pipe belongs to its cell. `outer`: a pipe at an end is its frame."""
    text = line.strip()
    if not outer:
        return [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", text)]
    if text.startswith("||") and text.endswith("||") and text.count("|") == 2 * text.count("||"):
        text = text.replace("||", "|")  # the header of a wiki
    text = text[1:] if text.startswith("|") else text
    if "\\|" not in text:
        return [cell.strip() for cell in (text[:-1] if text.endswith("|") else text).split("|")]
    text = text[:-1] if text.endswith("|") and not text.endswith("\\|") else text
    return [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", text)]


def too_long(lines: Sequence[object]) -> tuple[str, ...]:
    """A note where a table of these lines goes on in another piece."""
    if len(lines) < MAX_ROWS:
        return ()
    first = lines[0][0]  # type: ignore[index]
    return (f"line {first}: more than {MAX_ROWS} rows; checked in pieces, each against itself",)


def _trim(texts: list[str], width: int) -> list[str]:
    while len(texts) > width and not texts[-1]:
        texts = texts[:-1]
    return texts


def _framed(block: Lines, rules: Sequence[bool], frame: str) -> list[tuple[int, list[str]]]:
    """The rows of a grid: lines between two rules are one row where the later ones have no first cell of their own."""
    edges = [k for k, character in enumerate(frame) if character == "+"]
    rows: list[tuple[int, list[str]]] = []
    fresh = True
    for (number, line), rule in zip(block, rules):
        if rule:
            fresh = True
            continue
        texts = _by_edges(line, edges)
        goes_on = not fresh and rows and len(rows[-1][1]) == len(texts) and (not texts[0] or len(rows) == 1)
        if goes_on:
            rows[-1] = rows[-1][0], [f"{above} {text}".strip() for above, text in zip(rows[-1][1], texts)]
        else:
            rows.append((number, texts))
        fresh = False
    return rows


def _by_edges(line: str, edges: Sequence[int]) -> list[str]:
    """The cells of a line of a grid; one that spans several columns stands in each of them."""
    inner = [k for k in edges if k < len(line) and line[k] in "|+"]
    bars = sum(character == "|" for character in line)
    if len(inner) < 2 or len(inner) == len(edges) or bars != len(inner):
        return split(line)
    out: list[str] = []
    for left, right in zip(inner, inner[1:]):
        out += [line[left + 1 : right].strip()] * sum(left <= edge < right for edge in edges)
    return out
