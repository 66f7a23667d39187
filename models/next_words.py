"""What workloads share that predict the next word at each position of a target side.

T: words of the longest sentence, B: sentences, U: units, V: vocabulary.
"""

import abc
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import cross_entropy
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.layout import Layout, TextLayout
from rnn_scaling.models.workload import Outcome, Outputs, Tensors, VariableSpec, total

PROJECTION = "projection"  # the variable [U, V]
PROJECTION_BIAS = "projection/bias"  # and this [V], where there is one


class NextWords(abc.ABC):
    """Forward pass and loss of a `Workload` on top of its last layer."""

    moving: tuple[VariableSpec, ...] = ()

    def __init__(
        self, config: ModelConfig, layout: TextLayout, tied: bool = False
    ) -> None:
        """tied: whether the projection is [V, U], a table of embeddings."""
        self._config = config
        self._time_axis = 0 if layout.time_major else 1
        self.layout: Layout = layout
        self._loss = cross_entropy.LossOptions(
            config.accuracy, config.label_smoothing, tied, config.trains
        )

    @abc.abstractmethod
    def last_layer(
        self, weights: Tensors, rows: Tensors, batch: Any, seed: Tensor
    ) -> Tensor:
        """Its outputs, [T, B, U] or [B, T, U]."""

    def forward(
        self, weights: Tensors, rows: Tensors, batch: Any, seed: Tensor
    ) -> Outcome:
        outputs = self.last_layer(weights, rows, batch, seed)
        labels = batch.target_output
        with tf.name_scope("loss"):
            counted = cross_entropy.word_weights(
                labels, batch.target_length, self._time_axis
            )
            bias = weights.get(PROJECTION_BIAS)
            return cross_entropy.loss_sum(
                outputs, weights[PROJECTION], labels, counted, bias, self._loss
            )

    def outputs(
        self, weights: Tensors, rows: Tensors, batch: Any, seed: Tensor
    ) -> Outputs:
        hidden = self.last_layer(weights, rows, batch, seed)
        bias = weights.get(PROJECTION_BIAS)
        return Outputs(
            cross_entropy.logits_of(hidden, weights[PROJECTION], bias, self._loss.tied)
        )

    def _projected(self, weights: Tensors) -> Callable[[Tensor], Tensor]:
        """The function of the last layer's outputs [N, U] at one position -> logits [N, V]."""
        projection = tf.cast(weights[PROJECTION], self._config.compute_dtype)
        bias = weights.get(PROJECTION_BIAS)
        return lambda hidden: cross_entropy.logits_of(
            hidden, projection, bias, self._loss.tied
        )

    def losses(self, logits: Tensor, batch: Any) -> Tensor:
        with tf.name_scope("loss"):
            losses = cross_entropy.losses(
                logits, batch.target_output, self._loss.label_smoothing
            )
            return self._of_sentences(losses, batch)

    def correct(self, logits: Tensor, batch: Any) -> Tensor:
        with tf.name_scope("loss"):
            return self._of_sentences(
                cross_entropy.is_right(logits, batch.target_output), batch
            )

    def _of_sentences(self, of_words: Tensor, batch: Any) -> Tensor:
        """[B]: the sum over each sentence's words, of [T, B] or [B, T]."""
        counted = cross_entropy.word_weights(
            batch.target_output, batch.target_length, self._time_axis
        )
        return tf.reduce_sum(of_words * counted, self._time_axis)

    def loss_items(self, batch: Any) -> Tensor:
        return total(batch.target_length, tf.float32)
