"""The picture of a scaling report: a panel for each metric, three in a line.

`registry.REPORTS` names this module; `report_files` calls `render`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rnn_scaling.analysis.metrics import EFFICIENCY, SPEEDUP
from rnn_scaling.reports.pictures import charts, figures
from rnn_scaling.reports.pictures.charts import Chart
from rnn_scaling.reports.scaling_data import Group, list_groups
from rnn_scaling.reports.summary import Summary

_PANELS_PER_LINE = 3
WIDTH = 11  # inches
_PANEL_HEIGHT = 3.4
_LEGEND_ENTRY_HEIGHT = 0.1
_FLOPS = "flops_per_second"


def render(summary: Summary) -> bytes:
    """Return a PNG: the panels of each group, and its legend below them.

    Raises:
      ValueError: If no run measured anything.
    """
    from matplotlib.figure import Figure

    panels_of_groups = [
        (group, _choose_panels(group)) for group in list_groups(summary)
    ]
    if not panels_of_groups:
        raise ValueError("expected at least one successful run")
    heights = [
        _choose_height_inches(group, panels) for group, panels in panels_of_groups
    ]
    with figures.apply_style(is_fixed=True):
        figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
        subfigures = figure.subfigures(
            len(heights), 1, squeeze=False, height_ratios=heights
        )
        for subfigure, (_, panels) in zip(subfigures[:, 0], panels_of_groups):
            for k, chart in enumerate(panels):
                axes = subfigure.add_subplot(
                    _count_lines(panels), _PANELS_PER_LINE, k + 1
                )
                charts.draw(axes, chart, has_names=k % _PANELS_PER_LINE == 0)
            figures.add_legend(subfigure, columns=2, place="outside ")
        return figures.draw_to_file(figure)


def _count_lines(panels: Sequence[Chart]) -> int:
    return math.ceil(len(panels) / _PANELS_PER_LINE)


def _choose_height_inches(group: Group, panels: Sequence[Chart]) -> float:
    """Return the inches of the panels and the legend of a group."""
    num_entries = min(len(group.lines), figures.MAX_LINES)
    panel_height = _PANEL_HEIGHT
    if any(panel.has_rows for panel in panels):
        panel_height = max(2.0, 1.0 + charts.ROW_INCHES * num_entries)
    return panel_height * _count_lines(panels) + _LEGEND_ENTRY_HEIGHT * num_entries


def _choose_panels(group: Group) -> list[Chart]:
    """Return the charts of a group.

    Rows of two numbers of devices have no panel for a metric that follows from another
    one: a speedup from the efficiency, and operations per second from the rate.
    """
    panels = [group.chart(metric) for metric in group.picture_metrics]
    names = {panel.metric.name for panel in panels}
    if panels and all(panel.has_rows for panel in panels):
        redundant = set()
        if EFFICIENCY.name in names:
            redundant.add(SPEEDUP.name)
        if any(name.endswith("s_per_second") and name != _FLOPS for name in names):
            redundant.add(_FLOPS)
        panels = [panel for panel in panels if panel.metric.name not in redundant]
        # The efficiency comes first, as in the table.
        panels.sort(key=lambda panel: panel.metric.name != EFFICIENCY.name)
    if group.efficiency_over_work:
        panels.append(group.efficiency_over_work)
    return panels
