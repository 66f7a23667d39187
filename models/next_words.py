"""What workloads share that predict the next word at each position of a target side.

T: words of the longest sentence, B: sentences, U: units, V: vocabulary.
"""

import abc
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rnn_scaling.models import cross_entropy
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.layout import Layout, TextLayout
from rnn_scaling.models.workload import Outcome, Outputs, Tensors, VariableSpec, total

PROJECTION = "projection"  # the variable [U, V]
PROJECTION_BIAS = "projection/bias"  # and this [V], where there is one


class NextWords(abc.ABC):
    """Forward pass and loss of a `Workload` on top of its last layer."""

    moving: tuple[VariableSpec, ...] = ()

    def __init__(self, config: ModelConfig, layout: TextLayout, tied: bool = False) -> None:
        """tied: whether the projection is [V, U], a table of embeddings."""
        self._config, self._time_major = config, layout.time_major
        self.layout: Layout = layout
        self._loss = cross_entropy.LossOptions(config.accuracy, config.label_smoothing, tied, config.trains)

    @abc.abstractmethod
    def last_layer(self, weights: Tensors, rows: Tensors, batch: Any, seed: tf.Tensor) -> tf.Tensor:
        """Its outputs, [T, B, U] or [B, T, U]."""

    def forward(self, weights: Tensors, rows: Tensors, batch: Any, seed: tf.Tensor) -> Outcome:
        return cross_entropy.next_words(
            self.last_layer(weights, rows, batch, seed),
            weights[PROJECTION],
            batch.target_output,
            batch.target_length,
            self._time_major,
            weights.get(PROJECTION_BIAS),
            self._loss,
        )

    def outputs(self, weights: Tensors, rows: Tensors, batch: Any, seed: tf.Tensor) -> Outputs:
        hidden = self.last_layer(weights, rows, batch, seed)
        bias = weights.get(PROJECTION_BIAS)
        return Outputs(cross_entropy.logits_of(hidden, weights[PROJECTION], bias, self._loss.tied))

    def _projected(self, weights: Tensors) -> Callable[[tf.Tensor], tf.Tensor]:
        """The function of the last layer's outputs [N, U] at one position -> logits [N, V]."""
        projection = tf.cast(weights[PROJECTION], self._config.compute_dtype)
        bias = weights.get(PROJECTION_BIAS)
        return lambda hidden: cross_entropy.logits_of(hidden, projection, bias, self._loss.tied)

    def losses(self, logits: tf.Tensor, batch: Any) -> tf.Tensor:
        sentences = logits, batch.target_output, batch.target_length
        return cross_entropy.sentence_losses(*sentences, self._time_major, self._loss.label_smoothing)

    def correct(self, logits: tf.Tensor, batch: Any) -> tf.Tensor:
        return cross_entropy.sentence_correct(logits, batch.target_output, batch.target_length, self._time_major)

    def loss_items(self, batch: Any) -> tf.Tensor:
        return total(batch.target_length, tf.float32)
