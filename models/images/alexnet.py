"""AlexNet: five convolutions for ImageNet's images, two for CIFAR-10's, then wide dense layers.

The shapes are those of tf_cnn_benchmarks: for ImageNet the network of one tower with 64, 192, 384, 384 and 256
channels, for CIFAR-10 that of TensorFlow's tutorial.

Sources: Krizhevsky, One weird trick for parallelizing convolutional neural networks, arXiv:1404.5997;
Krizhevsky, Learning Multiple Layers of Features from Tiny Images, 2009.
"""

import tensorflow as tf

from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.images import layers as layering
from rnn_scaling.models.images.layers import Body, Layers
from rnn_scaling.models.workload import Workload

DROPOUT = 0.5  # of the wide layers' outputs, for ImageNet
_CONVOLUTIONS = {
    2: (192, 5),
    3: (384, 3),
    4: (384, 3),
    5: (256, 3),
}  # number -> channels, window
_POOLED = (2, 5)


def _imagenet_body(layers: Layers, images: tf.Tensor) -> tf.Tensor:
    """The layers below the logits, for images of 227 x 227."""
    with layers.scope("conv_1"):
        x = tf.nn.relu(
            layers.convolution(images, 64, 11, stride=4, padding="VALID", biased=True)
        )
        x = layers.max_pool(x, 3, 2, "VALID")
    for number, (channels, window) in _CONVOLUTIONS.items():
        with layers.scope(f"conv_{number}"):
            x = tf.nn.relu(layers.convolution(x, channels, window, biased=True))
            if number in _POOLED:
                x = layers.max_pool(x, 3, 2, "VALID")
    x = layers.flatten(x)
    for number in (6, 7):
        with layers.scope(f"dense_{number}"):
            x = layers.dropout(tf.nn.relu(layers.dense(x, 4096)), DROPOUT)
    return x


def cifar10_body(layers: Layers, images: tf.Tensor) -> tf.Tensor:
    """The layers below the logits, for images of 32 x 32."""
    with layers.scope("conv_1"):
        x = tf.nn.relu(layers.convolution(images, 64, 5, biased=True))
        x = _normalized(layers, layers.max_pool(x, 3, 2, "SAME"))
    with layers.scope("conv_2"):
        x = tf.nn.relu(layers.convolution(x, 64, 5, biased=True))
        x = layers.max_pool(_normalized(layers, x), 3, 2, "SAME")
    x = layers.flatten(x)
    for number, features in enumerate((384, 192), start=3):
        with layers.scope(f"dense_{number}"):
            x = tf.nn.relu(layers.dense(x, features))
    return x


def _normalized(layers: Layers, x: tf.Tensor) -> tf.Tensor:
    return layers.local_response_normalization(
        x, radius=4, alpha=0.001 / 9.0, beta=0.75
    )


_BODIES: dict[str | None, Body] = {
    "imagenet": _imagenet_body,
    "cifar10": cifar10_body,
}  # by --dataset


def build(config: ModelConfig, device_type: str) -> Workload:
    return layering.build(_BODIES[config.dataset], config)
