"""Draw numbers as bars below each other; each bar is divided into its parts.

It knows nothing about runs: callers make the `Bar`s.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.wording import format_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAR_HEIGHT = 0.42  # height in rows
_OPACITY = 0.5  # so that text on a bar can be read in every colour
_LEGEND_COLUMNS = 3
_LETTER_INCHES = 0.085  # width of a letter
_MAX_INTERVAL = 2.0  # an interval is cut at this many times the longest bar
# Arguments of `annotate` for texts at a distance from a point of the axes.
_ANNOTATION_STYLE: dict[str, Any] = {
    "textcoords": "offset points",
    "va": "center",
    "fontsize": 8,
}

Styles = Mapping[str, Mapping[str, Any]]  # name of a part -> arguments of barh


class PlacedPart(NamedTuple):
    """A part of a bar with its place on the axis."""

    name: str
    begin: float
    size: float  # negative if the part goes to the left of `begin`

    @property
    def end(self) -> float:
        """The number at which the part ends."""
        return self.begin + self.size


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

    def place_parts(self, start: float) -> list[PlacedPart]:
        """Return the parts one after another; negative ones go to the left of `start`."""
        left = start
        right = start
        placed_parts = []
        for name, size in self.parts:
            if size > 0:
                placed_parts.append(PlacedPart(name, right, size))
                right += size
            else:
                placed_parts.append(PlacedPart(name, left, size))
                left += size
        return placed_parts

    @property
    def total_ends(self) -> list[float]:
        """The ends of the interval of the total, or its value; [] without a total."""
        if self.total is None:
            return []
        return list(self.total.ends or [self.total.value])


def make_part_styles(colours: Mapping[str, str]) -> Styles:
    """Return translucent bars with a thin edge in these colours."""
    edge = {
        "alpha": _OPACITY,
        "edgecolor": figures.choose_colour(figures.INK),
        "linewidth": 0.4,
    }
    return {
        name: {"facecolor": figures.choose_colour(colour), **edge}
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
    low, high = _choose_axis_ends(bars, start)
    span = 1.12 * (high - low) or 1.0
    for row, bar in enumerate(bars):
        for part in bar.place_parts(start):
            axes.barh(
                row,
                part.size,
                left=part.begin,
                height=_BAR_HEIGHT,
                label=part.name,
                **styles[part.name],
            )
            max_letters = abs(part.size) * width / span / _LETTER_INCHES
            text = _choose_part_text(part, digits, max_letters)
            centre = part.begin + part.size / 2
            axes.text(centre, row, text, ha="center", va="center", fontsize=8)
    for row, bar in enumerate(bars):
        axes.annotate(
            bar.title,
            (0, row - _BAR_HEIGHT / 2),
            (2, 6),
            ("axes fraction", "data"),
            **_ANNOTATION_STYLE,
        )
        if bar.total:
            _draw_total(axes, bar, row)
            ends = [part.end for part in bar.place_parts(start)]
            right = min(max(*ends, start, bar.total_ends[-1]), high)
            text = format_interval(bar.total, digits)
            axes.annotate(text, (right, row), (5, 0), **_ANNOTATION_STYLE)
    axes.axvline(start, color=figures.choose_colour(figures.MUTED), linewidth=0.8)
    axes.set(
        xlim=(low - 0.01 * span, low + span), ylim=(len(bars) - 0.5, -0.75), yticks=[]
    )
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)


def _choose_part_text(part: PlacedPart, digits: int, max_letters: float) -> str:
    """Return the name and the size of a part, or as much of them as its bar has room for."""
    number = f"{part.size:.{digits}f}"
    for text in (f"{part.name} {number}", number):
        if len(text) < max_letters:
            return text
    return ""


def _choose_axis_ends(bars: Sequence[Bar], start: float) -> tuple[float, float]:
    """Return the ends of the axis; intervals that are much wider than all bars are cut."""
    ends = [start]
    for bar in bars:
        ends += [part.end for part in bar.place_parts(start)]
    longest = _MAX_INTERVAL * max(abs(end - start) for end in ends)
    for bar in bars:
        for end in bar.total_ends:
            ends.append(max(start - longest, min(end, start + longest)))
    return min(ends), max(ends)


def _draw_total(axes: Axes, bar: Bar, row: int) -> None:
    """Draw the interval of a total below its bar."""
    assert bar.total
    ink = figures.choose_colour(figures.INK)
    y_below = row + 0.7 * _BAR_HEIGHT
    axes.plot(bar.total_ends, [y_below] * len(bar.total_ends), color=ink, linewidth=1)
    axes.plot([bar.total.value], [y_below], color=ink, marker="|", markersize=6)


def draw_svg(
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
    with figures.apply_style():
        figure, axes = figures.make_blank_figure(
            width, 0.78 + 0.42 * len(bars), rows, left=0.06
        )
        draw(axes, bars, make_part_styles(colours), width=width)
        axes.set_xlabel(label)
        figures.add_legend(figure, _LEGEND_COLUMNS, titles)
        return figures.draw_as_svg(figure, name)
