"""The page's section of what runs learned: sentences, curves, table."""

from __future__ import annotations

from typing import Any

from rnn_scaling.reports import learning
from rnn_scaling.reports.page.drawings import DASHES, Key
from rnn_scaling.reports.page.parts import Figure, figure_of
from rnn_scaling.reports.pictures import figures, learning_curves
from rnn_scaling.reports.summary import Summary


def section(summary: Summary) -> dict[str, Any] | None:
    """What the template shows; None where no run counted right predictions and no target was given."""
    if summary.learning is None:
        return None
    return {
        "section": learning.section(summary.learning, summary.row_titles),
        "figures": [_figure(summary, *kind) for kind in learning_curves.kinds(summary.learning)],
        "legend": _legend(summary),
        "undrawn": max(0, len(summary.learning.learned) - figures.MOST_LINES),
    }


def _figure(summary: Summary, kind: str, over: str) -> Figure:
    if summary.learning is None:
        raise ValueError("expected what runs learned")
    names = learning.line_names(summary.learning, summary.row_titles)
    name = f"learning-{kind}-{over}"
    svg = learning_curves.draw(summary.learning, names, kind, over, name)
    ends = []
    for each in summary.learning.learned[: figures.MOST_LINES]:
        if line := learning_curves.points(each, summary.learning, kind, over):
            ends.append(f"{names[id(each.row)]}: from {line[0][1]:.4g} to {line[-1][1]:.4g}.")
    about = f"A line for each configuration, its first run. {' '.join(ends)}"
    return figure_of(svg, name, learning_curves.title(summary.learning, kind, over), about)


def _legend(summary: Summary) -> list[Key]:
    if summary.learning is None:
        return []
    names = learning.line_names(summary.learning, summary.row_titles)
    keys = []
    for k, each in enumerate(summary.learning.learned[: figures.MOST_LINES]):
        look = learning_curves.look(k)
        colour = figures.themed(look["color"].lower())
        keys.append(Key(names[id(each.row)], colour, DASHES[look["linestyle"]], has_line=True))
    return [*keys, Key("target", figures.themed(figures.MUTED), "2 2", has_line=True)]
