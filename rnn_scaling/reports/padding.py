"""What padding costs, and what waiting for the tower with the longest sentences does: what --pad_to exchanges."""

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.sections import Columns, Section, grid_of
from rnn_scaling.reports.summary import Summary

ROUNDING = 1e-9  # shares below it are the error of floating point
TITLE = "Padding and imbalance"


def section(summary: Summary) -> Section | None:
    """A line for each row with padding or uneven towers; None if there is none."""
    rows = [row for series in summary.measured for row in series.rows if row.padding or row.imbalance > ROUNDING]
    columns: Columns = {
        "Series": lambda row: summary.row_titles[row.row],
        "Devices": lambda row: str(row.row.num_devices),
        f"{summary.unit.capitalize()}/s": lambda row: plus_minus(row.row.rate, 1),
        "Padding (% of positions)": lambda row: "n/a" if row.padding is None else f"{100 * row.padding:.1f}",
        "Waiting for the longest (% of time)": lambda row: f"{100 * row.imbalance / (1 + row.imbalance):.1f}",
    }
    grid = grid_of("Padding, and waiting for the tower with the longest sentences", columns, rows)
    note = Statement("reading-of-padding", values={"unit": summary.unit})
    return Section(TITLE, (grid,), (note,)) if rows else None
