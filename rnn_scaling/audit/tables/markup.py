"""Tables of HTML and LaTeX inside a text, line by line: <table> with spans, tabular with \\multicolumn."""

from __future__ import annotations

import html.parser
import re
from collections.abc import Iterator, Sequence

from rnn_scaling.audit.tables.grid import RawTable

MAX_CELLS = 2_000_000  # of one table; what comes after it is left out
_MAX_SPAN = 1000  # HTML's own limit of colspan

Rows = list[tuple[int, list[str]]]


class HtmlTables(html.parser.HTMLParser):
    """Collects the rows of the tables that are fed to it; `done` holds each outer table once it is closed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.line = 0
        self.done: list[tuple[str, Rows]] = []
        self.depth = 0
        self._reset()

    def _reset(self) -> None:
        self._rows: Rows = []
        self._open = False  # whether the last row is not ended
        self._caption = ""
        self._text: list[str] | None = None
        self._span = (1, 1)
        self._below: dict[int, tuple[int, str]] = {}  # column -> rows that a cell from above still covers, and its text
        self._cells = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.depth += 1
            if self.depth == 1:
                self._reset()
        if self.depth != 1:
            return
        if tag == "tr":
            self._end_cell()
            self._end_row()
            self._begin_row()
        elif tag in ("td", "th"):
            self._end_cell()
            if not self._open:
                self._begin_row()
            given = dict(attrs)
            self._span = _span(given.get("colspan")), _span(given.get("rowspan"))
            self._text = []
        elif tag == "caption":
            self._text = []
        elif tag == "br" and self._text is not None:
            self._text.append(" ")
        elif tag == "sup" and self._text is not None:
            self._text.append("<sup>")

    def handle_endtag(self, tag: str) -> None:
        if self.depth == 1:
            if tag == "caption" and self._text is not None:
                self._caption, self._text = _joined(self._text), None
            elif tag in ("td", "th"):
                self._end_cell()
            elif tag == "sup" and self._text is not None:
                self._text.append("</sup>")
            elif tag in ("tr", "table"):
                self._end_cell()
                self._end_row()
        if tag == "table" and self.depth:
            self.depth -= 1
            if self.depth == 0:
                self.done.append((self._caption, self._rows))
                self._reset()

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def _begin_row(self) -> None:
        self._rows.append((self.line, []))
        self._open = True

    def _end_cell(self) -> None:
        if self._text is None or not self._open:
            return
        text, self._text = _joined(self._text), None
        self._cells += self._span[0]
        if self._cells > MAX_CELLS:
            return
        row = self._rows[-1][1]
        self._fill(row)
        for _ in range(self._span[0]):
            if self._span[1] > 1:
                self._below[len(row)] = (self._span[1], text)
            row.append(text)

    def _fill(self, row: list[str]) -> None:
        """Puts in what cells of rows above cover."""
        while len(row) in self._below:
            row.append(self._below[len(row)][1])

    def _end_row(self) -> None:
        if not self._open:
            return
        self._open = False
        self._fill(self._rows[-1][1])
        self._below = {k: (left - 1, text) for k, (left, text) in self._below.items() if left > 1}
        if not self._rows[-1][1]:
            self._rows.pop()


def _span(text: str | None) -> int:
    return min(int(text), _MAX_SPAN) if text and re.fullmatch(r"[1-9]\d{0,5}", text.strip()) else 1


def _joined(parts: Sequence[str]) -> str:
    return re.sub(r"\s+", " ", "".join(parts)).strip()


def html_tables(lines: Iterator[tuple[int, str]], first: tuple[int, str]) -> Iterator[RawTable]:
    """Yields the tables from the line that opens the first one, which `lines` go on after, until all are closed."""
    parser = HtmlTables()
    number, line = first
    while True:
        parser.line = number
        parser.feed(line + "\n")
        if not parser.depth:
            break
        following = next(lines, None)
        if following is None:
            parser.handle_endtag("table")
            break
        number, line = following
    for caption, rows in parser.done:
        yield from with_header(rows, caption)


def with_header(rows: Rows, caption: str = "") -> Iterator[RawTable]:
    """Yields the table of rows, each its line and cells; a row that spans all columns, and one name, is its caption."""
    while len(rows) > 2 and len(set(rows[0][1])) == 1 and (len(rows[0][1]) > 1 or len(rows[1][1]) > 1):
        caption = caption or rows[0][1][0]
        rows = rows[1:]
    if len(rows) < 2:
        return
    width = max(len(texts) for _, texts in rows[:2])
    header = [*rows[0][1], *[""] * (width - len(rows[0][1]))]
    yield RawTable(rows[0][0], header, rows[1:], caption=caption)


_TABULAR = re.compile(r"\\begin\{(tabular[xy*]?|tabulary|longtable|tblr|array|NiceTabular)\}")
_RULES = re.compile(
    r"\\(?:hline|toprule|midrule|bottomrule|endhead|endfirsthead|endfoot|endlastfoot|centering|small|footnotesize"
    r"|noalign\{[^{}]*\}|(?:cline|cmidrule|specialrule|addlinespace|rowcolor|hhline|arrayrulecolor)(?:\([^()]*\))?(?:\[[^\[\]]*\])?(?:\{[^{}]*\})*)"
)
_SPANNED = re.compile(r"\\multicolumn\s*\{(\d+)\}\s*\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}\s*\{(.*)\}\s*")
_SPANNED_ROWS = re.compile(r"\\multirow(?:\[[^\[\]]*\])?\s*\{(-?\d+)\}\s*(?:\[[^\[\]]*\])?\s*\{[^{}]*\}\s*\{(.*)\}\s*")
_SYMBOLS = (
    (re.compile(r"\\(?:times|cdot)(?![a-zA-Z])"), "×"), (re.compile(r"\\pm(?![a-zA-Z])"), "±"),
    (re.compile(r"\\(?:approx|sim)(?![a-zA-Z])"), "~"), (re.compile(r"\\to(?![a-zA-Z])|\\rightarrow"), "->"),
    (re.compile(r"\\(?:textasciitilde)(?![a-zA-Z])"), "~"),
    (re.compile(r"\\[,;:! ]|~|\\quad|\\qquad|\\hspace\{[^{}]*\}"), " "),
    (re.compile(
        r"\\(?:footnotemark|footnote|tnote|cite[pt]?|ref|label|textsuperscript|tablefootnote)(?:\[[^\[\]]*\])?\{[^{}]*\}"
    ), ""),
    (re.compile(r"\\(?:eta)(?![a-zA-Z])"), "η"),
)  # fmt: skip
_COMMAND = re.compile(r"\\[a-zA-Z]+\*?(?:\[[^\[\]]*\])?\s*\{([^{}]*)\}")
_BARE_COMMAND = re.compile(
    r"\\(?:bf|it|em|tt|rm|bfseries|itshape|ttfamily|textstyle|displaystyle|small|tiny|large)(?![a-zA-Z])\s*"
)


def opens_tabular(line: str) -> bool:
    """Whether a LaTeX table begins in this line."""
    return _TABULAR.search(line) is not None


def latex_tables(lines: Iterator[tuple[int, str]], first: tuple[int, str]) -> Iterator[RawTable]:
    """Yields the table that the \\begin{tabular} of a line opens, which `lines` go on after, until its \\end."""
    number, line = first
    start = _TABULAR.search(line)
    assert start
    name = start[1]
    body = _without_arguments(line[start.end() :])
    rows: list[tuple[int, str]] = []
    pending = ""
    while True:
        body = re.sub(r"(?<!\\)%.*", "", body)
        over = body.find(f"\\end{{{name}}}")
        text = f"{pending} {body if over < 0 else body[:over]}"
        *ended, pending = re.split(r"\\\\(?:\*)?(?:\[[^\[\]]*\])?|\\tabularnewline", text)
        for row in ended:
            _add_row(rows, number, row)
        if over >= 0 or len(pending) > 100_000:
            _add_row(rows, number, pending)
            break
        following = next(lines, None)
        if following is None:
            break
        number, body = following
    below: dict[int, tuple[int, str]] = {}
    filled = [(line_number, _cells(row, below)) for line_number, row in rows]
    yield from with_header(filled)


def _without_arguments(text: str) -> str:
    """What follows the arguments of \\begin{tabular}[t]{l|rr}."""
    text = text.lstrip()
    while text[:1] in ("{", "["):
        depth, closing = 0, {"{": "}", "[": "]"}[text[0]]
        opening = text[0]
        for k, character in enumerate(text):
            depth += (character == opening) - (character == closing)
            if depth == 0:
                text = text[k + 1 :].lstrip()
                break
        else:
            return ""
    return text


def _add_row(rows: list[tuple[int, str]], number: int, text: str) -> None:
    text = _RULES.sub(" ", text).strip()
    if text:
        rows.append((number, text))


def _cells(row: str, below: dict[int, tuple[int, str]]) -> list[str]:
    """The cells of a row: spans repeated, and what \\multirow of a row above covers."""
    out: list[str] = []
    started: dict[int, tuple[int, str]] = {}
    for text in re.split(r"(?<!\\)&", row):
        text, columns = text.strip(), 1
        spanned = _SPANNED.fullmatch(text)
        if spanned:
            columns, text = min(int(spanned[1]), _MAX_SPAN), spanned[2].strip()
        rows = _SPANNED_ROWS.fullmatch(text)
        covered = below.get(len(out))
        plain = _plain(rows[2] if rows else text)
        if not plain and covered:
            plain = covered[1]
        if rows:
            started[len(out)] = (abs(int(rows[1])), plain)
        out += [plain] * columns
    for k, (left, text) in list(below.items()):
        if left > 1:
            below[k] = (left - 1, text)
        else:
            del below[k]
    below.update({k: (left - 1, text) for k, (left, text) in started.items() if left > 1})
    return out


def _plain(text: str) -> str:
    """A LaTeX cell as plain text."""
    for pattern, sign in _SYMBOLS:
        text = pattern.sub(sign, text)
    text = _BARE_COMMAND.sub("", text)
    for _ in range(4):  # nested ones, from the inside
        text, changed = _COMMAND.subn(r"\1", text)
        if not changed:
            break
    text = re.sub(r"(?<!\\)[{}$]", "", text)
    text = re.sub(r"\\([%&_#$])", r"\1", text)
    return re.sub(r"\s+", " ", text.replace("---", "-").replace("--", "-")).strip()
