"""Networks as tables of layers: a step is a function of `Layers` and activations, and a network is a chain of steps.

A chain numbers its steps, which gives variables names such as layer_3/kernel.
A layer without arguments is a method of `Layers`, such as `Layers.flatten`.

The small networks of this module are those of tf_cnn_benchmarks, models/*_model.py.
"""

from functools import partial

import tensorflow as tf

from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.images import layers as layering
from rnn_scaling.models.images.layers import Body, Layers, Window
from rnn_scaling.models.workload import Workload

Step = Body


def chain(*steps: Step) -> Step:
    def run(layers: Layers, x: tf.Tensor) -> tf.Tensor:
        for number, step in enumerate(steps):
            with layers.scope(f"layer_{number}"):
                x = step(layers, x)
        return x

    return run


def convolution(
    channels: int, window: Window, stride: int = 1, padding: str = "SAME"
) -> Step:
    """A convolution with biases, and relu."""

    def run(layers: Layers, x: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(
            layers.convolution(
                x, channels, window, stride=stride, padding=padding, biased=True
            )
        )

    return run


def dense(features: int) -> Step:
    """A product with a matrix, biases, and relu."""
    return lambda layers, x: tf.nn.relu(layers.dense(x, features))


def max_pool(window: int, stride: int, padding: str = "VALID") -> Step:
    return partial(Layers.max_pool, window=window, stride=stride, padding=padding)


def dropout(rate: float) -> Step:
    return partial(Layers.dropout, rate=rate)


_VGG_BLOCKS = (
    (64,),
    (128,),
    (256, 256),
    (512, 512),
    (512, 512),
)  # channels of each convolution
BODIES = {
    # A probe of the fixed cost of a step: two dense layers, of 1 and of 4096 numbers.
    "trivial": chain(Layers.flatten, dense(1), dense(4096)),
    # LeNet-5 with the widths of TensorFlow's MNIST tutorial. Images of ImageNet are 28 x 28.
    # Source: LeCun, Bottou, Bengio, Haffner, Gradient-Based Learning Applied to Document Recognition, 1998.
    "lenet": chain(
        *(convolution(32, 5), max_pool(2, 2), convolution(64, 5), max_pool(2, 2)),
        *(Layers.flatten, dense(512)),
    ),
    # VGG, configuration A. Those with 16 and 19 layers, in keras_applications.py, have no dropout; this one has.
    # Source: Simonyan, Zisserman, Very Deep Convolutional Networks for Large-Scale Image Recognition, arXiv:1409.1556.
    "vgg11": chain(
        *(
            step
            for block in _VGG_BLOCKS
            for step in (*(convolution(n, 3) for n in block), max_pool(2, 2))
        ),
        *(Layers.flatten, dense(4096), dropout(0.5), dense(4096), dropout(0.5)),
    ),
    # OverFeat's fast model. Images are 231 x 231, and 71 x 71 at least.
    # Source: Sermanet, Eigen, Zhang, Mathieu, Fergus, LeCun, OverFeat, arXiv:1312.6229, table 1.
    "overfeat": chain(
        *(convolution(96, 11, 4, "VALID"), max_pool(2, 2)),
        *(convolution(256, 5, 1, "VALID"), max_pool(2, 2)),
        *(
            convolution(512, 3),
            convolution(1024, 3),
            convolution(1024, 3),
            max_pool(2, 2),
        ),
        *(Layers.flatten, dense(3072), dropout(0.5), dense(4096), dropout(0.5)),
    ),
}


def build(config: ModelConfig, device_type: str) -> Workload:
    return layering.build(BODIES[config.model], config)
