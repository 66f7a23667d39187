"""What a network of images is, variables and the way from images to the logits of their classes, and its workload.

B: images of a batch, H = W: their size, C: their 3 channels. Images are [B, H, W, C] with --data_format=NHWC and
[B, C, H, W] with NCHW.
"""

from collections.abc import Mapping
from typing import Protocol

import tensorflow as tf

from rnn_scaling.models import cross_entropy
from rnn_scaling.models.batch import ImageBatch
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.layout import ImageLayout, Layout
from rnn_scaling.models.workload import Counts, Outcome, Outputs, Tensors, VariableSpec


class Network(Protocol):
    """A family's module makes one in its `build` and returns `ImageClassifier(network, config)`."""

    image_size: int  # height and width
    num_classes: int  # labels are below it
    variables: tuple[VariableSpec, ...]  # as of a `Workload`, and so `moving`
    moving: tuple[VariableSpec, ...]

    def logits(
        self, weights: Tensors, images: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, Tensors]:
        """The forward pass of a training step.

        Args:
          weights: float32, the variables and the moving averages by name; the network casts what it computes with.
          images: [B, H, W, C] or [B, C, H, W] in the run's compute_dtype.
          seed: [2] int; draws the dropout, of networks that have it.

        Returns:
          The logits [B, num_classes] in any floating type, and the next values of all moving averages, float32, by
          name. Batch statistics are computed in float32 and are those of this batch alone.
        """


class ImageClassifier:
    """The workload of a network: softmax cross entropy, summed over the images of a batch. Items are images."""

    def __init__(self, network: Network, config: ModelConfig) -> None:
        """config: has the images' `data_format` and `compute_dtype`, and how the loss is computed."""
        self._network, self._dtype = network, tf.as_dtype(config.compute_dtype)
        self._accuracy, self._label_smoothing = config.accuracy, config.label_smoothing
        self.layout: Layout = ImageLayout(
            network.image_size, network.num_classes, config.data_format
        )
        self.variables, self.moving = network.variables, network.moving
        self.kernels: Mapping[str, str] = {}

    def lookups(self, batch: ImageBatch) -> dict[str, tf.Tensor]:
        return {}

    def forward(
        self, weights: Tensors, rows: Tensors, batch: ImageBatch, seed: tf.Tensor
    ) -> Outcome:
        logits, moving = self.outputs(weights, rows, batch, seed)
        correct = tf.reduce_sum(self.correct(logits, batch)) if self._accuracy else None
        return Outcome(tf.reduce_sum(self.losses(logits, batch)), moving, correct)

    def outputs(
        self, weights: Tensors, rows: Tensors, batch: ImageBatch, seed: tf.Tensor
    ) -> Outputs:
        return Outputs(
            *self._network.logits(weights, tf.cast(batch.images, self._dtype), seed)
        )

    def losses(self, logits: tf.Tensor, batch: ImageBatch) -> tf.Tensor:
        return cross_entropy.losses(logits, batch.labels, self._label_smoothing)

    def correct(self, logits: tf.Tensor, batch: ImageBatch) -> tf.Tensor:
        return cross_entropy.is_right(logits, batch.labels)

    def loss_items(self, batch: ImageBatch) -> tf.Tensor:
        return tf.cast(tf.size(batch.labels), tf.float32)

    def counts(self, batch: ImageBatch) -> Counts:
        images = tf.size(batch.labels, tf.int64)
        return Counts(tf.cast(images, tf.float64), tf.cast(images, tf.float64), images)
