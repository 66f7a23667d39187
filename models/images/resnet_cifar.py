"""Residual networks for images of 32 x 32: `resnet20` to `resnet110`, 6n + 2 layers.

Three stages of n blocks of two 3 x 3 convolutions each, with 16, 32 and 64 channels. A shortcut into a wider stage
takes every second row and column and pads channels with zeros, so it has no weights.

Source: He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition, arXiv:1512.03385, section 4.2.
"""

from __future__ import annotations

import tensorflow as tf

from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.images import layers as layering
from rnn_scaling.models.images.layers import Body, Layers
from rnn_scaling.models.workload import Workload

IMAGE_SIZE, NUM_CLASSES = 32, 10
STAGE_CHANNELS = (16, 32, 64)


def body(num_layers: int) -> Body:
    """The layers below the logits.

    Raises:
      ValueError: if `num_layers` is not 6n + 2.
    """
    blocks, rest = divmod(num_layers - 2, 6)
    if rest or not blocks:
        raise ValueError(f"expected 6n + 2 layers, got {num_layers}")

    def run(layers: Layers, images: tf.Tensor) -> tf.Tensor:
        x = tf.nn.relu(_normalized(layers, "first", images, STAGE_CHANNELS[0], 1))
        for stage, channels in enumerate(STAGE_CHANNELS):
            for block in range(blocks):
                with layers.scope(f"stage_{stage}_block_{block}"):
                    x = residual_block(layers, x, channels)
        return layers.spatial_mean(x)

    return run


def residual_block(layers: Layers, x: tf.Tensor, channels: int) -> tf.Tensor:
    """relu(x + two convolutions of x), with half the rows and columns where channels become more."""
    shortcut, stride = x, 1
    if channels != layers.channels(x):
        shortcut, stride = layers.pad_channels(layers.every_second(x), channels), 2
    y = tf.nn.relu(_normalized(layers, "conv_0", x, channels, stride))
    return tf.nn.relu(shortcut + _normalized(layers, "conv_1", y, channels, 1))


def _normalized(layers: Layers, name: str, x: tf.Tensor, channels: int, stride: int) -> tf.Tensor:
    with layers.scope(name):
        return layers.batch_normalization(layers.convolution(x, channels, 3, stride=stride))


def build(config: ModelConfig, device_type: str) -> Workload:
    """The network that --model names, `resnet` and its number of layers."""
    return layering.build(body(int(config.model.removeprefix("resnet"))), IMAGE_SIZE, NUM_CLASSES, config)
