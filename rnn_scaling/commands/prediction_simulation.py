"""`predict --simulate`: steps on up to thousands of devices, event by event.

`predict` calls `simulate`; the model is in `analysis.simulation`.
"""

import dataclasses
import math
from typing import Any

from rnn_scaling.analysis.prediction.curves import (
    WEAK,
    Curve,
    Knowledge,
    Link,
    MeasuredPoint,
    Prediction,
)
from rnn_scaling.analysis.prediction.sizing import Sizes
from rnn_scaling.analysis.simulation.calibration import simulate_curve
from rnn_scaling.commands import prediction_results, prediction_series
from rnn_scaling.commands.prediction_options import (
    BITS,
    PredictionOptions,
    SimulationOptions,
)
from rnn_scaling.reports.prediction import PredictionReport

# Fields of a simulated system that always have the values of the flags.
_DISTURBANCES = (
    "exchange_every",
    "stragglers",
    "straggler_factor",
    "link_failures",
    "failure_s",
)


def simulate(
    options: PredictionOptions, assumed: SimulationOptions
) -> PredictionReport:
    """Simulate the chosen series, or the stated values.

    Raises:
      Refusal: If no series can be simulated.
    """
    changes: dict[str, Any] = {name: getattr(assumed, name) for name in _DISTURBANCES}
    if assumed.jitter is not None:
        changes |= {"jitter": assumed.jitter, "step_times": ()}
    if assumed.algorithm:
        changes["algorithm"] = assumed.algorithm
    source = "stated values"
    curves = [_make_stated_curve(options, assumed)]
    if options.sources:
        source = str(options.source)
        all_series = prediction_series.read_series(options.source, options)
        chosen_series = prediction_series.choose(all_series, options.series)
        curves = [series.curve for series in chosen_series]
    knowledge_fields = _make_stated_knowledge(options, assumed)

    def simulate_with_stated_values(curve: Curve) -> Prediction:
        knowledge = dataclasses.replace(curve.knowledge, **knowledge_fields)
        return simulate_curve(
            dataclasses.replace(curve, knowledge=knowledge),
            changes=changes,
            devices=options.num_devices,
            steps=assumed.steps,
            seed=assumed.seed,
        )

    simulations, refusals = prediction_results.collect_answers(
        curves, simulate_with_stated_values
    )
    sizes = (Sizes(),) * len(simulations)
    return PredictionReport(source, tuple(simulations), refusals, sizes=sizes)


def _make_stated_knowledge(
    options: PredictionOptions, assumed: SimulationOptions
) -> dict[str, Any]:
    """Return the stated servers, bytes and links, which replace the folder's facts."""
    knowledge_fields: dict[str, Any] = {}
    if assumed.servers is not None:
        knowledge_fields["servers"] = assumed.servers
    if assumed.exchange_mb is not None:
        knowledge_fields |= {
            "summed_bytes": 1e6 * assumed.exchange_mb,
            "gathered_bytes": 0.0,
        }
    if assumed.fabric_gbit is not None:
        machine_link = dataclasses.replace(
            options.stated_link or Link(0.0, math.inf),
            devices=options.devices_per_machine,
        )
        fabric = Link(machine_link.alpha_s, 1e9 * assumed.fabric_gbit / BITS)
        knowledge_fields["links"] = (machine_link, fabric)
    return knowledge_fields


def _make_stated_curve(options: PredictionOptions, assumed: SimulationOptions) -> Curve:
    """Return a curve whose only point is the stated step of one device."""
    step_s = (assumed.step_ms or 1.0) / 1000
    size = options.devices_per_machine
    links = []
    if size:
        links.append(Link(0.0, math.inf, size))
    if options.stated_link:
        links.append(options.stated_link)
    knowledge = Knowledge(
        step_s,
        algorithm=assumed.algorithm or "ring",
        links=tuple(links),
        devices_per_machine=size,
    )
    point = MeasuredPoint(1, 1 / step_s, error=0.0)
    return Curve("Stated values", "steps", WEAK, (point,), knowledge)
