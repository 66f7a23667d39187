"""What all figures of the report share: colours, sizes, and how one becomes SVG.

Colours are named, not fixed: THEME's sentinels become CSS variables in the page (light and dark), and fixed colours in
files that stand alone. Text stays text, so that it is read, searched and set in the reader's own font.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import RATE, Metric
from rnn_scaling.analysis.rows import has_many_models, shown
from rnn_scaling.config.naming import network
from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports.summary import SeriesSummary, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID, REST = "#010203", "#040506", "#070809", "#101112"
# Okabe-Ito: distinct for colour-blind readers and in print; encoders differ by marker and line too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D")
STYLES = ("-", "--", ":", "-.")
THEME = {  # sentinel -> (CSS variable of the page, colour of a file that stands alone)
    INK: ("ink", "#1a1d21"),
    MUTED: ("muted", "#5b636d"),
    GRID: ("rule", "#d9dde2"),
    REST: ("rest", "#8a929c"),
    **{colour.lower(): (f"s{i}", colour) for i, colour in enumerate(COLOURS)},
}
MOST_LINES = 12
LEGEND: dict[str, Any] = {"frameon": False, "handlelength": 3}


def looks(series: Sequence[SeriesSummary]) -> list[dict[str, str]]:
    """Colour, marker and line of each series: colour by update mode, the rest by encoder where these differ."""
    pairs = [
        (network(s.rows[0].row.config), s.rows[0].row.config["variable_update"])
        for s in series
    ]
    if len(set(pairs)) < len(pairs) or len({encoder for encoder, _ in pairs}) > len(
        MARKERS
    ):
        pairs = [
            (str(i // len(COLOURS)), str(i % len(COLOURS))) for i in range(len(pairs))
        ]
    encoders, modes = (list(dict.fromkeys(pair[i] for pair in pairs)) for i in (0, 1))
    return [
        {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[k % len(MARKERS)],
            "linestyle": STYLES[k % len(STYLES)],
        }
        for i, k in (
            (modes.index(mode), encoders.index(encoder)) for encoder, mode in pairs
        )
    ]


def groups(summary: Summary) -> list[tuple[str, list[SeriesSummary]]]:
    """(weak or strong scaling, or a mode of many models; its measured series): one picture never holds both."""
    scalings = [
        (name, [member for member in series if member.largest])
        for name, series in summary.tables
    ]
    return [(name, series) for name, series in scalings if series]


def drawn(series: Sequence[SeriesSummary]) -> list[Metric]:
    """The metrics of which these series have pictures; of many models none that only one of them gives a meaning."""
    rows = [row.row for member in series for row in member.rows]
    rate = RATE.compute if has_many_models(rows) else None
    return [
        metric
        for metric in shown(rows)
        if metric.drawn and not metric.of_models and metric.compute != rate
    ]


def standalone(svg: str) -> bytes:
    """A figure as a file of its own, on white."""
    for sentinel, (_, colour) in THEME.items():
        svg = svg.replace(sentinel, colour)
    head = '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" style="background:#fff"'
    svg = svg.replace("<svg", head, 1)
    return f"<!-- {REPORT_SCHEMA} -->\n{svg}\n".encode()


def themed(svg: str) -> str:
    """A figure to stand inside the page, in the page's colours."""
    for sentinel, (variable, _) in THEME.items():
        svg = svg.replace(sentinel, f"var(--{variable})")
    return svg


@contextmanager
def style(is_fixed: bool = False) -> Iterator[None]:
    """matplotlib's settings for these figures; `is_fixed`: in the colours of a file that stands alone."""
    import matplotlib

    ink, muted, grid = (
        THEME[sentinel][1] if is_fixed else sentinel for sentinel in (INK, MUTED, GRID)
    )
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
    """The title as a legend shows it: what begins with _ is no entry to matplotlib."""
    return f" {title}" if title.startswith("_") else title


def blank(
    width: float,
    height: float,
    entries: int = 0,
    left: float = 0.62,
    top: float = 0.32,
    bottom: float = 0.45,
) -> tuple[Figure, Axes]:
    """A figure with one pair of axes, room below for a legend of so many entries, and nothing behind them.

    Lengths are in inches, `height` without the legend. The margins are fixed, because a layout that is worked out from
    text widths would draw everything twice.
    """
    from matplotlib.figure import Figure

    below = 0.19 * entries + 0.1 if entries else 0.0
    figure = Figure(figsize=(width, height + below))
    figure.patch.set_visible(False)
    axes = figure.add_subplot()
    axes.patch.set_visible(False)
    whole = height + below
    figure.subplots_adjust(
        left / width, (bottom + below) / whole, 1 - 0.2 / width, 1 - top / whole
    )
    return figure, axes


def add_legend(figure: Figure, **place: Any) -> None:
    """The names of everything that the first axes show, below them."""
    figure.legend(
        *figure.axes[0].get_legend_handles_labels(),
        **{"loc": "lower left", **LEGEND, **place},
    )


def draw_line(
    axes: Axes,
    points: Sequence[tuple[float, Interval]],
    title: str,
    look: dict[str, Any],
) -> None:
    """Draws (position, number) points in their order, with the intervals that they have."""
    x, values = zip(*points) if points else ((), ())
    ends = [value.ends or (value.value, value.value) for value in values]
    sides = [
        [abs(value.value - end[side]) for value, end in zip(values, ends)]
        for side in (0, 1)
    ]
    style = {"capsize": 2, "elinewidth": 1, "linewidth": 1.4, "markersize": 4.5, **look}
    axes.errorbar(
        x, [value.value for value in values], sides, label=in_legend(title), **style
    )


def as_file(figure: Figure, kind: str = "png", schema: str = REPORT_SCHEMA) -> bytes:
    """The figure as a PNG or SVG file that says whose it is."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    metadata = (
        {"Software": schema} if kind == "png" else {"Date": None, "Creator": schema}
    )
    figure.savefig(buffer, format=kind, dpi=130, metadata=metadata)
    return buffer.getvalue()


def line_look(k: int) -> dict[str, Any]:
    """Colour and dashes of line number k of a picture without series."""
    return {
        "color": COLOURS[k % len(COLOURS)],
        "linestyle": STYLES[k // len(COLOURS) % len(STYLES)],
    }


def as_svg(figure: Figure, name: str) -> str:
    """The figure's <svg> element: no fixed size, no metadata, ids of its own, the reader's font."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    text = io.StringIO()
    FigureCanvasSVG(figure).print_svg(
        text, metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
    )
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", svg, flags=re.DOTALL
    )  # would style the whole page
    used = set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", svg))
    svg = re.sub(
        r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", svg
    )
    svg = re.sub(r"(url\(#|href=\"#)", rf"\g<1>{name}-", svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: inherit", svg)
    view = re.search(r'viewBox="[^"]+"', svg)
    svg = re.sub(r"<svg[^>]*>", f"<svg {view[0] if view else ''}>", svg, count=1)
    return re.sub(r">\s+<", "><", re.sub(r"(\d+\.\d{2})\d+", r"\1", svg))
