"""Base class of the workloads that predict the next word at each position of a side.

T: words of the longest sentence, B: sentences, U: units, V: vocabulary, N: positions.

A subclass computes the last layer and counts the items; this class computes logits,
losses and correct words from the last layer.
"""

import abc
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import cross_entropy
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.layout import Layout, TextLayout
from rnn_scaling.models.workload import (
    Outcome,
    Outputs,
    Tensors,
    VariableSpec,
    sum_lengths,
)

PROJECTION = "projection"  # the variable [U, V]
PROJECTION_BIAS = "projection/bias"  # the variable [V] of networks that have one


def make_projection_spec(config: ModelConfig) -> VariableSpec:
    """Return the projection [U, V]."""
    return VariableSpec(PROJECTION, (config.num_units, config.tgt_vocab_size))


class NextWords(abc.ABC):
    """The projection and the loss of a `Workload` on top of its last layer."""

    moving: tuple[VariableSpec, ...] = ()

    def __init__(
        self, config: ModelConfig, layout: TextLayout, is_tied: bool = False
    ) -> None:
        """Create the workload.

        Args:
          is_tied: Whether the projection is [V, U], a table of embeddings.
        """
        self._config = config
        self._time_axis = 0 if layout.time_major else 1
        self.layout: Layout = layout
        self._loss = cross_entropy.LossOptions(
            config.accuracy, config.label_smoothing, is_tied, config.trains
        )

    @abc.abstractmethod
    def run_layers(
        self, weights: Tensors, rows: Tensors, batch: Any, seed: Tensor
    ) -> Tensor:
        """Return the outputs of the last layer, [T, B, U] or [B, T, U]."""

    def forward(
        self, weights: Tensors, rows: Tensors, batch: Any, seed: Tensor
    ) -> Outcome:
        outputs = self.run_layers(weights, rows, batch, seed)
        labels = batch.target_output
        with tf.name_scope("loss"):
            word_weights = cross_entropy.compute_word_weights(
                labels, batch.target_length, self._time_axis
            )
            bias = weights.get(PROJECTION_BIAS)
            return cross_entropy.sum_losses(
                outputs, weights[PROJECTION], labels, word_weights, bias, self._loss
            )

    def compute_outputs(
        self, weights: Tensors, rows: Tensors, batch: Any, seed: Tensor
    ) -> Outputs:
        hidden = self.run_layers(weights, rows, batch, seed)
        bias = weights.get(PROJECTION_BIAS)
        return Outputs(
            cross_entropy.compute_logits(
                hidden, weights[PROJECTION], bias, self._loss.is_tied
            )
        )

    def _build_projection(self, weights: Tensors) -> Callable[[Tensor], Tensor]:
        """Return the function of one position's outputs [N, U] -> logits [N, V]."""
        projection = tf.cast(weights[PROJECTION], self._config.compute_dtype)
        bias = weights.get(PROJECTION_BIAS)
        return lambda hidden: cross_entropy.compute_logits(
            hidden, projection, bias, self._loss.is_tied
        )

    def compute_losses(self, logits: Tensor, batch: Any) -> Tensor:
        with tf.name_scope("loss"):
            losses = cross_entropy.compute_losses(
                logits, batch.target_output, self._loss.label_smoothing
            )
            return self._sum_sentences(losses, batch)

    def correct(self, logits: Tensor, batch: Any) -> Tensor:
        with tf.name_scope("loss"):
            return self._sum_sentences(
                cross_entropy.is_correct(logits, batch.target_output), batch
            )

    def _sum_sentences(self, values: Tensor, batch: Any) -> Tensor:
        """Return the sum [B] over each sentence's words of values [T, B] or [B, T]."""
        word_weights = cross_entropy.compute_word_weights(
            batch.target_output, batch.target_length, self._time_axis
        )
        return tf.reduce_sum(values * word_weights, self._time_axis)

    def count_loss_items(self, batch: Any) -> Tensor:
        return sum_lengths(batch.target_length, tf.float32)
