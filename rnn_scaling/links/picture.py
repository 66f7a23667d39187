"""The picture of links.md: all-reduce bandwidth and time over size with the fitted lines, and the links' bandwidth."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rnn_scaling.links.series import COPY, MEMORY, Series, size_text
from rnn_scaling.links.table import Measurements

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LINES = 12
STYLE: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "links"}
STYLE |= {"axes.grid": True, "grid.alpha": 0.4, "axes.titlesize": 10}


def has_any(results: Measurements) -> bool:
    """False where nothing was measured, or nothing that has a bandwidth."""
    return any(series.points and series.traffic for series in results.series)


def render(results: Measurements, kind: str) -> bytes:
    """The picture as "png" or "svg", of results that have one: see `has_any`."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = _panels(results)
    with matplotlib.rc_context(STYLE):
        columns = 2 if len(panels) == 4 else len(panels)
        rows = -(-len(panels) // columns)
        figure = Figure(
            figsize=(4.6 * columns if columns > 2 else 6 * columns, 4.9 * rows),
            layout="constrained",
        )
        FigureCanvasAgg(figure)
        for axes, (title, scale, draw, series) in zip(
            figure.subplots(rows, columns, squeeze=False).flat, panels
        ):
            for index, line in enumerate(series[:MOST_LINES]):
                draw(
                    axes,
                    line,
                    {
                        "color": f"C{index % 10}",
                        "marker": "os^D"[index // 10],
                        "markersize": 4,
                    },
                )
            shown = (
                f" (first {MOST_LINES} of {len(series)})"
                if len(series) > MOST_LINES
                else ""
            )
            axes.set(title=title + shown, xlabel="size", yscale=scale)
            _scale(axes, series)
            axes.legend(
                loc="upper left",
                bbox_to_anchor=(0, -0.17),
                frameon=False,
                ncols=2,
                fontsize=8,
            )
        buffer = io.BytesIO()
        metadata = (
            {"Software": "rnn_scaling"}
            if kind == "png"
            else {"Date": None, "Creator": "rnn_scaling"}
        )
        figure.savefig(buffer, format=kind, dpi=130, metadata=metadata)
    return buffer.getvalue()


def _panels(
    results: Measurements,
) -> list[
    tuple[str, str, Callable[[Axes, Series, dict[str, Any]], None], list[Series]]
]:
    """Title, scale of the vertical axis, what draws a series, and the series."""
    reduces = [all_reduce for all_reduce in results.all_reduces if all_reduce.points]
    drawn = [link for link in results.links if link.points and link.traffic]
    memory, copies = (
        [link for link in drawn if link.kind == kind] for kind in (MEMORY, COPY)
    )
    panels = [
        (
            "all-reduce: bus bandwidth, GB/s (median, quartiles)",
            "linear",
            _bandwidth,
            reduces,
        ),
        ("all-reduce: time, us; dashed: alpha + bytes/beta", "log", _time, reduces),
        ("host memory: GB/s (median, quartiles)", "log", _bandwidth, memory),
        ("copies: GB/s (median, quartiles)", "log", _bandwidth, copies),
    ]
    return [panel for panel in panels if panel[3]]


def _bandwidth(axes: Axes, series: Series, look: dict[str, Any]) -> None:
    rates = np.array([series.gb_per_s(point) for point in series.points])
    slow, fast = (
        rates * [p.median_s / p.quartiles_s[end] for p in series.points]
        for end in (1, 0)
    )
    axes.plot(series.sizes, rates, linewidth=1.3, label=series.name, **look)
    axes.fill_between(
        series.sizes, slow, fast, color=look["color"], alpha=0.15, linewidth=0
    )


def _time(axes: Axes, series: Series, look: dict[str, Any]) -> None:
    axes.plot(
        series.sizes,
        [1e6 * t for t in series.medians_s],
        linestyle="",
        label=series.name,
        **look,
    )
    line = series.fitted()
    if line is not None and line.holds:
        sizes = np.geomspace(
            line.from_bytes, line.to_bytes, 41
        )  # a line is a curve on these axes
        times = [1e6 * line.seconds(size) for size in sizes]
        axes.plot(sizes, times, color=look["color"], linewidth=1.1, linestyle="--")


def _scale(axes: Axes, series: Sequence[Series]) -> None:
    """Plain numbers, and about six sizes in words."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    sizes = sorted({size for line in series for size in line.sizes})
    shown = sizes[:: -(-len(sizes) // 6)]
    axes.set_xscale("log", base=2)
    axes.set_xticks(shown, [size_text(size) for size in shown])
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
