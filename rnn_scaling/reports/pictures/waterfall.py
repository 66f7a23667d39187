"""One loss as a waterfall: from n times one device down to what n devices did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rnn_scaling.analysis.attribution import REST, Attribution
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.files.terminal import three_digits
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.pictures.curves import Frame, draw_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR = 0.62  # height of a bar, in rows
CLOSE = 0.5  # share of the ideal that must be lost for an axis from 0
ROOM = 0.5  # of what the bars and their intervals take, before the lowest of them
SIDE: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "xytext": (6, 0)}


def parts_of(loss: Attribution) -> list[tuple[str, Interval, Interval]]:
    """(name, items/s, points) of each bar between the first and the last; none where nothing can be told from 0."""
    return [(part.name, part.value, part.points) for part in loss.shown if part.value and part.points]


def waterfall(loss: Attribution, name: str) -> str:
    """From n times one device down to what was measured: each part with its 95 % interval, and the rest.

    A loss is positive, as in the tables: its bar goes to the left, and the number beside it is points of efficiency.
    """
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    parts = parts_of(loss)
    ideal, measured = loss.ideal.value, loss.ideal.value - loss.loss.value
    edges = frame_of(loss)
    with figures.style():
        figure, axes = figures.blank(4.6, 0.75 + 0.3 * (len(parts) + 2))
        last = len(parts) + 1
        axes.set(xlim=(edges.low, edges.high), ylim=(last + 0.5, -0.5))
        _draw_whole(axes, 0, ideal, figures.GRID, edges)
        _say(axes, 0, three_digits(ideal))
        reached = ideal
        for y, (label, value, points) in enumerate(parts, start=1):
            _draw_part(axes, y, label, value, reached, edges)
            reached -= value.value
            _say(axes, y, plus_minus(points, 1))
        axes.plot([reached, reached], [last - 1 - BAR / 2, last + BAR / 2], color=figures.MUTED, linewidth=0.6)
        _draw_whole(axes, last, measured, figures.COLOURS[0], edges)
        _say(axes, last, f"{three_digits(measured)} ({100 * measured / ideal:.1f} %)")
        axes.set_yticks(range(last + 1), ["ideal", *(label for label, _, _ in parts), "measured"])
        axes.set_xlabel(f"{loss.row.unit}/s" + (f" ({edges.start})" if edges.start else ""))
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_locator(MaxNLocator(3))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.grid(axis="y", visible=False)
        figures.set_margins(figure, left=0.92, right=1.3, top=0.08, bottom=0.42)
        return figures.as_svg(figure, name)


def frame_of(loss: Attribution) -> Frame:
    """The axis: from 0 where much of the ideal is lost, else from a round number below all parts."""
    ideal, reached = loss.ideal.value, loss.ideal.value
    ends = [ideal, ideal - loss.loss.value]
    for _, value, _ in parts_of(loss):
        ends += [reached - end for end in value.ends or (value.value,)]
        reached -= value.value
        ends.append(reached)
    near = [min(max(end, 0.0), 1.25 * ideal) for end in ends]
    low, high = min(near), max(near)
    if low < CLOSE * ideal:
        low, high = 0.0, 1.03 * high
    else:
        from matplotlib.ticker import MaxNLocator

        low = float(MaxNLocator(4).tick_values(low - ROOM * (high - low), high)[0])
        high += 0.05 * (high - low)
    has_intervals = any(value.half_width for _, value, _ in parts_of(loss))
    return Frame(max(0.0, low), high, has_intervals, cuts=any(not low <= end <= high for end in ends))


def _draw_whole(axes: Axes, y: int, value: float, colour: str, edges: Frame) -> None:
    """A bar from 0; where the axis begins later it has a gap that says so."""
    axes.barh(y, value - edges.low, left=edges.low, height=BAR, color=colour)
    if edges.low:
        for at in (0.035, 0.06):
            gap: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "color": figures.PAPER, "linewidth": 1.6}
            axes.plot([at, at + 0.015], [y + 0.5 * BAR, y - 0.5 * BAR], **gap)


def _draw_part(axes: Axes, y: int, label: str, value: Interval, reached: float, edges: Frame) -> None:
    """One bar from what was reached before to what is left after it, with its interval about that end."""
    colour = figures.REST if label == REST else figures.LOSS if value.value >= 0 else figures.GAIN
    axes.plot([reached, reached], [y - 1 + BAR / 2, y + BAR / 2], color=figures.MUTED, linewidth=0.6)
    axes.barh(y, value.value, left=reached - value.value, height=BAR, color=colour)
    if value.half_width and value.ends:
        draw_interval(axes, [reached - end for end in reversed(value.ends)], y, figures.INK, edges, linewidth=1)


def _say(axes: Axes, y: int, text: str) -> None:
    axes.annotate(text.replace("-", "\u2212"), (1, y), ha="left", va="center", **SIDE)
