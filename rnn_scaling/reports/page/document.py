"""One HTML page that opens from disk, fetches nothing and runs only its own scripts.

The template page.html renders the blocks.

It knows nothing about runs: the other modules of `render_page` make the blocks.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports.explorer import Explorer, to_json
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.sections import Section
from rnn_scaling.reports.shared_names import split_titles

if TYPE_CHECKING:
    from markupsafe import Markup

FOLDER = Path(__file__).parent
LIBRARIES = ("d3.min.js", "plot.umd.min.js")  # files in vendor/, with their licences
_SCRIPTS = ("base.js", "tables.js", "chart.js", "run.js", "page.js")
# Traced rows with pictures, and series with tables of their start-up; table.md has all.
MAX_FIGURES = 24


@dataclasses.dataclass(frozen=True)
class Text:
    """A paragraph; `style`: "note", or "h3" for a heading."""

    text: str
    style: str = ""


@dataclasses.dataclass(frozen=True)
class Items:
    """A list of sentences."""

    lines: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A picture with a description for screen-reader users."""

    svg: str
    id: str
    title: str
    description: str


@dataclasses.dataclass(frozen=True)
class Live:
    """A view that the script draws; `blocks` replace it in print and without scripts."""

    view: str  # "chart", "bars" or "runs"
    blocks: Sequence[Block] = ()


@dataclasses.dataclass(frozen=True)
class Key:
    """A term and its meaning, with its colour in a picture."""

    text: str
    meaning: str
    colour: str = ""
    opacity: float = 1.0


@dataclasses.dataclass(frozen=True)
class Terms:
    """Keys below each other with their meanings; `style`: a class of the style sheet."""

    keys: Sequence[Key]
    style: str


@dataclasses.dataclass(frozen=True)
class Command:
    """A command to be copied; `about` is in the accessible name of its button."""

    line: str
    about: str


@dataclasses.dataclass(frozen=True)
class Body:
    """A section; `about` begins the captions of its tables.

    If `about` is empty, only screen readers get the captions.
    """

    section: Section
    about: str = ""
    has_title: bool = False


@dataclasses.dataclass(frozen=True)
class Group:
    """Blocks next to or below each other; `style`: a class of the style sheet."""

    style: str
    blocks: Sequence[Block]


@dataclasses.dataclass(frozen=True)
class Folded:
    """Blocks that a click shows; screen readers read `about` after the title."""

    title: str
    blocks: Sequence[Block]
    about: str = ""
    is_printed: bool = True
    is_open: bool = False
    id: str = ""


Block = Text | Items | Figure | Live | Terms | Command | Body | Group | Folded


@dataclasses.dataclass(frozen=True)
class PageSection:
    """A folded section.

    Attributes:
      style: "static" if the script replaces it, "live" if only the script fills it.
    """

    id: str
    title: str
    blocks: Sequence[Block]
    style: str = ""


def make_unbroken(text: str) -> Markup:
    """Return a text as HTML whose numbers and flags are not broken across lines.

    A number stays with its interval and its unit, and a flag with its value. Words
    between backticks are code.
    """
    from markupsafe import Markup, escape

    text = re.sub(r" \[(-?[\d.,]+), (-?[\d.,]+)\]", "\u00a0[\\1,\u00a0\\2]", text)
    text = str(escape(text.replace(" ± ", "\u00a0±\u00a0").replace(" %", "\u00a0%")))
    text = re.sub("`([^`]+)`", r"<code>\1</code>", text)
    flag = r"(?<!\S)--[a-z]\w*(?:=[\w.,%]{0,20}\b)?"
    return Markup(re.sub(flag, r'<span class="flag">\g<0></span>', text))  # noqa: S704


def make_figure(svg: str, name: str, title: str, description: str) -> Figure:
    """Return a picture in the page's colours, with a title for screen readers."""
    from markupsafe import Markup, escape

    attributes = f'role="img" class="plot" aria-labelledby="{name}-t {name}-d"'
    labels = (
        f'<title id="{name}-t">{escape(title)}</title>'
        f'<desc id="{name}-d">{escape(description)}</desc>'
    )
    svg = re.sub(
        r"<svg ([^>]*)>",
        lambda match: f"<svg {attributes} {match[1]}>{labels}",
        figures.apply_page_theme(svg),
        count=1,
    )
    return Figure(Markup(svg), name, title, description)  # noqa: S704 - titles are escaped


@dataclasses.dataclass(frozen=True)
class OverviewLine:
    """A line of the first table, which is a link.

    Attributes:
      shared: The beginning of the name that is a heading above this and other lines.
      name: The rest of the name.
    """

    address: str
    shared: str
    name: str
    cells: Sequence[str]  # the cells after the name


@dataclasses.dataclass(frozen=True)
class Overview:
    """The table on the first screen. All groups have the same head.

    Attributes:
      groups: The title of each group, and the (address, cells) of each of its lines;
        the first cell is the name.
      metrics: The name of the metric of a column, by the heading of the column. The
        metric that the chart shows is marked in the table, or has a separate column.
      place: The text after the heading of that column, such as " on 2 devices".
    """

    head: Sequence[str]
    groups: Sequence[tuple[str, Sequence[tuple[str, Sequence[str]]]]]
    caption: str = ""
    style: str = ""
    metrics: Mapping[str, str] = dataclasses.field(default_factory=dict)
    place: str = ""

    @property
    def grouped_lines(self) -> list[tuple[str, list[OverviewLine]]]:
        """The title and the lines of each group.

        Names that begin alike are split into a shared heading and the rest.
        """
        result = []
        for title, lines in self.groups:
            names = split_titles([cells[0] for _, cells in lines])
            group = [
                OverviewLine(address, *name, cells[1:])
                for (address, cells), name in zip(lines, names)
            ]
            result.append((title, group))
        return result


def render_page(
    title: str,
    about: Sequence[str],
    lead: str,
    overview: Overview,
    explorer: Explorer,
    sections: Sequence[PageSection],
    *,
    first: Sequence[Block] = (),
    remarks: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> bytes:
    """Return the page as UTF-8.

    Args:
      title: Title of the page.
      about: Texts next to the title: runs, machine, model, date.
      lead: The answer.
      overview: The table on the first screen.
      explorer: The data of the script.
      sections: Folded sections below the first screen; empty sections are left out.
      first: The interactive chart and its static pictures.
      remarks: Paragraphs below the table; several are a list.
      notes: Texts in small print.
    """
    import jinja2
    from markupsafe import Markup

    loader = jinja2.FileSystemLoader(FOLDER / "template")
    environment = jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "unbroken": make_unbroken,
        "kind": lambda block: type(block).__name__,
    }
    paths = [FOLDER / "vendor" / name for name in LIBRARIES]
    paths += [FOLDER / "template" / name for name in _SCRIPTS]
    script = "\n".join(path.read_text("utf-8") for path in paths)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    context = {
        "title": title,
        "about": about,
        "lead": lead,
        "overview": overview,
        "data": Markup(to_json(explorer)),  # noqa: S704 - to_json escapes it
        "sections": [section for section in sections if section.blocks],
        "first": first,
        "remarks": [text for text in remarks if text],
        "notes": notes,
        "schema": REPORT_SCHEMA,
        "script": Markup(script),  # noqa: S704 - a file of this package
        "script_hash": f"sha256-{digest}",
    }
    return environment.get_template("page.html").render(context).encode()
