"""Where a step goes, as pictures: the parts of each tower's time as bars, and one step from left to right."""

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
from rnn_scaling.reports.pictures import figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _RED, _GREEN, _PINK, _ORANGE, _SKY = figures.COLOURS
_SHARED = {"update": _GREEN, "input": _ORANGE, "other": figures.MUTED}
COLOURS = {"forward": _BLUE, "backward": _SKY, **_SHARED}
COLOURS |= {f"shared_{name}": colour for name, colour in _SHARED.items()}
COLOURS |= {EXPOSED: _RED, STARVED: figures.REST, WAITS: _PINK, IDLE: figures.GRID}
FAINT = (
    0.55  # opacity of what all towers share, beside a tower's own in the same colour
)
HEIGHT = 0.7  # of a bar, in rows
ROW = 0.27  # inches
MOST_TOWERS = 16  # drawn


def left_out(num_towers: int) -> str:
    """What a title must say of towers that no picture has room for; "" where all are drawn."""
    return (
        f", the first {MOST_TOWERS} of {num_towers} towers"
        if num_towers > MOST_TOWERS
        else ""
    )


def parts(split: StepParts, name: str) -> str:
    """The mean parts of each tower's step as one bar a tower, in milliseconds."""
    count = min(split.num_towers, MOST_TOWERS)
    with figures.style():
        figure, axes = _axes(count)
        for tower in range(count):
            left = 0.0
            for part in split.shown:
                width = 1000 * split.part(part, tower).mean
                axes.barh(tower, width, left=left, height=HEIGHT, **look(part))
                left += width
        _scale(
            axes,
            [f"tower {i}" for i in range(count)],
            1000 * split.seconds.mean,
            "ms, mean step",
        )
        return figures.as_svg(figure, name)


def timeline(step: TimedStep, name: str) -> str:
    """One step: what each tower does from its start to its end."""
    with figures.style():
        rows = _rows(step)
        figure, axes = _axes(len(rows))
        _draw(axes, step, rows)
        _scale(
            axes,
            [label for label, _ in rows],
            1000 * step.seconds,
            "ms from the start of the step",
        )
        return figures.as_svg(figure, name)


def picture(titled: Sequence[tuple[str, TimedStep]], kind: str) -> bytes:
    """The time lines of some steps below each other, with their legend, as a PNG or SVG file."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    with figures.style(is_fixed=True):
        heights = [ROW * len(_rows(step)) + 0.75 for _, step in titled]
        figure = Figure(figsize=(11, sum(heights) + 0.5), layout="constrained")
        panels = figure.subplots(len(titled), 1, squeeze=False, height_ratios=heights)[
            :, 0
        ]
        for axes, (title, step) in zip(panels, titled):
            rows = _rows(step)
            _draw(axes, step, rows, fixed=True)
            axes.set_title(title)
            _scale(
                axes,
                [label for label, _ in rows],
                1000 * step.seconds,
                "ms from the start of the step",
            )
        letters = {
            letter for _, step in titled for _, bar in _rows(step) for letter in bar
        }
        shown = [part for part in PARTS if _letter(part) in letters]
        titles = {
            **steps.TITLES,
            EXPOSED: "exchange (a tower's: exposed)",
        }  # a row of its own shows any exchange
        patches = [
            Patch(label=titles.get(part, part), **look(part, fixed=True))
            for part in shown
        ]
        figure.legend(
            handles=patches,
            loc="outside lower left",
            ncols=min(6, len(patches)),
            frameon=False,
        )
        return figures.as_file(figure, kind)


def look(part: str, fixed: bool = False) -> dict[str, Any]:
    """Colour and opacity of a part; `fixed`: the colour of a file that stands alone."""
    colour = COLOURS[part]
    if fixed:
        colour = figures.THEME[colour.lower()][1]
    return {
        "facecolor": colour,
        "alpha": FAINT if part.startswith("shared_") else 1.0,
        "linewidth": 0,
    }


def _rows(step: TimedStep) -> list[tuple[str, str]]:
    """(label, letters) of each bar: the towers, and exchange where there is any."""
    rows = [
        (f"tower {i}", bar) for i, bar in enumerate(step.timeline.towers[:MOST_TOWERS])
    ]
    exchange = step.timeline.exchange
    return [*rows, ("exchange", exchange)] if _letter(EXPOSED) in exchange else rows


def _letter(part: str) -> str:
    return LETTERS[PARTS.index(part)]


def _draw(
    axes: Axes, step: TimedStep, rows: Sequence[tuple[str, str]], fixed: bool = False
) -> None:
    width = 1000 * step.seconds / TIMELINE_BINS
    for y, (label, letters) in enumerate(rows):
        bars: dict[str, list[tuple[float, float]]] = {}
        at = 0
        for letter, stretch in groupby(letters):
            count = len(list(stretch))
            bars.setdefault(letter, []).append((at * width, count * width))
            at += count
        if label == "exchange":
            bars.pop(_letter(IDLE), None)
        for letter, spans in bars.items():
            part = PARTS[LETTERS.index(letter)]
            axes.broken_barh(spans, (y - HEIGHT / 2, HEIGHT), **look(part, fixed))


def _axes(count: int) -> tuple[Figure, Axes]:
    return figures.blank(4.2, ROW * count + 0.52, left=0.75, top=0.08)


def _scale(axes: Axes, labels: Sequence[str], most: float, unit: str) -> None:
    axes.set_yticks(range(len(labels)), labels)
    axes.set(xlim=(0, most), ylim=(len(labels) - 0.5, -0.5), xlabel=unit)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
