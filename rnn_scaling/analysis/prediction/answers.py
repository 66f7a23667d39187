"""What a prediction answers: the rate on many devices, and what would have to change for high efficiency."""

import math
from collections.abc import Mapping
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction.curves import PARTS, Curve, Knowledge, PredictedPoint, Prediction
from rnn_scaling.analysis.statements import Statement, interval_values

EFFICIENT = 0.9
MOST_MODELS = 3  # that are named
WIDE = 2.0  # the number over the low end of its interval, or the high end over the number, that is no plan
SPEEDUP = "x"  # the unit of a curve of speedups


def answer(prediction: Prediction) -> list[Statement]:
    """The rate on the most devices whose interval is not WIDE, what would make them EFFICIENT, and on the most."""
    curve, measured = prediction.curve, {point.devices for point in prediction.curve.points}
    if not (new := [point for point in prediction.points if point.devices not in measured]):
        return [Statement("predict-measured", curve.name)]
    point = ([point for point in new if not _is_wide(point.rate)] or new)[-1]
    made = [_rate(curve, point)]
    if point.efficiency:
        percent = {"devices": point.devices, "efficiency": interval_values(point.efficiency.scaled(100))}
        made += [Statement("predict-efficiency", curve.name, percent), _needed(point, point.efficiency.value)]
    return made if point is new[-1] else [*made, _rate(curve, new[-1])]


def _rate(curve: Curve, point: PredictedPoint) -> Statement:
    values = {"devices": point.devices, "unit": curve.unit, "rate": interval_values(point.rate)}
    return Statement("predict-speedup" if curve.unit == SPEEDUP else "predict-rate", curve.name, values)


def _is_wide(rate: Interval) -> bool:
    low, high = rate.ends or (rate.value, rate.value)
    return not high <= WIDE * rate.value <= WIDE**2 * low


def _needed(point: PredictedPoint, efficiency: float) -> Statement:
    """What would have to change on these devices for an efficiency of EFFICIENT."""
    missing, part = EFFICIENT - efficiency, largest_part(point.parts)
    values: dict[str, Any] = {"devices": point.devices, "wanted": EFFICIENT, "part": part}
    if missing <= 0:
        return Statement("predict-is-efficient", values=values)
    if part is None or part == PARTS[-1]:
        return Statement("predict-needs-unsplit", values={**values, "factor": (1 - efficiency) / (1 - EFFICIENT)})
    lost = point.parts[part]
    if lost <= missing:
        return Statement("predict-needs-more", values={**values, "without": efficiency + lost})
    return Statement("predict-needs", values={**values, "factor": lost / (lost - missing)})


def largest_part(parts: Mapping[str, float]) -> str | None:
    """The part that loses most; None if none loses anything."""
    name = max(parts, key=lambda part: parts[part], default=None)
    return name if name is not None and parts[name] > 0 else None


def sources(prediction: Prediction) -> tuple[str, str]:
    """What the points of the curve are called, and all others."""
    if prediction.is_simulated:
        return "measured" if prediction.curve.source else "stated", "simulated"
    return "measured", "predicted"


def assumptions(prediction: Prediction) -> list[Statement]:
    """The models, what was known, and what the models could not know."""
    curve = prediction.curve
    if prediction.is_simulated:
        return [*_known(curve.knowledge), *prediction.statements]
    models = [f"{name} ({100 * share:.0f} %)" for name, share in [*prediction.weights.items()][:MOST_MODELS]]
    made = [Statement("predict-models", curve.name, {"models": models, "count": len(prediction.weights)})]
    if all(point.error is None for point in curve.points):
        made.append(Statement("predict-no-repeats", curve.name))
    return [*made, *_known(curve.knowledge), *prediction.statements]


def _known(known: Knowledge) -> list[Statement]:
    made = []
    if sent := (known.summed_bytes or 0.0) + (known.gathered_bytes or 0.0):
        made.append(Statement("predict-bytes", values={"mb": interval_values(Interval(sent / 1e6))}))
    elif known.summed_bytes is None and any(math.isfinite(link.bytes_per_s) for link in known.links):
        return [Statement("predict-links-unused")]
    kinds = ["predict-link-inside", "predict-link-between"] if len(known.links) > 1 else ["predict-link"]
    for link, kind in zip(known.links, kinds):
        speeds = {"gbit": 8e-9 * link.bytes_per_s, "latency_us": 1e6 * link.alpha_s}
        values = {name: interval_values(Interval(value)) for name, value in speeds.items()}
        is_known = math.isfinite(link.bytes_per_s)
        made.append(Statement(kind, values=values) if is_known else Statement("predict-links-unknown"))
    return made
