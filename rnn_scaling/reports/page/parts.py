"""What sections of the page are made of: pictures and tables."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.sections import Grid

if TYPE_CHECKING:
    from markupsafe import Markup

MOST_FIGURES = 24  # waterfalls, and as many pictures of batch times, and traced rows; tables have the rest
_PLAIN = re.compile(r"[\w.,:;/ ]*", re.ASCII)  # nothing that is escaped or kept together


@dataclasses.dataclass(frozen=True)
class Figure:
    """A picture with what a reader gets who does not see it."""

    svg: str
    id: str
    title: str
    description: str


def content(grid: Grid) -> Markup:
    """Head and lines of a table as HTML: of thousands of tables, a template would take several times as long."""
    from markupsafe import Markup

    lines = (
        f'<tr><th scope="row">{_unbroken(first)}</th>{cells(others, [k - 1 for k in grid.text_columns])}</tr>\n'
        for first, *others in grid.lines
    )
    head = _head(tuple(grid.head), grid.text_columns)
    return Markup(f"<thead><tr>{head}</tr></thead>\n<tbody>\n{''.join(lines)}</tbody>")  # noqa: S704 - escaped


@functools.lru_cache(maxsize=256)  # thousands of tables have few heads
def _head(texts: tuple[str, ...], text_columns: tuple[int, ...]) -> str:
    from markupsafe import escape

    begins = ['<th scope="col" class="text">' if k in text_columns else '<th scope="col">' for k in range(len(texts))]
    return "".join(f"{begin}{escape(text)}</th>" for begin, text in zip(begins, texts))


def cells(texts: Sequence[str], text_columns: Sequence[int] = ()) -> Markup:
    """The cells of a line as HTML."""
    from markupsafe import Markup

    begins = ['<td class="text">' if k in text_columns else "<td>" for k in range(len(texts))]
    return Markup("".join(f"{begin}{_unbroken(text)}</td>" for begin, text in zip(begins, texts)))  # noqa: S704


def unbroken(text: str) -> Markup:
    """The text as HTML, with a number, its interval and its unit, and a flag with its value, each kept on one line."""
    from markupsafe import Markup

    return Markup(_unbroken(text))  # noqa: S704 - escaped there


def _unbroken(text: str) -> str:
    text = str(text)
    if _PLAIN.fullmatch(text):
        return text
    from markupsafe import escape

    text = re.sub(r" \[(-?[\d.,]+), (-?[\d.,]+)\]", "\u00a0[\\1,\u00a0\\2]", text)
    text = str(escape(text.replace(" ± ", "\u00a0±\u00a0").replace(" %", "\u00a0%")))
    return re.sub(r"(?<!\S)--[a-z]\w*(?:=[\w.,%]{0,20}\b)?", r'<span class="flag">\g<0></span>', text)


def figure_of(svg: str, name: str, title: str, description: str) -> Figure:
    """The picture in the page's colours, named for readers who do not see it.

    Args:
      svg: of `figures.as_svg`.
    """
    from markupsafe import Markup, escape

    names = f'role="img" class="plot" aria-labelledby="{name}-t {name}-d"'
    inside = f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(description)}</desc>'
    svg = re.sub(r"<svg ([^>]*)>", lambda m: f"<svg {names} {m[1]}>{inside}", figures.themed(svg), count=1)
    return Figure(Markup(svg), name, title, description)  # noqa: S704 - made here, with titles escaped
