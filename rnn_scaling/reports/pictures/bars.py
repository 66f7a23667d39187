"""Draw numbers as bars below each other; each bar is divided into its parts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.pictures import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAR = 0.42  # height of a bar, in rows
_OPACITY = 0.5  # so that text on a bar can be read in every colour
_LEGEND_COLUMNS = 3
_LETTER = 0.085  # width of a letter in inches
_WIDEST = 2.0  # an interval is cut at this many times the longest bar
_OFFSET: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8}

Styles = Mapping[str, Mapping[str, Any]]  # name of a part -> arguments of barh


@dataclasses.dataclass(frozen=True)
class Bar:
    """A title and the parts of a number.

    Attributes:
      parts: (name, size) pairs. Negative parts are left of the start.
      total: The number with its interval, drawn below the bar.
    """

    title: str
    parts: Sequence[tuple[str, float]]
    total: Interval | None = None

    def place_parts(self, start: float) -> list[tuple[str, float, float]]:
        """Return (name, beginning, size) of each part; gains go to the left of `start`."""
        left = start
        right = start
        placed = []
        for name, size in self.parts:
            if size > 0:
                placed.append((name, right, size))
                right += size
            else:
                placed.append((name, left, size))
                left += size
        return placed

    @property
    def total_ends(self) -> list[float]:
        """The ends of the interval of the total, or its value; [] without a total."""
        if self.total is None:
            return []
        return list(self.total.ends or [self.total.value])


def part_styles(colours: Mapping[str, str]) -> Styles:
    """Return translucent bars with a thin edge in these colours."""
    edge = {
        "alpha": _OPACITY,
        "edgecolor": figures.colour(figures.INK),
        "linewidth": 0.4,
    }
    return {
        name: {"facecolor": figures.colour(colour), **edge}
        for name, colour in colours.items()
    }


def draw(
    axes: Axes,
    bars: Sequence[Bar],
    styles: Styles,
    start: float = 0.0,
    digits: int = 1,
    width: float = 0.0,
) -> None:
    """Draw the bars with their titles above them.

    Args:
      axes: The axes to draw on.
      bars: The bars from the top to the bottom.
      styles: The style of each part.
      start: The number at which bars begin.
      digits: Decimals of the numbers.
      width: Width of the axes in inches; 0 if parts should not contain their names.
    """
    low, high = _axis_ends(bars, start)
    span = 1.12 * (high - low) or 1.0
    for row, bar in enumerate(bars):
        for name, begin, size in bar.place_parts(start):
            axes.barh(row, size, left=begin, height=_BAR, label=name, **styles[name])
            number = f"{size:.{digits}f}"
            room = abs(size) * width / span / _LETTER
            fitting = [
                text for text in (f"{name} {number}", number) if len(text) < room
            ]
            text = fitting[0] if fitting else ""
            axes.text(begin + size / 2, row, text, ha="center", va="center", fontsize=8)
    for row, bar in enumerate(bars):
        above = (0, row - _BAR / 2)
        axes.annotate(bar.title, above, (2, 6), ("axes fraction", "data"), **_OFFSET)
        if bar.total:
            _draw_total(axes, bar, row)
            ends = [begin + size for _, begin, size in bar.place_parts(start)]
            right = min(max(*ends, start, bar.total_ends[-1]), high)
            text = plus_minus(bar.total, digits)
            axes.annotate(text, (right, row), (5, 0), **_OFFSET)
    axes.axvline(start, color=figures.colour(figures.MUTED), linewidth=0.8)
    axes.set(
        xlim=(low - 0.01 * span, low + span), ylim=(len(bars) - 0.5, -0.75), yticks=[]
    )
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)


def _axis_ends(bars: Sequence[Bar], start: float) -> tuple[float, float]:
    """Return the ends of the axis; intervals that are much wider than all bars are cut."""
    reach = [start]
    for bar in bars:
        reach += [begin + size for _, begin, size in bar.place_parts(start)]
    room = _WIDEST * max(abs(end - start) for end in reach)
    for bar in bars:
        reach += [max(start - room, min(end, start + room)) for end in bar.total_ends]
    return min(reach), max(reach)


def _draw_total(axes: Axes, bar: Bar, row: int) -> None:
    """Draw the interval of a total below its bar."""
    assert bar.total
    ink = figures.colour(figures.INK)
    y_below = row + 0.7 * _BAR
    axes.plot(bar.total_ends, [y_below] * len(bar.total_ends), color=ink, linewidth=1)
    axes.plot([bar.total.value], [y_below], color=ink, marker="|", markersize=6)


def svg(
    name: str,
    bars: Sequence[Bar],
    colours: Mapping[str, str],
    width: float,
    label: str,
    titles: Mapping[str, str] | None = None,
) -> str:
    """Return bars with their legend as SVG for the page.

    Args:
      name: The beginning of the ids.
      bars: The bars from the top to the bottom.
      colours: The colour of each part.
      width: In inches.
      label: The text below the axis.
      titles: The names in the legend with their titles; None: all parts.
    """
    rows = math.ceil(len(titles or colours) / _LEGEND_COLUMNS)
    with figures.style():
        figure, axes = figures.make_blank_figure(
            width, 0.78 + 0.42 * len(bars), rows, left=0.06
        )
        draw(axes, bars, part_styles(colours), width=width)
        axes.set_xlabel(label)
        figures.add_legend(figure, _LEGEND_COLUMNS, titles)
        return figures.as_svg(figure, name)
