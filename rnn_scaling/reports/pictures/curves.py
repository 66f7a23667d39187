"""Metrics over the number of devices: a line for each series, with 95 % intervals over processes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.metrics import EFFICIENCY, WORK_PER_EXCHANGE, Metric
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.summary import SeriesSummary, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDEST = (
    2  # an interval counts in the frame from its number / WIDEST to its number x WIDEST
)
NEAR = 0.5  # lowest / highest from which on an axis from 0 would leave half of the picture empty
NEAR_GROWING = 0.8  # the same of what grows with the devices: how much it grows is seen on an axis from 0
BESIDE = 3  # panels
FEW = 2  # up to this many device counts, points have no line between them


@dataclasses.dataclass(frozen=True)
class Frame:
    """The ends of an axis in the unit that is printed; `cuts`: whether an interval goes on beyond one."""

    low: float
    high: float
    cuts: bool

    @property
    def start(self) -> str:
        """What must be said of an axis that does not begin at 0; empty for one that does."""
        return f"axis from {self.low:,.12g}, not from 0" if self.low else ""


def frame(
    values: Sequence[Interval],
    factor: float,
    also: Sequence[float] = (),
    near: float = NEAR,
) -> Frame:
    """An axis on which the numbers are distinct: from 0, or a smaller range if they are close to each other.

    Args:
      also: printed numbers that must be seen too.
      near: lowest / highest from which on the axis does not begin at 0.
    """
    ends = [value.ends or (value.value, value.value) for value in values]
    lows = [
        factor * max(low, value.value / WIDEST) for value, (low, _) in zip(values, ends)
    ]
    highs = [
        factor * min(high, value.value * WIDEST)
        for value, (_, high) in zip(values, ends)
    ]
    low, high = min([*lows, *also], default=0.0), max([*highs, *also], default=1.0)
    if low > near * high:
        low, high = _round_ends(low, high)
    else:
        low, high = 0.0, 1.08 * high or 1.0
    cuts = any(factor * end[0] < low or factor * end[1] > high for end in ends)
    return Frame(low, high, cuts)


def _round_ends(low: float, high: float) -> tuple[float, float]:
    """Round numbers about both, with some room."""
    from matplotlib.ticker import MaxNLocator

    room = 0.06 * (high - low) or 0.02 * high
    ticks = MaxNLocator(5).tick_values(low - room, high + room)
    return max(0.0, float(ticks[0])), float(ticks[-1])


def frame_of(series: Sequence[SeriesSummary], metric: Metric) -> Frame:
    """The vertical axis of `lines`."""
    few = series[: figures.MOST_LINES]
    ideal = _ideal(metric, _counts(few, metric))
    values = [
        value
        for member in few
        for row in member.rows
        if (value := row.row.metric(metric))
    ]
    return frame(
        values, metric.factor, ideal, NEAR if len(set(ideal)) == 1 else NEAR_GROWING
    )


def lines(series: Sequence[SeriesSummary], metric: Metric, name: str = "") -> str:
    """One metric over the number of devices, a line for each series, with 95 % intervals; the ideal dashed."""
    few = series[: figures.MOST_LINES]
    with figures.style():
        figure, axes = figures.blank(4.2, 3.0, entries=len(few) + 2)
        _draw_lines(axes, few, metric)
        figures.add_legend(figure)
        return figures.as_svg(figure, name or metric.name)


def render(summary: Summary) -> bytes:
    """A PNG: a panel for each metric, three beside each other, their legend below; weak and strong scaling apart."""
    from matplotlib.figure import Figure

    shown = [series[: figures.MOST_LINES] for _, series in figures.groups(summary)]
    if not shown:
        raise ValueError("expected at least one successful run")
    with figures.style(is_fixed=True):
        metrics = [figures.drawn(series) for series in shown]
        of_models = [
            summary.has_many_models and bool(work_points(series)) for series in shown
        ]
        lines = [
            math.ceil((len(chosen) + extra) / BESIDE)
            for chosen, extra in zip(metrics, of_models)
        ]
        heights = [
            3.4 * count + 0.1 * len(series) for count, series in zip(lines, shown)
        ]
        figure = Figure(figsize=(11, sum(heights)), layout="constrained")
        panels = figure.subfigures(len(shown), 1, squeeze=False, height_ratios=heights)[
            :, 0
        ]
        for part, series, drawn, count, extra in zip(
            panels, shown, metrics, lines, of_models
        ):
            places = part.subplots(count, BESIDE).flat
            for metric, axes in zip(
                drawn, places
            ):  # in this order: zip takes no place that has no metric
                _draw_lines(axes, series, metric, ideal=figures.THEME[figures.MUTED][1])
            if extra:
                _draw_work(next(places), series, ideal=figures.THEME[figures.MUTED][1])
            for axes in places:
                axes.remove()
            handles, labels = part.axes[:2][-1].get_legend_handles_labels()
            part.legend(
                handles, labels, loc="outside lower left", ncols=2, **figures.LEGEND
            )
        return figures.as_file(figure)


def looks(series: Sequence[SeriesSummary]) -> list[dict[str, str]]:
    """Colour, marker and line of each series; without lines if there are few device counts."""
    counts = {
        row.row.num_devices for member in series for row in member.rows if row.row.rate
    }
    line = {"linestyle": "none"} if len(counts) <= FEW else {}
    return [{**look, **line} for look in figures.looks(series)]


def _draw_lines(
    axes: Axes,
    series: Sequence[SeriesSummary],
    metric: Metric,
    ideal: str = figures.MUTED,
) -> None:
    """Draws one metric over the number of devices, of MOST_LINES series at most."""
    counts, edges = _counts(series, metric), frame_of(series, metric)
    if metric.ideal is not None and counts:
        axes.plot(
            counts,
            _ideal(metric, counts),
            color=ideal,
            linewidth=1,
            linestyle=(0, (2, 2)),
            label="ideal",
        )
    step = 0.05 if len(counts) <= FEW else 0.02
    for k, (member, look) in enumerate(zip(series, looks(series))):
        shift = step * (
            k - (len(series) - 1) / 2
        )  # aside, so that intervals of neighbours do not cover each other
        known = [
            (row.row.num_devices, value)
            for row in member.rows
            if (value := row.row.metric(metric))
        ]
        points = [
            (count + shift, value.scaled(metric.factor)) for count, value in known
        ]
        figures.draw_line(axes, points, member.title, look)
        _draw_cuts(axes, points, edges, look["color"])
    if edges.cuts:
        style: dict[str, Any] = {"linestyle": "none", "marker": "^", "markersize": 4}
        axes.plot(
            [], [], color=ideal, label="interval goes on beyond the frame", **style
        )
    x_label = f"devices (vertical {edges.start})" if edges.start else "devices"
    axes.set(title=metric.caption, xlabel=x_label, ylim=(edges.low, edges.high))
    _ticks(axes, counts)


def work_points(
    series: Sequence[SeriesSummary],
) -> list[tuple[SeriesSummary, float, Interval]]:
    """(model, GFLOP per exchanged MB, efficiency in per cent) of the models that have both, on their most devices."""
    rows = [
        (member, row, row.row.metric(WORK_PER_EXCHANGE))
        for member in series
        if (row := member.largest)
    ]
    factor = WORK_PER_EXCHANGE.factor
    return [
        (member, factor * ratio.value, row.efficiency)
        for member, row, ratio in rows
        if ratio and row.efficiency
    ]


def _draw_work(
    axes: Axes, series: Sequence[SeriesSummary], ideal: str = figures.MUTED
) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    points, looks = work_points(series), dict(zip(series, figures.looks(series)))
    edges = frame([efficiency for *_, efficiency in points], 1, [100.0])
    axes.axhline(100, color=ideal, linewidth=1, linestyle=(0, (2, 2)))
    for member, ratio, efficiency in points:
        figures.draw_line(axes, [(ratio, efficiency)], member.title, looks[member])
    x_label = f"{WORK_PER_EXCHANGE.unit} per exchanged MB" + (
        f" (vertical {edges.start})" if edges.start else ""
    )
    axes.set(
        title=EFFICIENCY.caption,
        xscale="log",
        xlabel=x_label,
        ylim=(edges.low, edges.high),
    )
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    axes.minorticks_off()


def _counts(series: Sequence[SeriesSummary], metric: Metric) -> list[int]:
    return sorted(
        {
            row.row.num_devices
            for member in series
            for row in member.rows
            if row.row.metric(metric)
        }
    )


def _ideal(metric: Metric, counts: Sequence[int]) -> list[float]:
    return (
        [metric.factor * metric.ideal(count) for count in counts]
        if metric.ideal
        else []
    )


def _draw_cuts(
    axes: Axes, points: Sequence[tuple[float, Interval]], edges: Frame, colour: str
) -> None:
    """An arrow at each edge of the frame beyond which an interval goes on."""
    for at, value in points:
        low, high = value.ends or (edges.low, edges.high)
        for edge, marker, is_cut in (
            (edges.low, "v", low < edges.low),
            (edges.high, "^", high > edges.high),
        ):
            if is_cut:
                axes.plot(
                    [at],
                    [edge],
                    color=colour,
                    marker=marker,
                    markersize=4,
                    clip_on=False,
                )


def _ticks(axes: Axes, counts: Sequence[int]) -> None:
    from matplotlib.ticker import FuncFormatter

    axes.set_xticks(
        [
            n
            for n in counts
            if len(counts) <= 8 or n in (counts[0], counts[-1]) or not n & (n - 1)
        ]
    )
    axes.set_xlim(min(counts, default=0) - 0.25, max(counts, default=1) + 0.25)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    axes.grid(axis="x", visible=False)
