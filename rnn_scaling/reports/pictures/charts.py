"""Draw the lines of an explorer as a static picture: one metric over an axis.

Callers make a `Chart` from lines of `explorer`; nothing here reads records.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.interval_kinds import Basis
from rnn_scaling.analysis.metrics import Metric
from rnn_scaling.reports.explorer import Axis, Line, Mark, Point
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.sections import explain_numbers
from rnn_scaling.reports.wording import format_interval, format_marks, write_sentence

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The frame contains an interval from its number / _MAX_FRAME_RATIO to its number x
# _MAX_FRAME_RATIO.
_MAX_FRAME_RATIO = 2
# An axis begins at 0 unless lowest / highest number exceeds this. Numbers that grow with
# the devices have a higher limit, because their growth is judged by the distance from 0.
CLOSE_RATIO = 0.5
_CLOSE_RATIO_OF_GROWING = 0.8
_LOG_FROM = 16  # largest / smallest position from which axes are logarithmic
_MAX_UNJOINED = 2  # up to this many positions, points have no line between them
ROW_INCHES = 0.4  # height of a row
_ROW_SHIFT = 0.12  # part of a row between the points of two positions
_NAME_SHIFT = 0.34  # part of a row between its points and its name above
# From a point to its mark, in typographic points.
_MARK_ABOVE = (3.0, 2.0)
_MARK_BELOW = (3.0, -9.0)
_NOTE_INCHES = 0.16  # height of a line below the axis
_MAX_TICKS = 8
_MAX_NUMBERS = 40  # numbers of a line that are in the description


def _list_interval_ends(value: Interval) -> tuple[float, float]:
    return value.ends or (value.value, value.value)


def choose_frame(
    values: Sequence[Interval], ideals: Sequence[float], close_ratio: float
) -> tuple[float, float]:
    """Return the ends of an axis: from 0, or a smaller range if numbers are close."""
    lows = list(ideals)
    highs = list(ideals)
    for value in values:
        low, high = _list_interval_ends(value)
        lows.append(max(low, value.value / _MAX_FRAME_RATIO))
        highs.append(min(high, value.value * _MAX_FRAME_RATIO))
    low = min(lows, default=0.0)
    high = max(highs, default=1.0)
    if low <= close_ratio * high:
        return 0.0, 1.08 * high or 1.0
    room = 0.06 * (high - low) or 0.02 * high
    return low - room, high + room


class LocatedPoint(NamedTuple):
    """A point with its numbers on both axes of a chart."""

    position: float  # position on the axis
    number: Interval  # value of the metric
    point: Point


class LocatedLine(NamedTuple):
    """A line with the points that a chart shows of it."""

    line: Line
    points: Sequence[LocatedPoint]


@dataclasses.dataclass(frozen=True)
class Chart:
    """One metric of the first lines over an axis.

    Attributes:
      ideal: Returns the number that perfect scaling gives at a position. If it is None,
        the metric's ideal is drawn.
    """

    metric: Metric
    axis: Axis
    lines: Sequence[Line]
    ideal: Callable[[float], float | None] | None = None
    ideal_title: str = "ideal"
    predicted_title: str = "predicted"
    marks: Sequence[Mark] = ()

    def points(self, line: Line) -> list[LocatedPoint]:
        """Return the points that have a number on both axes."""
        located_points = []
        for point in line.points:
            x: Any = point.x.get(self.axis.name)
            if self.axis.kind == "metric" and self.axis.name in point.values:
                x = point.values[self.axis.name].value
            if x is not None and self.metric.name in point.values:
                number = point.values[self.metric.name]
                located_points.append(LocatedPoint(self.position(x), number, point))
        return located_points

    def position(self, x: Any) -> float:
        """Return the number on the axis of a value, which may be a name."""
        return self.axis.order.index(x) if self.axis.order else x

    def tick_label(self, position: float) -> str:
        """Return the value of a position as text."""
        if self.axis.order:
            return self.axis.order[int(position)]
        return f"{position:,.12g}"

    @functools.cached_property
    def series_points(self) -> list[LocatedLine]:
        """The lines that are drawn, with their points."""
        lines = self.lines[: figures.MAX_LINES]
        return [LocatedLine(line, self.points(line)) for line in lines]

    @functools.cached_property
    def positions(self) -> list[float]:
        """The positions of all points, without repetitions, in their order."""
        return sorted({located.position for located in self._all_points})

    @functools.cached_property
    def values(self) -> list[Interval]:
        """The numbers of the points that are drawn."""
        values: list[Interval] = []
        lines = self.row_points if self.has_rows else self.series_points
        for _, points in lines:
            values += [located.number for located in points]
        return values

    @functools.cached_property
    def has_rows(self) -> bool:
        """Whether each line is a row, because it has few numbers of devices."""
        is_predicted = any(located.point.is_predicted for located in self._all_points)
        is_few = 0 < len(self.positions) <= _MAX_UNJOINED
        return self.axis.kind == "number" and is_few and not is_predicted

    @property
    def _all_points(self) -> list[LocatedPoint]:
        all_points: list[LocatedPoint] = []
        for _, points in self.series_points:
            all_points += points
        return all_points

    @functools.cached_property
    def row_points(self) -> list[LocatedLine]:
        """The points of each row.

        A speedup of 1 on one device is a definition, so it is not drawn next to measured
        numbers.
        """
        measured_lines = []
        for line, points in self.series_points:
            measured_points = [
                located
                for located in points
                if located.number.kind.basis is not Basis.DEFINITION
            ]
            measured_lines.append(LocatedLine(line, measured_points))
        has_measured = any(points for _, points in measured_lines)
        return measured_lines if has_measured else self.series_points

    @functools.cached_property
    def ideal_positions(self) -> list[float]:
        """Every position, or the first and the last of many; in rows only the last."""
        if self.has_rows:
            return self.positions[-1:]
        if len(self.positions) <= _MAX_NUMBERS:
            return self.positions
        return [self.positions[0], self.positions[-1]]

    @functools.cached_property
    def ideals(self) -> list[float]:
        """The ideal at these positions; empty if the chart has no ideal."""
        ideals = map(self.ideal or self.metric.ideal_value, self.ideal_positions)
        return [value for value in ideals if value is not None]

    @property
    def is_log(self) -> bool:
        """Whether the horizontal axis is logarithmic."""
        is_number = self.axis.kind in ("number", "metric") and bool(self.positions)
        return is_number and self.positions[-1] > _LOG_FROM * self.positions[0] > 0

    @property
    def is_log_y(self) -> bool:
        """Whether the vertical axis is logarithmic."""
        numbers = [value.value for value in self.values]
        if self.axis.kind == "amount":
            return bool(numbers) and max(numbers) > _LOG_FROM * min(numbers) > 0
        return self.is_log and len(set(self.ideals)) > 1

    @functools.cached_property
    def frame(self) -> tuple[float, float]:
        """The ends of the vertical axis."""
        if self.is_log_y:
            numbers = [value.value for value in self.values] + self.ideals
            return min(numbers) / 3, 1.4 * max(numbers)
        is_constant = len(set(self.ideals)) == 1
        close_ratio = CLOSE_RATIO if is_constant else _CLOSE_RATIO_OF_GROWING
        return choose_frame(self.values, self.ideals, close_ratio)

    @property
    def notes(self) -> list[str]:
        """Warnings about the range of the axis of the numbers, and their marks."""
        low, high = self.frame
        notes = []
        if low and not self.is_log_y:
            start = f"{low:.3g}" if low < 1000 else f"{low:,.0f}"
            axis = "axis" if self.has_rows else "vertical axis"
            notes.append(f"{axis} from {start}, not from 0")
        ends = map(_list_interval_ends, self.values)
        if any(end[0] < low or end[1] > high for end in ends):
            notes.append("intervals extend beyond the frame")
        for statement in explain_numbers(self.values):
            notes.append(write_sentence(statement).removesuffix("."))
        return notes

    @property
    def description(self) -> str:
        """The numbers as text, for readers who do not see the picture."""
        parts = [f"Each series over {self.axis.title}."]
        for line, points in self.series_points:
            numbers = []
            for position, number, point in points:
                source = f" ({self.predicted_title})" if point.is_predicted else ""
                text = format_interval(number, self.metric.digits)
                numbers.append(f"{text} on {self.tick_label(position)}{source}")
            if len(numbers) > _MAX_NUMBERS:
                numbers = [f"from {numbers[0]} to {numbers[-1]}"]
            if numbers:
                parts.append(f"{line.title}: {', '.join(numbers)}.")
        return " ".join([*parts, "; ".join(self.notes).capitalize()])


def draw(axes: Axes, chart: Chart, has_names: bool = True) -> None:
    """Draw the chart, its title and its labels.

    Args:
      axes: The axes to draw on.
      chart: The chart.
      has_names: Whether rows have the names of their lines above them.
    """
    if chart.has_rows:
        _draw_rows(axes, chart, has_names)
    else:
        _draw_lines(axes, chart)


def _draw_rows(axes: Axes, chart: Chart, has_names: bool) -> None:
    """Draw a row for each line: a point with its interval for each position.

    The last position is filled, and the one before is hollow.
    """
    for row, located_line in enumerate(chart.row_points):
        axes.axhline(
            row, color=figures.choose_colour(figures.GRID), linewidth=0.6, zorder=0
        )
        if has_names:
            axes.annotate(
                located_line.line.title,
                (0.0, row - _NAME_SHIFT),
                xycoords=("axes fraction", "data"),
                fontsize=8,
                va="center",
                annotation_clip=False,
            )
        _draw_row_points(axes, chart, located_line, row)
    if chart.ideals:
        axes.axvline(chart.ideals[-1], label=chart.ideal_title, **_make_dashed_style())
    _add_position_legend(axes, chart)
    _set_row_axes(axes, chart)


def _draw_row_points(
    axes: Axes, chart: Chart, located_line: LocatedLine, row: int
) -> None:
    """Draw the points of a row; the points of two positions do not cover each other."""
    line, points = located_line
    colour = figures.COLOURS[line.colour % len(figures.COLOURS)]
    for position, number, _ in points:
        is_last = position == chart.positions[-1]
        shift = 0.0
        if len(points) > 1:
            shift = _ROW_SHIFT if is_last else -_ROW_SHIFT
        axes.errorbar(
            [number.value],
            [row + shift],
            xerr=_compute_error_bar_lengths([number]),
            color=colour,
            marker=figures.MARKERS[line.shape % len(figures.MARKERS)],
            markerfacecolor=colour if is_last else "none",
            linestyle="none",
            markersize=5,
            elinewidth=1.6 if is_last else 1.0,
        )
        # The name of the line is above its points.
        _draw_mark(axes, number, (number.value, row + shift), _MARK_BELOW)


def _add_position_legend(axes: Axes, chart: Chart) -> None:
    """Add an entry to the legend for each position that a row shows."""
    drawn_positions: set[float] = set()
    for _, points in chart.row_points:
        drawn_positions.update(located.position for located in points)
    muted = figures.choose_colour(figures.MUTED)
    for position in sorted(drawn_positions):
        is_last = position == chart.positions[-1]
        axes.plot(
            [],
            [],
            color=muted,
            marker="o",
            linestyle="none",
            markersize=5,
            markerfacecolor=muted if is_last else "none",
            label=f"{chart.axis.title}: {chart.tick_label(position)}",
        )


def _set_row_axes(axes: Axes, chart: Chart) -> None:
    """Label the axis of the numbers, and hide the axis of the rows."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set(
        title=chart.metric.caption,
        xlabel="\n".join(chart.notes),
        xlim=chart.frame,
        ylim=(len(chart.row_points) - 0.6, -0.6),
        yticks=[],
    )
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(_format_tick))
    axes.spines["left"].set_visible(False)


