"""Layers of the project's own convolutional networks.

A network is one function of `Layers` and the images. It runs once on shapes alone, which declares its variables, and
then in each tower's forward pass: what is declared and computed cannot disagree.

B images, H rows, W columns, C channels, F features. Activations are [B, H, W, C] under NHWC and [B, C, H, W] under
NCHW; a kernel is [h, w, in, out] under both.
"""

import contextlib
import math
from collections.abc import Callable, Iterator

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import workloads
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.images.classifier import ImageClassifier
from rnn_scaling.models.stacks import drop
from rnn_scaling.models.workload import Tensors, VariableSpec

DECAY = 0.9  # of the moving averages of a batch normalisation, a step
EPSILON = 1e-5  # added to the variance before its root


class Layers:
    """Computes layers of a network on values."""

    def __init__(
        self,
        data_format: str,
        value_of: Callable[[VariableSpec], Tensor],
        seed: Tensor | None,
    ) -> None:
        """Create layers without values.

        Args:
          data_format: "NHWC" or "NCHW".
          value_of: Returns the float32 value of a variable.
          seed: [2] int; draws the dropout. None: nothing is dropped.
        """
        self._data_format = data_format
        self._value_of = value_of
        self._seed = seed
        self._channel_axis = data_format.index("C")
        self._scope = ""
        self._dropped = 0
        # Next values of the moving averages, by name.
        self.moving: dict[str, Tensor] = {}

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Names of variables and operators inside begin with this one."""
        before = self._scope
        self._scope = f"{before}{name}/"
        with tf.name_scope(name):
            yield
        self._scope = before

    def channels(self, x: Tensor) -> int:
        return int(x.shape[self._channel_axis])

    def convolution(
        self,
        x: Tensor,
        channels: int,
        window: int,
        stride: int = 1,
        padding: str = "SAME",
        biased: bool = False,
    ) -> Tensor:
        """`x` convolved: "SAME" keeps ceil(H / stride) rows, "VALID" has windows inside the image alone."""
        shape = (window, window, self.channels(x), channels)
        kernel = self._variable("kernel", shape, "he_normal")
        y = tf.nn.conv2d(
            x, tf.cast(kernel, x.dtype), stride, padding, self._data_format
        )
        if biased:
            bias = self._variable("bias", (channels,), "zeros")
            y = tf.nn.bias_add(y, tf.cast(bias, x.dtype), self._data_format)
        return y

    def batch_normalization(self, x: Tensor) -> Tensor:
        """Normalize each channel by the mean and variance of the batch.

        Returns:
          (x - mean) / sqrt(variance + EPSILON) * gamma + beta, in the shape of `x`.
          Statistics are float32 whatever the type of `x`. The moving variance
          divides by n - 1 values, like cuDNN's.

        Source: Ioffe, Szegedy, Batch Normalization, arXiv:1502.03167.
        """
        shape = (self.channels(x),)
        gamma = self._variable("gamma", shape, "ones")
        beta = self._variable("beta", shape, "zeros")
        mean = self._variable("moving_mean", shape, "zeros", "moving")
        variance = self._variable("moving_variance", shape, "ones", "moving")
        normalized = tf.raw_ops.FusedBatchNormV3(
            x=x,
            scale=gamma,
            offset=beta,
            mean=mean,
            variance=variance,
            epsilon=EPSILON,
            exponential_avg_factor=1.0 - DECAY,
            data_format=self._data_format,
            is_training=True,
        )
        self.moving[self._scope + "moving_mean"] = normalized.batch_mean
        self.moving[self._scope + "moving_variance"] = normalized.batch_variance
        return normalized.y

    def local_response_normalization(
        self, x: Tensor, radius: int, alpha: float, beta: float
    ) -> Tensor:
        """x / (1 + alpha * the sum of squares over the 2 * radius + 1 nearest channels) ** beta, in float32."""
        last = tf.cast(
            self._channels_last(x), tf.float32
        )  # the operator has no kernel for bfloat16
        y = tf.nn.local_response_normalization(
            last, depth_radius=radius, bias=1.0, alpha=alpha, beta=beta
        )
        y = tf.cast(y, x.dtype)
        return tf.transpose(y, [0, 3, 1, 2]) if self._data_format == "NCHW" else y

    def max_pool(self, x: Tensor, padding: str) -> Tensor:
        """Return the largest of each 3 x 3 pixels, at every second row and column."""
        return tf.nn.max_pool2d(x, 3, 2, padding, self._data_format)

    def halve(self, x: Tensor) -> Tensor:
        """Return the mean of each 2 x 2 pixels."""
        return tf.nn.avg_pool2d(x, 2, 2, "VALID", self._data_format)

    def every_second(self, x: Tensor) -> Tensor:
        return x[:, :, ::2, ::2] if self._data_format == "NCHW" else x[:, ::2, ::2]

    def pad_channels(self, x: Tensor, channels: int) -> Tensor:
        """`x` in the middle of so many channels, zeros in the others."""
        paddings = [[0, 0]] * 4
        missing = channels - self.channels(x)
        paddings[self._channel_axis] = [missing // 2, missing - missing // 2]
        return tf.pad(x, paddings)

    def join(self, *parts: Tensor) -> Tensor:
        return tf.concat(parts, self._channel_axis)

    def spatial_mean(self, x: Tensor) -> Tensor:
        """[B, C], the mean of each channel."""
        return tf.reduce_mean(x, [2, 3] if self._data_format == "NCHW" else [1, 2])

    def flatten(self, x: Tensor) -> Tensor:
        """[B, H * W * C], in this order in both layouts, so that they share weights."""
        return tf.reshape(self._channels_last(x), [-1, math.prod(x.shape[1:])])

    def dense(self, x: Tensor, features: int, initial: str = "he_normal") -> Tensor:
        """[B, features]: x [B, F] times a matrix, plus a bias; `initial`: of the matrix, a name of `INITIAL`."""
        kernel = self._variable("kernel", (int(x.shape[-1]), features), initial)
        bias = self._variable("bias", (features,), "zeros")
        return tf.nn.bias_add(
            tf.matmul(x, tf.cast(kernel, x.dtype)), tf.cast(bias, x.dtype)
        )

    def dropout(self, x: Tensor, rate: float) -> Tensor:
        """A share of `x` set to zero and the rest divided by 1 - rate; other zeros at each call."""
        self._dropped += 1
        return x if self._seed is None else drop(x, rate, self._seed, self._dropped)

    def _channels_last(self, x: Tensor) -> Tensor:
        return tf.transpose(x, [0, 2, 3, 1]) if self._data_format == "NCHW" else x

    def _variable(
        self, name: str, shape: tuple[int, ...], initial: str, kind: str = "dense"
    ) -> Tensor:
        return self._value_of(VariableSpec(self._scope + name, shape, kind, initial))


Body = Callable[[Layers, Tensor], Tensor]
"""Layers and images -> [B, F], from which the logits are computed."""


class LayeredClassifier(ImageClassifier):
    """A network of layers; its logits are one more dense layer."""

    def __init__(self, body: Body, config: ModelConfig) -> None:
        self._body = body
        super().__init__(config, *workloads.images_of(config.model, config.dataset))

    def declared(self) -> list[VariableSpec]:
        specs: list[VariableSpec] = []

        def declare(spec: VariableSpec) -> Tensor:
            specs.append(spec)
            return tf.zeros(spec.shape)

        sizes = {"N": None, "C": 3, "H": self.image_size, "W": self.image_size}
        shape = [sizes[axis] for axis in self.config.data_format]
        with tf.Graph().as_default():
            images = tf.compat.v1.placeholder(self._dtype, shape)
            self._run(images, declare, None)
        return specs

    def logits(
        self, weights: Tensors, images: Tensor, seed: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See `ImageClassifier`; the logits are float32."""
        layers, logits = self._run(images, lambda spec: weights[spec.name], seed)
        return logits, layers.moving

    def _run(
        self,
        images: Tensor,
        value_of: Callable[[VariableSpec], Tensor],
        seed: Tensor | None,
    ) -> tuple[Layers, Tensor]:
        layers = Layers(self.config.data_format, value_of, seed)
        features = self._body(layers, images)
        with layers.scope("logits"):
            logits = layers.dense(features, self.num_classes, "glorot_uniform")
        return layers, tf.cast(logits, tf.float32)
