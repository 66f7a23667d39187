"""The report's figures as SVG: lines over devices, the waterfall of one loss, the batch times of one run.

Colours are named, not fixed: THEME's sentinels become CSS variables in the page (light and dark), and fixed colours in
files that stand alone. Text stays text, so that it is read, searched and set in the reader's own font.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rnn_scaling.analysis.attribution import REST as REST_NAME
from rnn_scaling.analysis.attribution import Attribution
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import Metric
from rnn_scaling.analysis.rows import shown
from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports.summary import RunSteady, SeriesSummary, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, MUTED, GRID, LOSS, GAIN, REST = "#010203", "#040506", "#070809", "#0a0b0c", "#0d0e0f", "#101112"
# Okabe-Ito: told apart by colour-blind readers and in print; encoders differ by marker and line too.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "^", "D")
STYLES = ("-", "--", ":", "-.")
THEME = {  # sentinel -> (CSS variable of the page, colour of a file that stands alone)
    INK: ("ink", "#1a1d21"),
    MUTED: ("muted", "#5b636d"),
    GRID: ("rule", "#d9dde2"),
    LOSS: ("loss", "#D55E00"),
    GAIN: ("gain", "#009E73"),
    REST: ("rest", "#8a929c"),
    **{colour.lower(): (f"s{i}", colour) for i, colour in enumerate(COLOURS)},
}
MOST_LINES = 12
BAR = 0.62  # height of a bar, in rows


def looks(series: Sequence[SeriesSummary]) -> list[dict[str, str]]:
    """Colour, marker and line of each series: colour by update mode, the rest by encoder where these differ."""
    pairs = [(s.rows[0].row.config["encoder_type"], s.rows[0].row.config["variable_update"]) for s in series]
    if len(set(pairs)) < len(pairs):
        pairs = [(str(i // len(COLOURS)), str(i % len(COLOURS))) for i in range(len(pairs))]
    encoders, modes = (list(dict.fromkeys(pair[i] for pair in pairs)) for i in (0, 1))
    return [
        {
            "color": COLOURS[modes.index(mode) % len(COLOURS)],
            "marker": MARKERS[encoders.index(encoder) % len(MARKERS)],
            "linestyle": STYLES[encoders.index(encoder) % len(STYLES)],
        }
        for encoder, mode in pairs
    ]


def groups(summary: Summary) -> list[tuple[str, list[SeriesSummary]]]:
    """(weak or strong scaling, its measured series): one picture never holds both."""
    scalings = [(name, [each for each in series if each.largest]) for name, series in summary.scalings]
    return [(name, series) for name, series in scalings if series]


def drawn(series: Sequence[SeriesSummary]) -> list[Metric]:
    """The metrics of which these series have pictures."""
    return shown([row.row for each in series for row in each.rows])


def lines(series: Sequence[SeriesSummary], metric: Metric, legend: bool = False, name: str = "") -> str:
    """One metric over the number of devices, a line for each series, with 95 % intervals; the ideal dashed.

    Args:
      series: of one unit; the first MOST_LINES are drawn.
      metric: what is drawn.
      legend: whether the picture says which line is which.
      name: what the ids in the picture begin with, unique on a page.
    """
    few = series[:MOST_LINES]
    below = 0.45 + (0.17 * (len(few) + 1) + 0.1 if legend else 0)
    with style():
        figure, axes = blank(4.2, 2.55 + below)
        draw_lines(axes, few, metric)
        set_margins(figure, left=0.62, right=0.12, top=0.32, bottom=below)
        if legend:
            figure.legend(*axes.get_legend_handles_labels(), loc="lower left", frameon=False, handlelength=3)
        return as_svg(figure, name or metric.name)


def draw_lines(axes: Axes, series: Sequence[SeriesSummary], metric: Metric, ideal: str = MUTED) -> None:
    """Draws one metric over the number of devices.

    Args:
      axes: to draw in.
      series: at most MOST_LINES.
      metric: what is drawn.
      ideal: colour of the ideal.
    """
    counts = sorted({row.row.num_devices for each in series for row in each.rows if row.row.metric(metric)})
    top = 0.0
    if metric.ideal is not None and counts:
        bound = [metric.factor * metric.ideal(count) for count in counts]
        top = 1.1 * max(bound)
        axes.plot(counts, bound, color=ideal, linewidth=1, linestyle=(0, (2, 2)), label="ideal")
    for k, (each, look) in enumerate(zip(series, looks(series))):
        top = max(top, _draw_line(axes, each, metric, look, 0.02 * (k - (len(series) - 1) / 2)))
    axes.set(title=metric.caption, xlabel="devices", ylim=(0, top or 1))
    _ticks(axes, counts)


def waterfall(loss: Attribution, name: str) -> str:
    """From n times one device down to what was measured: each part with its 95 % interval, and the residual."""
    parts = [(part.name, part.value) for part in loss.shown if part.value is not None]
    ideal, measured = loss.ideal.value, loss.ideal.value - loss.loss.value
    with style():
        figure, axes = blank(4.2, 0.75 + 0.3 * (len(parts) + 2))
        axes.barh(0, ideal, height=BAR, color=GRID)
        _say(axes, 0, f"{ideal:,.0f}")
        reached = ideal
        for y, (label, value) in enumerate(parts, start=1):
            _draw_part(axes, y, label, value, reached, ideal)
            reached -= value.value
            _say(axes, y, f"{-value.value:+,.0f}  ({-loss.points(value):+.1f})")
        last = len(parts) + 1
        axes.plot([reached, reached], [last - 1 - BAR / 2, last + BAR / 2], color=MUTED, linewidth=0.6)
        axes.barh(last, measured, height=BAR, color=COLOURS[0])
        _say(axes, last, f"{measured:,.0f}  ({100 - loss.points(loss.loss):.1f} %)")
        axes.set_yticks(range(last + 1), ["ideal", *(label for label, _ in parts), "measured"])
        axes.set(xlim=(0, 1.65 * max(ideal, measured)), ylim=(last + 0.5, -0.5))
        axes.set_xlabel(f"{loss.row.unit}/s (points of efficiency)")
        axes.tick_params(axis="y", length=0)
        _x_in_thousands(axes, ideal)
        set_margins(figure, left=0.92, right=0.08, top=0.08, bottom=0.42)
        return as_svg(figure, name)


def _draw_part(axes: Axes, y: int, label: str, value: Interval, reached: float, ideal: float) -> None:
    """One bar from what was reached before to what is left after it, with its interval about that end."""
    colour = REST if label == REST_NAME else LOSS if value.value >= 0 else GAIN
    axes.plot([reached, reached], [y - 1 + BAR / 2, y + BAR / 2], color=MUTED, linewidth=0.6)
    axes.barh(y, value.value, left=reached - value.value, height=BAR, color=colour)
    if value.half_width and value.ends:
        ends = [reached - end for end in reversed(value.ends)]
        inside = [min(max(end, 0.0), 1.03 * ideal) for end in ends]  # an end beyond the frame has no stop
        axes.plot(inside, [y, y], color=INK, linewidth=1)
        stops = [end for end, shown in zip(ends, inside) if end == shown]
        axes.plot(stops, [y] * len(stops), linestyle="none", color=INK, marker="|", markersize=5)


def _say(axes: Axes, y: int, text: str) -> None:
    place = ("axes fraction", "data")
    axes.annotate(text.replace("-", "\u2212"), (1, y), xycoords=place, ha="right", va="center")


def batch_times(run: RunSteady, name: str) -> str:
    """Milliseconds of every batch of one run: default cut dashed, detected steady part shaded, levels as lines."""
    seconds, warmup = run.record.batches.seconds, run.record.batches.warmup
    times = [1000 * s for s in seconds]
    usual = sorted(times[warmup:])
    top = 1.5 * usual[int(0.95 * (len(usual) - 1))]
    state = run.state
    with style():
        figure, axes = blank(2.7, 1.55)
        if state.start is not None:
            axes.axvspan(state.start, len(times), color=GAIN, alpha=0.16, linewidth=0)
        axes.axvline(warmup, color=MUTED, linewidth=1, linestyle=(0, (3, 2)))
        inside = [(i, t) for i, t in enumerate(times) if t <= top]
        above = [i for i, t in enumerate(times) if t > top]
        axes.plot(*zip(*inside), linestyle="none", marker="o", markersize=1.8, color=COLOURS[0])
        if above:
            axes.plot(above, [top] * len(above), linestyle="none", marker="^", markersize=4, color=LOSS, clip_on=False)
            place: dict[str, Any] = {"xytext": (-3, -3), "textcoords": "offset points", "ha": "right", "va": "top"}
            axes.annotate(f"highest {max(times):,.0f} ms", (len(times), top), color=MUTED, **place)
        axes.set(xlim=(-0.02 * len(times), len(times)), ylim=(0, top), xlabel="batch", ylabel="ms")
        from matplotlib.ticker import MaxNLocator

        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        set_margins(figure, left=0.5, right=0.08, top=0.14, bottom=0.4)
        return as_svg(figure, name)


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
def style(ink: str = INK, muted: str = MUTED, grid: str = GRID) -> Iterator[None]:
    """matplotlib's settings for these figures.

    Args:
      ink: colour of text.
      muted: of what stands back: axes' labels, marks.
      grid: of lines behind.
    """
    import matplotlib

    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": REPORT_SCHEMA,
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
    with matplotlib.rc_context(settings):
        yield


def blank(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of so many inches with one pair of axes, and nothing behind them."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height))
    figure.patch.set_visible(False)
    axes = figure.add_subplot()
    axes.patch.set_visible(False)
    return figure, axes


def set_margins(figure: Figure, left: float, right: float, top: float, bottom: float) -> None:
    """Sets fixed margins: a layout that is worked out from text widths would draw everything twice.

    Args:
      figure: with one pair of axes.
      left: in inches.
      right: in inches.
      top: in inches.
      bottom: in inches.
    """
    width, height = figure.get_size_inches()
    figure.subplots_adjust(left / width, bottom / height, 1 - right / width, 1 - top / height)


def _draw_line(axes: Axes, series: SeriesSummary, metric: Metric, look: dict[str, Any], shift: float) -> float:
    """Draws one series, moved aside so that intervals of neighbours do not cover each other; returns its top."""
    factor = metric.factor
    points = [(row.row.num_devices, value) for row in series.rows if (value := row.row.metric(metric))]
    x, y = [n + shift for n, _ in points], [factor * value.value for _, value in points]
    axes.plot(x, y, markersize=4.5, linewidth=1.4, label=series.title, **look)
    known = [(at, value.value, value.ends) for at, (_, value) in zip(x, points) if value.half_width and value.ends]
    if known:
        middle = [factor * value for _, value, _ in known]
        low, high = ([factor * abs(ends[i] - value) for _, value, ends in known] for i in (0, 1))
        sides = [low, high]
        at = [place for place, _, _ in known]
        axes.errorbar(at, middle, sides, fmt="none", ecolor=look["color"], elinewidth=1, capsize=2)
    # An interval that is wider than its number is cut at the frame; the table has its ends.
    return max((1.08 * factor * min(2 * v.value, v.high or v.value) for _, v in points), default=0.0)


def _ticks(axes: Axes, counts: Sequence[int]) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.set_xticks([n for n in counts if len(counts) <= 8 or n in (counts[0], counts[-1]) or not n & (n - 1)])
    axes.set_xlim(min(counts, default=0) - 0.25, max(counts, default=1) + 0.25)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    axes.grid(axis="x", visible=False)


def _x_in_thousands(axes: Axes, most: float) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

    ticks = [tick for tick in MaxNLocator(4).tick_values(0, most) if tick <= most]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis="y", visible=False)


def as_svg(figure: Figure, name: str) -> str:
    """The figure's <svg> element: no fixed size, no metadata, ids of its own, the reader's font."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    text = io.StringIO()
    FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*<style[^>]*>.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)  # would style the whole page
    used = set(re.findall(r"(?:url\(#|href=\"#)([^\")]+)", svg))
    svg = re.sub(r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", svg)
    svg = re.sub(r"(url\(#|href=\"#)", rf"\g<1>{name}-", svg)
    svg = re.sub(r"font-family: [^;\"]*", "font-family: inherit", svg)
    view = re.search(r'viewBox="[^"]+"', svg)
    svg = re.sub(r"<svg[^>]*>", f"<svg {view[0] if view else ''}>", svg, count=1)
    return re.sub(r">\s+<", "><", re.sub(r"(\d+\.\d{2})\d+", r"\1", svg))
