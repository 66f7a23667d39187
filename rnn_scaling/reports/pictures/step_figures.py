"""Pictures of a step: the parts of each tower's time, and the timeline of one step.

The page shows the figures, and `inspect --picture` writes `draw_picture`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rnn_scaling.analysis.steps.parts import StepParts
from rnn_scaling.records.step_parts import (
    EXPOSED,
    IDLE,
    LETTERS,
    PARTS,
    STARVED,
    TIMELINE_BINS,
    WAITS,
    TimedStep,
)
from rnn_scaling.reports import steps
from rnn_scaling.reports.pictures import bars, figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BLUE, _RED, _GREEN, _PINK, _ORANGE, _SKY = figures.COLOURS
COLOURS = {
    "forward": _BLUE,
    "backward": _SKY,
    "update": _GREEN,
    "input": _ORANGE,
    "other": figures.MUTED,
    EXPOSED: _RED,
    STARVED: figures.UNEXPLAINED,
    WAITS: _PINK,
    IDLE: figures.GRID,
}
_SHARED = "shared_"
_FAINT = 0.55  # opacity of parts that all towers share
_HEIGHT = 0.7  # height of a bar, in rows
_ROW = 0.27  # height of a row, in inches
_MAX_TOWERS = 16  # towers in a picture
_SINCE_START = "ms from the start of the step"


def format_omitted_towers(num_towers: int) -> str:
    """Return a title's remark on towers that are not drawn; "" if all are."""
    if num_towers <= _MAX_TOWERS:
        return ""
    return f", the first {_MAX_TOWERS} of {num_towers} towers"


def make_part_style(part: str) -> dict[str, Any]:
    """Return the colour and the opacity of a part."""
    return {
        "facecolor": COLOURS[part.removeprefix(_SHARED)],
        "alpha": _FAINT if part.startswith(_SHARED) else 1.0,
        "linewidth": 0,
    }


def _resolve_part_style(part: str) -> dict[str, Any]:
    """Return the style of a part in the colours of the page or of the file."""
    style = make_part_style(part)
    return {**style, "facecolor": figures.choose_colour(style["facecolor"])}


def draw_parts(step_parts: StepParts, name: str) -> str:
    """Return the mean parts of each tower's step as a bar per tower, in milliseconds."""
    tower_bars = []
    for tower in range(min(step_parts.num_towers, _MAX_TOWERS)):
        sizes = [
            (part, 1000 * step_parts.part(part, tower).mean)
            for part in step_parts.nonzero_parts
        ]
        tower_bars.append(bars.Bar(f"tower {tower}", sizes))
    with figures.apply_style():
        figure, axes = figures.make_blank_figure(
            4.2, 0.42 * len(tower_bars) + 0.78, left=0.1
        )
        styles = {part: _resolve_part_style(part) for part in step_parts.nonzero_parts}
        bars.draw(axes, tower_bars, styles)
        axes.set(xlim=(0, 1000 * step_parts.seconds.mean), xlabel="ms, mean step")
        return figures.draw_as_svg(figure, name)


def draw_timeline(step: TimedStep, name: str) -> str:
    """Return the parts of one step over time, with a row per tower."""
    with figures.apply_style():
        height = _ROW * len(_make_timeline_rows(step)) + 0.78
        figure, axes = figures.make_blank_figure(4.2, height, left=0.75)
        _draw(axes, step)
        return figures.draw_as_svg(figure, name)


def draw_picture(titled: Sequence[tuple[str, TimedStep]], kind: str) -> bytes:
    """Return steps below each other with their legend, as a PNG or SVG file."""
    from matplotlib.patches import Patch

    heights = [_ROW * len(_make_timeline_rows(step)) + 0.75 for _, step in titled]
    letters: set[str] = set()
    # A separate row shows every exchange.
    titles = {**steps.TITLES, EXPOSED: "exchange (a tower's: exposed)"}
    with figures.apply_style(is_fixed=True):
        figure, rows = figures.make_stacked_figure(heights, width=11)
        for [axes], (title, step) in zip(rows, titled):
            _draw(axes, step)
            axes.set_title(title)
            for _, bar in _make_timeline_rows(step):
                letters.update(bar)
        patches = [
            Patch(label=titles.get(part, part), **_resolve_part_style(part))
            for letter, part in zip(LETTERS, PARTS)
            if letter in letters
        ]
        columns = min(6, len(patches))
        layout: dict[str, Any] = {"loc": "outside lower left", "ncols": columns}
        figure.legend(handles=patches, frameon=False, **layout)
        return figures.draw_to_file(figure, kind)


def _make_timeline_rows(step: TimedStep) -> list[tuple[str, str]]:
    """Return (label, letters) of each bar: the towers, and exchange if there is any."""
    towers = step.timeline.towers[:_MAX_TOWERS]
    rows = [(f"tower {tower}", bar) for tower, bar in enumerate(towers)]
    exchange = step.timeline.exchange
    if LETTERS[PARTS.index(EXPOSED)] in exchange:
        rows.append(("exchange", exchange.replace(LETTERS[PARTS.index(IDLE)], " ")))
    return rows


def _draw(axes: Axes, step: TimedStep) -> None:
    """Draw the timeline of one step: a bar per tower."""
    rows = _make_timeline_rows(step)
    step_ms = 1000 * step.seconds
    width = step_ms / TIMELINE_BINS
    for row, (_, letters) in enumerate(rows):
        spans: dict[str, list[tuple[float, float]]] = {}
        start = 0
        for letter, stretch in groupby(letters):
            count = len(list(stretch))
            spans.setdefault(letter, []).append((start * width, count * width))
            start += count
        for letter, ranges in spans.items():
            if letter != " ":
                part = PARTS[LETTERS.index(letter)]
                axes.broken_barh(
                    ranges, (row - _HEIGHT / 2, _HEIGHT), **_resolve_part_style(part)
                )
    axes.set_yticks(range(len(rows)), [label for label, _ in rows])
    axes.set(xlim=(0, step_ms), ylim=(len(rows) - 0.5, -0.5), xlabel=_SINCE_START)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
