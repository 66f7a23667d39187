"""A gradient as a weighted sum of local gradients, and what wrong weights look like. Pure.

`diagnosis` calls `weigh` for modes of this suite, and the judges call it for scripts.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from rnn_scaling.verification import numbers
from rnn_scaling.verification.numbers import Sketches
from rnn_scaling.verification.signatures import MicroWeights, RankWeights

_SHARE_TOLERANCE = 1e-3  # tolerance of a fitted weight
MIN_SHARE = 1e-3  # share of a gradient that a fitted part has at least


@dataclasses.dataclass(frozen=True)
class Weighting:
    """A gradient as a weighted sum of the local gradients.

    Attributes:
      weights: The weight of each micro-batch of each rank, [rank][micro-batch].
      decay: The multiple of the weights that is added.
      residual: The share that the sum does not explain.
    """

    weights: np.ndarray
    decay: float
    residual: float


def weigh(
    target: Sketches, locals_: Sequence[Sequence[Sketches]], parameters: Sketches
) -> Weighting | None:
    """Return the weights of local gradients in a gradient; None without local ones."""
    terms: list[Sketches] = []
    for passes in locals_:
        terms += passes
    num_micro = len(locals_[0]) if locals_ else 0
    if not terms or any(len(passes) != num_micro for passes in locals_):
        return None
    weights, residual = numbers.fit(target, terms)
    decay = 0.0
    if residual > MIN_SHARE**2:
        known_parameters = {
            key: value for key, value in parameters.items() if key in target
        }
        with_decay, other_residual = numbers.fit(target, [*terms, known_parameters])
        if other_residual < 0.01 * residual:
            *weights, decay = with_decay
            residual = other_residual
    shaped = np.array(weights).reshape(len(locals_), num_micro)
    return Weighting(shaped, decay, residual)


def pattern(
    rank: int, weights: np.ndarray, right_weights: np.ndarray | None
) -> tuple[RankWeights, MicroWeights]:
    """Return how the applied weights of ranks and of micro-batches differ.

    Args:
      rank: The rank whose gradient has these weights.
      weights: The weights of its gradient, [rank][micro-batch].
      right_weights: The weights of the right gradient; None if unknown.

    Returns:
      The weights of ranks and of micro-batches.
    """
    largest = np.abs(weights).max()
    if right_weights is None:
        right_weights = np.full_like(weights, largest)
    else:
        # SAM, for example, uses only the second of two backward passes.
        is_unused = np.abs(right_weights) < 1e-2 * np.abs(right_weights).max()
        is_used = ~(is_unused & (np.abs(weights) < 1e-2 * largest)).all(axis=0)
        weights = weights[:, is_used]
        right_weights = right_weights[:, is_used]
    is_zero = np.abs(weights) < 1e-2 * largest
    is_zero_elsewhere = np.delete(is_zero, rank, axis=0)
    num_micro = weights.shape[1]
    if len(weights) > 1 and not is_zero[rank].any():
        is_own_only = is_zero_elsewhere.all(axis=0)
        if is_own_only.all():
            return RankWeights.OWN, MicroWeights.RIGHT
        if is_own_only[-1] and not is_own_only[:-1].any() and num_micro > 1:
            return RankWeights.RIGHT, MicroWeights.LAST_OWN
        if is_own_only.any():
            return RankWeights.RIGHT, MicroWeights.SOME_OWN
    if _is_repeated(weights, right_weights):
        return RankWeights.RIGHT, MicroWeights.REPEATED
    if is_zero.all(axis=0).any():
        return RankWeights.RIGHT, MicroWeights.LOST
    if is_zero.all(axis=1).any():
        return RankWeights.LEFT_OUT, MicroWeights.RIGHT
    over_ranks = _classify_shares(
        weights / weights.sum(axis=0),
        right_weights / right_weights.sum(axis=0),
        weights.shape[0],
    )
    shares = weights.sum(axis=0) / weights.sum()
    right_shares = right_weights.sum(axis=0) / right_weights.sum()
    over_micro = _classify_shares(shares, right_shares, num_micro)
    return RankWeights(over_ranks), MicroWeights(over_micro)


def _is_repeated(weights: np.ndarray, right_weights: np.ndarray) -> bool:
    """Return whether each micro-batch is summed again with each later one."""
    num_ranks, num_micro = weights.shape
    if num_micro < 2 or (right_weights == 0).any():
        return False
    ratio = weights / right_weights
    expected = float(num_ranks) ** np.arange(num_micro - 1, -1, -1)
    return np.allclose(ratio / ratio[:, -1:], expected, rtol=_SHARE_TOLERANCE)


def _classify_shares(shares: np.ndarray, right_shares: np.ndarray, count: int) -> str:
    """Return "uniform" if shares are equal and should not be, else "right" or "other"."""
    if np.allclose(shares, right_shares, rtol=_SHARE_TOLERANCE):
        return "right"
    return "uniform" if np.allclose(shares, 1 / count, rtol=1e-3) else "other"
