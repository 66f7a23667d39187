"""The parts of a loss in words: those that can be told, what is left, and what would tell where nothing can be."""

from __future__ import annotations

import math

from rnn_scaling.analysis.attribution import REST, Attribution, Part
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.disturbance import load
from rnn_scaling.reports.numbers import plus_minus, share
from rnn_scaling.reports.summary import listed


def untold(loss: Attribution) -> str:
    """Why nothing is shown of the parts, and what would tell; empty where parts are told."""
    if loss.is_told:
        return ""
    known = [part.name for part in loss.parts if part.points and part.points.ends != (0.0, 0.0)]
    missing = listed([part.name for part in loss.missing])
    if not known:
        return f"{plus_minus(loss.loss_points, 1)} points are not split: {missing} {_need(loss)}." if missing else ""
    why, remedy = _why(loss)
    lines = [f"{_capital(listed(known))} cannot be told apart from {why}", remedy]
    return " ".join([*lines, *([f"{_capital(missing)} {_need(loss)}."] if missing else [])])


def parts_sentence(loss: Attribution) -> str:
    """The told parts and what is left: "8.0 ± 2.0 points are contention. The rest, 3 ± 4, ..."."""
    lost = [f"{plus_minus(part.points, 1)} are {part.name}" for part in loss.told if _value(part) > 0]
    gained = [
        f"{part.name} gives back {plus_minus(negated(part.points), 1)}"
        for part in loss.told
        if part.points and _value(part) < 0
    ]
    text = f"{_capital('. '.join(filter(None, [_points(listed(lost)), _capital(listed(gained))])))}."
    rest = loss.rest.points
    if rest is None or rest.ends == (0.0, 0.0):
        return text
    missing = listed([part.name for part in loss.missing])
    if missing:
        return f"{text} {plus_minus(rest, 1)} points are not split: {missing} {_need(loss)}."
    untold_parts = [part.name for part in loss.parts if not part.is_told and _value(part)]
    if loss.rest.is_told or len(untold_parts) < 2:
        what = listed(untold_parts) or REST
        if loss.rest.is_told:
            return f"{text} {plus_minus(rest, 1)} more are {what}, which cannot be told apart."
        return f"{text} {_capital(what)} cannot be told apart from 0 ({plus_minus(rest, 1)})."
    return f"{text} {_capital(REST)} ({listed(untold_parts)}) cannot be told apart from 0 ({plus_minus(rest, 1)})."


def negated(value: Interval | None) -> Interval | None:
    """The interval of the number with its sign turned."""
    if value is None:
        return None
    low = None if value.high is None else -value.high
    high = None if value.low is None else -value.low
    return Interval(-value.value, low, high, value.kind, value.standard_error, value.degrees, value.processes)


def rounded_up(points: float) -> str:
    """Points as few digits as one can remember, never less than they are: "3", "0.4"."""
    place = 10.0 ** min(0, math.floor(math.log10(points))) if points else 1.0
    return f"{math.ceil(round(points / place, 9)) * place:.{max(0, round(-math.log10(place)))}f}"


def _why(loss: Attribution) -> tuple[str, str]:
    """(what the parts cannot be told from, the sentence with the remedy)."""
    known = [part.points for part in loss.parts if part.points]
    most = max((load(record) for row in (loss.row, loss.row.baseline) if row for record in row.good), default=0.0)
    if any(points.ends and not points.ends[0] <= 0 <= points.ends[1] for points in known):
        what = f"what other processes took, up to {share(most)} of the cores." if most else "load of other processes."
        return what, "The same runs on a quiet machine would tell."
    repeats, points = loss.would_show()
    if points is None or any(value.ends is None for value in known):
        return "0: without repeats nobody knows how much runs differ.", f"--repeats={repeats} would tell."
    return "0.", f"--repeats={repeats} would show parts of {rounded_up(points)} points."


def _need(loss: Attribution) -> str:
    return f"need{'s' if len(loss.missing) == 1 else ''} runs that are missing"


def _value(part: Part) -> float:
    return part.points.value if part.points else 0.0


def _points(text: str) -> str:
    """ "points" once, after the first number."""
    return text.replace(" are ", " points are ", 1)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
