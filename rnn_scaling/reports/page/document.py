"""One HTML page that opens from disk, fetches nothing, and runs only its own scripts."""

import base64
import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports.page.explorer import Explorer, to_json
from rnn_scaling.reports.page.parts import Block, PageSection, unbroken

FOLDER = Path(__file__).parent
LIBRARIES = ("d3.min.js", "plot.umd.min.js")  # in vendor/, with their licences
SCRIPTS = ("base.js", "tables.js", "chart.js", "run.js", "page.js")


@dataclasses.dataclass(frozen=True)
class Overview:
    """The table on the first screen. All groups have the same head; each line is a link."""

    head: Sequence[str]
    groups: Sequence[tuple[str, Sequence[tuple[str, Sequence[str]]]]]  # title, (address, cells) of each line
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
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"unbroken": unbroken, "kind": lambda block: type(block).__name__}
    paths = [*(FOLDER / "vendor" / name for name in LIBRARIES), *(FOLDER / "template" / name for name in SCRIPTS)]
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
