"""Draw numbers that are made of parts as bars below each other."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.pictures import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAR = 0.42  # height of a bar, in rows
OPACITY = 0.5  # so that text on a bar can be read in every colour
LETTER = 0.085  # width of a letter in inches
WIDEST = 2.0  # times the longest bar from which an interval is cut
OFFSET: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 8}

Looks = Mapping[str, Mapping[str, Any]]  # name of a part -> how it is drawn


@dataclasses.dataclass(frozen=True)
class Bar:
    """A title and the parts of a number.

    parts: (name, size) pairs. Negative parts are left of the start.
    whole: The number with its interval, drawn below the bar.
    """

    title: str
    parts: Sequence[tuple[str, float]]
    whole: Interval | None = None


def looks(colours: Mapping[str, str]) -> Looks:
    """Return translucent bars with a thin edge in these colours."""
    edge = {
        "alpha": OPACITY,
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
    looks: Looks,
    start: float = 0.0,
    digits: int = 1,
    width: float = 0.0,
) -> None:
    """Draw the bars with their titles above them.

    Args:
      axes: Where to draw.
      bars: From the top to the bottom.
      looks: Of each name of a part.
      start: The number at which bars begin.
      digits: Decimals of the numbers.
      width: Of the axes, in inches; 0: parts do not contain their names.
    """
    ink = figures.colour(figures.INK)
    placed = []
    reach = [start]
    for row, bar in enumerate(bars):
        ends = [start, start]
        for name, size in bar.parts:
            side = size > 0
            placed.append((row, ends[side], size, name))
            ends[side] += size
        reach += ends
    # Intervals that are much wider than all bars are cut.
    room = WIDEST * max(abs(end - start) for end in reach)
    for bar in bars:
        if bar.whole:
            wide = bar.whole.ends or (bar.whole.value,)
            reach += [max(start - room, min(end, start + room)) for end in wide]
    low = min(reach)
    high = max(reach)
    span = 1.12 * (high - low) or 1.0
    for row, left, size, name in placed:
        axes.barh(row, size, left=left, height=BAR, label=name, **looks[name])
        room = abs(size) * width / span / LETTER
        texts = (f"{name} {size:.{digits}f}", f"{size:.{digits}f}")
        fitting = [text for text in texts if len(text) < room]
        place: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8}
        axes.text(left + size / 2, row, fitting[0] if fitting else "", **place)
    for row, bar in enumerate(bars):
        above = (0, row - BAR / 2)
        axes.annotate(bar.title, above, (2, 6), ("axes fraction", "data"), **OFFSET)
        if bar.whole:
            ends = list(bar.whole.ends or (bar.whole.value,))
            below = row + 0.7 * BAR
            axes.plot(ends, [below] * len(ends), color=ink, linewidth=1)
            axes.plot([bar.whole.value], [below], color=ink, marker="|", markersize=6)
            sizes = [size for _, size in bar.parts if size > 0]
            right = (min(max(ends[-1], start + sum(sizes)), high), row)
            axes.annotate(plus_minus(bar.whole, digits), right, (5, 0), **OFFSET)
    axes.axvline(start, color=figures.colour(figures.MUTED), linewidth=0.8)
    axes.set(
        xlim=(low - 0.01 * span, low + span), ylim=(len(bars) - 0.5, -0.75), yticks=[]
    )
    axes.spines["left"].set_visible(False)
    axes.grid(axis="y", visible=False)


def legend(axes: Axes) -> dict[str, Any]:
    """Return the key of each part that these axes show, by its name."""
    handles, labels = axes.get_legend_handles_labels()
    return dict(zip(labels, handles))
