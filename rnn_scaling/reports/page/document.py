"""One HTML page that opens from disk, fetches nothing, and runs only its own scripts; page.html renders its blocks."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports.explorer import Explorer, to_json
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.sections import Section

if TYPE_CHECKING:
    from markupsafe import Markup

FOLDER = Path(__file__).parent
LIBRARIES = ("d3.min.js", "plot.umd.min.js")  # in vendor/, with their licences
SCRIPTS = ("base.js", "tables.js", "chart.js", "run.js", "page.js")
MOST_FIGURES = 24  # traced rows with pictures, and series with tables of their start-up; table.md has the rest


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
    """A view that the script draws, and the static blocks that replace it in print and without scripts."""

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
    """A command to be copied; `about` tells its button from others."""

    line: str
    about: str


@dataclasses.dataclass(frozen=True)
class Body:
    """A section; `about` begins the names of its tables, which are hidden where it is empty."""

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
    """Blocks that a click shows; readers who do not see the page hear `about` after the title."""

    title: str
    blocks: Sequence[Block]
    about: str = ""
    is_printed: bool = True
    is_open: bool = False
    id: str = ""


Block = Text | Items | Figure | Live | Terms | Command | Body | Group | Folded


@dataclasses.dataclass(frozen=True)
class PageSection:
    """A folded section; `style`: "static" if the script replaces it, "live" if only the script fills it."""

    id: str
    title: str
    blocks: Sequence[Block]
    style: str = ""


def unbroken(text: str) -> Markup:
    """The text as HTML, with a number, its interval and its unit, and a flag with its value, each kept on one line."""
    from markupsafe import Markup, escape

    text = re.sub(r" \[(-?[\d.,]+), (-?[\d.,]+)\]", "\u00a0[\\1,\u00a0\\2]", text)
    text = str(escape(text.replace(" ± ", "\u00a0±\u00a0").replace(" %", "\u00a0%")))
    return Markup(
        re.sub(
            r"(?<!\S)--[a-z]\w*(?:=[\w.,%]{0,20}\b)?",
            r'<span class="flag">\g<0></span>',
            text,
        )
    )  # noqa: S704


def figure_of(svg: str, name: str, title: str, description: str) -> Figure:
    """The picture in the page's colours, named for readers who do not see it."""
    from markupsafe import Markup, escape

    names = f'role="img" class="plot" aria-labelledby="{name}-t {name}-d"'
    inside = f'<title id="{name}-t">{escape(title)}</title><desc id="{name}-d">{escape(description)}</desc>'
    svg = re.sub(
        r"<svg ([^>]*)>",
        lambda m: f"<svg {names} {m[1]}>{inside}",
        figures.themed(svg),
        count=1,
    )
    return Figure(Markup(svg), name, title, description)  # noqa: S704 - made here, with titles escaped


@dataclasses.dataclass(frozen=True)
class Overview:
    """The table on the first screen. All groups have the same head; each line is a link."""

    head: Sequence[str]
    groups: Sequence[
        tuple[str, Sequence[tuple[str, Sequence[str]]]]
    ]  # title, (address, cells) of each line
    caption: str = ""
    style: str = ""


def page(
    title: str,
    about: Sequence[str],
    lead: str,
    overview: Overview,
    explorer: Explorer,
    sections: Sequence[PageSection],
    *,
    first: Sequence[Block] = (),
    remarks: str = "",
    notes: Sequence[str] = (),
    schema: str = REPORT_SCHEMA,
) -> bytes:
    """The page as UTF-8.

    Args:
      about: texts next to the title: runs, machine, model, date.
      lead: the answer.
      sections: below the first screen, folded; empty ones are left out.
      first: the interactive chart and its static pictures.
      remarks: a paragraph below the table; `notes` are in small print.
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
        "unbroken": unbroken,
        "kind": lambda block: type(block).__name__,
    }
    paths = [
        *(FOLDER / "vendor" / name for name in LIBRARIES),
        *(FOLDER / "template" / name for name in SCRIPTS),
    ]
    script = "\n".join(path.read_text("utf-8") for path in paths)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    context = {
        "title": title,
        "about": about,
        "lead": lead,
        "overview": overview,
        "data": Markup(to_json(explorer)),  # noqa: S704 - escaped there
        "sections": [section for section in sections if section.blocks],
        "first": first,
        "remarks": remarks,
        "notes": notes,
        "schema": schema,
        "script": Markup(script),  # noqa: S704 - ours
        "script_hash": f"sha256-{digest}",
    }
    return environment.get_template("page.html").render(context).encode()
