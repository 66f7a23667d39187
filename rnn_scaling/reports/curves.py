"""The picture of a scaling report: a panel for each metric, three beside each other."""

from __future__ import annotations

import math

from rnn_scaling.reports.pictures import charts, figures
from rnn_scaling.reports.scaling_data import groups
from rnn_scaling.reports.summary import Summary

BESIDE = 3  # panels


def render(summary: Summary) -> bytes:
    """Return a PNG: the panels of each group, and its legend below them.

    Raises:
      ValueError: If no run measured anything.
    """
    from matplotlib.figure import Figure

    found = groups(summary)
    if not found:
        raise ValueError("expected at least one successful run")
    shown = []
    heights = []
    for group in found:
        panels = [group.chart(metric) for metric in group.drawn]
        panels += filter(None, [group.by_work])
        entries = min(len(group.lines), figures.MOST_LINES)
        shown.append(panels)
        heights.append(3.4 * math.ceil(len(panels) / BESIDE) + 0.1 * entries)
    with figures.style(is_fixed=True):
        figure = Figure(figsize=(11, sum(heights)), layout="constrained")
        parts = figure.subfigures(len(shown), 1, squeeze=False, height_ratios=heights)
        for part, panels in zip(parts[:, 0], shown):
            for k, chart in enumerate(panels, 1):
                axes = part.add_subplot(math.ceil(len(panels) / BESIDE), BESIDE, k)
                charts.draw(axes, chart)
            last = part.axes[:2][-1]
            figures.add_legend(part, last, loc="outside lower left", ncols=2)
        return figures.as_file(figure)
