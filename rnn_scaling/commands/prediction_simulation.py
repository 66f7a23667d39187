"""`predict --simulate`: steps on up to thousands of devices, event by event."""

import dataclasses
import math
from typing import Any

from rnn_scaling.analysis.prediction.curves import (
    WEAK,
    Curve,
    Knowledge,
    Link,
    MeasuredPoint,
)
from rnn_scaling.analysis.prediction.sizing import Sizes
from rnn_scaling.analysis.simulation.calibration import simulated
from rnn_scaling.commands import prediction_results, prediction_series
from rnn_scaling.commands.prediction_options import (
    BITS,
    PredictionOptions,
    SimulationOptions,
)
from rnn_scaling.reports.prediction import PredictionReport

# Fields of a simulated system that always have the values of the flags.
DISTURBANCES = (
    "exchange_every",
    "stragglers",
    "straggler_factor",
    "link_failures",
    "failure_s",
)


def simulate(
    options: PredictionOptions, assumed: SimulationOptions
) -> PredictionReport:
    """Simulate the chosen series, or the stated values. Raises Refusal if none can be."""
    changes: dict[str, Any] = {name: getattr(assumed, name) for name in DISTURBANCES}
    if assumed.jitter is not None:
        changes |= {"jitter": assumed.jitter, "step_times": ()}
    if assumed.algorithm:
        changes["algorithm"] = assumed.algorithm
    source = "stated values"
    curves = [_stated_curve(options, assumed)]
    if options.sources:
        source = str(options.source)
        every = prediction_series.every_series(options.source, options)
        found = prediction_series.chosen(every, options.series)
        curves = [series.curve for series in found]
    known = _stated_knowledge(options, assumed)
    made, refused = prediction_results.answered(
        curves,
        lambda curve: simulated(
            dataclasses.replace(
                curve, knowledge=dataclasses.replace(curve.knowledge, **known)
            ),
            changes,
            options.num_devices,
            assumed.steps,
            assumed.seed,
        ),
    )
    return PredictionReport(source, tuple(made), refused, sizes=(Sizes(),) * len(made))


def _stated_knowledge(
    options: PredictionOptions, assumed: SimulationOptions
) -> dict[str, Any]:
    """Return what the flags say of servers, bytes and links, whatever a folder says."""
    known: dict[str, Any] = {}
    if assumed.servers is not None:
        known["servers"] = assumed.servers
    if assumed.exchange_mb is not None:
        known |= {"summed_bytes": 1e6 * assumed.exchange_mb, "gathered_bytes": 0.0}
    if assumed.fabric_gbit is not None:
        inside = options.stated_link or Link(0.0, math.inf)
        inside = dataclasses.replace(inside, devices=options.devices_per_machine)
        fabric = Link(inside.alpha_s, 1e9 * assumed.fabric_gbit / BITS)
        known["links"] = (inside, fabric)
    return known


def _stated_curve(options: PredictionOptions, assumed: SimulationOptions) -> Curve:
    """Return a curve whose only point is the stated step of one device."""
    step_s = (assumed.step_ms or 1.0) / 1000
    size = options.devices_per_machine
    links = []
    if size:
        links.append(Link(0.0, math.inf, size))
    if options.stated_link:
        links.append(options.stated_link)
    known = Knowledge(
        step_s,
        algorithm=assumed.algorithm or "ring",
        links=tuple(links),
        devices_per_machine=size,
    )
    point = MeasuredPoint(1, 1 / step_s, error=0.0)
    return Curve("Stated values", "steps", WEAK, (point,), known)
