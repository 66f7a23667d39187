"""A system that is calibrated with measurements on few devices, and simulated on more.

`predict --simulate` is the only caller; `simulating` knows nothing about measurements.
"""

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
    make_exchange,
    simulate,
    simulate_job_efficiencies,
)
from rnn_scaling.analysis.statements import Statement, state

_ITERATIONS = 3
_STEPS = 200  # simulated steps that are compared with the measured step


def _make_base_system(curve: Curve) -> System:
    """Return the computation and the exchange of a curve as a system.

    A System is a Knowledge with more fields, so the curve's knowledge is copied.

    Raises:
      CannotPredict: If there is no rate, or no step time, of one device.
    """
    knowledge = curve.knowledge
    rates = {point.devices: point.rate for point in curve.points}
    if 1 not in rates or not knowledge.step_s:
        raise CannotPredict(state("simulation-no-base", curve.name))
    replicas = curve.points if knowledge.algorithm == "none" else knowledge.independent
    slowdown = {1: 1.0}
    for point in replicas:
        slowdown[point.devices] = point.devices * rates[1] / point.rate
    fields = dict(vars(knowledge))
    fields["algorithm"] = knowledge.algorithm or "ring"
    fields["summed_bytes"] = knowledge.summed_bytes or 0.0
    fields["gathered_bytes"] = knowledge.gathered_bytes or 0.0
    is_strong = curve.scaling == STRONG
    return System(**fields, is_strong=is_strong, slowdown=slowdown)


def calibrate(curve: Curve, seed: int) -> tuple[System, list[Statement]]:
    """Fit the exchange to the smallest measured number of devices that exchange.

    The exchange is the time of a step beyond computing and waiting. If bytes and links
    are known and a collective takes less than on these links, it begins a constant time
    before the computation ends; otherwise the innermost link is slower or faster than
    stated. If bytes or links are unknown, a link that explains the time is assumed.

    Args:
      curve: The measured points.
      seed: Seed of the random numbers.

    Returns:
      The system, and statements about the fit.

    Raises:
      CannotPredict: If the bytes are unknown, and machines have other links inside than
        between them.
    """
    system = _make_base_system(curve)
    if system.algorithm == "none":
        return system, []
    rates = {point.devices: point.rate for point in curve.points}
    devices = min((count for count in rates if count > 1), default=None)
    if devices is None:
        return system, [state("simulation-not-calibrated", curve.name)]

    system, has_known_speed = _ensure_inner_link(curve, system)
    ready_s = system.gradients_s.get(devices, 0.0)
    slowdown = max(1.0, ready_s / system.computing_s(devices))
    system = dataclasses.replace(system, exchange_slowdown=slowdown)
    measured_s = system.ideal_s(devices) * devices * rates[1] / rates[devices]

    def compute_excess_s(changed_system: System) -> float:
        """Return how much longer a simulated step takes than the measured one."""
        efficiencies = simulate_job_efficiencies(changed_system, devices, _STEPS, seed)
        return changed_system.ideal_s(devices) / float(efficiencies.mean()) - measured_s

    excess = compute_excess_s(system)
    excess_without_exchange = compute_excess_s(_scale_inner_link(system, 0.0))
    values = {"devices": devices, "ms": 1e3 * max(0.0, -excess_without_exchange)}
    # The link of a parameter server is busy with messages of other devices.
    can_overlap = has_known_speed and system.algorithm != "parameter_server"
    if can_overlap and 0 < excess < system.computing_s(devices):
        values["overlap_ms"] = 1e3 * excess
        system = dataclasses.replace(system, overlap_s=excess)
        return system, [state("simulation-overlap", curve.name, **values)]

    factor = 0.0
    if excess_without_exchange < 0:
        factor = 1.0
        # The step is nearly linear in the seconds of the exchange.
        for _ in range(_ITERATIONS):
            slower_excess = compute_excess_s(_scale_inner_link(system, factor))
            factor *= excess_without_exchange / (
                excess_without_exchange - slower_excess
            )
    kind = "simulation-slower" if has_known_speed else "simulation-fitted"
    values["factor"] = factor
    system = _scale_inner_link(system, factor)
    return system, [state(kind, curve.name, **values)]


def _ensure_inner_link(curve: Curve, system: System) -> tuple[System, bool]:
    """Return the system with an innermost link, and whether its speed is known.

    An unknown link transmits one byte per second, until the fit multiplies its time.

    Raises:
      CannotPredict: If the bytes are unknown, and machines have other links inside than
        between them.
    """
    has_bytes = system.summed_bytes + system.gathered_bytes > 0
    if not has_bytes and len(system.links) > 1:
        raise CannotPredict(state("simulation-unknown-exchange", curve.name))
    link = system.links[0] if system.links else Link(0.0, math.inf)
    if has_bytes and math.isfinite(link.bytes_per_s):
        return system, True
    unknown_link = Link(0.0, 1.0, link.devices)
    summed_bytes = system.summed_bytes if has_bytes else 1.0
    links = (unknown_link, *system.links[1:])
    system = dataclasses.replace(system, links=links, summed_bytes=summed_bytes)
    return system, False


def _scale_inner_link(system: System, factor: float) -> System:
    """Return the system whose innermost link takes `factor` times as long per byte.

    With 0 it takes no time at all, without latency.
    """
    first = system.links[0]
    link = Link(0.0, math.inf, first.devices)
    if factor:
        link = Link(first.alpha_s, first.bytes_per_s / factor, first.devices)
    return dataclasses.replace(system, links=(link, *system.links[1:]))


def simulate_curve(
    curve: Curve,
    changes: Mapping[str, Any],
    devices: Sequence[int],
    steps: int,
    seed: int,
) -> Prediction:
    """Simulate a calibrated system with changes, and check it without them.

    The check simulates the measured numbers of devices.

    Args:
      curve: Calibrates the system.
      changes: Fields of the system.
      devices: Numbers of devices to simulate.
      steps: Steps of a run.
      seed: Seed of the random numbers.

    Raises:
      CannotPredict: If the exchange is unknown.
    """
    unchanged, statements = calibrate(curve, seed)
    system = dataclasses.replace(unchanged, **changes)
    single_rate = curve.points[0].rate
    largest = max(devices)
    needs_exchange = system.algorithm != "none" and largest > 1
    if needs_exchange and not make_exchange(system, largest):
        raise CannotPredict(state("simulation-unknown-exchange", curve.name))
    points = tuple(
        simulate(system, count, steps, seed, single_rate) for count in devices
    )
    error = max(point.rate.relative_error or 0.0 for point in points)
    statements.append(state("simulation-error", curve.name, error=error))
    for measured_point in curve.points[1:]:
        rate = simulate(
            unchanged, measured_point.devices, steps, seed, single_rate
        ).rate
        statements.append(
            state(
                "simulation-check",
                curve.name,
                devices=measured_point.devices,
                unit=curve.unit,
                percent=100 * (rate.value / measured_point.rate - 1),
                measured=Interval(measured_point.rate),
                simulated=rate,
            )
        )
    return Prediction(curve, points, {"simulation": 1.0}, tuple(statements))
