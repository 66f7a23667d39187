"""The first screen of the page: one table with a line for each series, and one picture beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnn_scaling.analysis.metrics import EFFICIENCY, SPEEDUP
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.page import drawings
from rnn_scaling.reports.page.parts import Figure, figure_of
from rnn_scaling.reports.pictures import curves, figures
from rnn_scaling.reports.summary import SeriesSummary, Summary, devices

FEW = 2  # numbers of devices from which on a line says no more than a dot


@dataclasses.dataclass(frozen=True)
class Line:
    """One series: the id of its details, its name, and a cell for each further column."""

    id: str
    title: str
    cells: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Overview:
    """The table's head, and its lines in groups: weak and strong scaling, or units; one group has no name."""

    head: Sequence[str]
    groups: Sequence[tuple[str, Sequence[Line]]]


def series_id(summary: Summary, series: SeriesSummary) -> str:
    """What the link of a line leads to."""
    return f"series-{summary.series.index(series)}"


def table_of(summary: Summary) -> Overview:
    """Each series on its most devices, beside itself on one; the speedup comes first, so that a phone shows it."""
    counts = {each.largest.row.num_devices for each in summary.measured if each.largest}
    on = f" on {devices(counts.pop())}" if len(counts) == 1 else ""
    unit = summary.unit.capitalize()
    several = [] if on else ["Devices"]
    head = ["Series", *several, f"Speedup{on}", f"Efficiency{on} (%)", f"{unit}/s{on}", f"{unit}/s on 1 device", "Runs"]
    groups = [
        (
            name if len(summary.scalings) > 1 else "",
            [Line(series_id(summary, each), each.title, _cells(each, bool(several))) for each in series],
        )
        for name, series in summary.scalings
    ]
    return Overview(head, groups)


def _cells(series: SeriesSummary, with_devices: bool) -> list[str]:
    row = series.largest
    if row is None:
        return [*(["n/a"] if with_devices else []), *["n/a"] * 4, "none succeeded"]
    base = row.row.baseline
    one = base.rate if base else None
    good = [len(each.good) for each in (base, row.row) if each is not None]
    return [
        *([str(row.row.num_devices)] if with_devices else []),
        plus_minus(row.row.metric(SPEEDUP), SPEEDUP.digits),
        plus_minus(row.efficiency, EFFICIENCY.digits),
        plus_minus(row.row.rate, 1),
        plus_minus(one, 1),
        " and ".join(str(count) for count in dict.fromkeys(good)),
    ]


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
