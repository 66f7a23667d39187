"""How often the intervals of analysis/prediction contain the truth, in simulation.

    python -m benchmarks.prediction_coverage [--repetitions=200] [--seed=1]

A true curve has one or two reasons to lose efficiency, drawn from those of the models and from some that no model has:
a ring in machines of 4 or 8 devices with slower links between them, a loss that grows as a root or a power of n, and
cores that devices share. The rates have normal noise of 0.3 to 3 %. Tables differ in which n are fitted.
docs/results/prediction/scores.md has the output.
"""

from __future__ import annotations

import argparse
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
SHOWN = ("inside", "error", "width")
Loss = Callable[
    [float], float
]  # devices -> what is lost, as a share of one device's step


def smooth(rng: np.random.Generator) -> Loss:
    """A loss that one of the models has, 1 to 20 % of a step on two devices."""
    size = math.exp(rng.uniform(math.log(0.01), math.log(0.2)))
    shapes: tuple[Loss, ...] = (
        lambda n: float(n > 1),
        lambda n: 2 * (n - 1) / n,
        lambda n: math.log2(n),
        lambda n: n - 1,
        lambda n: math.sqrt(math.log2(n)),
    )
    shape = shapes[rng.integers(len(shapes))]
    return lambda n: size * shape(n)


def two_level(rng: np.random.Generator) -> Loss:
    """A ring in machines of 4 or 8 devices, with links that are 2 to 8 times slower between them."""
    inside, share = int(rng.choice([4, 8])), rng.uniform(0.01, 0.15)
    links = (Link(1e-6, 1.0, inside), Link(1e-6, 1 / rng.uniform(2, 8)))
    return lambda n: exchange_s("ring", int(n), share, 0.0, links)


def power(rng: np.random.Generator) -> Loss:
    """A loss that grows as a power of n from 0.3 to 1.3."""
    size, exponent = rng.uniform(0.01, 0.1), rng.uniform(0.3, 1.3)
    return lambda n: size * (n - 1) ** exponent


def cores(rng: np.random.Generator) -> Loss:
    """Devices that share 4 to 32 cores' worth of work."""
    limit = math.exp(rng.uniform(math.log(4), math.log(32)))
    return lambda n: max(0.0, n / limit - 1)


TRUTHS = {
    "one model's": lambda rng: (smooth(rng),),
    "two models'": lambda rng: (smooth(rng), smooth(rng)),
    "power of n": lambda rng: (power(rng),),
    "two-level ring": lambda rng: (two_level(rng), smooth(rng)),
    "shared cores": lambda rng: (cores(rng), smooth(rng)),
}


def coverage(
    truth: str, fitted: Sequence[int], repetitions: int, seed: int
) -> dict[str, float]:
    """Shares of curves: refused; and for each of PREDICTED: inside the 95 % interval, median error, median ±."""
    rng, refused = np.random.default_rng(seed), 0
    inside: dict[int, list[bool]] = {n: [] for n in PREDICTED if n > fitted[-1]}
    errors: dict[int, list[float]] = {n: [] for n in inside}
    widths: dict[int, list[float]] = {n: [] for n in inside}
    for _ in range(repetitions):
        losses, noise = (
            TRUTHS[truth](rng),
            math.exp(rng.uniform(math.log(0.003), math.log(0.03))),
        )

        def measured(n: int) -> float:
            return (
                n
                / (1 + sum(loss(n) for loss in losses))  # noqa: B023
                * math.exp(noise * rng.standard_normal())  # noqa: B023
            )

        points = tuple(MeasuredPoint(n, measured(n)) for n in fitted)
        try:
            prediction = predict(Curve(truth, "words", WEAK, points), tuple(inside))
        except CannotPredict:
            refused += 1
            continue
        for point in prediction.points:
            rate, low, high = (
                measured(point.devices),
                point.rate.low or 0.0,
                point.rate.high or math.inf,
            )
            inside[point.devices].append(low <= rate <= high)
            errors[point.devices].append(abs(point.rate.value / rate - 1))
            widths[point.devices].append((high - low) / 2 / point.rate.value)
    summary = {"refused": refused / repetitions}
    for n in inside:
        summary[f"inside at {n}"] = float(np.mean(inside[n]))
        summary[f"error at {n}"] = float(np.median(errors[n]))
        summary[f"width at {n}"] = float(np.median(widths[n]))
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--repetitions", type=int, default=200, help="number of curves in each row"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the random numbers"
    )
    options = parser.parse_args()
    print(
        f"## In simulation\n\n`python -m benchmarks.prediction_coverage --repetitions={options.repetitions}`\n"
    )
    print(
        f"| the loss is | fitted | refused | {' | '.join(f'on {n}' for n in PREDICTED)} |"
    )
    print("| " + " | ".join(["---"] * (3 + len(PREDICTED))) + " |")
    for truth in TRUTHS:
        for fitted in FITTED:
            shares = coverage(truth, fitted, options.repetitions, options.seed)
            cells = [truth, ", ".join(map(str, fitted)), f"{shares['refused']:.0%}"]
            for n in PREDICTED:
                numbers = [
                    f"{shares[f'{name} at {n}']:.0%}"
                    for name in SHOWN
                    if f"{name} at {n}" in shares
                ]
                cells.append(", ".join(numbers) or "-")
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
