"""The simulation's speed, its error on netlab's recorded runs, and how often predict's intervals hold simulated rates.

    python -m benchmarks.simulation [--cases=24]

netlab: every series is calibrated with one worker alone, independent workers and two workers, with the bytes of the
model and the payload rate that its records contain; the error is that on three and four workers. predict gets the
simulated rates on 1, 2, 4 and 8 devices of random systems, and is checked on 64 and 512.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

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
# The language model of these records: 1.04 million parameters, 640 positions a step, embeddings of 1000 x 256.
DENSE_BYTES, TOUCHED_BYTES = 4 * (1_037_312 - 1000 * 256), 4 * 640 * 256
FEW, MANY = (1, 2, 4, 8), (64, 512)


def netlab_curves(place: Path = NETLAB) -> Iterator[Curve]:
    """The series of rings and parameter servers, with what is known of their exchange."""
    series = from_rows.make_measured_series(
        build_rows([file.record for file in folder.read(place).runs])
    )
    (alone,) = (
        found.curve for found in series if found.curve.knowledge.algorithm == "none"
    )
    for found in series:
        curve = found.curve
        compressed = any(
            row.options["compress_gradients"] != "none" for row in found.rows
        )
        if curve.knowledge.algorithm == "none" or compressed:
            continue
        gathered = TOUCHED_BYTES if curve.knowledge.algorithm == "ring" else 0
        known = dataclasses.replace(
            curve.knowledge,
            step_s=alone.knowledge.step_s,
            step_times=alone.knowledge.step_times,
            independent=alone.points,
            summed_bytes=DENSE_BYTES + TOUCHED_BYTES - gathered,
            gathered_bytes=gathered,
        )
        yield dataclasses.replace(
            curve, points=(alone.points[0], *curve.points), knowledge=known
        )


def netlab_errors(
    place: Path = NETLAB, steps: int = 300
) -> dict[tuple[str, int], float]:
    """(series, workers) -> simulated over measured rate, less 1."""
    errors = {}
    for curve in netlab_curves(place):
        system, _ = calibrate(curve, seed=1)
        for point in curve.points[1:]:
            rate = (
                simulate(system, point.devices, steps, seed=1).efficiency.value
                * point.devices
                * curve.points[0].rate
            )
            kind = f"{system.servers} servers" if system.servers else "ring"
            errors[f"{kind}, {curve.name.rpartition(': ')[2]}", point.devices] = (
                rate / point.rate - 1
            )
    return errors


def random_systems(count: int, seed: int) -> Iterator[System]:
    """Systems whose exchange takes 1 to 100 % of a step on two devices."""
    random = np.random.default_rng(seed)
    for _ in range(count):
        step_s, rate = 10 ** random.uniform(-2, 0), 10 ** random.uniform(8.5, 11)
        yield System(
            step_s=step_s,
            algorithm=str(random.choice(["ring", "tree", "hierarchical"])),
            summed_bytes=step_s * rate * 10 ** random.uniform(-2, 0),
            links=(Link(10 ** random.uniform(-6, -4.5), rate),),
            jitter=random.choice([0.01, 0.03, 0.1]),
            stragglers=random.choice([0.0, 0.01]),
            straggler_factor=1.2,
            link_failures=random.choice([0.0, 1e-5]),
        )


def coverage(cases: int, steps: int = 400) -> list[tuple[int, bool, bool, float]]:
    """(devices, whether links are known, whether predict's interval holds, its error) of random systems."""
    found = []
    for number, system in enumerate(random_systems(cases, seed=1)):
        runs = {
            count: simulate(system, count, steps, seed=number)
            for count in (*FEW, *MANY)
        }
        points = []
        for count in FEW:
            shown = runs[count].efficiency
            points.append(
                MeasuredPoint(
                    count,
                    count * shown.value,
                    (shown.standard_error or 1e-4) / shown.value,
                    19.0,
                )
            )
        times = (
            np.random.default_rng(number).lognormal(0.0, system.jitter, 200)
            * system.step_s
        )
        known = Knowledge(
            system.step_s,
            system.algorithm,
            system.summed_bytes,
            0.0,
            system.links,
            step_times=tuple(times),
        )
        for knowledge in (known, Knowledge()):
            try:
                made = predicting.predict(
                    Curve("simulated", "steps", WEAK, tuple(points), knowledge), MANY
                )
            except CannotPredict as e:
                print(f"case {number}: {e}")
                continue
            for point in made.points:
                value = runs[point.devices].efficiency.value * point.devices
                held = (point.rate.low or 0.0) <= value <= (point.rate.high or math.inf)
                found.append(
                    (
                        point.devices,
                        bool(knowledge.links),
                        held,
                        abs(point.rate.value / value - 1),
                    )
                )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", type=int, default=24, help="number of random systems"
    )
    cases = parser.parse_args().cases
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
        begun = time.process_time()
        simulate(dataclasses.replace(system, algorithm=algorithm), 4096, 1000, seed=1)
        rows.append([algorithm, f"{time.process_time() - begun:.1f}"])
    print(format_table(["4,096 devices, 1,000 steps, with parts", "CPU seconds"], rows))
    errors = netlab_errors()
    names = dict.fromkeys(name for name, _ in errors)
    lines = [
        [name, *(f"{100 * errors[name, count]:+.1f}" for count in (2, 3, 4))]
        for name in names
    ]
    print(format_table(["netlab: error in %", "2 (fitted)", "3", "4"], lines))
    lines = []
    found = coverage(cases)
    for count in MANY:
        for has_links in (True, False):
            here = [case for case in found if case[:2] == (count, has_links)]
            held, error = (
                sum(case[2] for case in here),
                statistics.median(case[3] for case in here),
            )
            lines.append(
                [
                    str(count),
                    "known" if has_links else "unknown",
                    f"{held} of {len(here)}",
                    f"{100 * error:.1f}",
                ]
            )
    print(
        format_table(
            ["predict on devices", "links", "intervals held", "median error (%)"], lines
        )
    )


if __name__ == "__main__":
    main()
