"""Networks as tables of layers: a step is a function of `Layers` and activations, and a network is a chain of steps.

A chain numbers its steps and a fork its branches, which gives variables names such as layer_3/branch_0/layer_1/kernel.
A layer without arguments is a method of `Layers`, such as `Layers.flatten`.
"""

from functools import partial

import tensorflow as tf

from rnn_scaling.models.images.layers import Body, Layers, Window

Step = Body


def chain(*steps: Step) -> Step:
    def run(layers: Layers, x: tf.Tensor) -> tf.Tensor:
        for number, step in enumerate(steps):
            with layers.scope(f"layer_{number}"):
                x = step(layers, x)
        return x

    return run


def fork(*branches: Step) -> Step:
    """The channels of all branches, which compute on the same activations."""

    def run(layers: Layers, x: tf.Tensor) -> tf.Tensor:
        outputs = []
        for number, branch in enumerate(branches):
            with layers.scope(f"branch_{number}"):
                outputs.append(branch(layers, x))
        return layers.join(*outputs)

    return run


def convolution(channels: int, window: Window, stride: int = 1, padding: str = "SAME") -> Step:
    """A convolution with biases, and relu."""

    def run(layers: Layers, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(layers.convolution(x, channels, window, stride=stride, padding=padding, biased=True))

    return run


def normalized(channels: int, window: Window, stride: int = 1, padding: str = "SAME") -> Step:
    """A convolution, a batch normalisation without gamma, and relu."""

    def run(layers: Layers, x: tf.Tensor) -> tf.Tensor:
        y = layers.convolution(x, channels, window, stride=stride, padding=padding)
        return tf.nn.relu(layers.batch_normalization(y, scaled=False))

    return run


def dense(features: int) -> Step:
    """A product with a matrix, biases, and relu."""
    return lambda layers, x: tf.nn.relu(layers.dense(x, features))


def max_pool(window: int, stride: int, padding: str = "VALID") -> Step:
    return partial(Layers.max_pool, window=window, stride=stride, padding=padding)


def average_pool(window: int, stride: int, padding: str = "VALID") -> Step:
    return partial(Layers.average_pool, window=window, stride=stride, padding=padding)


def dropout(rate: float) -> Step:
    return partial(Layers.dropout, rate=rate)
