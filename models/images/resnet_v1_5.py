"""ResNet-50 v1.5: a residual network of bottlenecks whose 3 x 3 convolution has the stride, not the first 1 x 1.

Convolutions with a stride are padded equally on both sides, as in tf_cnn_benchmarks, models/resnet_model.py.

Sources: He, Zhang, Ren, Sun, Deep Residual Learning for Image Recognition, arXiv:1512.03385, table 1; Goyal and
others, Accurate, Large Minibatch SGD, arXiv:1706.02677, section 5.1.
"""

import tensorflow as tf

from rnn_scaling.models.images.layers import Layers, builder

STAGES = (
    (64, 3),
    (128, 4),
    (256, 6),
    (512, 3),
)  # channels of the 3 x 3 convolutions, blocks


def body(layers: Layers, images: tf.Tensor) -> tf.Tensor:
    x = tf.nn.relu(_normalized(layers, "first", images, 64, 7, 2))
    x = layers.max_pool(x, 3, 2, "SAME")
    for stage, (channels, blocks) in enumerate(STAGES):
        for block in range(blocks):
            with layers.scope(f"stage_{stage}_block_{block}"):
                x = bottleneck(layers, x, channels, 2 if stage and not block else 1)
    return layers.spatial_mean(x)


def bottleneck(layers: Layers, x: tf.Tensor, channels: int, stride: int) -> tf.Tensor:
    """relu(x + convolutions of x) with 4 * `channels`; where x has not so many, it passes a 1 x 1 convolution."""
    shortcut = x
    if layers.channels(x) != 4 * channels:
        shortcut = _normalized(layers, "shortcut", x, 4 * channels, 1, stride)
    y = tf.nn.relu(_normalized(layers, "conv_0", x, channels, 1, 1))
    y = tf.nn.relu(_normalized(layers, "conv_1", y, channels, 3, stride))
    return tf.nn.relu(shortcut + _normalized(layers, "conv_2", y, 4 * channels, 1, 1))


def _normalized(
    layers: Layers, name: str, x: tf.Tensor, channels: int, window: int, stride: int
) -> tf.Tensor:
    with layers.scope(name):
        is_padded = stride > 1 and window > 1
        x = layers.pad(x, window // 2) if is_padded else x
        padding = "VALID" if is_padded else "SAME"
        return layers.batch_normalization(
            layers.convolution(x, channels, window, stride=stride, padding=padding)
        )


build = builder(body)
