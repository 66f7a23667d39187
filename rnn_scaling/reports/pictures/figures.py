"""What all figures share: colours, sizes, and how one becomes SVG or a file.

Colours are named, not fixed: THEME's sentinels become CSS variables in the page (light
and dark), and fixed colours in separate files. Text stays text, so that it is read,
searched and set in the reader's own font.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rnn_scaling.records.own_files import REPORT_SCHEMA

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#010203"
MUTED = "#040506"
GRID = "#070809"
REST = "#101112"
# Okabe-Ito: distinct for colour-blind readers and in print.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MARKERS = ("o", "s", "^", "D")
STYLES = ("-", "--", ":", "-.")
# Sentinel -> (CSS variable of the page, colour of a separate file).
THEME = {
    INK: ("ink", "#1a1d21"),
    MUTED: ("muted", "#5b636d"),
    GRID: ("rule", "#d9dde2"),
    REST: ("rest", "#8a929c"),
    **{colour: (f"s{i}", colour) for i, colour in enumerate(COLOURS)},
}
MOST_LINES = 12
LEGEND: dict[str, Any] = {"frameon": False, "handlelength": 3}


def themed(svg: str) -> str:
    """Return a figure for the page, in the page's colours."""
    for sentinel, (variable, _) in THEME.items():
        svg = svg.replace(sentinel, f"var(--{variable})")
    return svg


def standalone(svg: str) -> bytes:
    """Return a figure as a separate file, on white."""
    for sentinel, (_, fixed) in THEME.items():
        svg = svg.replace(sentinel, fixed)
    head = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" style="background:#fff"'
    return f"<!-- {REPORT_SCHEMA} -->\n{svg.replace('<svg', head, 1)}\n".encode()


def colour(sentinel: str) -> str:
    """Return a colour of THEME as the present style has it."""
    import matplotlib

    is_fixed = matplotlib.rcParams["text.color"] != INK
    return THEME[sentinel][1] if is_fixed else sentinel


@contextmanager
def style(is_fixed: bool = False) -> Iterator[None]:
    """Set matplotlib for these figures; `is_fixed`: in the colours of separate files."""
    import matplotlib

    ink, muted, grid = [
        THEME[name][1] if is_fixed else name for name in (INK, MUTED, GRID)
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


def in_legend(title: str) -> str:
    """Return a title for a legend: matplotlib ignores one that begins with _."""
    return f" {title}" if title.startswith("_") else title


def blank(
    width: float,
    height: float,
    entries: int = 0,
    left: float = 0.62,
    bottom: float = 0.45,
) -> tuple[Figure, Axes]:
    """Return a transparent figure with one pair of axes, and room for a legend below.

    The margins are fixed, because a layout that is worked out from text widths would
    draw everything twice.

    Args:
      width: In inches.
      height: In inches, without the legend.
      entries: Lines of the legend.
      left: Margin in inches.
      bottom: Margin in inches, without the legend.
    """
    from matplotlib.figure import Figure

    below = 0.19 * entries + 0.1 if entries else 0.0
    whole = height + below
    figure = Figure(figsize=(width, whole))
    axes = figure.add_subplot()
    figure.subplots_adjust(
        left / width, (bottom + below) / whole, 1 - 0.2 / width, 1 - 0.32 / whole
    )
    return figure, axes


def add_legend(figure: Any, axes: Axes, **place: Any) -> None:
    """Add the names of everything that these axes show, below them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, **{"loc": "lower left", **LEGEND, **place})


def as_file(figure: Figure, kind: str = "png") -> bytes:
    """Return the figure as a PNG or SVG file that says who made it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    made_by = {"png": {"Software": REPORT_SCHEMA}}
    metadata = made_by.get(kind, {"Date": None, "Creator": REPORT_SCHEMA})
    figure.savefig(buffer, format=kind, dpi=130, metadata=metadata)
    return buffer.getvalue()


def as_svg(figure: Figure, name: str) -> str:
    """Return the <svg> element: no fixed size, no metadata, own ids, reader's font."""
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
    used = set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", svg))
    svg = re.sub(
        r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", svg
    )
    svg = re.sub(r"(url\(#|href=\"#)", rf"\g<1>{name}-", svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: inherit", svg)
    view = re.search(r'viewBox="[^"]+"', svg)
    svg = re.sub(r"<svg[^>]*>", f"<svg {view[0] if view else ''}>", svg, count=1)
    return re.sub(r">\s+<", "><", re.sub(r"(\d+\.\d{2})\d+", r"\1", svg))
