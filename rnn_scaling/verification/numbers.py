"""Numbers of recorded runs: sketches as arrays, distances, fits. Pure.

K  numbers of a sketch

The judges of scripts share these functions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Sketches = dict[str, np.ndarray]  # key of a parameter -> sketch [K]
Record = Mapping[str, Any]

# Singular values below this share of the largest one count as zero. Linearly dependent
# terms, such as equal gradients of two ranks, then get the shortest weights.
_MIN_SINGULAR_VALUE = 1e-9


def sketches(tensors: Mapping[str, Any]) -> Sketches:
    """Return the sketches of recorded tensors."""
    return {key: np.array(value["sketch"]) for key, value in tensors.items()}


def digests(tensors: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of recorded tensors."""
    return {key: value["digest"] for key, value in tensors.items()}


def distances(first: Sketches, second: Sketches) -> dict[str, float]:
    """Return the estimated Euclidean distance of each tensor.

    A tensor that only one side has is infinitely far, unless it is zero. A tensor that
    overflows is infinitely far if it overflows on only one side, and otherwise equal.
    """
    result = {}
    for key in {**first, **second}:
        first_array = first.get(key)
        second_array = second.get(key)
        if first_array is None or second_array is None:
            only = first_array if first_array is not None else second_array
            result[key] = float("inf") if np.any(only) else 0.0
            continue
        is_finite = bool(np.isfinite(first_array).all())
        if is_finite != bool(np.isfinite(second_array).all()):
            result[key] = float("inf")
        elif is_finite:
            result[key] = float(np.linalg.norm(first_array - second_array))
        else:
            result[key] = 0.0
    return result


def concatenated(values: Sketches) -> list[float]:
    """Return the numbers of all sketches in one list, in the order of their keys."""
    numbers: list[float] = []
    for key in sorted(values):
        numbers += values[key].tolist()
    return numbers


def norm(values: Sketches) -> float:
    """Return the Euclidean norm of all tensors together."""
    return float(np.sqrt(sum(float(v @ v) for v in values.values())))


def nearest_multiple(values: Sketches, reference: Sketches) -> float:
    """Return the factor whose multiple of the reference is nearest to the values.

    Tensors that only the values have are ignored; those that they lack are zero. If the
    reference is zero, return 1.
    """
    product = 0.0
    square = 0.0
    for key, expected in reference.items():
        square += float(expected @ expected)
        if key in values:
            product += float(values[key] @ expected)
    return product / square if square else 1.0


def scaled(values: Sketches, scale: float) -> Sketches:
    """Return a multiple of sketches."""
    return {key: scale * value for key, value in values.items()}


def weighted_sum(terms: Sequence[Sketches], weights: Sequence[float]) -> Sketches:
    """Return the weighted sum of sketches. A tensor that a term lacks is zero."""
    total: Sketches = {}
    for term, weight in zip(terms, weights):
        for key, value in term.items():
            total[key] = total.get(key, 0.0) + weight * value
    return total


def fit(target: Sketches, terms: Sequence[Sketches]) -> tuple[list[float], float]:
    """Return the least-squares weights of terms, and the relative residual.

    The residual is infinite if any number is not finite.

    Args:
      target: The sketches to explain. Tensors that only the terms have are ignored.
      terms: The sketches to weight, not empty. A tensor that a term lacks is zero.
    """
    keys = sorted(target)
    size = len(next(iter(target.values()))) if target else 0
    zero = np.zeros(size)
    target_vector = np.concatenate([target[key] for key in keys]) if keys else zero
    columns = []
    for term in terms:
        columns.append(np.concatenate([term.get(key, zero) for key in keys]))
    matrix = np.stack(columns, axis=1)
    if not (np.isfinite(matrix).all() and np.isfinite(target_vector).all()):
        return [0.0] * len(terms), float("inf")
    lengths = np.linalg.norm(matrix, axis=0)
    lengths[lengths == 0] = 1.0
    weights, *_ = np.linalg.lstsq(
        matrix / lengths, target_vector, rcond=_MIN_SINGULAR_VALUE
    )
    residual = np.linalg.norm(target_vector - matrix / lengths @ weights)
    length = np.linalg.norm(target_vector)
    return (weights / lengths).tolist(), float(residual / length) if length else 0.0
