"""The workload of a network of images: softmax cross entropy, summed over the images of a batch. Items are images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from rnn_scaling.models.batch import ImageBatch, Layout
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.images.network import Network
from rnn_scaling.models.layout import ImageLayout
from rnn_scaling.models.workload import Counts, Outcome, Outputs


class ImageClassifier:
    """See `Workload`."""

    def __init__(self, network: Network, config: ModelConfig) -> None:
        """config: has the images' `data_format` and `compute_dtype`, and whether right predictions are counted."""
        self._network, self._dtype = network, tf.as_dtype(config.compute_dtype)
        self._accuracy = config.accuracy
        self.layout: Layout = ImageLayout(network.image_size, network.num_classes, config.data_format)
        self.variables, self.moving = network.variables, network.moving
        self.kernels: Mapping[str, str] = {}

    def lookups(self, batch: ImageBatch) -> dict[str, tf.Tensor]:
        return {}

    def forward(
        self, weights: Mapping[str, tf.Tensor], rows: Mapping[str, tf.Tensor], batch: ImageBatch, seed: tf.Tensor
    ) -> Outcome:
        logits, moving = self.outputs(weights, rows, batch, seed)
        correct = None
        if self._accuracy:
            correct = tf.reduce_sum(self.correct(logits, batch))
        return Outcome(tf.reduce_sum(self.losses(logits, batch)), moving, correct)

    def outputs(
        self, weights: Mapping[str, tf.Tensor], rows: Mapping[str, tf.Tensor], batch: ImageBatch, seed: tf.Tensor
    ) -> Outputs:
        return Outputs(*self._network.logits(weights, tf.cast(batch.images, self._dtype), seed))

    def losses(self, logits: tf.Tensor, batch: ImageBatch) -> tf.Tensor:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(batch.labels, tf.cast(logits, tf.float32))

    def correct(self, logits: tf.Tensor, batch: ImageBatch) -> tf.Tensor:
        return tf.cast(tf.equal(tf.argmax(logits, axis=1), batch.labels), tf.float32)

    def loss_items(self, batch: ImageBatch) -> tf.Tensor:
        return tf.cast(tf.size(batch.labels), tf.float32)

    def counts(self, batch: ImageBatch) -> Counts:
        images = tf.size(batch.labels, tf.int64)
        return Counts(tf.cast(images, tf.float64), tf.cast(images, tf.float64), images)

    def flops_per_item(self, lengths: Sequence[int]) -> float:
        """Every image passes the whole network."""
        return self._network.flops_an_image
