"""Keras' batch normalisation on TensorFlow's fused operator: one, where Keras' layer has seventeen."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


class FusedBatchNormalization(keras.layers.BatchNormalization):
    """Trains as Keras' layer does, and keeps the same averages; statistics are float32 under any policy."""

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """The normalized activations.

        Args:
          inputs: [B, H, W, C], or [B, C, H, W] where `axis` is 1.
        """
        if not training:
            return super().call(inputs, training=training, mask=mask)
        ones = tf.ones(inputs.shape[self.axis])
        normalized = tf.raw_ops.FusedBatchNormV3(
            x=inputs,
            scale=tf.convert_to_tensor(self.gamma) if self.scale else ones,
            offset=tf.convert_to_tensor(self.beta) if self.center else tf.zeros_like(ones),
            mean=[],
            variance=[],
            epsilon=self.epsilon,
            data_format="NCHW" if self.axis == 1 else "NHWC",
            is_training=True,
        )
        count = tf.cast(tf.size(inputs) // inputs.shape[self.axis], tf.float32)
        variance = normalized.batch_variance * ((count - 1.0) / count)  # the operator's is over one value less
        for average, value in ((self.moving_mean, normalized.batch_mean), (self.moving_variance, variance)):
            average.assign(average * self.momentum + value * (1.0 - self.momentum))
        return normalized.y


def fuse(model: Any) -> None:
    """Lets the model's batch normalisations compute so. They stay the layers they are: a clone takes a second."""
    for layer in model.layers:
        if type(layer) is keras.layers.BatchNormalization:
            layer.__class__ = FusedBatchNormalization
