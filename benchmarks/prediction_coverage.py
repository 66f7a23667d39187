"""Simulate how often the intervals of analysis/prediction contain the truth.

    python -m benchmarks.prediction_coverage [--repetitions=200] [--seed=1]

A true curve has one or two reasons to lose efficiency. They are drawn from those of the
models and from some that no model has: a ring in machines of 4 or 8 devices with slower
links between them, a loss that grows as a root or a power of n, and cores that devices
share. The rates have normal noise of 0.3 to 3 %. Tables differ in which n are fitted.

docs/results/prediction/scores.md has the output.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from rnn_scaling.analysis.prediction.costs import exchange_s
from rnn_scaling.analysis.prediction.curves import (
    WEAK,
    CannotPredict,
    Curve,
    Link,
    MeasuredPoint,
)
from rnn_scaling.analysis.prediction.predicting import predict

FITTED = ((1, 2, 3, 4), (1, 2, 4), (1, 4), (1, 2, 4, 8))
PREDICTED = (8, 16, 64)

# Maps a number of devices to the loss as a share of the step of one device.
Loss = Callable[[float], float]


def draw_smooth_loss(random: np.random.Generator) -> Loss:
    """Draw a loss that one of the models has, 1 to 20 % of a step on two devices."""
    size = math.exp(random.uniform(math.log(0.01), math.log(0.2)))
    shapes: tuple[Loss, ...] = (
        lambda n: float(n > 1),
        lambda n: 2 * (n - 1) / n,
        lambda n: math.log2(n),
        lambda n: n - 1,
        lambda n: math.sqrt(math.log2(n)),
    )
    shape = shapes[random.integers(len(shapes))]
    return lambda n: size * shape(n)


def draw_ring_loss(random: np.random.Generator) -> Loss:
    """Draw a ring in machines of 4 or 8 devices, with 2 to 8 times slower links between."""
    devices = int(random.choice([4, 8]))
    share = random.uniform(0.01, 0.15)
    links = (Link(1e-6, 1.0, devices), Link(1e-6, 1 / random.uniform(2, 8)))
    return lambda n: exchange_s("ring", int(n), share, 0.0, links)


def draw_power_loss(random: np.random.Generator) -> Loss:
    """Draw a loss that grows as a power of n from 0.3 to 1.3."""
    size = random.uniform(0.01, 0.1)
    exponent = random.uniform(0.3, 1.3)
    return lambda n: size * (n - 1) ** exponent


def draw_shared_cores(random: np.random.Generator) -> Loss:
    """Draw the loss of devices that share cores, which suffice for 4 to 32 of them."""
    limit = math.exp(random.uniform(math.log(4), math.log(32)))
    return lambda n: max(0.0, n / limit - 1)


# What a curve loses, in the words of the table.
TRUTHS: dict[str, tuple[Callable[[np.random.Generator], Loss], ...]] = {
    "one model's": (draw_smooth_loss,),
    "two models'": (draw_smooth_loss, draw_smooth_loss),
    "power of n": (draw_power_loss,),
    "two-level ring": (draw_ring_loss, draw_smooth_loss),
    "shared cores": (draw_shared_cores, draw_smooth_loss),
}


class TrueCurve:
    """A curve whose rates are measured with noise.

    The losses are drawn first, then the noise.
    """

    def __init__(self, truth: str, random: np.random.Generator) -> None:
        self._random = random
        self._losses = [draw(random) for draw in TRUTHS[truth]]
        self._noise = math.exp(random.uniform(math.log(0.003), math.log(0.03)))

    def measure(self, devices: int) -> float:
        """Return the rate on a number of devices."""
        step = 1 + sum(loss(devices) for loss in self._losses)
        return devices / step * math.exp(self._noise * self._random.standard_normal())


@dataclasses.dataclass
class Score:
    """How predictions for one number of devices agree with measurements.

    Attributes:
      inside: Whether each interval contains the measured rate.
      errors: |predicted / measured - 1|.
      half_widths: Half of each interval as a share of the prediction.
    """

    inside: list[bool] = dataclasses.field(default_factory=list)
    errors: list[float] = dataclasses.field(default_factory=list)
    half_widths: list[float] = dataclasses.field(default_factory=list)

    def format(self) -> str:
        """Return the shares inside, and the medians of the others."""
        return (
            f"{np.mean(self.inside):.0%}, {np.median(self.errors):.0%}, "
            f"{np.median(self.half_widths):.0%}"
        )


def simulate(
    truth: str, fitted: Sequence[int], repetitions: int, seed: int
) -> tuple[float, dict[int, Score]]:
    """Predict simulated curves.

    Returns:
      The share of refused curves, and the score of each predicted number of devices.
    """
    random = np.random.default_rng(seed)
    scores = {devices: Score() for devices in PREDICTED if devices > fitted[-1]}
    refused = 0
    for _ in range(repetitions):
        true_curve = TrueCurve(truth, random)
        points = tuple(MeasuredPoint(n, true_curve.measure(n)) for n in fitted)
        try:
            prediction = predict(Curve(truth, "words", WEAK, points), tuple(scores))
        except CannotPredict:
            refused += 1
            continue
        for point in prediction.points:
            measured = true_curve.measure(point.devices)
            low = point.rate.low or 0.0
            high = point.rate.high or math.inf
            score = scores[point.devices]
            score.inside.append(low <= measured <= high)
            score.errors.append(abs(point.rate.value / measured - 1))
            score.half_widths.append((high - low) / 2 / point.rate.value)
    return refused / repetitions, scores


def main() -> None:
    """Print the section of the document."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--repetitions", type=int, default=200, help="number of curves in each row"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the random numbers"
    )
    options = parser.parse_args()
    command = (
        f"python -m benchmarks.prediction_coverage --repetitions={options.repetitions}"
    )
    head = ["the loss is", "fitted", "refused", *(f"on {n}" for n in PREDICTED)]
    print(f"## In simulation\n\n`{command}`\n")
    print(f"| {' | '.join(head)} |")
    print(f"| {' | '.join(['---'] * len(head))} |")
    for truth in TRUTHS:
        for fitted in FITTED:
            refused, scores = simulate(truth, fitted, options.repetitions, options.seed)
            cells = [truth, ", ".join(map(str, fitted)), f"{refused:.0%}"]
            for devices in PREDICTED:
                score = scores.get(devices)
                cells.append(score.format() if score else "-")
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
