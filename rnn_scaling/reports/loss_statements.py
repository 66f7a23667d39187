"""The parts of a lost efficiency as statements: those that are measured, what is left, and what would show more."""

import math
from collections.abc import Sequence

from rnn_scaling.analysis.attribution import REST, Attribution, LossPart
from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.disturbance import load
from rnn_scaling.analysis.statements import Statement, interval_values

NOISE, NOISE_OR_LOAD = "the noise", "the noise or the load of other processes"


def unmeasured(loss: Attribution) -> list[Statement]:
    """Why no part is shown, and what would show it; empty where a part is."""
    if loss.is_told:
        return []
    known = [part.name for part in loss.parts if part.points and part.points.ends != (0.0, 0.0)]
    if not known:
        return [_not_split(loss), *_missing(loss)] if loss.missing else []
    hidden = _hidden(loss)
    made = _hidden_by_load(loss)
    if within_noise := [name for name in known if name not in hidden]:
        made += [Statement("parts-within-noise", values={"parts": within_noise}), _remedy(loss)]
    if hidden:
        made.append(Statement("quiet-machine"))
    return [*made, *_missing(loss)]


def parts(loss: Attribution) -> list[Statement]:
    """Each measured part, and what is left."""
    made = [_part(part) for part in loss.told if _value(part)]
    rest = loss.rest.points
    if rest is None or rest.ends == (0.0, 0.0):
        return made
    if any(part.points is None for part in loss.parts):
        return [*made, _not_split(loss, rest), *_missing(loss), *_hidden_by_load(loss)]
    names = [part.name for part in loss.parts if not part.is_told and _value(part)]
    values = {"parts": names or [REST], "points": interval_values(rest)}
    if loss.rest.is_told:
        return [*made, Statement("rest-not-separated", values=values), *_hidden_by_load(loss)]
    kind = "rest-within-noise-or-load" if _may_be_load(loss) else "rest-within-noise"
    return [*made, Statement(kind, values=values)]


def noise_of(losses: Sequence[Attribution]) -> str:
    """What hides the parts in the rest of these losses: the noise, or load of other processes too."""
    return NOISE_OR_LOAD if any(_may_be_load(loss) for loss in losses) else NOISE


def rounded_up(points: float) -> str:
    """Points with few digits, never less than they are: "3", "0.4"."""
    place = 10.0 ** min(0, math.floor(math.log10(points))) if points else 1.0
    return f"{math.ceil(round(points / place, 9)) * place:.{max(0, round(-math.log10(place)))}f}"


def _part(part: LossPart) -> Statement:
    if part.points is None:
        raise ValueError("expected a measured part")
    if part.points.value > 0:
        return Statement("part", part.name, {"points": interval_values(part.points)})
    gained = part.points.subtracted_from(0.0)
    return Statement("part-gains", part.name, {"points": interval_values(gained or part.points)})


def _not_split(loss: Attribution, points: Interval | None = None) -> Statement:
    return Statement("points-not-split", values={"points": interval_values(points or loss.loss_points)})


def _remedy(loss: Attribution) -> Statement:
    known = [part.points for part in loss.parts if part.points]
    repeats, points = loss.would_show()
    if points is None and all(value.rounding and value.ends for value in known):
        return Statement("few-digits")
    if points is None or any(value.ends is None for value in known):
        return Statement("repeats-would-show-spread", values={"repeats": repeats})
    return Statement("repeats-would-show-parts", values={"repeats": repeats, "points": rounded_up(points)})


def _hidden(loss: Attribution) -> list[str]:
    return [part.name for part in loss.parts if part.may_be_load]


def _may_be_load(loss: Attribution) -> bool:
    return bool(_hidden(loss)) or loss.rest.may_be_load


def _hidden_by_load(loss: Attribution) -> list[Statement]:
    if not (hidden := _hidden(loss)):
        return []
    most = max(load(record) for row in loss.rows for record in row.good)
    return [Statement("parts-hidden-by-load", values={"parts": hidden, "share": most})]


def _missing(loss: Attribution) -> list[Statement]:
    names = [part.name for part in loss.missing]
    return [Statement("parts-need-runs", values={"parts": names})] if names else []


def _value(part: LossPart) -> float:
    return part.points.value if part.points else 0.0
