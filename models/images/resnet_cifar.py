"""Residual networks for images of 32 x 32: `resnet20` to `resnet110`, and each with `_v2`; 6n + 2 layers.

Three stages of n blocks of two 3 x 3 convolutions each, with 16, 32 and 64 channels. A shortcut into a wider stage
takes every second row and column and pads channels with zeros, so it has no weights. In v2 a batch normalisation and a
relu precede each convolution but the first, and end the network.

Sources: He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition, arXiv:1512.03385, section 4.2; Identity
Mappings in Deep Residual Networks, arXiv:1603.05027. v2 has the layers of tf_cnn_benchmarks, models/resnet_model.py.
"""

import tensorflow as tf

from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.images import layers as layering
from rnn_scaling.models.images.layers import Body, Layers
from rnn_scaling.models.workload import Workload

STAGE_CHANNELS = (16, 32, 64)


def body(num_layers: int, is_v2: bool = False) -> Body:
    """The layers below the logits; `num_layers`: 6n + 2."""
    blocks = (num_layers - 2) // 6

    def run(layers: Layers, images: tf.Tensor) -> tf.Tensor:
        x = tf.nn.relu(_normalized(layers, "first", images, STAGE_CHANNELS[0], 1))
        for stage, channels in enumerate(STAGE_CHANNELS):
            for block in range(blocks):
                with layers.scope(f"stage_{stage}_block_{block}"):
                    x = (residual_block_v2 if is_v2 else residual_block)(
                        layers, x, channels
                    )
        if is_v2:
            with layers.scope("last"):
                x = tf.nn.relu(layers.batch_normalization(x))
        return layers.spatial_mean(x)

    return run


def residual_block(layers: Layers, x: tf.Tensor, channels: int) -> tf.Tensor:
    """relu(x + two convolutions of x), with half the rows and columns where channels become more."""
    shortcut, stride = _shortcut(layers, x, channels)
    y = tf.nn.relu(_normalized(layers, "conv_0", x, channels, stride))
    return tf.nn.relu(shortcut + _normalized(layers, "conv_1", y, channels, 1))


def residual_block_v2(layers: Layers, x: tf.Tensor, channels: int) -> tf.Tensor:
    """x + two convolutions, each of a normalised relu; otherwise as `residual_block`."""
    y, (shortcut, first_stride) = x, _shortcut(layers, x, channels)
    for number, stride in enumerate((first_stride, 1)):
        with layers.scope(f"conv_{number}"):
            y = layers.convolution(
                tf.nn.relu(layers.batch_normalization(y)), channels, 3, stride=stride
            )
    return shortcut + y


def _shortcut(layers: Layers, x: tf.Tensor, channels: int) -> tuple[tf.Tensor, int]:
    """`x` with as many channels as a block's outputs, and the stride of the block."""
    if channels == layers.channels(x):
        return x, 1
    return layers.pad_channels(layers.every_second(x), channels), 2


def _normalized(
    layers: Layers, name: str, x: tf.Tensor, channels: int, stride: int
) -> tf.Tensor:
    with layers.scope(name):
        return layers.batch_normalization(
            layers.convolution(x, channels, 3, stride=stride)
        )


def build(config: ModelConfig, device_type: str) -> Workload:
    """The network that --model names: `resnet`, its number of layers, and `_v2` if it is one."""
    num_layers, _, version = config.model.removeprefix("resnet").partition("_")
    return layering.build(body(int(num_layers), version == "v2"), config)
