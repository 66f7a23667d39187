"""What the core trains and counts: it knows variables, batches, losses and items, and nothing of what they mean."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from models.batch import Layout

INITIAL_RANGE = 0.1


@dataclasses.dataclass(frozen=True)
class VariableSpec:
    """One trainable float32 variable; an "embedding" is looked up by rows, a "dense" one is read whole."""

    name: str
    shape: tuple[int, ...]
    kind: str


class Counts(NamedTuple):
    """What one batch holds, as scalar tensors."""

    loss_items: tf.Tensor  # float64; what the loss is a sum over
    items: tf.Tensor  # float64; what is counted, padding left out
    positions: tf.Tensor  # int64; what is computed in place of `items`, padding included


class Workload(Protocol):
    """A network with its data; batches are of the type that `layout` makes.

    variables: in a fixed order. kernels: what really runs, by name in the record's `resolved`.
    """

    layout: Layout
    variables: tuple[VariableSpec, ...]
    kernels: Mapping[str, str]

    def lookups(self, batch: Any) -> dict[str, tf.Tensor]:
        """The ids that are looked up in each embedding, by its name."""
        ...

    def loss(
        self, weights: Mapping[str, tf.Tensor], rows: Mapping[str, tf.Tensor], batch: Any, seed: tf.Tensor
    ) -> tf.Tensor:
        """The loss of a batch, summed over its `loss_items`; a float32 scalar.

        Args:
          weights: the dense variables by name.
          rows: what `lookups` found, `ids.shape + [E]`, by the embedding's name.
          batch: of one tower.
          seed: [2] int; draws the dropout.
        """
        ...

    def loss_items(self, batch: Any) -> tf.Tensor:
        """How many items the loss is a sum over; a float32 scalar."""
        ...

    def counts(self, batch: Any) -> Counts:
        """What the batch holds."""
        ...

    def flops_per_item(self, lengths: Sequence[int]) -> float:
        """FLOPs of forward and backward for one item, padding left out: see `gemm_flops`.

        Args:
          lengths: words of a sentence of each side of `layout`, whose mean item this is.
        """
        ...


def total(lengths: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    """The sum of the lengths of a batch's sentences."""
    return tf.reduce_sum(tf.cast(lengths, dtype))


def gemm_flops(variables: Iterable[VariableSpec]) -> float:
    """FLOPs of forward and backward of the matrix products at one position that all of these weights take part in.

    A product of a row with a matrix [K, N] is K*N multiply-adds of 2 FLOPs. Backward is twice the forward: the gradient
    of the row and that of the matrix. So 6*K*N for each matrix; an LSTM's [D+U, 4U] is its input product and its
    recurrent one. Left out is what is no matrix product: looking up embeddings, biases, gates, softmax, the update.
    """
    return 6.0 * sum(s.shape[0] * s.shape[1] for s in variables if s.kind == "dense" and len(s.shape) == 2)


def initial_value(spec: VariableSpec, seed: int) -> np.ndarray:
    """float32 weights, uniform in +-INITIAL_RANGE, and zeros for a bias; equal for equal (spec, seed)."""
    if spec.name.endswith("/bias"):
        return np.zeros(spec.shape, np.float32)
    generator = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
    unit = generator.random(spec.shape, np.float32)
    return (unit * 2.0 - 1.0) * np.float32(INITIAL_RANGE)
