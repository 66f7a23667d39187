"""Measure the simulation: its speed, its error on real runs, and predictions of it.

    python -m benchmarks.simulation [--cases=24]

The real runs are those of netlab. Every series is calibrated with one worker alone,
independent workers and two workers, with the bytes of the model and the payload rate
that its records contain. The error is that on three and four workers.

`predict` gets the simulated rates of random systems on 1, 2, 4 and 8 devices, and is
checked on 64 and 512.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from rnn_scaling.analysis.prediction import from_rows, predicting
from rnn_scaling.analysis.prediction.curves import (
    WEAK,
    CannotPredict,
    Curve,
    Knowledge,
    Link,
    MeasuredPoint,
)
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.analysis.simulation.calibration import calibrate
from rnn_scaling.analysis.simulation.simulating import System, simulate
from rnn_scaling.records import folder
from rnn_scaling.system.files.markdown import format_table

NETLAB = Path("docs/results/netlab")
# The language model of these records: 1.04 million parameters, 640 positions per step,
# embeddings of 1000 x 256.
DENSE_BYTES = 4 * (1_037_312 - 1000 * 256)
TOUCHED_BYTES = 4 * 640 * 256
FEW = (1, 2, 4, 8)
MANY = (64, 512)
# Degrees of freedom of a simulated efficiency.
DEGREES = 19.0


def list_netlab_curves(path: Path = NETLAB) -> Iterator[Curve]:
    """Yield the series of rings and servers, with what is known of their exchange."""
    records = [file.record for file in folder.read(path).runs]
    series = from_rows.make_measured_series(build_rows(records))
    [alone] = [
        each.curve for each in series if each.curve.knowledge.algorithm == "none"
    ]
    for each in series:
        curve = each.curve
        kinds = {row.options["compress_gradients"] for row in each.rows}
        if curve is alone or kinds != {"none"}:
            continue
        gathered = TOUCHED_BYTES if curve.knowledge.algorithm == "ring" else 0
        knowledge = dataclasses.replace(
            curve.knowledge,
            step_s=alone.knowledge.step_s,
            step_times=alone.knowledge.step_times,
            independent=alone.points,
            summed_bytes=DENSE_BYTES + TOUCHED_BYTES - gathered,
            gathered_bytes=gathered,
        )
        points = (alone.points[0], *curve.points)
        yield dataclasses.replace(curve, points=points, knowledge=knowledge)


def measure_netlab_errors(
    path: Path = NETLAB, steps: int = 300
) -> dict[tuple[str, int], float]:
    """Return the error of the simulated rate, as a share, by series and workers."""
    errors = {}
    for curve in list_netlab_curves(path):
        system, _ = calibrate(curve, seed=1)
        exchange = f"{system.servers} servers" if system.servers else "ring"
        name = f"{exchange}, {curve.name.rpartition(': ')[2]}"
        for point in curve.points[1:]:
            efficiency = simulate(system, point.devices, steps, seed=1).efficiency.value
            rate = efficiency * point.devices * curve.points[0].rate
            errors[name, point.devices] = rate / point.rate - 1
    return errors


def draw_systems(count: int, seed: int) -> Iterator[System]:
    """Yield systems whose exchange takes 1 to 100 % of a step on two devices."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        step_s = 10 ** random.uniform(-2, 0)
        bytes_per_s = 10 ** random.uniform(8.5, 11)
        yield System(
            step_s=step_s,
            algorithm=str(random.choice(["ring", "tree", "hierarchical"])),
            summed_bytes=step_s * bytes_per_s * 10 ** random.uniform(-2, 0),
            links=(Link(10 ** random.uniform(-6, -4.5), bytes_per_s),),
            jitter=random.choice([0.01, 0.03, 0.1]),
            stragglers=random.choice([0.0, 0.01]),
            straggler_factor=1.2,
            link_failures=random.choice([0.0, 1e-5]),
        )


