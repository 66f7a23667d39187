"""The project's own convolutional networks: AlexNet, ResNet and DenseNet.

`alexnet` has the shapes of tf_cnn_benchmarks: its one-tower network for ImageNet, and
the network of TensorFlow's tutorial for CIFAR-10. Sources: Krizhevsky, One weird trick
for parallelizing convolutional neural networks, arXiv:1404.5997; Krizhevsky, Learning
Multiple Layers of Features from Tiny Images, 2009.

`resnet20` to `resnet110` have 6n + 2 layers: three stages of n blocks with two 3 x 3
convolutions each. A shortcut to a wider stage reads every second row and column and
pads channels with zeros, so it has no weights. Source: He, Zhang, Ren, Sun, Deep
Residual Learning for Image Recognition, arXiv:1512.03385, section 4.2.

`densenet40_k12` and similar networks have three blocks of (depth - 4) / 3 layers. A
layer adds k channels (the growth rate) to its input. A transition between blocks halves
rows and columns. Here it ends with 2k channels, and convolutions have biases: users of
tf_cnn_benchmarks report the parameters of these networks (364,772 and 2,259,652). In
the paper, a transition keeps all channels and there are no biases. Source: Huang, Liu,
van der Maaten, Weinberger, Densely Connected Convolutional Networks, arXiv:1608.06993.

`workloads.py` names this module; the trainer calls `build`.
"""

import re

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.images.layers import Body, LayeredClassifier, Layers
from rnn_scaling.models.workload import Workload

# Channels, window, stride, padding, and whether a pooling follows.
_ALEXNET_CONVOLUTIONS = (
    (64, 11, 4, "VALID", True),
    (192, 5, 1, "SAME", True),
    (384, 3, 1, "SAME", False),
    (384, 3, 1, "SAME", False),
    (256, 3, 1, "SAME", True),
)
_ALEXNET_DROPOUT = 0.5  # after each wide layer
_RESNET_CHANNELS = (16, 32, 64)  # per stage
_DENSENET_BLOCKS = 3
_DENSENET_FIRST_CHANNELS = 16
_NAME = re.compile(r"(resnet|densenet)(\d+)(?:_k(\d+))?")


def _apply_alexnet(layers: Layers, x: Tensor) -> Tensor:
    """Compute the layers below the logits, for images of 227 x 227."""
    for number, row in enumerate(_ALEXNET_CONVOLUTIONS, start=1):
        channels, window, stride, padding, is_pooled = row
        with layers.scope(f"conv_{number}"):
            convolved = layers.convolution(
                x, channels, window, stride=stride, padding=padding, has_bias=True
            )
            x = tf.nn.relu(convolved)
            if is_pooled:
                x = layers.max_pool(x, "VALID")
    x = layers.flatten(x)
    for number in (6, 7):
        with layers.scope(f"dense_{number}"):
            x = layers.dropout(tf.nn.relu(layers.dense(x, 4096)), _ALEXNET_DROPOUT)
    return x


def apply_alexnet_cifar10(layers: Layers, x: Tensor) -> Tensor:
    """Compute the layers below the logits, for images of 32 x 32."""
    with layers.scope("conv_1"):
        x = tf.nn.relu(layers.convolution(x, 64, 5, has_bias=True))
        x = _normalize_locally(layers, layers.max_pool(x, "SAME"))
    with layers.scope("conv_2"):
        x = tf.nn.relu(layers.convolution(x, 64, 5, has_bias=True))
        x = layers.max_pool(_normalize_locally(layers, x), "SAME")
    x = layers.flatten(x)
    for number, features in ((3, 384), (4, 192)):
        with layers.scope(f"dense_{number}"):
            x = tf.nn.relu(layers.dense(x, features))
    return x


def _normalize_locally(layers: Layers, x: Tensor) -> Tensor:
    return layers.local_response_normalization(
        x, radius=4, alpha=0.001 / 9.0, beta=0.75
    )


def make_resnet_body(num_layers: int) -> Body:
    """Return the layers below the logits of a residual network.

    Args:
      num_layers: 6n + 2.
    """

    def run(layers: Layers, images: Tensor) -> Tensor:
        x = _convolve_and_normalize(layers, "first", images, _RESNET_CHANNELS[0], 1)
        x = tf.nn.relu(x)
        for stage, channels in enumerate(_RESNET_CHANNELS):
            for block in range((num_layers - 2) // 6):
                with layers.scope(f"stage_{stage}_block_{block}"):
                    x = apply_residual_block(layers, x, channels)
        return layers.spatial_mean(x)

    return run


def apply_residual_block(layers: Layers, x: Tensor, channels: int) -> Tensor:
    """Return relu(x + two convolutions of x).

    It has half the rows and columns if it has more channels.
    """
    shortcut = x
    stride = 1
    if channels != layers.channels(x):
        shortcut = layers.pad_channels(layers.subsample(x), channels)
        stride = 2
    y = tf.nn.relu(_convolve_and_normalize(layers, "conv_0", x, channels, stride))
    return tf.nn.relu(
        shortcut + _convolve_and_normalize(layers, "conv_1", y, channels, 1)
    )


def _convolve_and_normalize(
    layers: Layers, name: str, x: Tensor, channels: int, stride: int
) -> Tensor:
    with layers.scope(name):
        convolved = layers.convolution(x, channels, 3, stride=stride)
        return layers.batch_normalization(convolved)


def make_densenet_body(depth: int, growth: int) -> Body:
    """Return the layers below the logits of a densely connected network.

    Args:
      depth: 3n + 4.
      growth: Channels that each layer adds.
    """

    def run(layers: Layers, images: Tensor) -> Tensor:
        with layers.scope("first"):
            x = layers.convolution(images, _DENSENET_FIRST_CHANNELS, 3, has_bias=True)
        for block in range(_DENSENET_BLOCKS):
            if block:
                with layers.scope(f"transition_{block}"):
                    x = layers.average_pool(
                        _activate_and_convolve(layers, x, 2 * growth, 1)
                    )
            for layer in range((depth - 4) // _DENSENET_BLOCKS):
                with layers.scope(f"block_{block}_layer_{layer}"):
                    x = layers.join(x, _activate_and_convolve(layers, x, growth, 3))
        with layers.scope("last"):
            return layers.spatial_mean(tf.nn.relu(layers.batch_normalization(x)))

    return run


def _activate_and_convolve(
    layers: Layers, x: Tensor, channels: int, window: int
) -> Tensor:
    activated = tf.nn.relu(layers.batch_normalization(x))
    return layers.convolution(activated, channels, window, has_bias=True)


def _make_network_body(config: ModelConfig) -> Body:
    """Return the layers of the network that --model and --dataset name."""
    match = _NAME.fullmatch(config.model)
    if match is None:
        return apply_alexnet_cifar10 if config.dataset == "cifar10" else _apply_alexnet
    family, depth, growth = match.groups()
    if family == "resnet":
        return make_resnet_body(int(depth))
    return make_densenet_body(int(depth), int(growth))


def build(config: ModelConfig, device_type: str) -> Workload:
    """Return the workload of an own network, such as resnet50."""
    return LayeredClassifier(_make_network_body(config), config)
