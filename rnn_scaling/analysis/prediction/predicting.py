"""The rate on more devices than were measured, with an interval, or why there is none; what high efficiency would need.

Letters: n devices; y: how many times as long as one device's step a step takes.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction.averaging import (
    NOISE,
    Average,
    average,
    step_chance,
    variances,
)
from rnn_scaling.analysis.prediction.curves import (
    PARTS,
    CannotPredict,
    Curve,
    Knowledge,
    MeasuredPoint,
    PredictedPoint,
    Prediction,
)
from rnn_scaling.analysis.prediction.models import part_of
from rnn_scaling.analysis.statements import Statement, interval_values

KIND = "average of models"
WINDOW = 0.75  # of the largest measured n: from there on the last gain is measured
GAIN = 0.5
SIGNIFICANT = 4.0  # standard errors
MOST_FITTED = 32  # points; the time of a fit grows with their number
FAR = 8  # times the largest measured n
EFFICIENT = 0.9
MOST_MODELS = 3  # that are named
WIDE = 2.0  # the number over the low end of its interval, or the high end over the number, that is no plan
SPEEDUP = "x"  # the unit of a curve of speedups


def predict(curve: Curve, devices: Sequence[int]) -> Prediction:
    """Predicts the rate of all devices together on each number of `devices`.

    Args:
      devices: numbers from the smallest measured one upwards; also between the measured ones.

    Raises:
      CannotPredict: for a single point, rates that are not positive, n below the measured ones, and curves that stop
        growing in a way that no model explains.
    """
    _check(curve, devices)
    fitted = average(dataclasses.replace(curve, points=fitted_points(curve)))
    if max(devices) > curve.points[-1].devices:
        _check_growth(curve, fitted)
    points = tuple(_point(curve, fitted, n) for n in devices)
    return Prediction(
        curve, points, fitted.weights, tuple(_statements(curve, points, fitted))
    )


def fitted_points(curve: Curve) -> tuple[MeasuredPoint, ...]:
    """Return the points that models are fitted to: all, or a sample of many.

    Points close to each other in ratio say the same about a curve, so the sample is
    spread evenly over log(n). It has the fewest and the most devices.
    """
    if len(curve.points) <= MOST_FITTED:
        return curve.points
    devices = np.array([point.devices for point in curve.points], float)
    chosen = set()
    for wanted in np.geomspace(devices[0], devices[-1], MOST_FITTED):
        chosen.add(int(np.abs(devices - wanted).argmin()))
    return tuple(curve.points[k] for k in sorted(chosen))


def _check(curve: Curve, devices: Sequence[int]) -> None:
    """Raise CannotPredict for a curve, or for devices, that no model is for."""
    measured = [point.devices for point in curve.points]
    wrong = [
        point.devices
        for point in curve.points
        if not (point.rate > 0 and math.isfinite(point.rate))
    ]
    if wrong:
        _refuse("prediction-bad-rate", curve, devices=wrong)
    if len(measured) < 2:
        _refuse("prediction-few-points", curve, devices=measured)
    below = [n for n in devices if n < measured[0]]
    if below:
        _refuse("prediction-below-measured", curve, devices=below, smallest=measured[0])


def _refuse(kind: str, curve: Curve, **values: Any) -> NoReturn:
    raise CannotPredict(Statement(kind, curve.name, values))


def _check_growth(curve: Curve, fitted: Average) -> None:
    """Refuse a curve whose last points gain far less than the average of models predicts.

    Compared are the rates that each device added over about the last quarter of the measured n, and over the next
    doubling. A measured gain below GAIN times the predicted one contradicts the models, unless noise explains it.
    """
    last = curve.points[-1]
    before = curve.points[0]
    for point in curve.points:
        if point.devices <= WINDOW * last.devices:
            before = point
    span = last.devices - before.devices
    measured = (last.rate - before.rate) / span
    doubled = float(np.exp(np.median(fitted.log_rates(2 * last.devices))))
    expected = (doubled - last.rate) / last.devices
    error = NOISE * math.sqrt(float(variances([last, before]).sum()))
    noise = error * last.rate / span
    is_small = expected > 0 and measured < GAIN * expected
    if is_small and expected - measured > SIGNIFICANT * noise:
        _refuse(
            "prediction-stops-growing",
            curve,
            devices=last.devices,
            rate=last.rate,
            unit=curve.unit,
            expected=expected * span,
        )


def _point(curve: Curve, fitted: Average, n: int) -> PredictedPoint:
    logs = fitted.log_rates(n)
    low, value, high = (
        float(x) for x in np.exp(np.quantile(logs, (0.025, 0.5, 0.975)))
    )
    rate = Interval(value, low, high, KIND, float(logs.std()) * value)
    first = curve.points[0]
    if first.devices != 1:
        return PredictedPoint(n, rate, None, {})
    efficiency = rate.scaled(1 / (n * first.rate))
    return PredictedPoint(n, rate, efficiency, _parts(fitted, n, 1 - efficiency.value))


def _parts(fitted: Average, n: int, lost: float) -> dict[str, float]:
    """Return what each of PARTS loses of the ideal, on average over the models.

    The last part is the remainder of `lost`.
    """
    parts = dict.fromkeys(PARTS, 0.0)
    losses = fitted.losses(n)
    y = np.exp(fitted.log_y(n))
    shared = y / (1 + losses.sum(axis=1))
    parts["contention"] = float(np.mean((shared - 1) / y))
    for term, loss in zip(fitted.terms, losses.T):
        part = part_of(term, fitted.curve.knowledge)
        parts[part] += float(np.mean(loss * shared / y))
    *known, rest = PARTS
    parts[rest] = lost - sum(parts[part] for part in known)
    return parts


def _statements(
    curve: Curve, points: Sequence[PredictedPoint], fitted: Average
) -> list[Statement]:
    """Return assumptions and limits of the predicted points."""
    last = curve.points[-1].devices
    cores = curve.knowledge.cores
    common = {"largest": last, "is_device": not curve.counts_machines}
    made = []

    def add(kind: str, devices: Sequence[int], **values: Any) -> None:
        if devices:
            values = {**common, **values, "devices": list(devices)}
            made.append(Statement(kind, curve.name, values))

    beyond = [point.devices for point in points if point.devices > last]
    add("prediction-superlinear", superlinear(curve))
    chances = {n: step_chance(curve.knowledge, last, n) for n in beyond}
    unknown = [n for n in beyond if chances[n] > 0]
    if unknown and curve.knowledge.links:
        add("prediction-crossing-unknown", unknown)
    elif unknown:
        covered = _covered_steps(fitted, unknown[-1])
        kind = "prediction-topology-unknown"
        if curve.counts_machines:
            kind = "prediction-switch-unknown"
        add(kind, unknown[-1:], chance=chances[unknown[-1]], covered=covered)
    add("prediction-far", [n for n in beyond if n > FAR * last])
    over_cores = [n for n in beyond if cores and curve.sharing(n) > cores]
    add("prediction-cores", over_cores, cores=cores)
    if len(curve.points) == 2:
        add("prediction-two-points", [point.devices for point in curve.points])
    if len(curve.points) > MOST_FITTED:
        counts = {"fitted": len(fitted_points(curve)), "measured": len(curve.points)}
        made.append(Statement("prediction-sampled", curve.name, counts))
    fastest = max(point.rate for point in curve.points)
    for point in points:
        if point.devices > last and point.rate.value < fastest:
            values = {**common, "devices": point.devices}
            made.append(Statement("prediction-falls", curve.name, values))
            break
    return made


def superlinear(curve: Curve) -> list[int]:
    """Return the measured numbers of devices that are faster than the ideal.

    No model has such a gain. Rounding and the error of the fewest devices allow a little.
    """
    first = curve.points[0]
    found = []
    for point in curve.points[1:]:
        gain = math.log(point.rate / point.devices * first.devices / first.rate)
        errors = [NOISE, point.rounding, first.rounding]
        errors += [2 * (point.error or 0.0), 2 * (first.error or 0.0)]
        if gain > math.fsum(errors):
            found.append(point.devices)
    return found


def _covered_steps(fitted: Average, devices: int) -> float:
    """Return how often the interval contains a rate after a step of the topology.

    Returns:
      Of the drawn curves that have such a step, the share whose rates are inside; 1 if
      the step is so unlikely that none has it.
    """
    logs = fitted.log_rates(devices)
    low, high = np.quantile(logs, (0.025, 0.975))
    largest = fitted.curve.points[-1].devices
    chance = step_chance(fitted.curve.knowledge, largest, devices)
    stepped = logs[fitted.step_place < chance]
    if not len(stepped):
        return 1.0
    return float(np.mean((low <= stepped) & (stepped <= high)))


def answer(prediction: Prediction) -> list[Statement]:
    """Return the rate on the most devices whose interval is not WIDE, and on the most.

    Of the first it also says what would make them EFFICIENT.
    """
    curve = prediction.curve
    measured = {point.devices for point in curve.points}
    new = [point for point in prediction.points if point.devices not in measured]
    if not new:
        is_device = {"is_device": not curve.counts_machines}
        return [Statement("predict-measured", curve.name, is_device)]
    last = new[-1]
    narrow = [point for point in new if not _is_wide(point.rate)]
    point = narrow[-1] if narrow else last
    made = [_rate(curve, point)]
    if point.efficiency:
        percent = interval_values(point.efficiency.scaled(100))
        values: dict[str, Any] = {"devices": point.devices, "efficiency": percent}
        made.append(Statement("predict-efficiency", curve.name, values))
        made.append(_needed(point, point.efficiency))
    if point is not last:
        made.append(_rate(curve, last))
    return made


def _rate(curve: Curve, point: PredictedPoint) -> Statement:
    """Return the predicted number as the source prints its numbers."""
    values: dict[str, Any] = {
        "devices": point.devices,
        "is_device": not curve.counts_machines,
        "unit": curve.time.unit if curve.time else curve.unit,
        "rate": interval_values(curve.shown(point.devices, point.rate)),
    }
    if curve.time:
        kind = "predict-time"
    elif curve.unit == SPEEDUP:
        kind = "predict-speedup"
    else:
        kind = "predict-rate"
    return Statement(kind, curve.name, values)


def _is_wide(rate: Interval) -> bool:
    low, high = rate.ends or (rate.value, rate.value)
    return not high <= WIDE * rate.value <= WIDE**2 * low


def _needed(point: PredictedPoint, efficiency: Interval) -> Statement:
    """Return what would have to change on these devices for an efficiency of EFFICIENT.

    The parts of a step are times, and efficiency is 1 / (1 + losses). Parts are
    therefore removed from the step, never from the efficiency.
    """
    part = largest_part(point.parts)
    values: dict[str, Any] = {
        "devices": point.devices,
        "wanted": EFFICIENT,
        "part": part,
    }
    low = efficiency.ends[0] if efficiency.ends else efficiency.value
    if low >= EFFICIENT:
        return Statement("predict-is-efficient", values=values)
    if efficiency.value >= EFFICIENT:
        return Statement("predict-may-be-efficient", values=values)
    if part is None or part == PARTS[-1]:
        values["factor"] = (1 / efficiency.value - 1) / (1 / EFFICIENT - 1)
        return Statement("predict-needs-unsplit", values=values)
    lost = point.parts[part]
    without = efficiency_without(efficiency.value, lost)
    if without <= EFFICIENT:
        values["without"] = without
        return Statement("predict-needs-more", values=values)
    part_time = lost / efficiency.value
    excess_time = 1 / efficiency.value - 1 / EFFICIENT
    values["factor"] = part_time / (part_time - excess_time)
    return Statement("predict-needs", values=values)


def efficiency_without(efficiency: float, lost: float) -> float:
    """Return the efficiency of a step from which one part is removed.

    Args:
      efficiency: Ideal time of a step over its time t, above 0.
      lost: Time of the part over t, below 1. These are the points of efficiency
        that the part takes of the ideal.

    Returns:
      Ideal time over what remains of t: efficiency / (1 - lost).
    """
    return efficiency / (1 - lost)


def largest_part(parts: Mapping[str, float]) -> str | None:
    """Return the part that loses most; None if none loses anything."""
    name = max(parts, key=lambda part: parts[part], default=None)
    return name if name is not None and parts[name] > 0 else None


def sources(prediction: Prediction) -> tuple[str, str]:
    """Return what the points of the curve are called, and all others."""
    if prediction.is_simulated:
        return "measured" if prediction.curve.source else "stated", "simulated"
    return "measured", "predicted"


def assumptions(prediction: Prediction) -> list[Statement]:
    """Return the models, what was known, and what the models could not know."""
    curve = prediction.curve
    made = []
    if not prediction.is_simulated:
        weights = prediction.weights
        shares = [f"{name} ({100 * weights[name]:.0f} %)" for name in weights]
        values = {"models": shares[:MOST_MODELS], "count": len(weights)}
        made.append(Statement("predict-models", curve.name, values))
        if all(point.error is None for point in curve.points):
            made.append(Statement("predict-no-repeats", curve.name))
    return [*made, *_known(curve.knowledge), *prediction.statements]


def _known(known: Knowledge) -> list[Statement]:
    """Return the bytes and the links that the models use."""
    made = []
    sent = (known.summed_bytes or 0.0) + (known.gathered_bytes or 0.0)
    has_speed = any(math.isfinite(link.bytes_per_s) for link in known.links)
    if sent:
        made.append(Statement("predict-bytes", values={"mb": _exact(sent / 1e6)}))
    elif known.summed_bytes is None and has_speed:
        return [Statement("predict-links-unused")]
    kinds = ["predict-link"]
    if len(known.links) > 1:
        kinds = ["predict-link-inside", "predict-link-between"]
    for link, kind in zip(known.links, kinds):
        if math.isfinite(link.bytes_per_s):
            gbit = _exact(8e-9 * link.bytes_per_s)
            values = {"gbit": gbit, "latency_us": _exact(1e6 * link.alpha_s)}
            made.append(Statement(kind, values=values))
        else:
            made.append(Statement("predict-links-unknown"))
    return made


def _exact(value: float) -> dict[str, Any]:
    return interval_values(Interval(value))
