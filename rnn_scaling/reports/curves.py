"""The picture of a scaling report: a panel for each metric, three in a line."""

from __future__ import annotations

import math

from rnn_scaling.reports.pictures import charts, figures
from rnn_scaling.reports.scaling_data import groups
from rnn_scaling.reports.summary import Summary

PANELS_PER_LINE = 3
WIDTH = 11  # inches
PANEL_HEIGHT = 3.4
LEGEND_ENTRY_HEIGHT = 0.1


def render(summary: Summary) -> bytes:
    """Return a PNG: the panels of each group, and its legend below them.

    Raises:
      ValueError: If no run measured anything.
    """
    from matplotlib.figure import Figure

    measured_groups = groups(summary)
    if not measured_groups:
        raise ValueError("expected at least one successful run")
    panels_of_groups = []
    heights = []
    for group in measured_groups:
        panels = [group.chart(metric) for metric in group.drawn]
        if group.by_work:
            panels.append(group.by_work)
        panels_of_groups.append(panels)
        num_lines = math.ceil(len(panels) / PANELS_PER_LINE)
        num_entries = min(len(group.lines), figures.MOST_LINES)
        heights.append(PANEL_HEIGHT * num_lines + LEGEND_ENTRY_HEIGHT * num_entries)

    with figures.style(is_fixed=True):
        figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
        subfigures = figure.subfigures(
            len(heights), 1, squeeze=False, height_ratios=heights
        )
        for subfigure, panels in zip(subfigures[:, 0], panels_of_groups):
            num_lines = math.ceil(len(panels) / PANELS_PER_LINE)
            for k, chart in enumerate(panels, 1):
                axes = subfigure.add_subplot(num_lines, PANELS_PER_LINE, k)
                charts.draw(axes, chart)
            last = subfigure.axes[:2][-1]
            figures.add_legend(subfigure, last, loc="outside lower left", ncols=2)
        return figures.as_file(figure)
