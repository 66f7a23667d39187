"""Tables of MediaWiki and AsciiDoc inside a text, line by line: "{| ... |}" and "|=== ... |===".

MediaWiki: https://www.mediawiki.org/wiki/Help:Tables; AsciiDoc: https://docs.asciidoctor.org/asciidoc/latest/tables/
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from rnn_scaling.audit.tables import markup
from rnn_scaling.audit.tables.grid import RawTable

_ATTRIBUTES = re.compile(r"^[^|\[\]]*=[^|]*\|(?!\|)")
_CELL = re.compile(r"(?:^|(?<=\s))(?:\d+[+*])?(?:\.\d+\+)?[<^>]?[.]?[adehlms]?\|")


def opens(line: str) -> bool:
    """Whether a table begins in this line."""
    return line.lstrip().startswith("{|") or line.strip() == "|==="


def tables(lines: Iterator[tuple[int, str]], first: tuple[int, str]) -> Iterator[RawTable]:
    """Yields the table that the line `first` opens, from the (number, text) of it and of the lines after it."""
    end = "|}" if first[1].lstrip().startswith("{|") else "|==="
    body = list(itertools.takewhile(lambda numbered: not numbered[1].strip().startswith(end), lines))
    yield from markup.with_header(*(_of_wiki(body) if end == "|}" else (_of_asciidoc(body), "")))


def _of_wiki(body: list[tuple[int, str]]) -> tuple[markup.Rows, str]:
    rows: markup.Rows = []
    caption, fresh = "", True
    for number, line in body:
        text = line.strip()
        if text.startswith("|+"):
            caption = _ATTRIBUTES.sub("", text[2:]).strip()
        elif text.startswith("|-"):
            fresh = True
        elif text[:1] in ("|", "!"):
            if fresh:
                rows.append((number, []))
                fresh = False
            rows[-1][1].extend(_ATTRIBUTES.sub("", cell).strip() for cell in re.split(r"\|\||!!", text[1:]))
    return rows, caption


def _of_asciidoc(body: list[tuple[int, str]]) -> markup.Rows:
    """The cells one after the other, in rows as wide as the first line, or the first lines up to an empty one."""
    cells: list[tuple[int, str]] = []
    width, first_line = 0, True
    for number, line in body:
        found = [cell.strip() for cell in _CELL.split(line)[1:]]
        cells += [(number, cell) for cell in found]
        if not width and len(found) > 1 and first_line:
            width = len(found)
        elif not width and cells and not line.strip():
            width = len(cells)
        first_line = first_line and not found
    if not width:
        return []
    return [
        (cells[k][0], [cell for _, cell in cells[k : k + width]]) for k in range(0, len(cells) - width + 1, width)
    ]  # fmt: skip
