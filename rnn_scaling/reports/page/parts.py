"""What sections of the page are made of: pictures and tables."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from rnn_scaling.reports.pictures import figures

MOST_FIGURES = 24  # waterfalls, and as many pictures of batch times, and traced rows; tables have the rest


@dataclasses.dataclass(frozen=True)
class Figure:
    """A picture with what a reader gets who does not see it."""

    svg: str
    id: str
    title: str
    description: str


@dataclasses.dataclass(frozen=True)
class Grid:
    """A table: the first cell of a line is its header."""

    caption: str
    head: Sequence[str]
    lines: Sequence[Sequence[str]]
    text_columns: tuple[int, ...] = ()  # set to the left


def figure_of(svg: str, name: str, title: str, description: str) -> Figure:
    """The picture in the page's colours, named for readers who do not see it.

    Args:
      svg: of `figures.as_svg`.
      name: what its ids begin with, unique on the page.
      title: its name in a few words.
      description: what it shows, for who does not see it.
    """
    from markupsafe import Markup, escape

    names = f'role="img" class="plot" aria-labelledby="{name}-t {name}-d"'
    inside = f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(description)}</desc>'
    svg = re.sub(r"<svg ([^>]*)>", lambda m: f"<svg {names} {m[1]}>{inside}", figures.themed(svg), count=1)
    return Figure(Markup(svg), name, title, description)  # noqa: S704 - made here, with titles escaped