def _make_dashed_style() -> dict[str, Any]:
    """Return the style of lines that are not measured."""
    muted = figures.choose_colour(figures.MUTED)
    return {"color": muted, "linewidth": 1, "linestyle": (0, (2, 2))}


def _format_tick(value: float, _: int | None) -> str:
    return f"{value:,.12g}"


def _draw_mark(
    axes: Axes,
    number: Interval,
    position: tuple[float, float],
    offset: tuple[float, float],
) -> None:
    """Draw the mark of a number, such as "†", beside its point.

    Args:
      axes: The axes.
      number: The number.
      position: The position of its point.
      offset: The position of the mark from there, in typographic points.
    """
    if text := format_marks(number):
        axes.annotate(
            text, position, offset, textcoords="offset points", fontsize=8, zorder=4
        )


def _draw_lines(axes: Axes, chart: Chart) -> None:
    """Draw each line over the axis."""
    if chart.ideals:
        axes.plot(
            chart.ideal_positions,
            chart.ideals,
            label=chart.ideal_title,
            **_make_dashed_style(),
        )
    for number, located_line in enumerate(chart.series_points):
        # Lines are shifted, so that intervals of neighbours do not cover each other.
        shift = 0.0
        if chart.axis.kind == "number" and not chart.is_log:
            shift = (number - (len(chart.series_points) - 1) / 2) * 0.02
        _draw_line(axes, chart, located_line, shift)
    _draw_axis_marks(axes, chart)
    xlabel = "\n".join([chart.axis.title, *chart.notes])
    axes.set(title=chart.metric.caption, xlabel=xlabel)
    _set_vertical_axis(axes, chart)
    _set_horizontal_axis(axes, chart)
    axes.minorticks_off()


