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
    """What a curve and its knowledge say of the computation and of the exchange.

    Raises:
      CannotPredict: if there is no rate, or no step time, of one device.
    """
    known, rates = (
        curve.knowledge,
        {point.devices: point.rate for point in curve.points},
    )
    if 1 not in rates or not known.step_s:
        raise CannotPredict(Statement("simulation-no-base", curve.name))
    replicas = curve.points if known.algorithm == "none" else known.independent
    defaults = {"algorithm": "ring", "summed_bytes": 0.0, "gathered_bytes": 0.0}
    return System(
        **{
            **vars(known),
            **{name: getattr(known, name) or value for name, value in defaults.items()},
        },
        is_strong=curve.scaling == STRONG,
        slowdown={
            1: 1.0,
            **{
                point.devices: point.devices * rates[1] / point.rate
                for point in replicas
            },
        },
    )


def calibrated(curve: Curve, seed: int) -> tuple[System, list[Statement]]:
    """The system whose exchange is fitted to the smallest measured number of devices that exchange, and what it says.

    What a step takes there beyond computing and waiting is the exchange. Where bytes and links are known, a collective
    that takes less than on these links begins before the computation ends, by a constant time; else the innermost link
    is slower or faster than stated. Where they are unknown, it is one that explains the time.

    Raises:
      CannotPredict: if the bytes are unknown, and the links of a machine are not those between machines.
    """
    system, measured = (
        base_system(curve),
        {point.devices: point.rate for point in curve.points},
    )
    fitted = min((count for count in measured if count > 1), default=None)
    if system.algorithm == "none":
        return system, []
    if fitted is None:
        return system, [Statement("simulation-not-calibrated", curve.name)]
    first = system.links[0] if system.links else Link(0.0, math.inf)
    has_bytes = system.summed_bytes + system.gathered_bytes > 0
    is_known = has_bytes and math.isfinite(first.bytes_per_s)
    if not has_bytes and len(system.links) > 1:
        raise CannotPredict(Statement("simulation-unknown-exchange", curve.name))
    if not is_known:
        first, summed = (
            Link(0.0, 1.0, first.devices),
            system.summed_bytes if has_bytes else 1.0,
        )
        system = dataclasses.replace(
            system, links=(first, *system.links[1:]), summed_bytes=summed
        )
    ready_s = system.gradients_s.get(fitted, 0.0)
    system = dataclasses.replace(
        system, exchange_slowdown=max(1.0, ready_s / system.computing_s(fitted))
    )
    target_s = system.ideal_s(fitted) * fitted * measured[1] / measured[fitted]

    def excess_s(changed: System) -> float:
        return (
            changed.ideal_s(fitted)
            / float(job_efficiencies(changed, fitted, STEPS, seed).mean())
            - target_s
        )

    def with_link(factor: float) -> System:
        rate = first.bytes_per_s / factor if factor else math.inf
        links = (
            Link(first.alpha_s if factor else 0.0, rate, first.devices),
            *system.links[1:],
        )
        return dataclasses.replace(system, links=links)

    excess, free = excess_s(system), excess_s(with_link(0.0))
    values = {"devices": fitted, "ms": 1e3 * max(0.0, -free)}
    can_overlap = (
        is_known and system.algorithm != "parameter_server"
    )  # its link is busy with others' messages
    if can_overlap and 0 < excess < system.computing_s(fitted):
        statement = Statement(
            "simulation-overlap", curve.name, {**values, "overlap_ms": 1e3 * excess}
        )
        return dataclasses.replace(system, overlap_s=excess), [statement]
    factor = 1.0 if free < 0 else 0.0
    for _ in range(
        FITS if factor else 0
    ):  # the step is nearly linear in the seconds of the exchange
        factor *= free / (free - excess_s(with_link(factor)))
    kind = "simulation-slower" if is_known else "simulation-fitted"
    return with_link(factor), [
        Statement(kind, curve.name, {**values, "factor": factor})
    ]


def simulated(
    curve: Curve,
    changes: Mapping[str, Any],
    devices: Sequence[int],
    steps: int,
    seed: int,
) -> Prediction:
    """Simulates a calibrated system with changes, and as a check the calibrated one on the measured numbers of devices.

    `changes`: fields of the system.

    Raises:
      CannotPredict: if the exchange is unknown.
    """
    fit, statements = calibrated(curve, seed)
    system, one = dataclasses.replace(fit, **changes), curve.points[0].rate
    if (
        system.algorithm != "none"
        and max(devices) > 1
        and not exchange_of(system, max(devices))
    ):
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
        }
        values |= {
            "measured": interval_values(Interval(measured.rate)),
            "simulated": interval_values(rate),
        }
        statements.append(Statement("simulation-check", curve.name, values))
    return Prediction(curve, points, {"simulation": 1.0}, tuple(statements))
