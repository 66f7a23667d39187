"""Tables inside prose: pipes and grids, HTML, LaTeX, and plain columns parted by tabs or blanks. Reads line by line."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence

from rnn_scaling.audit.scaling_table import parse_cell, strip_marks
from rnn_scaling.audit.tables import markup, pipes, wikis
from rnn_scaling.audit.tables.grid import RawTable

# No header starts or ends with a number, or has two.
_NO_HEADER = re.compile(r"\s*[-+]?[\d,.:]*\d%?\s|.*\s[\d,.]*\d%?\s*$|(?:.*\s[\d,.]*\d%?(?=\s)){2}")
_LOOKED_AT = 1000  # characters of a line in which a number shows that it is no header
_DIGIT = re.compile(r"\d")
_HEADING = re.compile(r"\s{0,3}#{1,6}\s+(.*)")
_LATEX_CAPTION = re.compile(r"\\caption(?:\[[^\[\]]*\])?\{(.*?)\}\s*(?:\\label.*)?$")
_RUNS = re.compile(r"[=-]{2,}")
_SPLITS = (re.compile(r"\t"), re.compile(r"\s{2,}"), re.compile(r"\s+"))
_QUOTED = re.compile(r"^\s{0,3}(?:>\s?)+")
_MAX_CAPTION = 160

_Block = list[tuple[int, str]]
_Reader = Callable[[Iterator[tuple[int, str]], tuple[int, str]], Iterator[RawTable]]


def tables(lines: Iterator[tuple[int, str]]) -> Iterator[RawTable]:
    """Yields every table of a text, given as the (number, text) of each line."""
    title, kind, caption = "", "", ""
    block: _Block = []
    for number, line in lines:
        if not line.isascii():
            line = pipes.without_boxes(line)
        if line.lstrip()[:1] == ">" and "|" in line:
            line = _QUOTED.sub("", line)
        heading = _HEADING.match(line) if line.lstrip()[:1] == "#" else None
        reader = _markup(line)
        now = "" if heading or reader else _kind_of(line)
        if block and (now != kind or len(block) > pipes.MAX_ROWS):
            yield from _cut(block, kind, title, caption)
            caption = _caption(block, kind)
            block = block[:2] if now == kind and kind == "pipes" else block[:1] if now == kind else []
        if reader:
            latex = _LATEX_CAPTION.search(caption)
            for table in reader(lines, (number, line)):
                yield dataclasses.replace(table, title=title, caption=table.caption or (latex[1] if latex else ""))
            caption = ""
        if heading:
            title, caption = strip_marks(heading[1].rstrip().rstrip("#")), ""
        if now:
            kind = now
            block.append((number, line))
    if block:
        yield from _cut(block, kind, title, caption)


def _markup(line: str) -> _Reader | None:
    """What reads the table that a line opens; None where it opens none."""
    if "|" in line and wikis.opens(line):
        return wikis.tables
    if "<" in line and "<table" in line.lower():
        return markup.html_tables
    if "\\begin{" in line and markup.opens_tabular(line):
        return markup.latex_tables
    return None


def _caption(block: _Block, kind: str) -> str:
    """The line above what follows a block: its last one, if it is short and no row of a table."""
    last = block[-1][1].strip()
    return last if kind == "columns" and len(last) <= _MAX_CAPTION else ""


def _kind_of(line: str) -> str:
    bars = line.count("|")
    if bars >= 2 or (bars and line.rstrip()[-1:] not in (".", "!", "?")):
        return "pipes"
    text = line.strip()
    if "-+" in text and pipes.RULE.fullmatch(text) or text[:2] in ("+=", "+-") and pipes.RULE.fullmatch(text):
        return "pipes"
    return "columns" if text else ""


def _cut(block: _Block, kind: str, title: str, caption: str) -> Iterator[RawTable]:
    for table in (pipes.table if kind == "pipes" else _columns)(block, caption):
        yield dataclasses.replace(table, title=title)


def _columns(block: pipes.Lines, caption: str) -> Iterator[RawTable]:
    """Plain columns: a header and lines of as many fields, at least one of them a number in every line."""
    rules = [k for k, (_, line) in enumerate(block) if ("--" in line or "==" in line) and pipes.RULE.fullmatch(line)]
    ruled = _under_rules(block, rules) if rules else None
    if ruled:
        yield RawTable(ruled[0][0], ruled[0][1], ruled[1:], pipes.too_long(ruled), caption=caption)
        return
    apart = set(rules)
    lines = [line for k, line in enumerate(block) if k not in apart]
    start = 0
    while start + 1 < len(lines):
        if not _DIGIT.search(lines[start + 1][1]) or _NO_HEADER.match(lines[start][1][:_LOOKED_AT]):
            start += 1
            continue
        for split in _SPLITS:
            header = _fields(lines[start][1], split)
            end = _run(lines, start, split, header)
            if end < start + 2 and split is not _SPLITS[0]:  # the first column of a data frame has no name
                header = ["", *header]
                end = _run(lines, start, split, header)
            if end >= start + 2:
                rows = [(number, _fields(line, split)) for number, line in lines[start + 1 : end]]
                above = lines[start - 1][1].strip() if start else caption
                above = above if len(above) <= _MAX_CAPTION else ""
                yield RawTable(lines[start][0], header, rows, pipes.too_long(rows), caption=above)
                start = end - 1
                break
        start += 1


def _under_rules(block: pipes.Lines, rules: Sequence[int]) -> list[tuple[int, list[str]]] | None:
    """The rows of a table whose columns "=== ===" draws below its header; None where the lines cross them."""
    drawn = next((k for k in rules if len(_RUNS.findall(block[k][1])) > 1 and "|" not in block[k][1]), None)
    if drawn is None:
        return None
    starts = [match.start() for match in _RUNS.finditer(block[drawn][1])]
    first = drawn if drawn == 0 or rules[0] == drawn and drawn > 1 else drawn - 1
    lines = [line for k, line in enumerate(block) if k >= first and k not in set(rules)]
    crossed = sum(any(at < len(line) and line[at - 1 : at].strip() for at in starts[1:]) for _, line in lines)
    if len(lines) < 2 or crossed:
        return None
    edges = [*starts[1:], None]
    return [(number, [line[a:b].strip() for a, b in zip([0, *starts[1:]], edges)]) for number, line in lines]


def _fields(line: str, split: re.Pattern[str]) -> list[str]:
    return [field.strip() for field in split.split(line.rstrip("\r\n") if split is _SPLITS[0] else line.strip())]


def _run(lines: _Block, start: int, split: re.Pattern[str], header: Sequence[str]) -> int:
    """One past the last line of the table whose header is line `start`; `start` if it is no header."""
    if len(header) < 2 or any(parse_cell(field) for field in header if not field[:1].isalpha()):
        return start
    end = start + 1
    if not header[0] and (len(header) < 3 or not lines[end][1].strip()[:1].isdigit()):
        return start
    while end < len(lines):
        fields = _fields(lines[end][1], split)
        numbers = sum(parse_cell(field) is not None for field in fields[: len(header)])
        filled = sum(bool(field) for field in fields[: len(header)])
        short = end > start + 1 and split is not _SPLITS[2] and 1 < len(fields) <= len(header)
        remark = end > start + 1 and len(fields) > len(header) and all(map(parse_cell, fields[: len(header)]))
        if not (len(fields) == len(header) or short or remark) or numbers < 1 or 3 * numbers < filled:
            break
        end += 1
    return end
