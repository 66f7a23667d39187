"""The workload of an image classifier.

B: images of a batch, H = W: their size, C: their 3 channels. Images are [B, H, W, C]
with --data_format=NHWC and [B, C, H, W] with NCHW.

The families of networks (`layers`, `keras_applications`) inherit from it and add their
variables and their forward pass.
"""

import abc
from collections.abc import Iterable, Mapping

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import cross_entropy
from rnn_scaling.models.batch import ImageBatch
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.layout import ImageLayout, Layout
from rnn_scaling.models.workload import Counts, Outcome, Outputs, Tensors, VariableSpec


class ImageClassifier(abc.ABC):
    """Softmax cross entropy, summed over the images of a batch. Items are images."""

    kernels: Mapping[str, str] = {}

    def __init__(self, config: ModelConfig, image_size: int, num_classes: int) -> None:
        """Create the workload.

        Args:
          config: The images' `data_format` and `compute_dtype`, and the options of the
            loss.
          image_size: Height and width.
          num_classes: Labels are smaller.
        """
        self.config = config
        self.image_size = image_size
        self.num_classes = num_classes
        self._dtype = tf.as_dtype(config.compute_dtype)
        self.layout: Layout = ImageLayout(image_size, num_classes, config.data_format)
        specs = list(self.declare_variables())
        self.variables = tuple(spec for spec in specs if spec.kind != "moving")
        self.moving = tuple(spec for spec in specs if spec.kind == "moving")

    @abc.abstractmethod
    def declare_variables(self) -> Iterable[VariableSpec]:
        """Return all variables and moving averages of the network."""

    @abc.abstractmethod
    def compute_logits(
        self, weights: Tensors, images: Tensor, seed: Tensor
    ) -> tuple[Tensor, Tensors]:
        """Run the forward pass of a training step.

        Args:
          weights: Variables and moving averages by name, float32; the network casts
            them.
          images: [B, H, W, C] or [B, C, H, W] in the run's compute_dtype.
          seed: [2] int; draws the dropout of networks that have it.

        Returns:
          The logits [B, num_classes] in any floating type, and the next values of all
          moving averages, float32, by name. Batch statistics are computed in float32
          and describe only this batch.
        """

    def list_lookups(self, batch: ImageBatch) -> dict[str, Tensor]:
        return {}

    def forward(
        self, weights: Tensors, rows: Tensors, batch: ImageBatch, seed: Tensor
    ) -> Outcome:
        logits, moving = self.compute_outputs(weights, rows, batch, seed)
        correct = None
        if self.config.accuracy:
            correct = tf.reduce_sum(self.correct(logits, batch))
        return Outcome(
            tf.reduce_sum(self.compute_losses(logits, batch)), moving, correct
        )

    def compute_outputs(
        self, weights: Tensors, rows: Tensors, batch: ImageBatch, seed: Tensor
    ) -> Outputs:
        images = tf.cast(batch.images, self._dtype)
        return Outputs(*self.compute_logits(weights, images, seed))

    def compute_losses(self, logits: Tensor, batch: ImageBatch) -> Tensor:
        return cross_entropy.compute_losses(
            logits, batch.labels, self.config.label_smoothing
        )

    def correct(self, logits: Tensor, batch: ImageBatch) -> Tensor:
        return cross_entropy.is_correct(logits, batch.labels)

    def count_loss_items(self, batch: ImageBatch) -> Tensor:
        return tf.cast(tf.size(batch.labels), tf.float32)

    def count_batch(self, batch: ImageBatch) -> Counts:
        images = tf.size(batch.labels, tf.int64)
        return Counts(tf.cast(images, tf.float64), tf.cast(images, tf.float64), images)
