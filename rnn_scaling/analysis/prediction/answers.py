"""What a prediction answers: the rate on the most devices, and what would have to change for high efficiency."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction.curves import Knowledge, PredictedPoint, Prediction
from rnn_scaling.analysis.prediction.track_record import Case, tally
from rnn_scaling.analysis.statements import Statement, interval_values

EFFICIENT = 0.9
MOST_MODELS, LEAST_SHARE = 3, 0.05  # models that are named
SPEEDUP = "x"  # the unit of a curve of speedups


def answer(prediction: Prediction) -> list[Statement]:
    """The rate and the efficiency on the most devices, and what would have to change for an efficiency of EFFICIENT."""
    curve, point = prediction.curve, prediction.points[-1]
    values = {"devices": point.devices, "unit": curve.unit, "rate": interval_values(point.rate)}
    made = [Statement("predict-speedup" if curve.unit == SPEEDUP else "predict-rate", curve.name, values)]
    if point.efficiency:
        percent = {"devices": point.devices, "efficiency": interval_values(point.efficiency.scaled(100))}
        made += [Statement("predict-efficiency", curve.name, percent), _needed(curve.name, point)]
    return made


def _needed(name: str, point: PredictedPoint) -> Statement:
    assert point.efficiency is not None
    values: dict[str, Any] = {"devices": point.devices, "wanted": EFFICIENT}
    missing = EFFICIENT - point.efficiency.value
    if missing <= 0:
        return Statement("predict-is-efficient", name, values)
    part = largest_part(point.parts)
    if part is None:
        return Statement("predict-needs-unknown", name, values)
    lost = point.parts[part]
    values |= {"part": part, "lost": lost}
    if lost <= missing * 1.0001:
        return Statement("predict-needs-more", name, {**values, "without": point.efficiency.value + lost})
    return Statement("predict-needs", name, {**values, "factor": lost / (lost - missing)})


def largest_part(parts: Mapping[str, float]) -> str | None:
    """The part that loses most; None if none loses anything."""
    name = max(parts, key=lambda part: parts[part], default=None)
    return name if name is not None and parts[name] > 0 else None


def assumptions(prediction: Prediction) -> list[Statement]:
    """The models, what was known, and what the models could not know."""
    curve = prediction.curve
    shares = [*prediction.weights.items()][:MOST_MODELS]
    models = [f"{name} {100 * share:.0f} %" for name, share in shares if share >= LEAST_SHARE or share == shares[0][1]]
    more = len(prediction.weights) - len(models)
    made = [Statement("predict-models" if more else "predict-models-all", curve.name, {"models": models, "more": more})]
    if all(point.error is None for point in curve.points):
        made.append(Statement("predict-no-repeats", curve.name))
    return [*made, *_known(curve.name, curve.knowledge), *prediction.statements]


def _known(name: str, known: Knowledge) -> list[Statement]:
    made = []
    if known.summed_bytes is not None and known.summed_bytes + (known.gathered_bytes or 0.0) > 0:
        gathered = (known.gathered_bytes or 0.0) / 1e6
        values = {"summed_mb": _number(known.summed_bytes / 1e6), "gathered_mb": _number(gathered)}
        made.append(Statement("predict-bytes-gathered" if known.gathered_bytes else "predict-bytes", name, values))
    for link in known.links:
        speed = {"gbit": _number(8e-9 * link.bytes_per_s), "latency_us": _number(1e6 * link.alpha_s)}
        values: dict[str, Any] = {**speed, "devices": link.devices}
        if math.isfinite(link.bytes_per_s):
            made.append(Statement("predict-link-inside" if link.devices else "predict-link", name, values))
        elif link.devices:
            made.append(Statement("predict-machine", name, {"devices": link.devices}))
    if known.links and known.summed_bytes is None and known.algorithm != "none":
        made.append(Statement("predict-links-unused", name))
    return made


def _number(value: float) -> dict[str, Any]:
    return interval_values(Interval(value))


def unit_text(unit: str) -> str:
    """ "words/s"; of speedups "times"."""
    return "times" if unit == SPEEDUP else f"{unit}/s"


def outcomes(cases: Sequence[Case]) -> list[Statement]:
    """Hit or miss of each case."""
    return [
        Statement(
            "predict-hit" if case.is_hit else "predict-miss",
            case.prediction.series,
            {
                "devices": case.devices,
                "rate": interval_values(Interval(case.point.rate, case.point.low, case.point.high)),
                "measured": _number(case.measured),
                "unit": unit_text(case.prediction.unit),
                "fitted": case.prediction.fitted[-1].devices,
            },
        )
        for case in cases
    ]


def track_record(cases: Sequence[Case]) -> Statement:
    """How often intervals held."""
    total = tally(cases)
    if not total.cases:
        return Statement("track-record-none")
    return Statement("track-record", values={"cases": total.cases, "held": total.held, "error": total.error})
