"""Draw the picture of links.md: bandwidth and time over size, with the fitted lines.

`measuring` writes it next to links.md; it shows the same `Measurements`.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rnn_scaling.links.series import COPY, MEMORY, Series
from rnn_scaling.links.table import Measurements
from rnn_scaling.system.files.terminal import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_LINES = 12
_STYLE: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "links"}
_STYLE |= {"axes.grid": True, "grid.alpha": 0.4, "axes.titlesize": 10}


def has_any(results: Measurements) -> bool:
    """Return whether any series has a bandwidth."""
    return any(series.points and series.traffic for series in results.series)


def render(results: Measurements, kind: str) -> bytes:
    """Draw the picture as "png" or "svg"; `has_any` must be true of the results."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = _choose_panels(results)
    with matplotlib.rc_context(_STYLE):
        columns = 2 if len(panels) == 4 else len(panels)
        rows = -(-len(panels) // columns)
        width = 4.6 * columns if columns > 2 else 6 * columns
        figure = Figure(figsize=(width, 4.9 * rows), layout="constrained")
        FigureCanvasAgg(figure)
        all_axes = figure.subplots(rows, columns, squeeze=False).flat
        for axes, panel in zip(all_axes, panels):
            _draw_panel(axes, panel)
        buffer = io.BytesIO()
        metadata = (
            {"Software": "rnn_scaling"}
            if kind == "png"
            else {"Date": None, "Creator": "rnn_scaling"}
        )
        figure.savefig(buffer, format=kind, dpi=130, metadata=metadata)
    return buffer.getvalue()


class _Panel(NamedTuple):
    """One pair of axes of the picture.

    Attributes:
      scale: The scale of the vertical axis: "linear" or "log".
      draw: Draws a series with a style on the axes.
    """

    title: str
    scale: str
    draw: Callable[[Axes, Series, dict[str, Any]], None]
    series: list[Series]


def _draw_panel(axes: Axes, panel: _Panel) -> None:
    """Draw the first series of a panel, its title and its legend."""
    for index, series in enumerate(panel.series[:_MAX_LINES]):
        style = {
            "color": f"C{index % 10}",
            "marker": "os^D"[index // 10],
            "markersize": 4,
        }
        panel.draw(axes, series, style)
    title = panel.title
    if len(panel.series) > _MAX_LINES:
        title += f" (first {_MAX_LINES} of {len(panel.series)})"
    axes.set(title=title, xlabel="size", yscale=panel.scale)
    _label_axes(axes, panel.series)
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(0, -0.17),
        frameon=False,
        ncols=2,
        fontsize=8,
    )


def _choose_panels(results: Measurements) -> list[_Panel]:
    """Return the panels that have a series."""
    reduces = [all_reduce for all_reduce in results.all_reduces if all_reduce.points]
    links = [link for link in results.links if link.points and link.traffic]
    memory = [link for link in links if link.kind == MEMORY]
    copies = [link for link in links if link.kind == COPY]
    panels = [
        _Panel(
            "all-reduce: bus bandwidth, GB/s (median, quartiles)",
            "linear",
            _draw_bandwidth,
            reduces,
        ),
        _Panel(
            "all-reduce: time, us; dashed: alpha + bytes/beta",
            "log",
            _draw_times,
            reduces,
        ),
        _Panel("host memory: GB/s (median, quartiles)", "log", _draw_bandwidth, memory),
        _Panel("copies: GB/s (median, quartiles)", "log", _draw_bandwidth, copies),
    ]
    return [panel for panel in panels if panel.series]


def _draw_bandwidth(axes: Axes, series: Series, style: dict[str, Any]) -> None:
    """Draw the median bandwidths, and a band from quartile to quartile."""
    rates = np.array([series.gb_per_s(point) for point in series.points])
    low_rates = rates * [p.median_s / p.quartiles_s[1] for p in series.points]
    high_rates = rates * [p.median_s / p.quartiles_s[0] for p in series.points]
    axes.plot(series.sizes, rates, linewidth=1.3, label=series.name, **style)
    axes.fill_between(
        series.sizes,
        low_rates,
        high_rates,
        color=style["color"],
        alpha=0.15,
        linewidth=0,
    )


def _draw_times(axes: Axes, series: Series, style: dict[str, Any]) -> None:
    """Draw the median times, and the fitted line if it holds."""
    axes.plot(
        series.sizes,
        [1e6 * t for t in series.medians_s],
        linestyle="",
        label=series.name,
        **style,
    )
    line = series.fit_medians()
    if line is not None and line.holds:
        # A line is a curve on these axes.
        sizes = np.geomspace(line.from_bytes, line.to_bytes, 41)
        times = [1e6 * line.seconds(size) for size in sizes]
        axes.plot(sizes, times, color=style["color"], linewidth=1.1, linestyle="--")


def _label_axes(axes: Axes, series: Sequence[Series]) -> None:
    """Label the axes with plain numbers, and with about six sizes such as "64 KiB"."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    sizes = sorted(set(itertools.chain.from_iterable(line.sizes for line in series)))
    ticks = sizes[:: -(-len(sizes) // 6)]
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, list(map(format_bytes, ticks)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
