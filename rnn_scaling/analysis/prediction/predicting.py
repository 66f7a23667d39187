"""The rate on more devices than were measured, and the needs of a high efficiency.

Letters: n devices; y: time of a step over the time of a step on one device.

Callers use `predict` or `MeasuredSeries.predict`; `averaging` has the statistics.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.interval_kinds import Basis, IntervalKind
from rnn_scaling.analysis.prediction.averaging import (
    NOISE,
    Average,
    average,
    compute_step_chance,
    list_variances,
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
from rnn_scaling.analysis.prediction.models import compute_loss_part
from rnn_scaling.analysis.statements import Statement, state

# Share of the largest measured n; the last gain is measured from the point below it.
_WINDOW = 0.75
_MIN_GAIN = 0.5  # measured gain / predicted gain
_SIGNIFICANT = 4.0  # standard errors
MAX_FITTED = 32  # points; the time of a fit grows with their number
MAX_EXTRAPOLATION = 8  # times the largest measured n
_EFFICIENT = 0.9
_MAX_NAMED_MODELS = 3
# A number over its low end, or the high end over the number; wider intervals do not
# suffice to plan.
_MAX_WIDTH = 2.0
SPEEDUP_UNIT = "x"  # the unit of a curve of speedups


def predict(curve: Curve, devices: Sequence[int]) -> Prediction:
    """Predict the rate of all devices together on each number of `devices`.

    Args:
      curve: The measured points.
      devices: Numbers from the smallest measured one upwards, also between the measured
        ones.

    Raises:
      CannotPredict: For a single point, rates that are not positive, n below the
        measured ones, and curves that stop growing in a way that no model explains.
    """
    _check(curve, devices)
    average_model = average(
        dataclasses.replace(curve, points=list_fitted_points(curve))
    )
    if max(devices) > curve.points[-1].devices:
        _check_growth(curve, average_model)
    points = tuple(_predict_point(curve, average_model, n) for n in devices)
    statements = _make_statements(curve, points, average_model)
    return Prediction(curve, points, average_model.weights, tuple(statements))


def list_fitted_points(curve: Curve) -> tuple[MeasuredPoint, ...]:
    """Return the points that models are fitted to: all, or a sample of many.

    Points close to each other in ratio add little about a curve, so the sample is
    spread evenly over log(n). It contains the fewest and the most devices.
    """
    if len(curve.points) <= MAX_FITTED:
        return curve.points
    devices = np.array([point.devices for point in curve.points], float)
    targets = np.geomspace(devices[0], devices[-1], MAX_FITTED)
    nearest = np.abs(devices - targets[:, None]).argmin(axis=1)
    return tuple(curve.points[index] for index in np.unique(nearest))


def _check(curve: Curve, devices: Sequence[int]) -> None:
    """Raise CannotPredict if no model applies to the curve or to the devices."""
    measured_counts = [point.devices for point in curve.points]
    invalid = [
        point.devices
        for point in curve.points
        if not (point.rate > 0 and math.isfinite(point.rate))
    ]
    if invalid:
        _refuse("prediction-bad-rate", curve, devices=invalid)
    if len(measured_counts) < 2:
        _refuse("prediction-few-points", curve, devices=measured_counts)
    too_few = [n for n in devices if n < measured_counts[0]]
    if too_few:
        _refuse(
            "prediction-below-measured",
            curve,
            devices=too_few,
            smallest=measured_counts[0],
        )


def _refuse(kind: str, curve: Curve, **values: Any) -> NoReturn:
    raise CannotPredict(state(kind, curve.name, **values))


def _check_growth(curve: Curve, average_model: Average) -> None:
    """Refuse a curve whose last points gain far less than the average of models predicts.

    The rates that each device added over about the last quarter of the measured n are
    compared with the next doubling. A measured gain below _MIN_GAIN times the predicted
    one contradicts the models, unless noise explains it.
    """
    last = curve.points[-1]
    start = curve.points[0]
    for point in curve.points:
        if point.devices <= _WINDOW * last.devices:
            start = point
    span = last.devices - start.devices
    measured_growth = (last.rate - start.rate) / span
    doubled = float(np.exp(np.median(average_model.log_rates(2 * last.devices))))
    expected = (doubled - last.rate) / last.devices
    error = NOISE * math.sqrt(float(list_variances([last, start]).sum()))
    noise = error * last.rate / span
    is_small = expected > 0 and measured_growth < _MIN_GAIN * expected
    if is_small and expected - measured_growth > _SIGNIFICANT * noise:
        _refuse(
            "prediction-stops-growing",
            curve,
            devices=last.devices,
            rate=last.rate,
            unit=curve.unit,
            expected=expected * span,
        )


def _predict_point(curve: Curve, average_model: Average, n: int) -> PredictedPoint:
    logs = average_model.log_rates(n)
    quantiles = np.exp(np.quantile(logs, (0.025, 0.5, 0.975)))
    low, value, high = map(float, quantiles)
    rate = Interval(
        value,
        low=low,
        high=high,
        kind=IntervalKind(Basis.MODELS),
        standard_error=float(logs.std()) * value,
    )
    first = curve.points[0]
    if first.devices != 1:
        return PredictedPoint(n, rate, None, {})
    efficiency = rate.scaled(1 / (n * first.rate))
    return PredictedPoint(
        n,
        rate,
        efficiency,
        _compute_lost_shares(average_model, n, 1 - efficiency.value),
    )


def _compute_lost_shares(
    average_model: Average, n: int, lost: float
) -> dict[str, float]:
    """Return the share of the ideal that each of PARTS loses, averaged over the models.

    The last part is the remainder of `lost`.
    """
    parts = dict.fromkeys(PARTS, 0.0)
    losses = average_model.losses(n)
    y = np.exp(average_model.log_y(n))
    loss_factor = y / (1 + losses.sum(axis=1))
    parts["contention"] = float(np.mean((loss_factor - 1) / y))
    for term, loss in zip(average_model.terms, losses.T):
        part = compute_loss_part(term, average_model.curve.knowledge)
        parts[part] += float(np.mean(loss * loss_factor / y))
    *causes, unsplit = PARTS
    parts[unsplit] = lost - sum(parts[cause] for cause in causes)
    return parts


def _make_statements(
    curve: Curve, points: Sequence[PredictedPoint], average_model: Average
) -> list[Statement]:
    """Return assumptions and limits of the predicted points."""
    last = curve.points[-1].devices
    cores = curve.knowledge.cores
    common = {"largest": last, "is_device": not curve.counts_machines}
    statements = []

    def add(kind: str, devices: Sequence[int], **values: Any) -> None:
        if devices:
            values = {**common, **values, "devices": list(devices)}
            statements.append(state(kind, curve.name, **values))

    beyond = [point.devices for point in points if point.devices > last]
    add("prediction-superlinear", _find_superlinear(curve))
    chances = {n: compute_step_chance(curve.knowledge, last, n) for n in beyond}
    uncertain = [n for n in beyond if chances[n] > 0]
    if uncertain and curve.knowledge.links:
        add("prediction-crossing-unknown", uncertain)
    elif uncertain:
        covered = _compute_topology_step_coverage(average_model, uncertain[-1])
        kind = "prediction-topology-unknown"
        if curve.counts_machines:
            kind = "prediction-switch-unknown"
        add(kind, uncertain[-1:], chance=chances[uncertain[-1]], covered=covered)
    add("prediction-far", [n for n in beyond if n > MAX_EXTRAPOLATION * last])
    over_cores = [n for n in beyond if cores and curve.local_devices(n) > cores]
    add("prediction-cores", over_cores, cores=cores)
    if len(curve.points) == 2:
        add("prediction-two-points", [point.devices for point in curve.points])
    if len(curve.points) > MAX_FITTED:
        statements.append(
            state(
                "prediction-sampled",
                curve.name,
                fitted=len(list_fitted_points(curve)),
                measured=len(curve.points),
            )
        )
    fastest = max(point.rate for point in curve.points)
    for point in points:
        if point.devices > last and point.rate.value < fastest:
            values = {**common, "devices": point.devices}
            statements.append(state("prediction-falls", curve.name, **values))
            break
    return statements


def _find_superlinear(curve: Curve) -> list[int]:
    """Return the measured numbers of devices that are faster than the ideal.

    No model has such a gain. Rounding and the error of the fewest devices allow a little.
    """
    first = curve.points[0]
    devices = []
    for point in curve.points[1:]:
        gain = math.log(point.rate / point.devices * first.devices / first.rate)
        errors = [NOISE, point.rounding, first.rounding]
        errors += [2 * (point.error or 0.0), 2 * (first.error or 0.0)]
        if gain > math.fsum(errors):
            devices.append(point.devices)
    return devices


def _compute_topology_step_coverage(average_model: Average, devices: int) -> float:
    """Return how often the interval contains a rate after a step of the topology.

    Returns:
      The share inside the interval of the drawn curves that have such a step; 1 if none
      has it, because it is so unlikely.
    """
    logs = average_model.log_rates(devices)
    low, high = np.quantile(logs, (0.025, 0.975))
    largest = average_model.curve.points[-1].devices
    chance = compute_step_chance(average_model.curve.knowledge, largest, devices)
    stepped = logs[average_model.step_threshold < chance]
    if not len(stepped):
        return 1.0
    return float(np.mean((low <= stepped) & (stepped <= high)))


def answer(prediction: Prediction) -> list[Statement]:
    """Return the rate on the most devices, and on the most with a narrow interval.

    The efficiency, and the change that it needs, belong to the narrow interval.
    """
    curve = prediction.curve
    measured_counts = {point.devices for point in curve.points}
    new_points = [
        point for point in prediction.points if point.devices not in measured_counts
    ]
    if not new_points:
        return [
            state("predict-measured", curve.name, is_device=not curve.counts_machines)
        ]
    last = new_points[-1]
    narrow = [point for point in new_points if not _is_wide(point.rate)]
    point = narrow[-1] if narrow else last
    statements = [_state_rate(curve, point)]
    if point.efficiency:
        percent = point.efficiency.scaled(100)
        statements.append(
            state(
                "predict-efficiency",
                curve.name,
                devices=point.devices,
                efficiency=percent,
            )
        )
        statements.append(_state_needs(point, point.efficiency))
    if point is not last:
        statements.append(_state_rate(curve, last))
    return statements


def _state_rate(curve: Curve, point: PredictedPoint) -> Statement:
    """Return the predicted number as the source prints its numbers."""
    if curve.time:
        kind = "predict-time"
    elif curve.unit == SPEEDUP_UNIT:
        kind = "predict-speedup"
    else:
        kind = "predict-rate"
    return state(
        kind,
        curve.name,
        devices=point.devices,
        is_device=not curve.counts_machines,
        unit=curve.time.unit if curve.time else curve.unit,
        rate=curve.to_source_unit(point.devices, point.rate),
    )


def _is_wide(rate: Interval) -> bool:
    low, high = rate.ends or (rate.value, rate.value)
    return not high <= _MAX_WIDTH * rate.value <= _MAX_WIDTH**2 * low


def _state_needs(point: PredictedPoint, efficiency: Interval) -> Statement:
    """Return the change that these devices need for an efficiency of EFFICIENT.

    The parts of a step are times, and efficiency is 1 / (1 + losses). Parts are
    therefore removed from the step, never from the efficiency.
    """
    part = find_largest_part(point.parts)
    values: dict[str, Any] = {
        "devices": point.devices,
        "wanted": _EFFICIENT,
        "part": part,
    }
    low, high = efficiency.ends or (efficiency.value, efficiency.value)
    if low >= _EFFICIENT:
        return state("predict-is-efficient", **values)
    may_be_efficient = high >= _EFFICIENT and _is_wide(efficiency)
    if efficiency.value >= _EFFICIENT or may_be_efficient:
        return state("predict-may-be-efficient", **values)
    if part is None or part == PARTS[-1]:
        values["factor"] = (1 / efficiency.value - 1) / (1 / _EFFICIENT - 1)
        return state("predict-needs-unsplit", **values)
    lost = point.parts[part]
    # Ideal time over the remaining time of the step.
    improved = efficiency.value / (1 - lost)
    if improved <= _EFFICIENT:
        values["without"] = improved
        return state("predict-needs-more", **values)
    part_time = lost / efficiency.value
    excess_time = 1 / efficiency.value - 1 / _EFFICIENT
    values["factor"] = part_time / (part_time - excess_time)
    return state("predict-needs", **values)


def find_largest_part(parts: Mapping[str, float]) -> str | None:
    """Return the part with the largest loss; None without a loss."""
    name = max(parts, key=lambda part: parts[part], default=None)
    return name if name is not None and parts[name] > 0 else None


def list_source_names(prediction: Prediction) -> tuple[str, str]:
    """Return the names of the curve's own points and of all other points."""
    if prediction.is_simulated:
        return "measured" if prediction.curve.source else "stated", "simulated"
    return "measured", "predicted"


