"""Judge whether ranks apply the mean of what one process gets from each rank's batch.

That is right if each rank reads as many samples as one process, and if the loss is a sum
over samples plus a rest, such as a regulariser. One process that reads all samples counts
the rest only once, and the ranks count it once each. The run "isolated" has the gradients
of each batch and of two halves of a batch. A rest that does not depend on samples is the
same for all batches together and for the halves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from rnn_scaling.verification import numbers
from rnn_scaling.verification.numbers import Sketches
from rnn_scaling.verification.scripts.evidence import Evidence, Record


@dataclasses.dataclass(frozen=True)
class _IsolatedGradients:
    """The gradients of one process, all with the same weights.

    Attributes:
      batches: The gradient of each rank's first batch, the last rank first.
      halves: The gradients of two halves of the first of these batches.
    """

    batches: list[Sketches]
    halves: list[Sketches]


def is_mean_of_batches(evidence: Evidence, steps: Sequence[Record]) -> bool:
    """Return whether the first step's gradients are the right mean over the batches.

    Args:
      evidence: The runs of the script.
      steps: The first step of each rank.
    """
    isolated = _read_isolated_gradients(evidence)
    if isolated is None or evidence.growth_of_batch(0) != evidence.num_ranks:
        return False
    total = numbers.weighted_sum(isolated.batches, [1.0] * evidence.num_ranks)
    mean = numbers.scaled(total, 1 / evidence.num_ranks)
    pairs = [(numbers.sketches(step["gradients"]), mean) for step in steps]
    # Both halves together contain the rest once more than their batch.
    joined = numbers.weighted_sum(isolated.halves, [1.0, 1.0])
    rest = _estimate_rest(evidence, total)
    pairs.append(
        (joined, numbers.weighted_sum([isolated.batches[0], rest], [1.0, 1.0]))
    )
    for actual, expected in pairs:
        difference = evidence.noise.compare(0, actual, expected)
        if difference.parameters or not difference.is_judged:
            return False
    return True


def _read_isolated_gradients(evidence: Evidence) -> _IsolatedGradients | None:
    """Return the gradients of the run "isolated"; None if it is missing or unusable."""
    if "isolated" not in evidence.runs:
        return None
    steps = evidence.runs["isolated"]["ranks"][0]["steps"]
    weights = [step.get("before") for step in steps]
    is_complete = len(steps) == evidence.num_ranks + 2
    if not is_complete or any(each != weights[0] for each in weights):
        return None
    gradients = [numbers.sketches(step["gradients"]) for step in steps]
    return _IsolatedGradients(
        batches=gradients[: evidence.num_ranks], halves=gradients[evidence.num_ranks :]
    )


def _estimate_rest(evidence: Evidence, total: Sketches) -> Sketches:
    """Return the part of a gradient that does not depend on samples.

    Args:
      evidence: The runs of the script.
      total: The sum of the gradients of all batches, which has the rest once per rank.
    """
    reference = evidence.runs["reference"]
    scale = reference["settings"].get("scale", 1.0)
    whole = numbers.sketches(evidence.reference["steps"][0]["gradients"])
    share = 1 / (evidence.num_ranks - 1)
    return numbers.weighted_sum([total, whole], [share, -share / scale])
