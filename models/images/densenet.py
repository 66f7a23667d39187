"""Densely connected networks for images of 32 x 32: `densenet40_k12`, `densenet100_k12` and `densenet100_k24`.

Three blocks of (depth - 4) / 3 layers; a layer adds k channels (the growth rate) to all that it is given. Between
blocks a transition halves rows and columns.

A transition here ends with 2k channels and convolutions have biases: the networks whose parameters
tf_cnn_benchmarks' users report (364,772 and 2,259,652). The paper's keep all channels and have no biases.

Source: Huang, Liu, van der Maaten, Weinberger, Densely Connected Convolutional Networks, arXiv:1608.06993.
"""

import tensorflow as tf

from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.images import layers as layering
from rnn_scaling.models.images.layers import Body, Layers
from rnn_scaling.models.workload import Workload

NUM_BLOCKS = 3
FIRST_CHANNELS = 16


def body(depth: int, growth: int) -> Body:
    """The layers below the logits; `depth`: 3n + 4."""
    layers_a_block = (depth - 4) // NUM_BLOCKS

    def run(layers: Layers, images: tf.Tensor) -> tf.Tensor:
        with layers.scope("first"):
            x = layers.convolution(images, FIRST_CHANNELS, 3, biased=True)
        for block in range(NUM_BLOCKS):
            if block:
                with layers.scope(f"transition_{block}"):
                    x = layers.average_pool(
                        _activated(layers, x, 2 * growth, 1), 2, 2, "VALID"
                    )
            for layer in range(layers_a_block):
                with layers.scope(f"block_{block}_layer_{layer}"):
                    x = layers.join(x, _activated(layers, x, growth, 3))
        with layers.scope("last"):
            return layers.spatial_mean(tf.nn.relu(layers.batch_normalization(x)))

    return run


def _activated(layers: Layers, x: tf.Tensor, channels: int, window: int) -> tf.Tensor:
    return layers.convolution(
        tf.nn.relu(layers.batch_normalization(x)), channels, window, biased=True
    )


def build(config: ModelConfig, device_type: str) -> Workload:
    """The network that --model names, `densenet<depth>_k<growth>`."""
    depth, growth = config.model.removeprefix("densenet").split("_k")
    return layering.build(body(int(depth), int(growth)), config)