def state_assumptions(prediction: Prediction) -> list[Statement]:
    """Return the models, the facts that they used, and the facts that they lacked."""
    curve = prediction.curve
    statements = []
    if not prediction.is_simulated:
        weights = prediction.weights
        shares = [f"{name} ({100 * weights[name]:.0f} %)" for name in weights]
        statements.append(
            state(
                "predict-models",
                curve.name,
                models=shares[:_MAX_NAMED_MODELS],
                count=len(weights),
            )
        )
        if all(point.error is None for point in curve.points):
            statements.append(state("predict-no-repeats", curve.name))
    return [*statements, *_list_used_facts(curve.knowledge), *prediction.statements]


def _list_used_facts(knowledge: Knowledge) -> Iterator[Statement]:
    """Yield the bytes and the links that the models use."""
    num_bytes = (knowledge.summed_bytes or 0.0) + (knowledge.gathered_bytes or 0.0)
    has_speed = any(math.isfinite(link.bytes_per_s) for link in knowledge.links)
    if num_bytes:
        yield state("predict-bytes", mb=Interval(num_bytes / 1e6))
    elif knowledge.summed_bytes is None and has_speed:
        yield state("predict-links-unused")
        return
    kinds = ["predict-link"]
    if len(knowledge.links) > 1:
        kinds = ["predict-link-inside", "predict-link-between"]
    for link, kind in zip(knowledge.links, kinds):
        if math.isfinite(link.bytes_per_s):
            gbit = Interval(8e-9 * link.bytes_per_s)
            yield state(kind, gbit=gbit, latency_us=Interval(1e6 * link.alpha_s))
        else:
            yield state("predict-links-unknown")
