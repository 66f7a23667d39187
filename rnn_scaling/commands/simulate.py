"""python -m rnn_scaling simulate [FOLDER]: steps on up to thousands of devices, event by event."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rnn_scaling.commands.prediction_options import BITS, LARGEST, PredictionOptions
from rnn_scaling.config import flags
from rnn_scaling.config.flags import option
from rnn_scaling.system import entry

if TYPE_CHECKING:
    from rnn_scaling.analysis.prediction.curves import Curve

USAGE = """\
Simulates training steps on N devices, event by event: each device computes with jitter, waits for the others, and
exchanges gradients over links. Prints the rate, and what jitter, stragglers, failures and links cost.

    ./run.sh simulate results/mine --num_devices=8,64,512,4096
    ./run.sh simulate results/mine --num_devices=64 --algorithm=hierarchical --devices_per_machine=8 \\
        --link_gbit=400 --fabric_gbit=100 --latency_us=5
    ./run.sh simulate results/mine --num_devices=64 --stragglers=1% --link_failures=0.01%
    ./run.sh simulate --step_ms=100 --exchange_mb=100 --link_gbit=25 --jitter=5% --num_devices=8,64

With a folder of run records, step times and jitter come from one device, contention from independent replicas, and the
exchange is fitted to the smallest measured number of devices above one. The simulation is compared with every measured
number. Without a folder, --step_ms and the exchange are stated. The same --seed gives the same result.

Simulated rates have no intervals, because the error of the assumptions is unknown; those of predict do. --output writes
simulation.json, .html and .png. docs/simulate.md describes the events and what is left out.

Exit status: 0 at least one series was simulated, 1 a file cannot be written, 2 nothing can be simulated, or wrong
use."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulateOptions(PredictionOptions):
    """Simulate."""

    folder: Path | None = flags.positional(
        "folder of run records (default: stated values)", "[RESULTS]", default=None
    )
    steps: int = option(1000, "steps of a run", minimum=20, maximum=1_000_000)
    seed: int = option(1, "of the random numbers", minimum=0, maximum=2**32)
    step_ms: float | None = option(
        None,
        "step time of one device, instead of a folder (default: as recorded)",
        minimum=1e-6,
        maximum=1e9,
    )
    exchange_mb: float | None = option(
        None,
        "MB of gradients that devices sum in a step (default: as recorded)",
        minimum=0,
        maximum=1e9,
    )
    algorithm: str = option(
        "",
        "how gradients are exchanged (default: as recorded, else ring)",
        choices=("ring", "tree", "hierarchical", "parameter_server", "none"),
    )
    servers: int | None = option(
        None,
        "parameter servers on their own nodes (default: as recorded, else a device)",
        minimum=1,
        maximum=LARGEST,
    )
    exchange_every: int = option(
        1, "local SGD: steps between two exchanges", minimum=1, maximum=1_000_000
    )
    fabric_gbit: float | None = option(
        None,
        "Gbit/s of a machine's link to the others; --link_gbit is then inside (default: none)",
        minimum=1e-6,
        maximum=1e9,
    )
    jitter: float | None = option(
        None,
        "standard deviation / mean of step times (default: measured step times)",
        parse=flags.share,
        shown="SHARE",
    )
    stragglers: float = option(
        0.0,
        "share of the devices that compute slower",
        parse=flags.share,
        shown="SHARE",
    )
    straggler_factor: float = option(
        1.5, "by which these compute longer", minimum=1, maximum=1e6
    )
    link_failures: float = option(
        0.0,
        "share of the links that fail in an exchange",
        parse=flags.share,
        shown="SHARE",
    )
    failure_s: float = option(
        1.0, "time that a failed link is down, in seconds", minimum=0, maximum=1e6
    )


@entry.command
def main(words: Sequence[str]) -> int:
    options = flags.read(words, USAGE, SimulateOptions, "simulate")
    wrong = []
    if not options.num_devices:
        wrong.append(
            "--num_devices is missing; name the numbers of devices to simulate, as --num_devices=8,64"
        )
    if (options.folder is None) == (options.step_ms is None):
        wrong.append(
            "name either a folder of run records or --step_ms=...; see simulate --help"
        )
    if options.fabric_gbit is not None and options.devices_per_machine is None:
        wrong.append(
            "--fabric_gbit needs the size of a machine; add --devices_per_machine=..."
        )
    if options.folder and not options.folder.exists():
        wrong.append(f"{options.folder}: no such folder")
    if wrong:
        raise entry.Refusal(*wrong)
    from rnn_scaling.analysis.prediction.sizing import Sizes
    from rnn_scaling.analysis.simulation.calibration import simulated
    from rnn_scaling.commands import prediction_results
    from rnn_scaling.reports.prediction import PredictionReport

    arguments = (
        _disturbances(options),
        options.num_devices,
        options.steps,
        options.seed,
    )
    made, refused = prediction_results.answered(
        _curves(options), lambda curve: simulated(curve, *arguments)
    )
    source, sizes = str(options.folder or "stated values"), (Sizes(),) * len(made)
    report = PredictionReport(source, tuple(made), refused, sizes=sizes)
    prediction_results.tell(report, options, "simulation")
    return entry.EXIT_OK


def _curves(options: SimulateOptions) -> list[Curve]:
    """The curves to simulate, with what the flags say of bytes, servers and links."""
    from rnn_scaling.analysis.prediction.curves import (
        WEAK,
        Curve,
        Knowledge,
        Link,
        MeasuredPoint,
    )
    from rnn_scaling.commands import prediction_series

    stated, size = options.stated_link, options.devices_per_machine
    changes: dict[str, Any] = (
        {} if options.servers is None else {"servers": options.servers}
    )
    if options.exchange_mb is not None:
        changes |= {"summed_bytes": 1e6 * options.exchange_mb, "gathered_bytes": 0.0}
    if options.fabric_gbit is not None:
        inside = stated or Link(0.0, math.inf)
        fabric = Link(inside.alpha_s, 1e9 * options.fabric_gbit / BITS)
        changes["links"] = (dataclasses.replace(inside, devices=size), fabric)
    if options.folder:
        every = prediction_series.chosen(
            prediction_series.every_series(options.folder, options), options.series
        )
        curves = [series.curve for series in every]
    else:
        step_s = (options.step_ms or 0.0) / 1000
        links = ((Link(0.0, math.inf, size),) if size else ()) + (
            (stated,) if stated else ()
        )
        known = Knowledge(
            step_s,
            algorithm=options.algorithm or "ring",
            links=links,
            devices_per_machine=size,
        )
        curves = [
            Curve(
                "Stated values",
                "steps",
                WEAK,
                (MeasuredPoint(1, 1 / step_s, error=0.0),),
                known,
            )
        ]
    return [
        dataclasses.replace(
            curve, knowledge=dataclasses.replace(curve.knowledge, **changes)
        )
        for curve in curves
    ]


def _disturbances(options: SimulateOptions) -> dict[str, Any]:
    """The fields of the calibrated system that the flags change."""
    names = (
        "exchange_every",
        "stragglers",
        "straggler_factor",
        "link_failures",
        "failure_s",
    )
    changes: dict[str, Any] = {name: getattr(options, name) for name in names}
    if options.jitter is not None:
        changes |= {"jitter": options.jitter, "step_times": ()}
    return {**changes, "algorithm": options.algorithm} if options.algorithm else changes
