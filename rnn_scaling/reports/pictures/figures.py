"""Colours, sizes and file formats of all figures.

Figures are drawn in the sentinel colours of _THEME. These become CSS variables in the
page (light and dark), and fixed colours in separate files. Text is not converted to
curves, so that readers can search it and see it in their own font.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rnn_scaling.records.own_files import REPORT_SCHEMA

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#010203"
MUTED = "#040506"
GRID = "#070809"
UNEXPLAINED = "#101112"
# Okabe-Ito: distinct for colour-blind readers and in print.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "D")
STYLES = ("-", "--", ":", "-.")
# Sentinel -> (CSS variable of the page, colour of a separate file).
_THEME = {
    INK: ("ink", "#1a1d21"),
    MUTED: ("muted", "#5b636d"),
    GRID: ("rule", "#d9dde2"),
    UNEXPLAINED: ("rest", "#8a929c"),
    **{colour: (f"s{i}", colour) for i, colour in enumerate(COLOURS)},
}
MAX_LINES = 12
BOTTOM = 0.45  # margin in inches, without the legend


def apply_page_theme(svg: str) -> str:
    """Return a figure for the page, in the page's colours."""
    for sentinel, (variable, _) in _THEME.items():
        svg = svg.replace(sentinel, f"var(--{variable})")
    return svg


def make_standalone(svg: str) -> bytes:
    """Return a figure as a separate file, on white."""
    for sentinel, (_, fixed) in _THEME.items():
        svg = svg.replace(sentinel, fixed)
    head = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" style="background:#fff"'
    return f"<!-- {REPORT_SCHEMA} -->\n{svg.replace('<svg', head, 1)}\n".encode()


def choose_colour(sentinel: str) -> str:
    """Return a colour of _THEME for the page, or for a file while `style(True)` is active."""
    import matplotlib

    is_fixed = matplotlib.rcParams["text.color"] != INK
    return _THEME[sentinel][1] if is_fixed else sentinel


@contextmanager
def apply_style(is_fixed: bool = False) -> Iterator[None]:
    """Set up matplotlib; `is_fixed` chooses the colours of separate files."""
    import matplotlib

    ink, muted, grid = [
        _THEME[name][1] if is_fixed else name for name in (INK, MUTED, GRID)
    ]
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": REPORT_SCHEMA,
        "text.parse_math": False,  # a name with two $ is a name
        "font.size": 9,
        "text.color": ink,
        "axes.labelcolor": muted,
        "axes.edgecolor": grid,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": grid,
        "grid.linewidth": 0.6,
        "xtick.color": muted,
        "ytick.color": muted,
        "xtick.labelcolor": ink,
        "ytick.labelcolor": ink,
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # In SVG the reader's font has them; in PNG there is a box for each.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def make_legend_title(title: str) -> str:
    """Return a title for a legend; matplotlib ignores titles that begin with _."""
    return f" {title}" if title.startswith("_") else title


def make_blank_figure(
    width: float,
    height: float,
    entries: int = 0,
    left: float = 0.62,
    bottom: float = BOTTOM,
) -> tuple[Figure, Axes]:
    """Return a transparent figure with one pair of axes, and room for a legend below.

    The margins are fixed, because a layout that depends on the widths of texts would
    draw everything twice.

    Args:
      width: In inches.
      height: In inches, without the legend.
      entries: Lines of the legend.
      left: Margin in inches.
      bottom: Margin in inches, without the legend.
    """
    from matplotlib.figure import Figure

    legend_inches = 0.19 * entries + 0.1 if entries else 0.0
    total_height = height + legend_inches + bottom - BOTTOM
    figure = Figure(figsize=(width, total_height))
    axes = figure.add_subplot()
    figure.subplots_adjust(
        left=left / width,
        bottom=(bottom + legend_inches) / total_height,
        right=1 - 0.2 / width,
        top=1 - 0.32 / total_height,
    )
    return figure, axes


def make_stacked_figure(
    heights: Sequence[float], width: float, room: float = 0.5, columns: int = 1
) -> tuple[Figure, Any]:
    """Return a figure for a file, and the rows of its axes.

    Args:
      heights: The inches of each row.
      width: In inches.
      room: Inches for the legend and the title.
      columns: The number of axes in a row.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, room + sum(heights)), layout="constrained")
    rows = figure.subplots(len(heights), columns, squeeze=False, height_ratios=heights)
    return figure, rows


def add_legend(
    figure: Any, columns: int, titles: Mapping[str, str] | None = None, place: str = ""
) -> None:
    """Add the names of everything that a figure's axes show, once, below them.

    Args:
      figure: The figure, or a part of it.
      columns: The number of columns.
      titles: The names to show with their titles; None: all names.
      place: "outside " if the figure's layout makes room for the legend.
    """
    keys: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        for handle, label in zip(handles, labels):
            keys.setdefault(label, handle)
    titles = titles or {label: label for label in keys}
    figure.legend(
        [keys[name] for name in titles],
        list(titles.values()),
        loc=f"{place}lower left",
        ncols=columns,
        frameon=False,
        handlelength=3,
    )


def draw_to_file(figure: Figure, kind: str = "png") -> bytes:
    """Return the figure as a PNG or SVG file whose metadata names the schema."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    metadata: dict[str, str | None] = {"Date": None, "Creator": REPORT_SCHEMA}
    if kind == "png":
        metadata = {"Software": REPORT_SCHEMA}
    figure.savefig(buffer, format=kind, dpi=130, metadata=metadata)
    return buffer.getvalue()


def draw_as_svg(figure: Figure, name: str) -> str:
    """Return the <svg> element without size, metadata and fonts; ids begin with `name`."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
        patch.set_visible(False)
    text = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    FigureCanvasSVG(figure).print_svg(text, metadata=nothing)
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # This element would style the whole page.
    svg = re.sub(
        r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", svg, flags=re.DOTALL
    )
    used_ids = set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", svg))
    svg = re.sub(
        r' id="([^"]+)"',
        lambda m: f' id="{name}-{m[1]}"' if m[1] in used_ids else "",
        svg,
    )
    svg = re.sub(r"(url\(#|href=\"#)", rf"\g<1>{name}-", svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: inherit", svg)
    view = re.search(r'viewBox="[^"]+"', svg)
    svg = re.sub(r"<svg[^>]*>", f"<svg {view[0] if view else ''}>", svg, count=1)
    return re.sub(r">\s+<", "><", re.sub(r"(\d+\.\d{2})\d+", r"\1", svg))
