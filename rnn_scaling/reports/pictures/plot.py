"""Every metric over the number of devices in one picture, as a PNG."""

from __future__ import annotations

import io
import math

from rnn_scaling.records.own_files import REPORT_SCHEMA
from rnn_scaling.reports.pictures import curves, figures
from rnn_scaling.reports.summary import Summary

BESIDE = 3  # panels


def render(summary: Summary) -> bytes:
    """A PNG with a panel for each metric, three beside each other, their legend below; weak and strong scaling apart.

    Raises:
      ValueError: if no series has a rate.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = [series[: figures.MOST_LINES] for _, series in figures.groups(summary)]
    if not shown:
        raise ValueError("expected at least one successful run")
    with figures.style(ink="#1a1d21", muted="#5b636d", grid="#d9dde2"):
        metrics = [figures.drawn(series) for series in shown]
        lines = [math.ceil(len(chosen) / BESIDE) for chosen in metrics]
        heights = [3.4 * count + 0.1 * len(series) for count, series in zip(lines, shown)]
        figure = Figure(figsize=(11, sum(heights)), layout="constrained")
        panels = figure.subfigures(len(shown), 1, squeeze=False, height_ratios=heights)[:, 0]
        for part, series, drawn, count in zip(panels, shown, metrics, lines):
            places = part.subplots(count, BESIDE).flat
            for metric, axes in zip(drawn, places):  # in this order: zip takes no place that has no metric
                curves.draw_lines(axes, series, metric, ideal="#5b636d")
            for axes in places:
                axes.remove()
            handles, labels = part.axes[:2][-1].get_legend_handles_labels()
            part.legend(handles, labels, loc="outside lower left", frameon=False, ncols=2, handlelength=3)
        buffer = io.BytesIO()
        FigureCanvasAgg(figure)
        figure.savefig(buffer, format="png", dpi=130, metadata={"Software": REPORT_SCHEMA})
    return buffer.getvalue()
