"""The first screen of the page: what the lines of its table lead to, and the picture beside it."""

from __future__ import annotations

from collections.abc import Sequence

from rnn_scaling.analysis.metrics import EFFICIENCY
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.page import drawings
from rnn_scaling.reports.page.parts import Figure, figure_of
from rnn_scaling.reports.pictures import curves, figures
from rnn_scaling.reports.summary import SeriesSummary, Summary

FEW = 2  # numbers of devices from which on a line says no more than a dot


def series_id(summary: Summary, series: SeriesSummary) -> str:
    """What the link of a line leads to."""
    return f"series-{summary.positions[id(series)]}"


def pictures(summary: Summary) -> list[tuple[str, Figure, list[drawings.Key]]]:
    """(its name, efficiency as a picture, legend) of each kind of scaling that was measured on several devices."""
    groups = figures.groups(summary)
    drawn = []
    for k, (name, series) in enumerate(groups):
        scaled = [each for each in series if each.largest and each.largest.row.num_devices > 1 and each.largest.loss]
        if scaled:
            group = name if len(groups) > 1 else ""
            drawn.append((group, *_picture(scaled, f"glance-{k}", group)))
    return drawn


def is_curve(series: Sequence[SeriesSummary]) -> bool:
    """Whether the picture of the first screen is a line over devices; on two numbers of devices it is a dot."""
    return len({row.row.num_devices for each in series for row in each.rows if row.row.rate}) > FEW


def _picture(series: Sequence[SeriesSummary], name: str, group: str) -> tuple[Figure, list[drawings.Key]]:
    if is_curve(series):
        frame = curves.frame_of(series, EFFICIENCY)
        figure = drawings.curve(series, EFFICIENCY, name, group)
        return figure, [*drawings.swatches(series), *drawings.marks(frame)]
    title, frame = drawings.titled(curves.dots_title(series), group), curves.dots_frame(series)
    said = "; ".join(f"{each.title}: {_efficiency(each)}" for each in series[: figures.MOST_LINES])
    about = f"A dot for each series. {said}. {frame.sentence}"
    return figure_of(curves.dots(series, name), name, title, about), drawings.marks(frame)


def _efficiency(series: SeriesSummary) -> str:
    return f"{plus_minus(series.largest.efficiency, EFFICIENCY.digits)} %" if series.largest else "n/a"