class Outcome(NamedTuple):
    """How a prediction agrees with the simulation.

    Attributes:
      devices: Number of devices that was predicted.
      has_links: Whether the links were known.
      is_inside: Whether the interval contains the simulated rate.
      error: |predicted / simulated - 1|.
    """

    devices: int
    has_links: bool
    is_inside: bool
    error: float


def judge_predictions(num_systems: int, steps: int = 400) -> list[Outcome]:
    """Return how predictions for random systems agree with their simulation."""
    outcomes = []
    for number, system in enumerate(draw_systems(num_systems, seed=1)):
        efficiencies = {}
        for count in (*FEW, *MANY):
            run = simulate(system, count, steps, seed=number)
            efficiencies[count] = run.efficiency
        points = []
        for count in FEW:
            shown = efficiencies[count]
            error = (shown.standard_error or 1e-4) / shown.value
            points.append(MeasuredPoint(count, count * shown.value, error, DEGREES))
        noise = np.random.default_rng(number).lognormal(0.0, system.jitter, 200)
        known = Knowledge(
            system.step_s,
            system.algorithm,
            system.summed_bytes,
            0.0,
            system.links,
            step_times=tuple(noise * system.step_s),
        )
        for knowledge in (known, Knowledge()):
            curve = Curve("simulated", "steps", WEAK, tuple(points), knowledge)
            try:
                prediction = predicting.predict(curve, MANY)
            except CannotPredict as e:
                print(f"case {number}: {e}")
                continue
            for point in prediction.points:
                rate = efficiencies[point.devices].value * point.devices
                low = point.rate.low or 0.0
                high = point.rate.high or math.inf
                outcomes.append(
                    Outcome(
                        point.devices,
                        bool(knowledge.links),
                        low <= rate <= high,
                        abs(point.rate.value / rate - 1),
                    )
                )
    return outcomes


def make_table_of_speed() -> str:
    """Return the CPU seconds of a large simulation by algorithm."""
    system = System(
        0.1,
        "ring",
        1e8,
        0.0,
        (Link(1e-6, 2e11, 8), Link(5e-6, 1.25e10)),
        jitter=0.05,
        link_failures=1e-6,
    )
    rows = []
    for algorithm in ("ring", "tree", "hierarchical", "parameter_server"):
        start_s = time.process_time()
        simulate(dataclasses.replace(system, algorithm=algorithm), 4096, 1000, seed=1)
        rows.append([algorithm, f"{time.process_time() - start_s:.1f}"])
    head = ["4,096 devices, 1,000 steps, with parts", "CPU seconds"]
    return format_table(head, rows)


def make_table_of_errors() -> str:
    """Return the errors on netlab's runs."""
    errors = measure_netlab_errors()
    rows = []
    for name in dict.fromkeys(name for name, _ in errors):
        cells = [f"{100 * errors[name, count]:+.1f}" for count in (2, 3, 4)]
        rows.append([name, *cells])
    return format_table(["netlab: error in %", "2 (fitted)", "3", "4"], rows)


def make_table_of_predictions(num_systems: int) -> str:
    """Return how often the intervals of predictions contain simulated rates."""
    outcomes = judge_predictions(num_systems)
    rows = []
    for devices in MANY:
        for has_links in (True, False):
            chosen = []
            for outcome in outcomes:
                if (outcome.devices, outcome.has_links) == (devices, has_links):
                    chosen.append(outcome)
            inside = sum(outcome.is_inside for outcome in chosen)
            error = statistics.median(outcome.error for outcome in chosen)
            rows.append(
                [
                    str(devices),
                    "known" if has_links else "unknown",
                    f"{inside} of {len(chosen)}",
                    f"{100 * error:.1f}",
                ]
            )
    head = ["predict on devices", "links", "intervals held", "median error (%)"]
    return format_table(head, rows)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", type=int, default=24, help="number of random systems"
    )
    options = parser.parse_args()
    print(make_table_of_speed())
    print(make_table_of_errors())
    print(make_table_of_predictions(options.cases))


if __name__ == "__main__":
    main()
