"""The picture of links.md: all-reduce bandwidth and time over size with the fitted lines, and the links' bandwidth."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rnn_scaling.links.series import COPY, MEMORY, Series, size_text
from rnn_scaling.links.table import Measurements
from rnn_scaling.reports.pictures import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_LINES = 12
INK, MUTED, GRID = "#1a1d21", "#5b636d", "#d9dde2"


def has_any(results: Measurements) -> bool:
    """False where nothing was measured, or nothing that has a bandwidth."""
    return any(series.points and series.traffic for series in results.series)


def render(results: Measurements, kind: str) -> bytes:
    """The picture as "png" or "svg".

    Raises:
      ValueError: if there is none: see `has_any`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    reduces = [all_reduce for all_reduce in results.all_reduces if all_reduce.points][:MOST_LINES]
    links = [link for link in results.links if link.points and link.traffic]
    panels = [(_busbw, reduces), (_time, reduces)] if reduces else []
    for kind_of_link in (MEMORY, COPY):
        shown = [link for link in links if link.kind == kind_of_link]
        panels += [(_bandwidth, shown)] if shown else []
    if not panels:
        raise ValueError("expected a measurement with a bandwidth, got none")
    with figures.style(ink=INK, muted=MUTED, grid=GRID):
        columns = 2 if len(panels) == 4 else len(panels)
        rows = -(-len(panels) // columns)
        figure = Figure(figsize=(4.6 * columns if columns > 2 else 6 * columns, 4.9 * rows), layout="constrained")
        FigureCanvasAgg(figure)
        for axes, (draw, series) in zip(figure.subplots(rows, columns, squeeze=False).flat, panels):
            draw(axes, series)
            _sizes(axes, series)
            axes.legend(
                loc="upper left", bbox_to_anchor=(0, -0.17), frameon=False, ncols=2, fontsize=8, borderaxespad=0
            )  # fmt: skip
        buffer = io.BytesIO()
        metadata = {"Software": "rnn_scaling"} if kind == "png" else {"Date": None, "Creator": "rnn_scaling"}
        figure.savefig(buffer, format=kind, dpi=130, metadata=metadata)
    return buffer.getvalue()


def _look(index: int) -> dict[str, Any]:
    colours, markers = figures.COLOURS, figures.MARKERS
    return {"color": colours[index % len(colours)], "marker": markers[index // len(colours) % len(markers)]}


def _busbw(axes: Axes, series: Sequence[Series]) -> None:
    for index, each in enumerate(series):
        _line(axes, each, index)
    axes.set(title="all-reduce: bus bandwidth, GB/s (median, quartiles)", ylim=(0, None))


def _bandwidth(axes: Axes, series: Sequence[Series]) -> None:
    for index, each in enumerate(series[:MOST_LINES]):
        _line(axes, each, index)
    what = "host memory" if series[0].kind == MEMORY else "copies"
    of_all = f" (first {MOST_LINES} of {len(series)})" if len(series) > MOST_LINES else ""
    axes.set_yscale("log")
    axes.set(title=f"{what}{of_all}: GB/s (median, quartiles)")
    _plain(axes)


def _line(axes: Axes, series: Series, index: int) -> None:
    """Bandwidth over size with its quartiles."""
    rates = [series.gb_per_s(point) for point in series.points]
    ends = [[rate * p.median_s / quartile for quartile in p.quartiles_s] for rate, p in zip(rates, series.points)]
    look = _look(index)
    axes.plot(series.sizes, rates, markersize=4, linewidth=1.3, label=series.name, **look)
    axes.fill_between(
        series.sizes, [low for _, low in ends], [high for high, _ in ends], color=look["color"], alpha=0.15, linewidth=0
    )


def _time(axes: Axes, series: Sequence[Series]) -> None:
    for index, each in enumerate(series):
        look, line = _look(index), each.fitted()
        axes.plot(each.sizes, [1e6 * t for t in each.medians_s], linestyle="", markersize=4, label=each.name, **look)
        if line is not None and line.holds:
            steps = range(41)  # close enough for a curve: on these axes a line is none
            span = line.to_bytes / line.from_bytes
            fitted = [line.from_bytes * span ** (step / steps[-1]) for step in steps]
            times = [1e6 * line.seconds(size) for size in fitted]
            axes.plot(fitted, times, color=look["color"], linewidth=1.1, linestyle="--")
    axes.set_yscale("log")
    axes.set(title="all-reduce: time, us; dashed: alpha + bytes/beta")
    _plain(axes)


def _plain(axes: Axes) -> None:
    """Numbers instead of powers of ten on a logarithmic axis."""
    from matplotlib.ticker import FuncFormatter, NullLocator

    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_locator(NullLocator())


def _sizes(axes: Axes, series: Sequence[Series]) -> None:
    """Sizes in words below, about six of them."""
    from matplotlib.ticker import NullLocator

    sizes = sorted({size for each in series for size in each.sizes})
    axes.set_xscale("log", base=2)
    step = -(-len(sizes) // 6)
    shown = sizes[::-1][::step][::-1]
    axes.set_xticks(shown, [size_text(size) for size in shown])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("size")
