"""Words/s, speedup and efficiency over the number of devices in one picture, as a PNG."""

from __future__ import annotations

import io

from rnn_scaling.reports import figures
from rnn_scaling.reports.folder import SCHEMA
from rnn_scaling.reports.summary import Summary


def render(summary: Summary) -> bytes:
    """A PNG with three panels and their legend below.

    Raises:
      ValueError: if no series has a rate.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = summary.measured[: figures.MOST_LINES]
    if not shown:
        raise ValueError("expected at least one successful run")
    with figures.style(ink="#1a1d21", muted="#5b636d", grid="#d9dde2"):
        figure = Figure(figsize=(11, 3.4 + 0.1 * len(shown)), layout="constrained")
        for axes, metric in zip(figure.subplots(1, len(figures.METRICS)), figures.METRICS):
            figures.draw_lines(axes, shown, metric, ideal="#5b636d")
        handles, labels = figure.axes[1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower left", frameon=False, ncols=2, handlelength=3)
        buffer = io.BytesIO()
        FigureCanvasAgg(figure)
        figure.savefig(buffer, format="png", dpi=130, metadata={"Software": SCHEMA})
    return buffer.getvalue()
