"""A system from what was measured on few devices, simulated on more."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction.curves import (
    STRONG,
    CannotPredict,
    Curve,
    Link,
    Prediction,
)
from rnn_scaling.analysis.simulation.simulating import (
    System,
    exchange_of,
    job_efficiencies,
    simulate,
)
from rnn_scaling.analysis.statements import Statement, interval_values

FITS = 3
STEPS = 200  # of the runs that are compared with the measured step


def base_system(curve: Curve) -> System:
    """Return what a curve and its knowledge say of the computation and of the exchange.

    Raises:
      CannotPredict: If there is no rate, or no step time, of one device.
    """
    known = curve.knowledge
    rates = {point.devices: point.rate for point in curve.points}
    if 1 not in rates or not known.step_s:
        raise CannotPredict(Statement("simulation-no-base", curve.name))
    replicas = curve.points if known.algorithm == "none" else known.independent
    slowdown = {1: 1.0}
    for point in replicas:
        slowdown[point.devices] = point.devices * rates[1] / point.rate
    fields = dict(vars(known))
    fields["algorithm"] = known.algorithm or "ring"
    fields["summed_bytes"] = known.summed_bytes or 0.0
    fields["gathered_bytes"] = known.gathered_bytes or 0.0
    is_strong = curve.scaling == STRONG
    return System(**fields, is_strong=is_strong, slowdown=slowdown)


def calibrated(curve: Curve, seed: int) -> tuple[System, list[Statement]]:
    """Fit the exchange to the smallest measured number of devices that exchange.

    What a step takes there beyond computing and waiting is the exchange. If bytes and links are known, a collective
    that takes less than on these links begins before the computation ends, by a constant time; else the innermost link
    is slower or faster than stated. If they are unknown, it is one that explains the time.

    Returns:
      The system, and what was fitted.

    Raises:
      CannotPredict: If the bytes are unknown, and the links of a machine are not those between machines.
    """
    system = base_system(curve)
    if system.algorithm == "none":
        return system, []
    measured = {point.devices: point.rate for point in curve.points}
    fitted = min((count for count in measured if count > 1), default=None)
    if fitted is None:
        return system, [Statement("simulation-not-calibrated", curve.name)]
    first = system.links[0] if system.links else Link(0.0, math.inf)
    has_bytes = system.summed_bytes + system.gathered_bytes > 0
    if not has_bytes and len(system.links) > 1:
        raise CannotPredict(Statement("simulation-unknown-exchange", curve.name))
    is_known = has_bytes and math.isfinite(first.bytes_per_s)
    if not is_known:
        first = Link(0.0, 1.0, first.devices)
        summed = system.summed_bytes if has_bytes else 1.0
        links = (first, *system.links[1:])
        system = dataclasses.replace(system, links=links, summed_bytes=summed)
    ready_s = system.gradients_s.get(fitted, 0.0)
    slowdown = max(1.0, ready_s / system.computing_s(fitted))
    system = dataclasses.replace(system, exchange_slowdown=slowdown)
    target_s = system.ideal_s(fitted) * fitted * measured[1] / measured[fitted]

    def excess_s(changed: System) -> float:
        efficiencies = job_efficiencies(changed, fitted, STEPS, seed)
        return changed.ideal_s(fitted) / float(efficiencies.mean()) - target_s

    def with_link(factor: float) -> System:
        link = Link(0.0, math.inf, first.devices)
        if factor:
            rate = first.bytes_per_s / factor
            link = Link(first.alpha_s, rate, first.devices)
        return dataclasses.replace(system, links=(link, *system.links[1:]))

    excess = excess_s(system)
    free = excess_s(with_link(0.0))
    values = {"devices": fitted, "ms": 1e3 * max(0.0, -free)}
    # The link of a parameter server is busy with messages of other devices.
    can_overlap = is_known and system.algorithm != "parameter_server"
    if can_overlap and 0 < excess < system.computing_s(fitted):
        values["overlap_ms"] = 1e3 * excess
        system = dataclasses.replace(system, overlap_s=excess)
        return system, [Statement("simulation-overlap", curve.name, values)]
    factor = 0.0
    if free < 0:
        factor = 1.0
        # The step is nearly linear in the seconds of the exchange.
        for _ in range(FITS):
            factor *= free / (free - excess_s(with_link(factor)))
    kind = "simulation-slower" if is_known else "simulation-fitted"
    values["factor"] = factor
    return with_link(factor), [Statement(kind, curve.name, values)]


def simulated(
    curve: Curve,
    changes: Mapping[str, Any],
    devices: Sequence[int],
    steps: int,
    seed: int,
) -> Prediction:
    """Simulate a calibrated system with changes; check the calibrated one on the measured numbers of devices.

    Args:
      curve: Calibrates the system.
      changes: Fields of the system.
      devices: Numbers of devices to simulate.
      steps: Steps of a run.
      seed: Of the random numbers.

    Raises:
      CannotPredict: If the exchange is unknown.
    """
    fit, statements = calibrated(curve, seed)
    system = dataclasses.replace(fit, **changes)
    one = curve.points[0].rate
    most = max(devices)
    if system.algorithm != "none" and most > 1 and not exchange_of(system, most):
        raise CannotPredict(Statement("simulation-unknown-exchange", curve.name))
    points = tuple(simulate(system, count, steps, seed, one) for count in devices)
    error = max(point.rate.relative_error or 0.0 for point in points)
    statements.append(Statement("simulation-error", curve.name, {"error": error}))
    for measured in curve.points[1:]:
        rate = simulate(fit, measured.devices, steps, seed, one).rate
        values = {
            "devices": measured.devices,
            "unit": curve.unit,
            "percent": 100 * (rate.value / measured.rate - 1),
            "measured": interval_values(Interval(measured.rate)),
            "simulated": interval_values(rate),
        }
        statements.append(Statement("simulation-check", curve.name, values))
    return Prediction(curve, points, {"simulation": 1.0}, tuple(statements))
