"""What workloads share that predict the next word at each position of a target side.

T: words of the longest sentence, B: sentences, U: units, V: vocabulary.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from rnn_scaling.models import cross_entropy
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.workload import Outcome, Outputs, VariableSpec, total

PROJECTION = "projection"  # the variable [U, V]
PROJECTION_BIAS = "projection/bias"  # and this [V], where there is one


class NextWords(abc.ABC):
    """Forward pass and loss of a `Workload` on top of its last layer."""

    moving: tuple[VariableSpec, ...] = ()

    def __init__(self, config: ModelConfig) -> None:
        self._config = config

    @abc.abstractmethod
    def last_layer(
        self, weights: Mapping[str, tf.Tensor], rows: Mapping[str, tf.Tensor], batch: Any, seed: tf.Tensor
    ) -> tf.Tensor:
        """Its outputs, [T, B, U] or [B, T, U]."""

    def forward(
        self, weights: Mapping[str, tf.Tensor], rows: Mapping[str, tf.Tensor], batch: Any, seed: tf.Tensor
    ) -> Outcome:
        config = self._config
        return cross_entropy.next_words(
            self.last_layer(weights, rows, batch, seed),
            weights[PROJECTION],
            batch.target_output,
            batch.target_length,
            config.time_major,
            weights.get(PROJECTION_BIAS),
            config.accuracy,
        )

    def outputs(
        self, weights: Mapping[str, tf.Tensor], rows: Mapping[str, tf.Tensor], batch: Any, seed: tf.Tensor
    ) -> Outputs:
        hidden = self.last_layer(weights, rows, batch, seed)
        return Outputs(cross_entropy.logits_of(hidden, weights[PROJECTION], weights.get(PROJECTION_BIAS)))

    def losses(self, logits: tf.Tensor, batch: Any) -> tf.Tensor:
        return cross_entropy.sentence_losses(logits, batch.target_output, batch.target_length, self._config.time_major)

    def correct(self, logits: tf.Tensor, batch: Any) -> tf.Tensor:
        return cross_entropy.sentence_correct(logits, batch.target_output, batch.target_length, self._config.time_major)

    def loss_items(self, batch: Any) -> tf.Tensor:
        return total(batch.target_length, tf.float32)
