"""The rate on more devices than were measured, with an interval; or why there is none.

Letters: n devices; y: how many times as long as one device's step a step takes.
"""

import math
from collections.abc import Sequence

import numpy as np

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction.averaging import NOISE, Average, average, step_chance, variances
from rnn_scaling.analysis.prediction.curves import PARTS, CannotPredict, Curve, PredictedPoint, Prediction
from rnn_scaling.analysis.prediction.models import part_of
from rnn_scaling.analysis.statements import Statement

KIND = "average of models"
WINDOW = 0.75  # of the largest measured n: from there on the last gain is measured
GAIN = 0.5
SIGNIFICANT = 4.0  # standard errors
FAR = 8  # times the largest measured n


def predict(curve: Curve, devices: Sequence[int]) -> Prediction:
    """Predicts the rate of all devices together on each number of `devices`.

    Args:
      devices: numbers from the smallest measured one upwards; also between the measured ones.

    Raises:
      CannotPredict: for a single point, rates that are not positive, n below the measured ones, and curves that stop
        growing in a way that no model explains.
    """
    _check(curve, devices)
    fitted = average(curve)
    if max(devices) > curve.points[-1].devices:
        _check_growth(curve, fitted)
    points = tuple(_point(curve, fitted, n) for n in devices)
    return Prediction(curve, points, fitted.weights, tuple(_statements(curve, points)))


def _check(curve: Curve, devices: Sequence[int]) -> None:
    measured = [point.devices for point in curve.points]
    wrong = [point.devices for point in curve.points if not (point.rate > 0 and math.isfinite(point.rate))]
    below = [n for n in devices if measured and n < measured[0]]
    if wrong:
        raise CannotPredict(Statement("prediction-bad-rate", curve.name, {"devices": wrong}))
    if len(measured) < 2:
        raise CannotPredict(Statement("prediction-few-points", curve.name, {"devices": measured}))
    if below:
        values = {"devices": below, "smallest": measured[0]}
        raise CannotPredict(Statement("prediction-below-measured", curve.name, values))


def _check_growth(curve: Curve, fitted: Average) -> None:
    """Refuses a curve whose last points gain far less than the average of models, which goes on growing, says.

    Compared are the rates that each device added over about the last quarter of the measured n, and over the next
    doubling. A measured gain below GAIN times the predicted one contradicts the models, unless noise explains it.
    """
    last = curve.points[-1]
    before = [point for point in curve.points if point.devices <= WINDOW * last.devices][-1:] or [curve.points[0]]
    span = last.devices - before[0].devices
    measured = (last.rate - before[0].rate) / span
    expected = (float(np.exp(np.median(fitted.log_rates(2 * last.devices)))) - last.rate) / last.devices
    noise = NOISE * math.sqrt(float(variances([last, before[0]]).sum())) * last.rate / span
    if expected > 0 and measured < GAIN * expected and expected - measured > SIGNIFICANT * noise:
        values = {"devices": last.devices, "rate": last.rate, "unit": curve.unit, "expected": expected * span}
        raise CannotPredict(Statement("prediction-stops-growing", curve.name, values))


def _point(curve: Curve, fitted: Average, n: int) -> PredictedPoint:
    logs = fitted.log_rates(n)
    low, value, high = (float(x) for x in np.exp(np.quantile(logs, (0.025, 0.5, 0.975))))
    rate = Interval(value, low, high, KIND, float(logs.std()) * value)
    first = curve.points[0]
    if first.devices != 1:
        return PredictedPoint(n, rate, None, {})
    efficiency = rate.scaled(1 / (n * first.rate))
    return PredictedPoint(n, rate, efficiency, _parts(fitted, n, 1 - efficiency.value))


def _parts(fitted: Average, n: int, lost: float) -> dict[str, float]:
    """What each of PARTS loses of the ideal, on average over the models; the last is the remainder of `lost`."""
    parts = dict.fromkeys(PARTS, 0.0)
    losses, y = fitted.losses(n), np.exp(fitted.log_y(n))
    shared = y / (1 + losses.sum(axis=1))
    parts["contention"] = float(np.mean((shared - 1) / y))
    for term, loss in zip(fitted.terms, losses.T):
        parts[part_of(term, fitted.curve.knowledge)] += float(np.mean(loss * shared / y))
    parts[PARTS[-1]] = lost - sum(parts[part] for part in PARTS[:-1])
    return parts


def _statements(curve: Curve, points: Sequence[PredictedPoint]) -> list[Statement]:
    """Assumptions and limits of the predicted points."""
    last, cores = curve.points[-1].devices, curve.knowledge.cores
    fastest = max(point.rate for point in curve.points)
    beyond = [point.devices for point in points if point.devices > last]
    unknown = [n for n in beyond if step_chance(curve.knowledge, last, n) > 0]
    falling = [point.devices for point in points if point.devices > last and point.rate.value < fastest]
    lists = {
        "prediction-topology-unknown" if not curve.knowledge.links else "prediction-crossing-unknown": unknown,
        "prediction-far": [n for n in beyond if n > FAR * last],
        "prediction-cores": [n for n in beyond if cores and curve.sharing(n) > cores],
        "prediction-two-points": [point.devices for point in curve.points] if len(curve.points) == 2 else [],
    }
    values = {"largest": last, "cores": cores}
    made = [Statement(kind, curve.name, {**values, "devices": n}) for kind, n in lists.items() if n]
    if falling:
        made.append(Statement("prediction-falls", curve.name, {"devices": min(falling)}))
    return made
