"""Compare the gradients of ranks with one process, and find out how they differ. Pure.

`gradient_judge` asks how large a difference is, in units of the rounding noise.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rnn_scaling.verification import numbers
from rnn_scaling.verification.numbers import Sketches

# A difference is wrong if it is this many times as large as the difference that
# rounding each weight once causes. Correct scripts reach up to a seventh of it.
_SAFETY = 32.0
# The same factor with bfloat16 or float16, where rounding all weights once changes as
# much as all rounding errors of a step.
_SAFETY_OF_SHORT = 8.0
_SHORT_ROUNDING = 2.0**-12
_MAX_ALLOWED = 0.64  # share of a gradient above which nothing is judged
EPSILON = 2.0**-23

Record = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Difference:
    """The largest difference of one step, as a multiple of its tolerance.

    Attributes:
      ratio: The difference divided by the tolerance.
      parameters: Keys of the parameters that differ by more than the tolerance.
      is_judged: False if rounding changes the gradient too much.
    """

    ratio: float
    parameters: Sequence[str]
    is_judged: bool = True


class Noise:
    """The effect of rounding on the tensors of each step of the reference."""

    def __init__(
        self, reference: Record, others: Sequence[Record], field: str = "gradients"
    ) -> None:
        """Compare runs that differ only by rounding.

        Args:
          reference: The first rank of the reference.
          others: The first ranks of the same run, repeated or perturbed.
          field: "gradients" or another field of a step.
        """
        self._safety = _SAFETY
        for other in others:
            if (other["end"] or {}).get("rounding", 0.0) > _SHORT_ROUNDING:
                self._safety = _SAFETY_OF_SHORT
        self._steps: list[dict[str, float]] = []
        for number, step in enumerate(reference["steps"]):
            expected = numbers.sketches(step[field])
            largest: dict[str, float] = {}
            for other in others:
                if number >= len(other["steps"]):
                    continue
                actual = numbers.sketches(other["steps"][number][field])
                for key, value in numbers.distances(actual, expected).items():
                    largest[key] = max(value, largest.get(key, 0.0))
            self._steps.append(largest)
        # Some hooks cannot change the first weights; then the second step counts.
        if len(self._steps) > 1 and not any(self._steps[0].values()):
            self._steps[0] = self._steps[1]

    def compare(self, number: int, actual: Sketches, expected: Sketches) -> Difference:
        """Return the difference of two gradients of a step."""
        noise = self._steps[min(number, len(self._steps) - 1)]
        total = numbers.norm(expected)
        total_noise = float(np.sqrt(sum(v * v for v in noise.values() if v < np.inf)))
        share = max(total_noise / total if total else 0.0, EPSILON)
        if self._safety * share > _MAX_ALLOWED:
            return Difference(0.0, (), is_judged=False)
        ratio = 0.0
        wrong = []
        for key, distance in numbers.distances(actual, expected).items():
            length = float(np.linalg.norm(expected.get(key, 0.0)))
            allowed = self._safety * max(noise.get(key, 0.0), share * length, 1e-30)
            allowed = max(allowed, self._safety * EPSILON**1.5 * total)
            ratio = max(ratio, distance / allowed)
            if distance > allowed:
                wrong.append(key)
        return Difference(ratio, wrong)

    def share(self, number: int, total: float) -> float:
        """Return the noise of a step relative to the length of all gradients."""
        noise = self._steps[min(number, len(self._steps) - 1)].values()
        length = float(np.sqrt(sum(v * v for v in noise if v < np.inf)))
        return max(length / total if total else 0.0, EPSILON)


def local_gradients(steps: Sequence[Record]) -> list[list[Sketches]]:
    """Return the gradients of each backward pass of a step before the exchange.

    Args:
      steps: The step of each rank.
    """
    result = []
    for step in steps:
        passes = []
        for micro in step["micro"]:
            passes.append({k: np.array(v) for k, v in micro["gradients"].items()})
        result.append(passes)
    return result
