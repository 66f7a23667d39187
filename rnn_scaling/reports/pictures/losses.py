"""Lost efficiency of all series on one axis: a bar for each, divided into the parts of its loss."""

import math
from collections.abc import Sequence
from typing import Any

from rnn_scaling.analysis.attribution import MEANING, REST, Attribution
from rnn_scaling.reports.numbers import plus_minus
from rnn_scaling.reports.pictures import figures
from rnn_scaling.reports.series_statements import noise_of

BAR = 0.42  # height of a bar, in rows
OPACITY = 0.5  # so that text on a bar can be read in every colour
BESIDE = 3  # names of the legend
LETTER = 0.012  # width of a letter, as a share of the axis
COLOURS = {**dict(zip(MEANING, figures.COLOURS)), REST: figures.REST}


def losses(split: Sequence[tuple[str, Attribution]], name: str) -> str:
    """The bars of (title, loss) pairs in points of efficiency. Gains are left of 0; a mark shows the total loss."""
    from matplotlib.patches import Patch

    look: dict[str, Any] = {
        "alpha": OPACITY,
        "edgecolor": figures.INK,
        "linewidth": 0.4,
    }
    names = {REST: f"{REST}: within {noise_of([loss for _, loss in split])}"}
    names = {
        part.name: names.get(part.name, part.name)
        for _, loss in split
        for part in loss.shown
    }
    with figures.style():
        size = 7.2, 0.5 + 0.42 * len(split)
        figure, axes = figures.blank(
            *size, entries=math.ceil(len(names) / BESIDE), left=0.06, top=0.04
        )
        reach = [0.0, 0.0]
        bars = []
        for y, (_, loss) in enumerate(split):
            ends = [0.0, 0.0]
            for part in loss.shown:
                if part.points:
                    side = part.points.value > 0
                    bars.append((y, ends[side], part.points.value, part.name))
                    ends[side] += part.points.value
            whole = loss.loss_points.ends or (loss.loss_points.value,)
            reach = [min(reach[0], ends[0], *whole), max(reach[1], ends[1], *whole)]
        span = 1.12 * (reach[1] - reach[0])
        for y, left, width, part_name in bars:
            colour = COLOURS.get(part_name, figures.MUTED)
            axes.barh(y, width, left=left, height=BAR, facecolor=colour, **look)
            texts = (f"{part_name} {width:.1f}", f"{width:.1f}")
            text = next(
                (text for text in texts if LETTER * len(text) * span < abs(width)), ""
            )
            axes.text(left + width / 2, y, text, ha="center", va="center", fontsize=8)
        for y, (title, loss) in enumerate(split):
            _draw_whole(axes, y, title, loss)
        axes.axvline(0, color=figures.MUTED, linewidth=0.8)
        axes.set(
            xlim=(reach[0] - 0.01 * span, reach[0] + span),
            ylim=(len(split) - 0.5, -0.75),
            yticks=[],
        )
        axes.set_xlabel("points of efficiency lost")
        axes.spines["left"].set_visible(False)
        axes.grid(axis="y", visible=False)
        patches = [
            Patch(label=names[name], facecolor=COLOURS[name], **look)
            for name in COLOURS
            if name in names
        ]
        figure.legend(handles=patches, loc="lower left", ncols=BESIDE, **figures.LEGEND)
        return figures.as_svg(figure, name)


def _draw_whole(axes: Any, y: int, title: str, loss: Attribution) -> None:
    """Draws the total loss with its interval and number, and the title above the bar."""
    points = loss.loss_points
    ends = points.ends or (points.value, points.value)
    below = y + 0.7 * BAR
    axes.plot(ends, [below, below], color=figures.INK, linewidth=1)
    axes.plot([points.value], [below], color=figures.INK, marker="|", markersize=6)
    place: dict[str, Any] = {
        "textcoords": "offset points",
        "va": "center",
        "fontsize": 8,
    }
    axes.annotate(plus_minus(points, 1), (max(ends[1], 0), y), xytext=(5, 0), **place)
    axes.annotate(
        title,
        (0, y - BAR / 2),
        xycoords=("axes fraction", "data"),
        xytext=(2, 6),
        **place,
    )
