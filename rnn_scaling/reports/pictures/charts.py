"""Draw the lines of an explorer as a static picture: one metric over an axis."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.reports.explorer import Axis, Line, Mark, Metric, Point
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.pictures import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# An interval counts in the frame from its number / WIDEST to its number x WIDEST.
WIDEST = 2
# Lowest / highest number from which an axis does not begin at 0: of what is constant in
# the ideal case, and of what grows with the devices, whose growth is seen from 0.
NEAR = 0.5
NEAR_GROWING = 0.8
LOG_FROM = 16  # largest / smallest place from which axes are logarithmic
FEW = 2  # up to this many places, points have no line between them
MOST_TICKS = 8
MOST_NAMED = 40  # numbers of a line that are in the description


def ends_of(value: Interval) -> tuple[float, float]:
    return value.ends or (value.value, value.value)


def frame(
    values: Sequence[Interval], ideals: Sequence[float], near: float
) -> tuple[float, float]:
    """Return the ends of an axis: from 0, or a smaller range if numbers are close."""
    lows = list(ideals)
    highs = list(ideals)
    for value in values:
        low, high = ends_of(value)
        lows.append(max(low, value.value / WIDEST))
        highs.append(min(high, value.value * WIDEST))
    low = min(lows, default=0.0)
    high = max(highs, default=1.0)
    if low <= near * high:
        return 0.0, 1.08 * high or 1.0
    room = 0.06 * (high - low) or 0.02 * high
    return low - room, high + room


@dataclasses.dataclass(frozen=True)
class Chart:
    """One metric of the first lines over an axis.

    ideal: What perfect scaling gives at a place; None: as the metric says.
    """

    metric: Metric
    axis: Axis
    lines: Sequence[Line]
    ideal: Callable[[float], float | None] | None = None
    ideal_title: str = "ideal"
    predicted_title: str = "predicted"
    marks: Sequence[Mark] = ()

    def points(self, line: Line) -> list[tuple[float, Interval, Point]]:
        """Return (place, number, point) of each point that has both numbers."""
        found = []
        for point in line.points:
            place: Any = point.x.get(self.axis.name)
            if self.axis.kind == "metric" and self.axis.name in point.values:
                place = point.values[self.axis.name].value
            if place is not None and self.metric.name in point.values:
                number = point.values[self.metric.name]
                found.append((self.place_of(place), number, point))
        return found

    def place_of(self, place: Any) -> float:
        return self.axis.order.index(place) if self.axis.order else place

    def name_of(self, place: float) -> str:
        return self.axis.order[int(place)] if self.axis.order else f"{place:,.12g}"

    @functools.cached_property
    def drawn(self) -> list[tuple[Line, list[tuple[float, Interval, Point]]]]:
        return [(line, self.points(line)) for line in self.lines[: figures.MOST_LINES]]

    @functools.cached_property
    def places(self) -> list[float]:
        return sorted({place for _, points in self.drawn for place, *_ in points})

    @functools.cached_property
    def values(self) -> list[Interval]:
        return [number for _, points in self.drawn for _, number, _ in points]

    @functools.cached_property
    def ideal_places(self) -> list[float]:
        """Every place, or the first and the last of many."""
        is_few = len(self.places) <= MOST_NAMED
        return self.places if is_few else [self.places[0], self.places[-1]]

    @functools.cached_property
    def ideals(self) -> list[float]:
        """The ideal at these places; empty if there is none."""
        ideal = self.ideal or self.metric.ideal_at
        found = map(ideal, self.ideal_places)
        return [value for value in found if value is not None]

    @property
    def is_log(self) -> bool:
        """Whether the horizontal axis is logarithmic."""
        is_number = self.axis.kind in ("number", "metric") and bool(self.places)
        return is_number and self.places[-1] > LOG_FROM * self.places[0] > 0

    @property
    def is_log_y(self) -> bool:
        """Whether the vertical axis is logarithmic."""
        numbers = [value.value for value in self.values]
        if self.axis.kind == "amount":
            return bool(numbers) and max(numbers) > LOG_FROM * min(numbers) > 0
        return self.is_log and len(set(self.ideals)) > 1

    @functools.cached_property
    def frame(self) -> tuple[float, float]:
        """The ends of the vertical axis."""
        if self.is_log_y:
            numbers = [value.value for value in self.values] + self.ideals
            return min(numbers) / 3, 1.4 * max(numbers)
        near = NEAR if len(set(self.ideals)) == 1 else NEAR_GROWING
        return frame(self.values, self.ideals, near)

    @property
    def notes(self) -> list[str]:
        """What a reader must know about the vertical axis."""
        low, high = self.frame
        notes = []
        if low and not self.is_log_y:
            notes.append(f"axis from {low:,.4g}, not from 0")
        ends = map(ends_of, self.values)
        if any(end[0] < low or end[1] > high for end in ends):
            notes.append("intervals go on beyond the frame")
        return notes

    @property
    def description(self) -> str:
        """The numbers as text, for readers who do not see the picture."""
        parts = [f"Each series over {self.axis.title}."]
        for line, points in self.drawn:
            numbers = []
            for place, number, point in points:
                source = f" ({self.predicted_title})" if point.is_predicted else ""
                shown = plus_minus(number, self.metric.digits)
                numbers.append(f"{shown} on {self.name_of(place)}{source}")
            if len(numbers) > MOST_NAMED:
                numbers = [f"from {numbers[0]} to {numbers[-1]}"]
            if numbers:
                parts.append(f"{line.title}: {', '.join(numbers)}.")
        return " ".join([*parts, "; ".join(self.notes).capitalize()])


def draw(axes: Axes, chart: Chart) -> None:
    """Draw the chart, its title and its labels."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

    muted = figures.colour(figures.MUTED)
    dashed: dict[str, Any] = {"color": muted, "linewidth": 1, "linestyle": (0, (2, 2))}
    if chart.ideals:
        axes.plot(chart.ideal_places, chart.ideals, label=chart.ideal_title, **dashed)
    for k, (line, _) in enumerate(chart.drawn):
        # Aside, so that intervals of neighbours do not cover each other.
        aside = 0.0
        if chart.axis.kind == "number" and not chart.is_log:
            aside = (k - (len(chart.drawn) - 1) / 2) * (
                0.05 if len(chart.places) <= FEW else 0.02
            )
        _draw_line(axes, chart, line, aside)
    for mark in chart.marks:
        if mark.axis == chart.axis.name:
            place = chart.place_of(mark.at)
            axes.axvline(place, **dashed)
            axes.annotate(
                mark.text,
                (place, 1),
                xycoords=("data", "axes fraction"),
                fontsize=7,
                va="top",
            )
    if chart.is_log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    notes = f" (vertical: {'; '.join(chart.notes)})" if chart.notes else ""
    axes.set(
        title=chart.metric.caption, xlabel=chart.axis.title + notes, ylim=chart.frame
    )
    readable = FuncFormatter(lambda value, _: f"{value:,.12g}")
    if chart.is_log:
        axes.set_xscale("log", base=2)
    if chart.axis.kind in ("metric", "amount"):
        axes.xaxis.set_major_formatter(readable)
        if not chart.is_log:
            axes.xaxis.set_major_locator(MaxNLocator(5))
    else:
        ticks = chart.places[:: -(len(chart.places) // MOST_TICKS + 1)]
        axes.set_xticks(ticks, list(map(chart.name_of, ticks)))
        if chart.axis.order:
            axes.tick_params(axis="x", rotation=30, labelsize=6)
        axes.grid(axis="x", visible=False)
    axes.yaxis.set_major_formatter(readable)
    axes.minorticks_off()


def _draw_line(axes: Axes, chart: Chart, line: Line, aside: float) -> None:
    """Draw points with their intervals, and the intervals of predicted ones as a band."""
    points = chart.points(line)
    places = [place + aside for place, *_ in points]
    numbers = [number.value for _, number, _ in points]
    look: dict[str, Any] = {
        "color": figures.COLOURS[line.colour % len(figures.COLOURS)],
        "marker": figures.MARKERS[line.shape % len(figures.MARKERS)],
        "linestyle": figures.STYLES[line.shape % len(figures.STYLES)],
        "markersize": 4.5,
        "linewidth": 1.4,
    }
    if len(chart.places) <= FEW or chart.axis.kind == "metric":
        look["linestyle"] = "none"
    if chart.axis.kind == "amount":
        look["marker"] = "none"
    if any(point.is_predicted for *_, point in points):
        low, high = chart.frame
        ends = [ends_of(number) for _, number, _ in points]
        axes.fill_between(
            places,
            [max(low, end) for end, _ in ends],
            [min(high, end) for _, end in ends],
            color=look["color"],
            alpha=0.18,
            linewidth=0,
            label="95 % interval",
        )
        hollow = {**look, "markerfacecolor": "none", "label": chart.predicted_title}
        axes.plot(places, numbers, **hollow)
        points = [each for each in points if not each[-1].is_predicted]
        look["linestyle"] = "none"
    across = [point.values.get(chart.axis.name) for *_, point in points]
    axes.errorbar(
        [place + aside for place, *_ in points],
        [number.value for _, number, _ in points],
        _sides([number for _, number, _ in points]),
        _sides([value for value in across if value]),
        label=figures.in_legend(line.title),
        capsize=2,
        elinewidth=1,
        **look,
    )


def _sides(values: Sequence[Interval]) -> list[list[float]] | None:
    """Return the lengths of intervals below and above their numbers; None without any."""
    if not any(value.ends for value in values):
        return None
    below = [value.value - ends_of(value)[0] for value in values]
    above = [ends_of(value)[1] - value.value for value in values]
    return [below, above]


def svg(chart: Chart, name: str) -> str:
    """Return the chart with its legend as SVG; `name` begins its ids."""
    with figures.style():
        return figures.as_svg(_figure(chart, 4.2, 3.0), name)


def png(chart: Chart) -> bytes:
    """Return the chart with its legend as a PNG file."""
    with figures.style(is_fixed=True):
        return figures.as_file(_figure(chart, 8.0, 4.2))


def _figure(chart: Chart, width: float, height: float) -> Any:
    is_predicted = any(point.is_predicted for *_, point in chart.points(chart.lines[0]))
    entries = len(chart.drawn) + bool(chart.ideals) + 2 * is_predicted
    figure, axes = figures.blank(width, height, entries)
    draw(axes, chart)
    figures.add_legend(figure, axes)
    return figure
