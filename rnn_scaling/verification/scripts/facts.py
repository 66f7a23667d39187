"""Test what may explain a wrong gradient, from the records of the steps only.

`gradient_judge` and `judge` use the answers as features of signatures
(`verification.signatures`); `plan` uses `find_reference_scale`. To add a fact, add a
function here and its feature in `gradient_judge`.

Keys of a step are written by `rnn_scaling.hooks`: "micro" has one entry per backward
pass, "gradients" and "weights" have sketches of tensors, "before" has digests.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from rnn_scaling.verification import numbers, sums
from rnn_scaling.verification.scripts import accounting, comparison
from rnn_scaling.verification.scripts.evidence import Record, previous_step

_TOLERANCE = 1e-3  # relative error of losses, of sums of gradients and of their factors


def contains_previous_gradients(
    ranks: Sequence[Record], number: int, rank_index: int
) -> bool:
    """Return whether a gradient contains gradients of the previous step.

    They account for the part that the step's own local gradients do not explain.

    Args:
      ranks: The ranks of a run.
      number: The step.
      rank_index: The rank that applies the gradient.
    """
    previous_steps = []
    for rank in ranks:
        previous = previous_step(rank, number)
        if previous is None:
            return False
        previous_steps.append(previous)
    local = comparison.local_gradients([rank["steps"][number] for rank in ranks])
    previous_local = comparison.local_gradients(previous_steps)
    terms = []
    for passes, previous, previous_passes in zip(local, previous_steps, previous_local):
        applied = numbers.sketches(previous["gradients"])
        terms.append([*passes, applied, *previous_passes])
    actual = numbers.sketches(ranks[rank_index]["steps"][number]["gradients"])
    weighting = sums.weigh(actual, terms, {})
    return weighting is not None and weighting.residual < sums.MIN_SHARE


def pads_to_different_lengths(steps: Sequence[Record], reference: Record) -> bool:
    """Return whether one process pads the same samples to other lengths."""
    passes = itertools.chain.from_iterable(step["micro"] for step in steps)
    lengths = {micro.get("length") for micro in passes}
    return lengths != {micro.get("length") for micro in reference["micro"]}


def uses_other_ranks(steps: Sequence[Record], field: str) -> bool:
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
        if math.hypot(*distances.values()) > _TOLERANCE * numbers.norm(other):
            return False
    return not np.allclose(factors, 1.0, rtol=_TOLERANCE)


def next_step_starts_equally(
    ranks: Sequence[Record], number: int, field: str = "before"
) -> bool:
    """Return whether all ranks begin the next step of an optimizer with equal tensors.

    Args:
      ranks: The ranks of a run.
      number: The step before the next one.
      field: The digests of a step: "before" of weights, or "buffers_before".
    """
    digests_of_ranks = []
    for rank in ranks:
        optimizer = rank["steps"][number]["optimizer"]
        for step in rank["steps"][number + 1 :]:
            if step["optimizer"] == optimizer:
                digests_of_ranks.append(step.get(field))
                break
    if len(digests_of_ranks) < len(ranks) or not digests_of_ranks[0]:
        return False
    return all(digests == digests_of_ranks[0] for digests in digests_of_ranks)


def first_draw(rank: Record) -> list[int]:
    """Return the place of the first draw that belongs to the first step of a rank.

    Draws before it are weights and data. The second step has as many draws as the
    first.
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


def splits_layers(start: Record) -> bool:
    """Return whether ranks have parts of layers, but not of FSDP, which has own classes."""
    is_fsdp = any(name.startswith("FSDP") for name in start["layers"])
    return bool(start.get("has_shards")) and not is_fsdp


def apply_equally(ranks: Sequence[Record], number: int) -> bool:
    """Return whether all ranks apply equal gradients to equal weights in a step."""
    steps = [rank["steps"][number] for rank in ranks]
    inputs = []
    for step in steps:
        inputs.append((numbers.digests(step["gradients"]), step.get("before")))
    return inputs[0][1] is not None and all(each == inputs[0] for each in inputs)


