"""Sketches and digests of NumPy arrays, like those of `sketches` for torch.

`steps` records JAX and Keras scripts with them. Sketches are only compared with
sketches of this module, so SIZE and SEED need not be those of `sketches`, but all runs
of a verification must have the same. Needs only NumPy.
"""

import functools
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

SIZE = 32
SEED = 20141

Arrays = Mapping[str, np.ndarray]


@functools.lru_cache(maxsize=64)
def _table(num_elements: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the entry and the sign of each element of an array."""
    random = np.random.default_rng(SEED + num_elements)
    entries = random.integers(SIZE, size=num_elements)
    signs = random.integers(2, size=num_elements) * 2.0 - 1.0
    return entries, signs


def sketch(array: np.ndarray) -> list[float]:
    """Return the sketch of an array; see `sketches`."""
    values = array.astype(np.float64).ravel()
    entries, signs = _table(values.size)
    total = np.bincount(entries, values * signs, minlength=SIZE)
    return [float(f"{value:.9g}") for value in total]


def digest(array: np.ndarray) -> str:
    """Return a digest of the numbers of an array."""
    content = np.ascontiguousarray(array).tobytes()
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def describe(arrays: Arrays) -> dict[str, dict[str, Any]]:
    """Return digest, sketch and norm of each array."""
    described = {}
    for name, array in arrays.items():
        described[name] = {
            "digest": digest(array),
            "sketch": sketch(array),
            "norm": float(np.linalg.norm(array.astype(np.float64))),
            "is_sparse": False,
        }
    return described


def row_digests(samples: np.ndarray) -> list[list[str]]:
    """Return digests of samples: of their numbers [B], or of their contents [B, ...]."""
    return [[digest(row)] * 2 for row in samples]


def perturbed(array: np.ndarray, size: float, seed: int) -> np.ndarray:
    """Return an array whose elements differ by a relative `size`, up or down."""
    random = np.random.default_rng([seed, array.size])
    signs = random.integers(2, size=array.shape) * 2 - 1
    return np.asarray(array * (1 + signs * size), array.dtype)
