"""Accuracy and loss, smoothed, over the items of a run and over the seconds that they take at its measured speed."""

import math
from collections.abc import Mapping

from rnn_scaling.analysis import learning as analysis
from rnn_scaling.analysis.learning import ACCURACY, LOSS, Learned, Learning
from rnn_scaling.analysis.metrics import common_unit
from rnn_scaling.analysis.rows import Row
from rnn_scaling.reports.pictures import figures

ITEMS, SECONDS = "items", "seconds"
MOST_POINTS = 300  # of a line
LOG_FROM = 20.0  # largest loss / smallest from which on the axis of losses is logarithmic


def kinds(learning: Learning) -> list[tuple[str, str]]:
    """(what is drawn, over what) of the pictures of a folder."""
    has_accuracy = any(run.batches.correct for learned in learning.learned for run in learned.row.good)
    return [(kind, over) for kind in ([ACCURACY] if has_accuracy else []) + [LOSS] for over in (ITEMS, SECONDS)]


def title(learning: Learning, kind: str, over: str) -> str:
    """What stands over a picture."""
    unit = common_unit(learning.windows)
    return f"{kind.capitalize()} over {unit if over == ITEMS else 'seconds at the measured speed'}"


def points(learned: Learned, learning: Learning, kind: str, over: str) -> list[tuple[float, float]]:
    """The line of a configuration, that of its first run; accuracy in per cent."""
    run = learned.row.good[0]
    curve = analysis.curve(run.batches, kind, learning.windows[learned.row.unit])
    rate = run.throughput.items_per_second if over == SECONDS and run.throughput else 1.0
    factor = 100.0 if kind == ACCURACY else 1.0
    line = [(items / rate, factor * value) for items, value in zip(curve.items, curve.values) if math.isfinite(value)]
    return line[:: max(1, len(line) // MOST_POINTS)]


def draw(learning: Learning, names: Mapping[Row, str], kind: str, over: str, name: str = "") -> str:
    """A line for each configuration, the target dashed."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    few = learning.learned[: figures.MOST_LINES]
    lines = [points(member, learning, kind, over) for member in few]
    with figures.style():
        figure, axes = figures.blank(4.2, 3.0, entries=len(few) + 1)
        for k, (member, line) in enumerate(zip(few, lines)):
            x, y = zip(*line) if line else ((), ())
            axes.plot(x, y, linewidth=1.4, label=figures.in_legend(names[member.row]), **figures.line_look(k))
        if learning.target.kind == kind:
            level = learning.target.value * (100 if kind == ACCURACY else 1)
            axes.axhline(level, color=figures.MUTED, linewidth=1, linestyle=(0, (2, 2)), label="target")
        values = [value for line in lines for _, value in line]
        if kind == LOSS and values and min(values) > 0 and max(values) > LOG_FROM * min(values):
            axes.set_yscale("log")
        elif kind == ACCURACY:
            axes.set_ylim(0, 104)
        across = common_unit(learning.windows) if over == ITEMS else "seconds at the measured speed"
        axes.set(title=f"{kind.capitalize()}{', %' if kind == ACCURACY else ''}", xlabel=across)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
        figures.add_legend(figure)
        return figures.as_svg(figure, name or f"{kind}-{over}")
