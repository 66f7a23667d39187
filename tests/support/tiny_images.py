"""A network of images that is traced in no time, with a batch normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.images.classifier import ImageClassifier
from rnn_scaling.models.workload import VariableSpec

SIZE, NUM_CLASSES, CHANNELS = 6, 5, 4
DECAY, EPSILON = 0.9, 1e-3


class TinyClassifier(ImageClassifier):
    """A convolution, a batch normalisation, relu, the mean over positions, a matrix."""

    specs = (
        VariableSpec("conv/kernel", (3, 3, 3, CHANNELS), "dense", "he_normal"),
        VariableSpec("norm/gamma", (CHANNELS,), "dense", "ones"),
        VariableSpec("norm/beta", (CHANNELS,), "dense", "zeros"),
        VariableSpec("top/kernel", (CHANNELS, NUM_CLASSES), "dense", "glorot_uniform"),
        VariableSpec("norm/moving_mean", (CHANNELS,), "moving", "zeros"),
        VariableSpec("norm/moving_variance", (CHANNELS,), "moving", "ones"),
    )

    def declare_variables(self) -> tuple[VariableSpec, ...]:
        return self.specs

    def compute_logits(
        self, weights: Mapping[str, Any], images: Any, seed: Any
    ) -> tuple[Any, Mapping[str, Any]]:
        import tensorflow as tf

        x = tf.nn.conv2d(images, weights["conv/kernel"], 1, "VALID")
        mean, variance = tf.nn.moments(x, [0, 1, 2])
        x = tf.nn.batch_normalization(
            x, mean, variance, weights["norm/beta"], weights["norm/gamma"], EPSILON
        )
        next_values = {
            f"norm/moving_{name}": DECAY * weights[f"norm/moving_{name}"]
            + (1 - DECAY) * value
            for name, value in (("mean", mean), ("variance", variance))
        }
        return tf.reduce_mean(tf.nn.relu(x), [1, 2]) @ weights[
            "top/kernel"
        ], next_values


def workload() -> ImageClassifier:
    """Build the network as a workload."""
    return TinyClassifier(ModelConfig(), SIZE, NUM_CLASSES)
