"""What the core trains and counts: it knows variables, batches, losses and items, and nothing of what they mean."""

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
Tensors = Mapping[str, Tensor]  # by the names of their variables


@dataclasses.dataclass(frozen=True)
class VariableSpec:
    """One float32 variable."""

    name: str
    shape: tuple[int, ...]
    # An "embedding" is trained and looked up by rows, a "dense" one is trained and read whole; a "moving" one is no
    # gradient's, the towers themselves give it its next value.
    kind: str
    initial: str = "uniform"  # its first values, a name of `INITIAL` or the number that all of them are


class Counts(NamedTuple):
    """What one batch holds, as scalar tensors."""

    loss_items: Tensor  # float64; what the loss is a sum over
    items: Tensor  # float64; what is counted, padding left out
    positions: Tensor  # int64; what is computed in place of `items`, padding included


class Outcome(NamedTuple):
    """What the forward pass of one tower's batch gives."""

    loss_sum: Tensor  # over the batch's `loss_items`; a float32 scalar
    moving: Tensors = MappingProxyType(
        {}
    )  # next values of the moving variables, by name
    correct: Tensor | None = (
        None  # how many of `loss_items` were predicted right, a float32 scalar; None: not asked
    )


class Outputs(NamedTuple):
    """What a network makes of one tower's batch, before its loss is computed."""

    logits: Tensor  # of classes or words, the last axis, in any floating type; samples as in the layout's parts
    moving: Tensors = MappingProxyType({})  # as of an `Outcome`


class Workload(Protocol):
    """A network with its data; batches are of the type that `layout` makes."""

    layout: Layout
    variables: tuple[VariableSpec, ...]  # that are trained, in a fixed order
    # Averages that each tower keeps for itself and that no loss depends on, such as a batch normalisation's.
    moving: tuple[VariableSpec, ...]
    kernels: Mapping[str, str]  # what really runs, by name in the record's `resolved`

    def lookups(self, batch: Any) -> dict[str, Tensor]:
        """The ids that are looked up in each embedding, by its name."""

    def forward(
        self, weights: Tensors, rows: Tensors, batch: Any, seed: Tensor
    ) -> Outcome:
        """The loss of a batch, and what else its forward pass gives.

        Args:
          weights: the dense and the moving variables by name.
          rows: what `lookups` found, `ids.shape + [E]`, by the embedding's name.
          seed: [2] int; draws the dropout.
        """

    def outputs(
        self, weights: Tensors, rows: Tensors, batch: Any, seed: Tensor
    ) -> Outputs:
        """The forward pass up to what the loss is computed from."""

    def losses(self, logits: Tensor, batch: Any) -> Tensor:
        """What each sample adds to the `loss_sum` of `forward`, [B] float32.

        Args:
          logits: that `outputs` gives, or those of several towers joined along the samples.
          batch: whose parts that `outputs` did not read are read here.
        """

    def correct(self, logits: Tensor, batch: Any) -> Tensor:
        """How many of each sample's items were predicted right, [B] float32; arguments as of `losses`."""

    def loss_items(self, batch: Any) -> Tensor:
        """How many items the loss is a sum over; a float32 scalar."""

    def counts(self, batch: Any) -> Counts:
        """What the batch holds."""


def total(lengths: Tensor, dtype: tf.DType) -> Tensor:
    return tf.reduce_sum(tf.cast(lengths, dtype))


def _fan_in_out(shape: tuple[int, ...]) -> tuple[int, int]:
    """Inputs and outputs of one position that a matrix, or a convolution's kernel [H, W, in, out], connects."""
    field = math.prod(shape[:-2])
    return field * shape[-2], field * shape[-1]


def _uniform(
    shape: tuple[int, ...], generator: np.random.Generator, limit: float
) -> np.ndarray:
    return (generator.random(shape, np.float32) * 2.0 - 1.0) * np.float32(limit)


def _normal(
    shape: tuple[int, ...], generator: np.random.Generator, deviation: float
) -> np.ndarray:
    return generator.standard_normal(shape, np.float32) * np.float32(deviation)


INITIAL: dict[str, Callable[[tuple[int, ...], np.random.Generator], np.ndarray]] = {
    "uniform": lambda shape, generator: _uniform(shape, generator, INITIAL_RANGE),
    "zeros": lambda shape, generator: np.zeros(shape, np.float32),
    "ones": lambda shape, generator: np.ones(shape, np.float32),
    "glorot_uniform": lambda shape, generator: _uniform(
        shape, generator, math.sqrt(6.0 / sum(_fan_in_out(shape)))
    ),
    "he_normal": lambda shape, generator: _normal(
        shape, generator, math.sqrt(2.0 / _fan_in_out(shape)[0])
    ),
    "unit_rows": lambda shape, generator: _normal(shape, generator, shape[-1] ** -0.5),
}


def initial_value(spec: VariableSpec, seed: int) -> np.ndarray:
    """float32 values of a variable's shape, zeros for a bias; equal for equal (spec, seed)."""
    initial = "zeros" if spec.name.endswith("/bias") else spec.initial
    if initial not in INITIAL:
        return np.full(spec.shape, float(initial), np.float32)
    return INITIAL[initial](
        spec.shape, np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
    )


def first_values(specs: Iterable[VariableSpec], seed: int) -> dict[str, np.ndarray]:
    return {spec.name: initial_value(spec, seed) for spec in specs}