def averages_weights(ranks: Sequence[Record]) -> bool:
    """Return whether ranks train apart for some steps and then average their weights.

    This is local SGD. A rank that gives its weights to the others keeps its own.
    """
    apart: set[int] = set()  # optimizers whose ranks have had different weights
    for number, steps in enumerate(zip(*(rank["steps"] for rank in ranks))):
        optimizer = steps[0]["optimizer"]
        weights = [step.get("before") for step in steps]
        if any(digests != weights[0] for digests in weights):
            apart.add(optimizer)
        elif optimizer in apart:
            # The first step with equal weights after steps with different ones.
            return all(weights_change_between_steps(rank, number) for rank in ranks)
    return False


def weights_change_between_steps(rank: Record, number: int) -> bool:
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


def find_reference_scale(
    runs: Mapping[str, Record], parallel: str, reference: str
) -> float:
    """Return the factor by which the gradient of a replay must be multiplied.

    A loss that divides by a constant of the script is too large if one process computes
    the samples of all ranks. For example, each of 4 ranks divides by its batch size of
    32. One process that computes all samples also divides by 32, so its gradient is four
    times too large: the factor is 1/4.

    Args:
      runs: The records of the runs by name.
      parallel: The name of the run with several ranks.
      reference: The name of the replay.
    """
    settings = runs[reference]["settings"]
    rank = runs[reference]["ranks"][0]
    if "replay" not in settings or "scale" in settings or not rank["steps"]:
        return 1.0
    step = rank["steps"][0]
    serial_step = runs["serial"]["ranks"][0]["steps"][0]
    rank_steps = [rank["steps"][0] for rank in runs[parallel]["ranks"]]
    scale = _find_scale_by_targets(step, serial_step, rank_steps)
    if scale is None:
        scale = _find_scale_by_losses(step, serial_step, rank_steps)
    return scale


def _find_scale_by_targets(
    step: Record, serial_step: Record, rank_steps: Sequence[Record]
) -> float | None:
    """Return the factor, from how the losses depend on the targets.

    Returns:
      None if the accounts of the losses are unknown, or if the loss of the replay does
      not have the weight of all ranks together.
    """
    account = accounting.account(step)
    serial_account = accounting.account(serial_step)
    if account is None or serial_account is None:
        return None
    growth = account.weight / serial_account.weight
    if not math.isclose(growth, len(rank_steps), rel_tol=accounting.TOLERANCE):
        return None
    # Ranks may sum a loss that is a sum. Then the first rank's gradient is the sum of
    # the local gradients, too.
    is_sum = np.allclose(account.scales, 1.0) and _are_added(rank_steps[0], rank_steps)
    return 1.0 if is_sum else 1 / len(rank_steps)


def _find_scale_by_losses(
    step: Record, serial_step: Record, rank_steps: Sequence[Record]
) -> float:
    """Return the factor, from the values of the losses."""
    loss = _total_loss([step])
    serial_loss = _total_loss([serial_step])
    # Ranks that gather values compute the loss of all samples, so no loss is the sum.
    is_sum_of_ranks = math.isclose(loss, _total_loss(rank_steps), rel_tol=_TOLERANCE)
    if not serial_loss or not is_sum_of_ranks:
        return 1.0
    # The loss is nearer to the sum over the ranks than to the loss of one process.
    is_too_large = loss / serial_loss > math.sqrt(len(rank_steps))
    if is_too_large and _are_added(step, rank_steps):
        return 1 / len(rank_steps)
    return 1.0


def _are_added(step: Record, steps: Sequence[Record]) -> bool:
    """Return whether the gradient of a step is the sum of the ranks' local gradients."""
    gradient = numbers.sketches(step["gradients"])
    weighting = sums.weigh(gradient, comparison.local_gradients(steps), {})
    if weighting is None or weighting.residual > sums.MIN_SHARE:
        return False
    return bool(np.abs(weighting.weights - 1.0).max() < _TOLERANCE)


def _total_loss(steps: Sequence[Record]) -> float:
    """Return the sum of the losses of all backward passes."""
    passes = itertools.chain.from_iterable(step["micro"] for step in steps)
    return float(sum(micro["loss"] for micro in passes))


def have_equal_local_gradients(local_gradients: list[list[numbers.Sketches]]) -> bool:
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
