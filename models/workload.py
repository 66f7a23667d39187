"""The interface between the trainer and a network.

The trainer reads variables, batches, losses and items; it does not interpret them.
Every workload implements `Workload`. A new member of it is needed in all workloads, and
in the stand-ins of tests.

B: samples of a batch, E: embedding.
"""

import dataclasses
import math
import zlib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models.layout import Layout

INITIAL_RANGE = 0.1
Tensors = Mapping[str, Tensor]
"""Tensors by the names of their variables."""


@dataclasses.dataclass(frozen=True)
class VariableSpec:
    """One float32 variable.

    Attributes:
      name: The variable's name in checkpoints and records.
      kind: "embedding" (trained, looked up by rows), "dense" (trained, read whole) or
        "moving" (without a gradient; each tower computes its next value).
      initial: A name of `INITIAL`, or the number that fills the variable.
    """

    name: str
    shape: tuple[int, ...]
    kind: str = "dense"
    initial: str = "uniform"


class Counts(NamedTuple):
    """The counts of one batch, as scalar tensors."""

    loss_items: Tensor  # float64; the items that the loss is a sum over
    items: Tensor  # float64; the items of the rate, without padding
    positions: Tensor  # int64; computed positions, padding included


class Outcome(NamedTuple):
    """The results of the forward pass for one tower's batch.

    Attributes:
      loss_sum: Sum over the batch's `loss_items`, a float32 scalar.
      moving: Next values of the moving variables, by name.
      correct: How many of `loss_items` were predicted correctly, a float32 scalar; None
        without --accuracy.
    """

    loss_sum: Tensor
    moving: Tensors = MappingProxyType({})
    correct: Tensor | None = None


class Outputs(NamedTuple):
    """The results of a network for one tower's batch, before its loss is computed.

    Attributes:
      logits: Any floating type; the last axis has the classes or words. The layout has
        the axis of the samples.
      moving: See `Outcome`.
    """

    logits: Tensor
    moving: Tensors = MappingProxyType({})


class Workload(Protocol):
    """A network with its data; batches have the type that `layout` makes.

    Attributes:
      variables: The trained variables, in a fixed order.
      moving: Averages of each tower that no loss depends on, such as in a
        batch normalization.
      kernels: Names of the kernels that run, by their names in the record's `resolved`.
    """

    layout: Layout
    variables: tuple[VariableSpec, ...]
    moving: tuple[VariableSpec, ...]
    kernels: Mapping[str, str]

    def list_lookups(self, batch: Any) -> dict[str, Tensor]:
        """Return the ids to look up in each embedding, by its name."""

    def forward(
        self, weights: Tensors, rows: Tensors, batch: Any, seed: Tensor
    ) -> Outcome:
        """Run the forward pass and the loss.

        Args:
          weights: The dense and the moving variables by name.
          rows: The rows of `list_lookups`, `ids.shape + [E]`, by the embedding's name.
          seed: [2] int; draws the dropout.
        """

    def compute_outputs(
        self, weights: Tensors, rows: Tensors, batch: Any, seed: Tensor
    ) -> Outputs:
        """Run the forward pass without the loss."""

    def compute_losses(self, logits: Tensor, batch: Any) -> Tensor:
        """Return each sample's part of the `loss_sum` of `forward`, [B] float32.

        Args:
          logits: From `compute_outputs`; may join several towers along the axis of the
            samples.
          batch: Only fields in the layout's `labels` and lengths are read.
        """

    def correct(self, logits: Tensor, batch: Any) -> Tensor:
        """Return the correct items per sample, [B] float32; see `compute_losses`."""

    def count_loss_items(self, batch: Any) -> Tensor:
        """Return the number of items that the loss is a sum over, a float32 scalar."""

    def count_batch(self, batch: Any) -> Counts:
        """Return the counts of the batch."""


def cast_weights(weights: Tensors, dtype: str | tf.DType, prefix: str = "") -> Tensors:
    """Cast the weights whose names begin with a prefix."""
    return {
        name: tf.cast(w, dtype)
        for name, w in weights.items()
        if name.startswith(prefix)
    }


def sum_lengths(lengths: Tensor, dtype: tf.DType) -> Tensor:
    """Return the sum of lengths [B] as a scalar of `dtype`."""
    return tf.reduce_sum(tf.cast(lengths, dtype))


def _find_fan_in_out(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return the numbers of inputs and outputs that one position connects.

    The shape is a matrix, or a convolution's kernel [h, w, in, out].
    """
    field = math.prod(shape[:-2])
    return field * shape[-2], field * shape[-1]


def _draw_uniform(
    shape: tuple[int, ...], generator: np.random.Generator, limit: float
) -> np.ndarray:
    return (generator.random(shape, np.float32) * 2.0 - 1.0) * np.float32(limit)


def _draw_normal(
    shape: tuple[int, ...], generator: np.random.Generator, deviation: float
) -> np.ndarray:
    return generator.standard_normal(shape, np.float32) * np.float32(deviation)


INITIAL: dict[str, Callable[[tuple[int, ...], np.random.Generator], np.ndarray]] = {
    "uniform": lambda shape, generator: _draw_uniform(shape, generator, INITIAL_RANGE),
    "zeros": lambda shape, generator: np.zeros(shape, np.float32),
    "ones": lambda shape, generator: np.ones(shape, np.float32),
    "glorot_uniform": lambda shape, generator: _draw_uniform(
        shape, generator, math.sqrt(6.0 / sum(_find_fan_in_out(shape)))
    ),
    "he_normal": lambda shape, generator: _draw_normal(
        shape, generator, math.sqrt(2.0 / _find_fan_in_out(shape)[0])
    ),
    "unit_rows": lambda shape, generator: _draw_normal(
        shape, generator, shape[-1] ** -0.5
    ),
}


def make_initial_value(spec: VariableSpec, seed: int) -> np.ndarray:
    """Return the float32 values of a variable before training; zeros for a bias.

    Equal (spec, seed) have equal values.
    """
    initial = "zeros" if spec.name.endswith("/bias") else spec.initial
    if initial not in INITIAL:
        return np.full(spec.shape, float(initial), np.float32)
    generator = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
    return INITIAL[initial](spec.shape, generator)


def make_first_values(
    specs: Iterable[VariableSpec], seed: int
) -> dict[str, np.ndarray]:
    """Return the float32 values of variables before training, by name."""
    return {spec.name: make_initial_value(spec, seed) for spec in specs}
