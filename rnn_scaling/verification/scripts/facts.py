"""Facts of steps that may explain a wrong gradient, from the records alone. Pure.

`gradient_judge` makes the features of signatures of these facts, and `plan` asks for the
scale of the reference.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from rnn_scaling.verification import numbers, sums
from rnn_scaling.verification.scripts import accounting, comparison
from rnn_scaling.verification.scripts.evidence import Record, previous_step

TOLERANCE = 1e-3  # tolerance of losses and of weights of 1


def has_old_gradients(ranks: Sequence[Record], number: int, rank_index: int) -> bool:
    """Return whether gradients of the step before explain the rest of a gradient.

    Args:
      ranks: The ranks of a run.
      number: The step.
      rank_index: The rank that applies the gradient.
    """
    previous = [previous_step(rank, number) for rank in ranks]
    old_steps = [step for step in previous if step is not None]
    if len(old_steps) < len(ranks):
        return False
    terms = comparison.local_gradients([rank["steps"][number] for rank in ranks])
    old = comparison.local_gradients(old_steps)
    for passes, step, old_passes in zip(terms, old_steps, old):
        passes += [numbers.sketches(step["gradients"]), *old_passes]
    actual = numbers.sketches(ranks[rank_index]["steps"][number]["gradients"])
    weighting = sums.weigh(actual, terms, {})
    return weighting is not None and weighting.residual < sums.MIN_SHARE


def has_other_lengths(steps: Sequence[Record], reference: Record) -> bool:
    """Return whether one process pads the same samples to other lengths."""
    passes = itertools.chain.from_iterable(step["micro"] for step in steps)
    lengths = {micro.get("length") for micro in passes}
    return lengths != {micro.get("length") for micro in reference["micro"]}


def has_exchange(steps: Sequence[Record], field: str) -> bool:
    """Return whether a forward pass uses values of other ranks.

    Args:
      steps: The step of each rank.
      field: "shares_values", or "exchanges" for values without a gradient.
    """
    passes = itertools.chain.from_iterable(step["micro"] for step in steps)
    return any(micro.get(field) for micro in passes)


def are_multiples(steps: Sequence[Record]) -> bool:
    """Return whether ranks apply different multiples of the same gradient."""
    first, *others = [numbers.sketches(step["gradients"]) for step in steps]
    factors = [1.0]
    for other in others:
        factors.append(numbers.nearest_multiple(other, first))
        distances = numbers.distances(other, numbers.scaled(first, factors[-1]))
        if math.hypot(*distances.values()) > TOLERANCE * numbers.norm(other):
            return False
    return not np.allclose(factors, 1.0, rtol=TOLERANCE)


def begin_equally(ranks: Sequence[Record], number: int, field: str = "before") -> bool:
    """Return whether all ranks begin the next step of an optimizer with equal tensors.

    Args:
      ranks: The ranks of a run.
      number: The step before.
      field: The digests of a step: "before" of weights, or "buffers_before".
    """
    digests = []
    for rank in ranks:
        optimizer = rank["steps"][number]["optimizer"]
        for step in rank["steps"][number + 1 :]:
            if step["optimizer"] == optimizer:
                digests.append(step.get(field))
                break
    if len(digests) < len(ranks) or not digests[0]:
        return False
    return all(each == digests[0] for each in digests)


def first_draw(rank: Record) -> list[int]:
    """Return the place of the first draw that belongs to the first step of a rank.

    Draws before it are weights and data. The second step has as many draws as the first.
    """
    places = [step["place"] for step in rank["steps"][:2]]
    number, count = places[0]
    return [number, max(0, count - places[-1][1])]


def frozen_weights_differ(starts: Sequence[Record]) -> bool:
    """Return whether weights without an optimizer, such as a teacher's, differ.

    A rank may have models that other ranks do not have, such as averaged weights.
    """
    first, *others = [start.get("frozen", {}) for start in starts]
    for name, digests in first.items():
        for other in others:
            same_name = other.get(name, [])
            has_as_many = len(same_name) == len(digests)
            if has_as_many and sorted(same_name) != sorted(digests):
                return True
    return False


def averages_weights(ranks: Sequence[Record]) -> bool:
    """Return whether ranks train apart for some steps and then average their weights.

    This is local SGD. A rank that gives its weights to the others keeps its own.
    """
    apart: set[int] = set()
    for number, steps in enumerate(zip(*(rank["steps"] for rank in ranks))):
        optimizer = steps[0]["optimizer"]
        weights = [step.get("before") for step in steps]
        if any(each != weights[0] for each in weights):
            apart.add(optimizer)
        elif optimizer in apart:
            return all(is_changed_outside(rank, number) for rank in ranks)
    return False


def is_changed_outside(rank: Record, number: int) -> bool:
    """Return whether weights change after a step and before the next one."""
    if number >= len(rank["steps"]):
        return False
    previous = previous_step(rank, number)
    if previous is None:
        return False
    ended_with = numbers.digests(previous["weights"])
    began_with = rank["steps"][number].get("before", {})
    return any(
        ended_with.get(key, digest) != digest for key, digest in began_with.items()
    )


def scale_of_reference(
    runs: Mapping[str, Record], parallel: str, reference: str
) -> float:
    """Return the factor by which the gradient of a replay must be multiplied.

    A loss that divides by a constant of the script, such as its batch size, adds the
    losses of the ranks if one process computes all their samples.
    """
    settings = runs[reference]["settings"]
    rank = runs[reference]["ranks"][0]
    if "replay" not in settings or "scale" in settings or not rank["steps"]:
        return 1.0
    step = rank["steps"][0]
    steps = [rank["steps"][0] for rank in runs[parallel]["ranks"]]
    usual_step = runs["serial"]["ranks"][0]["steps"][0]
    found = accounting.account(step)
    usual_account = accounting.account(usual_step)
    if found is not None and usual_account is not None:
        growth = found.weight / usual_account.weight
        if math.isclose(growth, len(steps), rel_tol=accounting.TOLERANCE):
            # Ranks may sum a loss that is a sum.
            is_sum = np.allclose(found.scales, 1.0) and _are_added(steps[0], steps)
            return 1.0 if is_sum else 1 / len(steps)
    loss = _total_loss([step])
    usual = _total_loss([usual_step])
    # Ranks that gather values compute the loss of all samples.
    if not usual or not math.isclose(loss, _total_loss(steps), rel_tol=TOLERANCE):
        return 1.0
    if _are_added(step, steps) and loss / usual > math.sqrt(len(steps)):
        return 1 / len(steps)
    return 1.0


def _are_added(step: Record, steps: Sequence[Record]) -> bool:
    """Return whether the gradient of a step is the sum of the ranks' local gradients."""
    gradient = numbers.sketches(step["gradients"])
    weighting = sums.weigh(gradient, comparison.local_gradients(steps), {})
    if weighting is None or weighting.residual > sums.MIN_SHARE:
        return False
    return bool(np.abs(weighting.weights - 1.0).max() < TOLERANCE)


def _total_loss(steps: Sequence[Record]) -> float:
    """Return the sum of the losses of all backward passes."""
    passes = itertools.chain.from_iterable(step["micro"] for step in steps)
    return float(sum(micro["loss"] for micro in passes))


def are_equal(local_gradients: list[list[numbers.Sketches]]) -> bool:
    """Return whether all ranks have the same nonzero local gradients."""
    if len(local_gradients) < 2 or not local_gradients[0] or not local_gradients[0][0]:
        return False
    first = local_gradients[0][0]
    if numbers.norm(first) == 0:
        return False
    for passes in local_gradients[1:]:
        if not passes or passes[0].keys() != first.keys():
            return False
        if numbers.concatenated(passes[0]) != numbers.concatenated(first):
            return False
    return True
