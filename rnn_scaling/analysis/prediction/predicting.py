"""The rate on more devices than were measured, with an interval; or why there is none."""

import math
from collections.abc import Sequence

import numpy as np

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction.averaging import Average, average
from rnn_scaling.analysis.prediction.curves import (
    PARTS,
    CannotPredict,
    Curve,
    PredictedPoint,
    Prediction,
)
from rnn_scaling.analysis.statements import Statement

KIND = "average of models"


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
    pass


def _point(curve: Curve, fitted: Average, n: int) -> PredictedPoint:
    logs = fitted.log_rates(n)
    low, value, high = (float(x) for x in np.exp(np.quantile(logs, (0.025, 0.5, 0.975))))
    rate = Interval(value, low, high, KIND, float(logs.std()) * value)
    first = curve.points[0]
    if first.devices != 1:
        return PredictedPoint(n, rate, None, {})
    ideal = n * first.rate
    efficiency = Interval(value / ideal, low / ideal, high / ideal, KIND, float(logs.std()) * value / ideal)
    return PredictedPoint(n, rate, efficiency, _parts(fitted, n, 1 - efficiency.value))


def _parts(fitted: Average, n: int, lost: float) -> dict[str, float]:
    """What each of PARTS loses of the ideal, on average over the models; the last is the remainder of `lost`."""
    parts = dict.fromkeys(PARTS, 0.0)
    losses, y = fitted.losses(n), np.exp(fitted.log_y(n))
    shared = y / (1 + losses.sum(axis=1))
    parts["contention"] = float(np.mean((shared - 1) / y))
    for term, loss in zip(fitted.terms, losses.T):
        parts[term.part] += float(np.mean(loss * shared / y))
    parts[PARTS[-1]] = lost - sum(parts[part] for part in PARTS[:-1])
    return parts


def _statements(curve: Curve, points: Sequence[PredictedPoint]) -> list[Statement]:
    return []
