"""Layers of the project's own convolutional networks.

A network is one function of `Layers` and the images. It runs once on shapes, which
declares its variables, and in each tower's forward pass, so declarations and
computation agree.

B: images, H: rows, W: columns, C: channels, F: features, h, w: window of a kernel.
Activations are [B, H, W, C] with NHWC and [B, C, H, W] with NCHW. A kernel is
[h, w, in, out] with both.

`own_networks` and the checks of `verification` describe networks with `Layers`.
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

DECAY = 0.9  # factor per step of a batch normalization's moving averages
EPSILON = 1e-5  # added to a variance before its square root


class Layers:
    """The layers of a network, with a function that returns the values of variables."""

    def __init__(
        self,
        data_format: str,
        get_value: Callable[[VariableSpec], Tensor],
        seed: Tensor | None,
    ) -> None:
        """Create the layers.

        Args:
          data_format: "NHWC" or "NCHW".
          get_value: Returns the float32 value of a variable.
          seed: [2] int; draws the dropout. None for no dropout.
        """
        self._data_format = data_format
        self._get_value = get_value
        self._seed = seed
        self._channel_axis = data_format.index("C")
        self._scope = ""
        self._num_dropouts = 0
        # Next values of the moving averages, by name.
        self.moving: dict[str, Tensor] = {}

    @contextlib.contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefix the names of variables and operators inside."""
        outer_scope = self._scope
        self._scope = f"{outer_scope}{name}/"
        with tf.name_scope(name):
            yield
        self._scope = outer_scope

    def channels(self, x: Tensor) -> int:
        """Return the number of channels of `x`."""
        return int(x.shape[self._channel_axis])

    def convolution(
        self,
        x: Tensor,
        channels: int,
        window: int,
        stride: int = 1,
        padding: str = "SAME",
        has_bias: bool = False,
    ) -> Tensor:
        """Convolve `x` with a window of `window` x `window` pixels.

        Args:
          padding: "SAME" returns ceil(H / stride) rows; "VALID" uses only windows
            inside the image.
        """
        shape = (window, window, self.channels(x), channels)
        kernel = self._variable("kernel", shape, "he_normal")
        y = tf.nn.conv2d(
            x, tf.cast(kernel, x.dtype), stride, padding, self._data_format
        )
        if has_bias:
            bias = self._variable("bias", (channels,), "zeros")
            y = tf.nn.bias_add(y, tf.cast(bias, x.dtype), self._data_format)
        return y

    def batch_normalization(self, x: Tensor) -> Tensor:
        """Normalize each channel by the mean and variance of the batch.

        Returns:
          (x - mean) / sqrt(variance + EPSILON) * gamma + beta, in the shape of `x`.
          Statistics are float32 for every dtype of `x`. The moving variance of n values
          divides by n - 1, like cuDNN's.

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
        """Return x / (1 + alpha * s) ** beta, computed in float32.

        s is the sum of squares over the 2 * radius + 1 nearest channels.
        """
        # The operator has no kernel for bfloat16.
        last = tf.cast(self._channels_last(x), tf.float32)
        y = tf.nn.local_response_normalization(
            last, depth_radius=radius, bias=1.0, alpha=alpha, beta=beta
        )
        y = tf.cast(y, x.dtype)
        return tf.transpose(y, [0, 3, 1, 2]) if self._data_format == "NCHW" else y

    def max_pool(self, x: Tensor, padding: str) -> Tensor:
        """Return the maxima of 3 x 3 pixels, at every second row and column."""
        return tf.nn.max_pool2d(x, 3, 2, padding, self._data_format)

    def average_pool(self, x: Tensor) -> Tensor:
        """Return the means of 2 x 2 pixels."""
        return tf.nn.avg_pool2d(x, 2, 2, "VALID", self._data_format)

    def subsample(self, x: Tensor) -> Tensor:
        """Return every second row and column of the pixels."""
        return x[:, :, ::2, ::2] if self._data_format == "NCHW" else x[:, ::2, ::2]

    def pad_channels(self, x: Tensor, channels: int) -> Tensor:
        """Pad `x` with zeros to this number of channels, on both sides."""
        paddings = [[0, 0]] * 4
        missing = channels - self.channels(x)
        paddings[self._channel_axis] = [missing // 2, missing - missing // 2]
        return tf.pad(x, paddings)

    def join(self, *tensors: Tensor) -> Tensor:
        """Join tensors along their channels."""
        return tf.concat(tensors, self._channel_axis)

    def spatial_mean(self, x: Tensor) -> Tensor:
        """Return the mean of each channel, [B, C]."""
        return tf.reduce_mean(x, [2, 3] if self._data_format == "NCHW" else [1, 2])

    def flatten(self, x: Tensor) -> Tensor:
        """Return [B, H * W * C]; the order is equal in both layouts, so they share weights."""
        return tf.reshape(self._channels_last(x), [-1, math.prod(x.shape[1:])])

    def dense(self, x: Tensor, features: int, initial: str = "he_normal") -> Tensor:
        """Return x [B, F] times a matrix plus a bias, [B, features].

        Args:
          initial: First values of the matrix, a name of `INITIAL`.
        """
        kernel = self._variable("kernel", (int(x.shape[-1]), features), initial)
        bias = self._variable("bias", (features,), "zeros")
        products = tf.matmul(x, tf.cast(kernel, x.dtype))
        return tf.nn.bias_add(products, tf.cast(bias, x.dtype))

    def dropout(self, x: Tensor, rate: float) -> Tensor:
        """Apply dropout; each call draws other zeros."""
        self._num_dropouts += 1
        return (
            x if self._seed is None else drop(x, rate, self._seed, self._num_dropouts)
        )

    def _channels_last(self, x: Tensor) -> Tensor:
        return tf.transpose(x, [0, 2, 3, 1]) if self._data_format == "NCHW" else x

    def _variable(
        self, name: str, shape: tuple[int, ...], initial: str, kind: str = "dense"
    ) -> Tensor:
        return self._get_value(VariableSpec(self._scope + name, shape, kind, initial))


Body = Callable[[Layers, Tensor], Tensor]
"""Layers and images -> the features [B, F] below the logits."""


class LayeredClassifier(ImageClassifier):
    """A network of layers; one more dense layer computes its logits."""

    def __init__(self, body: Body, config: ModelConfig) -> None:
        self._body = body
        super().__init__(
            config, *workloads.find_image_size_and_classes(config.model, config.dataset)
        )

    def declare_variables(self) -> list[VariableSpec]:
        """Return the variables that the network declares when it runs on shapes."""
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

    def compute_logits(
        self, weights: Tensors, images: Tensor, seed: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """See `ImageClassifier`; the logits are float32."""
        layers, logits = self._run(images, lambda spec: weights[spec.name], seed)
        return logits, layers.moving

    def _run(
        self,
        images: Tensor,
        get_value: Callable[[VariableSpec], Tensor],
        seed: Tensor | None,
    ) -> tuple[Layers, Tensor]:
        layers = Layers(self.config.data_format, get_value, seed)
        features = self._body(layers, images)
        with layers.scope("logits"):
            logits = layers.dense(features, self.num_classes, "glorot_uniform")
        return layers, tf.cast(logits, tf.float32)
