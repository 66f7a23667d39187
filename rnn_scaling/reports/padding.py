"""What padding costs, and what waiting for the tower with the longest sentences does: what --pad_to exchanges."""

from __future__ import annotations

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.sections import Grid, Section
from rnn_scaling.reports.summary import Summary

ROUNDING = 1e-9  # shares below it are the error of floating point
TITLE = "Padding and imbalance"


def section(summary: Summary) -> Section | None:
    """A line for each row with padding or uneven towers; None if there is none."""
    head = ["Series", "Devices", f"{summary.unit.capitalize()}/s", "Padding (% of positions)"]
    lines = [
        [
            series.title,
            str(row.row.num_devices),
            plus_minus(row.row.rate, 1),
            "n/a" if row.padding is None else f"{100 * row.padding:.1f}",
            f"{100 * row.imbalance / (1 + row.imbalance):.1f}",
        ]
        for series in summary.measured
        for row in series.rows
        if row.padding or row.imbalance > ROUNDING
    ]
    caption = "Padding, and waiting for the tower with the longest sentences"
    grid = Grid(caption, [*head, "Waiting for the longest (% of time)"], lines)
    note = Statement("reading-of-padding", values={"unit": summary.unit})
    return Section(TITLE, (grid,), (note,)) if lines else None
