"""Tables inside prose: Markdown and Org pipes, and plain columns parted by tabs or blanks. Reads line by line.

Markdown: https://github.github.com/gfm/#tables-extension-; a pipe block without a delimiter row is taken as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rnn_scaling.audit.scaling_table import parse_cell, strip_marks
from rnn_scaling.audit.tables.grid import RawTable

# A longer table is checked in pieces, so that memory stays bounded.
MAX_ROWS = 20_000

_RULE = re.compile(r"[\s|:+=-]*[-=]{2,}[\s|:+=-]*|[\s|:]*\|[\s|:-]*-[\s|:-]*")
# No header starts or ends with a number, or has two.
_NO_HEADER = re.compile(r"\s*[-+]?[\d,.:]*\d%?\s|.*\s[\d,.]*\d%?\s*$|(?:.*\s[\d,.]*\d%?(?=\s)){2}")
_DIGIT = re.compile(r"\d")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")
_SPLITS = (re.compile(r"\t"), re.compile(r"\s{2,}"), re.compile(r"\s+"))


def tables(lines: Iterator[tuple[int, str]], source: str) -> Iterator[RawTable]:
    """Yields every table of a text.

    Args:
      lines: (number, text) of each line.
      source: the file's name, for the findings.
    """
    title, kind = "", ""
    block: list[tuple[int, str]] = []
    for number, line in lines:
        heading = _HEADING.match(line) if line.lstrip()[:1] == "#" else None
        now = "" if heading else _kind_of(line)
        if block and (now != kind or len(block) > MAX_ROWS):
            yield from _cut(block, kind, source, title)
            block = block[:2] if now == kind and kind == "pipes" else block[:1] if now == kind else []
        if heading:
            title = strip_marks(heading[1])
        if now:
            kind = now
            block.append((number, line))
    if block:
        yield from _cut(block, kind, source, title)


def _kind_of(line: str) -> str:
    if line.count("|") >= 2 or ("|" in line and not re.search(r"[.!?]\s*$", line)):
        return "pipes"
    return "columns" if line.strip() else ""


def _cut(block: list[tuple[int, str]], kind: str, source: str, title: str) -> Iterator[RawTable]:
    yield from (_pipes if kind == "pipes" else _columns)(block, source, title)


def _pipes(block: list[tuple[int, str]], source: str, title: str) -> Iterator[RawTable]:
    loose = block[0][1].count("|") < 2  # one pipe is a table only above a delimiter row, or in prose by chance
    if len(block) < 2 or (loose and not _RULE.fullmatch(block[1][1])):
        return
    lines = [(number, split_pipes(line)) for number, line in block if not _RULE.fullmatch(line)]
    if len(lines) < 2:
        return
    width = len(lines[0][1])
    lines = [(number, _trim(texts, width)) for number, texts in lines]
    yield RawTable(source, lines[0][0], title, lines[0][1], lines[1:], _too_long(lines))


def split_pipes(line: str) -> list[str]:
    """The cells of a pipe row; an escaped pipe belongs to its cell."""
    text = line.strip()
    text = text[1:] if text.startswith("|") else text
    text = text[:-1] if text.endswith("|") and not text.endswith("\\|") else text
    return [cell.replace("\\|", "|").strip() for cell in re.split(r"(?<!\\)\|", text)]


def _trim(texts: list[str], width: int) -> list[str]:
    while len(texts) > width and not texts[-1]:
        texts = texts[:-1]
    return texts


def _too_long(lines: Sequence) -> tuple[str, ...]:
    if len(lines) < MAX_ROWS:
        return ()
    return (f"line {lines[0][0]}: more than {MAX_ROWS} rows; checked in pieces, each against itself",)


def _columns(block: list[tuple[int, str]], source: str, title: str) -> Iterator[RawTable]:
    """Plain columns: a header and lines of as many fields, at least one of them a number in every line."""
    lines = [
        (number, line) for number, line in block if not ("--" in line or "==" in line) or not _RULE.fullmatch(line)
    ]
    start = 0
    while start + 1 < len(lines):
        if not _DIGIT.search(lines[start + 1][1]) or _NO_HEADER.match(lines[start][1]):
            start += 1
            continue
        for split in _SPLITS:
            end = _run(lines, start, split)
            if end >= start + 2:
                rows = [(number, _fields(line, split)) for number, line in lines[start + 1 : end]]
                yield RawTable(source, lines[start][0], title, _fields(lines[start][1], split), rows, _too_long(lines))
                start = end - 1
                break
        start += 1


def _fields(line: str, split: re.Pattern) -> list[str]:
    return [field.strip() for field in split.split(line.rstrip("\r\n") if split is _SPLITS[0] else line.strip())]


def _run(lines: list[tuple[int, str]], start: int, split: re.Pattern) -> int:
    """One past the last line of the table whose header is line `start`; `start` if it is no header."""
    header = _fields(lines[start][1], split)
    if len(header) < 2 or any(parse_cell(field) for field in header if not field[:1].isalpha()):
        return start
    end = start + 1
    while end < len(lines):
        fields = _fields(lines[end][1], split)
        numbers = sum(parse_cell(field) is not None for field in fields)
        filled = sum(bool(field) for field in fields)
        short = end > start + 1 and split is not _SPLITS[2] and 1 < len(fields) <= len(header)
        if not (len(fields) == len(header) or short) or numbers < 1 or 3 * numbers < filled:
            break
        end += 1
    return end
