"""The parts of a loss in words: those that can be told, what is left, and what would tell where nothing can be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rnn_scaling.analysis import shares
from rnn_scaling.analysis.attribution import REST, Attribution, Part
from rnn_scaling.analysis.disturbance import load
from rnn_scaling.reports.numbers import plus_minus, share
from rnn_scaling.reports.summary import listed

BY_LOAD = "what other processes took"


def untold(loss: Attribution) -> str:
    """Why nothing is shown of the parts, and what would tell; empty where parts are told."""
    if loss.is_told:
        return ""
    known = [part.name for part in loss.parts if part.points and part.points.ends != (0.0, 0.0)]
    missing = _missing(loss)
    if not known:
        return f"{plus_minus(loss.loss_points, 1)} points are not split: {missing}." if missing else ""
    loaded = _loaded(loss)
    lines = [_not_told(loss)] if loaded else []
    if others := [name for name in known if name not in loaded]:
        why, remedy = _why(loss)
        lines += [f"{_capital(listed(others))} cannot be told apart from {why}", remedy]
    lines += ["The same runs on a quiet machine would tell."] if loaded else []
    return " ".join([*lines, *([f"{_capital(missing)}."] if missing else [])])


def parts_sentence(loss: Attribution) -> str:
    """The told parts and what is left: "8.0 ± 2.0 points are contention. The rest, 3 ± 4, ..."."""
    lost = [f"{plus_minus(part.points, 1)} are {part.name}" for part in loss.told if _value(part) > 0]
    gained = [
        f"{part.name} gives back {plus_minus(shares.less(0.0, part.points), 1)}"
        for part in loss.told
        if part.points and _value(part) < 0
    ]
    text = f"{_capital('. '.join(filter(None, [_points(listed(lost)), _capital(listed(gained))])))}."
    rest = loss.rest.points
    if rest is None or rest.ends == (0.0, 0.0):
        return text
    if any(part.points is None for part in loss.parts):
        text = f"{text} {plus_minus(rest, 1)} points are not split{f': {need}' if (need := _missing(loss)) else ''}."
        return f"{text} {_not_told(loss)}" if _loaded(loss) else text
    nothing = BY_LOAD if _loaded(loss) or loss.rest.may_be_load else "0"
    untold_parts = [part.name for part in loss.parts if not part.is_told and _value(part)]
    if loss.rest.is_told or len(untold_parts) < 2:
        what = listed(untold_parts) or REST
        if loss.rest.is_told:
            why = f". {_not_told(loss)}" if _loaded(loss) else "."
            return f"{text} {plus_minus(rest, 1)} more are {what}, which cannot be told apart{why}"
        return f"{text} {_capital(what)} cannot be told apart from {nothing} ({plus_minus(rest, 1)})."
    parts = f"{_capital(REST)} ({listed(untold_parts)})"
    return f"{text} {parts} cannot be told apart from {nothing} ({plus_minus(rest, 1)})."


def nothing_told(losses: Sequence[Attribution]) -> str:
    """What the parts in the rest of these losses cannot be told apart from: "0", or load of other processes too."""
    return f"0 or {BY_LOAD}" if any(_loaded(loss) or loss.rest.may_be_load for loss in losses) else "0"


def rounded_up(points: float) -> str:
    """Points as few digits as one can remember, never less than they are: "3", "0.4"."""
    place = 10.0 ** min(0, math.floor(math.log10(points))) if points else 1.0
    return f"{math.ceil(round(points / place, 9)) * place:.{max(0, round(-math.log10(place)))}f}"


def _why(loss: Attribution) -> tuple[str, str]:
    """("0" and why, the sentence with the remedy) of parts that runs vary too much to tell."""
    known = [part.points for part in loss.parts if part.points]
    repeats, points = loss.would_show()
    if points is None and all(value.rounding and value.ends for value in known):
        return "0 by the digits that logs printed.", "Logs with more digits would tell."
    if points is None or any(value.ends is None for value in known):
        return "0: without repeats nobody knows how much runs differ.", f"--repeats={repeats} would tell."
    return "0.", f"--repeats={repeats} would show parts of {rounded_up(points)} points."


def _loaded(loss: Attribution) -> list[str]:
    """The parts that load of other processes hides."""
    return [part.name for part in loss.parts if part.may_be_load]


def _not_told(loss: Attribution) -> str:
    most = max(load(record) for row in loss.rows for record in row.good)
    return f"{_capital(listed(_loaded(loss)))} cannot be told apart from {BY_LOAD}, up to {share(most)} of the cores."


def _missing(loss: Attribution) -> str:
    """ "contention and exchange need runs that are missing"; "" where none would tell more."""
    names = listed([part.name for part in loss.missing])
    return f"{names} need{'s' if len(loss.missing) == 1 else ''} runs that are missing" if names else ""


def _value(part: Part) -> float:
    return part.points.value if part.points else 0.0


def _points(text: str) -> str:
    """ "points" once, after the first number."""
    return text.replace(" are ", " points are ", 1)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