def _draw_axis_marks(axes: Axes, chart: Chart) -> None:
    """Draw a line with a text at each marked position of the axis."""
    for mark in chart.marks:
        if mark.axis == chart.axis.name:
            position = chart.position(mark.x)
            axes.axvline(position, **_make_dashed_style())
            axes.annotate(
                mark.text,
                (position, 1),
                xycoords=("data", "axes fraction"),
                fontsize=7,
                va="top",
            )


def _set_vertical_axis(axes: Axes, chart: Chart) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator

    if chart.is_log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.set_ylim(chart.frame)
    axes.yaxis.set_major_formatter(FuncFormatter(_format_tick))


def _set_horizontal_axis(axes: Axes, chart: Chart) -> None:
    """Choose the scale and the ticks: round numbers, or the positions of the points."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    if chart.is_log:
        axes.set_xscale("log", base=2)
    if chart.axis.kind in ("metric", "amount"):
        axes.xaxis.set_major_formatter(FuncFormatter(_format_tick))
        if not chart.is_log:
            axes.xaxis.set_major_locator(MaxNLocator(5))
        return
    ticks = chart.positions[:: -(len(chart.positions) // _MAX_TICKS + 1)]
    axes.set_xticks(ticks, list(map(chart.tick_label, ticks)))
    if chart.axis.order:
        axes.tick_params(axis="x", rotation=30, labelsize=6)
    axes.grid(axis="x", visible=False)


def _draw_line(
    axes: Axes, chart: Chart, located_line: LocatedLine, shift: float
) -> None:
    """Draw points with intervals; the intervals of predicted points form a band."""
    line, points = located_line
    style = _make_line_style(chart, line)
    if any(located.point.is_predicted for located in points):
        _draw_prediction(axes, chart=chart, points=points, shift=shift, style=style)
        points = [located for located in points if not located.point.is_predicted]
        style["linestyle"] = "none"
    numbers = [located.number for located in points]
    horizontal_values = [
        located.point.values.get(chart.axis.name) for located in points
    ]
    axes.errorbar(
        [located.position + shift for located in points],
        [number.value for number in numbers],
        _compute_error_bar_lengths(numbers),
        _compute_error_bar_lengths([value for value in horizontal_values if value]),
        label=figures.make_legend_title(line.title),
        capsize=2,
        elinewidth=1,
        **style,
    )
    for position, number, _ in points:
        _draw_mark(axes, number, (position + shift, number.value), _MARK_ABOVE)


def _make_line_style(chart: Chart, line: Line) -> dict[str, Any]:
    """Return the arguments of `plot` for a line."""
    style: dict[str, Any] = {
        "color": figures.COLOURS[line.colour % len(figures.COLOURS)],
        "marker": figures.MARKERS[line.shape % len(figures.MARKERS)],
        "linestyle": figures.STYLES[line.shape % len(figures.STYLES)],
        "markersize": 4.5,
        "linewidth": 1.4,
    }
    if len(chart.positions) <= _MAX_UNJOINED or chart.axis.kind == "metric":
        style["linestyle"] = "none"
    if chart.axis.kind == "amount":
        style["marker"] = "none"
    return style


def _draw_prediction(
    axes: Axes,
    chart: Chart,
    points: Sequence[LocatedPoint],
    shift: float,
    style: dict[str, Any],
) -> None:
    """Draw a line through all points, and a band of their intervals."""
    positions = [located.position + shift for located in points]
    low, high = chart.frame
    ends = [_list_interval_ends(located.number) for located in points]
    axes.fill_between(
        positions,
        [max(low, low_end) for low_end, _ in ends],
        [min(high, high_end) for _, high_end in ends],
        color=style["color"],
        alpha=0.18,
        linewidth=0,
        label="95 % interval",
    )
    hollow_style = {**style, "markerfacecolor": "none", "label": chart.predicted_title}
    numbers = [located.number.value for located in points]
    axes.plot(positions, numbers, **hollow_style)


def _compute_error_bar_lengths(values: Sequence[Interval]) -> list[list[float]] | None:
    """Return the lengths of intervals below and above their numbers, or None."""
    if not any(value.ends for value in values):
        return None
    lengths_below = [value.value - _list_interval_ends(value)[0] for value in values]
    lengths_above = [_list_interval_ends(value)[1] - value.value for value in values]
    return [lengths_below, lengths_above]


def draw_svg(chart: Chart, name: str) -> str:
    """Return the chart with its legend as SVG; `name` begins its ids."""
    with figures.apply_style():
        return figures.draw_as_svg(_draw_figure(chart, 4.2, 3.0), name)


def draw_png(chart: Chart) -> bytes:
    """Return the chart with its legend as a PNG file."""
    with figures.apply_style(is_fixed=True):
        return figures.draw_to_file(_draw_figure(chart, 8.0, 4.2))


def _draw_figure(chart: Chart, width: float, height: float) -> Any:
    """Return the figure of a chart with its legend."""
    is_predicted = any(
        located.point.is_predicted for located in chart.points(chart.lines[0])
    )
    entries = len(chart.series_points) + bool(chart.ideals) + 2 * is_predicted
    left = 0.62
    # Inclined texts of ticks need as much room as two lines.
    num_lines = len(chart.notes) + (2 if chart.axis.order else 0)
    if chart.has_rows:
        num_lines = max(0, num_lines - 1)
        entries = len(chart.positions) + bool(chart.ideals)
        left = 0.2
        height = 0.9 + ROW_INCHES * len(chart.series_points)
    bottom = figures.BOTTOM + _NOTE_INCHES * num_lines
    figure, axes = figures.make_blank_figure(
        width, height=height, entries=entries, left=left, bottom=bottom
    )
    draw(axes, chart)
    figures.add_legend(figure, columns=1)
    return figure
