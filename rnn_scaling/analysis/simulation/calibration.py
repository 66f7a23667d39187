"""A system from what was measured on few devices, simulated on more."""

import dataclasses
import math
from collections.abc import Sequence

from rnn_scaling.analysis.confidence import Interval
from rnn_scaling.analysis.prediction.curves import STRONG, CannotPredict, Curve, Link, Prediction
from rnn_scaling.analysis.simulation.exchanges import exchange_of
from rnn_scaling.analysis.simulation.simulating import job_efficiencies, simulate
from rnn_scaling.analysis.simulation.system import System
from rnn_scaling.analysis.statements import Statement, interval_values

FITS = 3
STEPS = 200  # of the runs that are compared with the measured step


@dataclasses.dataclass(frozen=True)
class Calibrated:
    system: System
    statements: tuple[Statement, ...] = ()


def base_system(curve: Curve) -> System:
    """What a curve and its knowledge say of the computation and of the exchange.

    Raises:
      CannotPredict: if there is no rate, or no step time, of one device.
    """
    known, rates = curve.knowledge, {point.devices: point.rate for point in curve.points}
    if 1 not in rates or not known.step_s:
        raise CannotPredict(Statement("simulation-no-base", curve.name))
    replicas = curve.points if known.algorithm == "none" else known.independent
    return System(
        step_s=known.step_s,
        algorithm=known.algorithm or "ring",
        summed_bytes=known.summed_bytes or 0.0,
        gathered_bytes=known.gathered_bytes or 0.0,
        links=known.links,
        servers=known.servers,
        step_times=tuple(known.step_times),
        is_strong=curve.scaling == STRONG,
        slowdown={1: 1.0, **{point.devices: point.devices * rates[1] / point.rate for point in replicas}},
        cores=known.cores,
        devices_per_machine=known.devices_per_machine,
    )


def calibrated(curve: Curve, seed: int) -> Calibrated:
    """Fits the exchange to the smallest measured number of devices that exchange.

    What a step takes there beyond computing and waiting is the exchange. Where bytes and links are known, a collective
    that takes less than on these links begins before the computation ends, by a constant time; else the innermost link
    is slower or faster than stated. Where they are unknown, it is one that explains the time.

    Raises:
      CannotPredict: if the bytes are unknown, and the links of a machine are not those between machines.
    """
    system, measured = base_system(curve), {point.devices: point.rate for point in curve.points}
    fitted = min((count for count in measured if count > 1), default=None)
    if system.algorithm == "none":
        return Calibrated(system)
    if fitted is None:
        return Calibrated(system, (Statement("simulation-not-calibrated", curve.name),))
    is_known = bool(exchange_of(system, fitted)) and math.isfinite(system.links[0].bytes_per_s)
    if not is_known:
        first = Link(0.0, 1.0, system.links[0].devices if system.links else None)
        has_bytes = system.summed_bytes + system.gathered_bytes > 0
        if not has_bytes and len(system.links) > 1:
            raise CannotPredict(Statement("simulation-unknown-exchange", curve.name))
        summed = system.summed_bytes if has_bytes else 1.0
        system = dataclasses.replace(system, links=(first, *system.links[1:]), summed_bytes=summed)
    ready_s = curve.knowledge.gradients_s.get(fitted, 0.0)
    system = dataclasses.replace(system, exchange_slowdown=max(1.0, ready_s / system.computing_s(fitted)))
    target_s = system.ideal_s(fitted) * fitted * measured[1] / measured[fitted]

    def excess_s(changed: System) -> float:
        return changed.ideal_s(fitted) / float(job_efficiencies(changed, fitted, STEPS, seed).mean()) - target_s

    def with_link(factor: float) -> System:
        first = system.links[0]
        rate = first.bytes_per_s / factor if factor else math.inf
        links = (Link(first.alpha_s if factor else 0.0, rate, first.devices), *system.links[1:])
        return dataclasses.replace(system, links=links)

    excess, free = excess_s(system), excess_s(with_link(0.0))
    values = {"devices": fitted, "ms": 1e3 * max(0.0, -free)}
    can_overlap = is_known and system.algorithm != "parameter_server"  # its link is busy with others' messages
    if can_overlap and 0 < excess < system.computing_s(fitted):
        statement = Statement("simulation-overlap", curve.name, {**values, "overlap_ms": 1e3 * excess})
        return Calibrated(dataclasses.replace(system, overlap_s=excess), (statement,))
    factor = 1.0 if free < 0 else 0.0
    for _ in range(FITS if factor else 0):  # the step is nearly linear in the seconds of the exchange
        factor *= free / (free - excess_s(with_link(factor)))
    statement = Statement(f"simulation-{'slower' if is_known else 'fitted'}", curve.name, {**values, "factor": factor})
    return Calibrated(with_link(factor), (statement,))


def predicted(
    curve: Curve, fit: Calibrated, system: System, devices: Sequence[int], steps: int, seed: int
) -> Prediction:
    """Simulates a system, and as a check the calibrated one on the measured numbers of devices.

    Raises:
      CannotPredict: if the exchange of the system is unknown.
    """
    if system.algorithm != "none" and max(devices) > 1 and not exchange_of(system, max(devices)):
        raise CannotPredict(Statement("simulation-unknown-exchange", curve.name))
    one = curve.points[0].rate
    points = tuple(simulate(system, count, steps, seed, one) for count in devices)
    error = max(point.rate.relative_error or 0.0 for point in points)
    statements = [*fit.statements, Statement("simulation-error", curve.name, {"error": error})]
    for point in curve.points[1:]:
        rate = simulate(fit.system, point.devices, steps, seed, one).rate
        values = {"devices": point.devices, "unit": curve.unit, "percent": 100 * (rate.value / point.rate - 1)}
        values |= {"measured": interval_values(Interval(point.rate)), "simulated": interval_values(rate)}
        statements.append(Statement("simulation-check", curve.name, values))
    return Prediction(curve, points, {"simulation": 1.0}, tuple(statements))
