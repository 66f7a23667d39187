"""What a network of images is: variables, and the way from images to the logits of their classes.

B: images of a batch, H = W: their size, C: their 3 channels. Images are [B, H, W, C] with --data_format=NHWC and
[B, C, H, W] with NCHW.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

import tensorflow as tf

from rnn_scaling.models.workload import VariableSpec


class Network(Protocol):
    """A family's module makes one in its `build` and returns `classifier.ImageClassifier(network, config)`.

    image_size: height and width. num_classes: labels are below it. variables, moving: as of a `Workload`.
    flops_an_image: as `flops` counts them.
    """

    image_size: int
    num_classes: int
    variables: tuple[VariableSpec, ...]
    moving: tuple[VariableSpec, ...]
    flops_an_image: float

    def logits(
        self, weights: Mapping[str, tf.Tensor], images: tf.Tensor, seed: tf.Tensor
    ) -> tuple[tf.Tensor, Mapping[str, tf.Tensor]]:
        """The forward pass of a training step.

        Args:
          weights: float32, the variables and the moving averages by name; the network casts what it computes with.
          images: [B, H, W, C] or [B, C, H, W] in the run's compute_dtype.
          seed: [2] int; draws the dropout, of networks that have it.

        Returns:
          The logits [B, num_classes] in any floating type, and the next values of all moving averages, float32, by
          name. Batch statistics are computed in float32 and are those of this batch alone.
        """
        ...


class LayerProduct(NamedTuple):
    """A convolution or a matrix product of a network.

    positions: of its output, height x width; 1 of a matrix. shape: [height, width, inputs, outputs] or [inputs,
    outputs] of its weights, each of which is a multiply-add a position. of_images: whether images are its input.
    """

    positions: int
    shape: tuple[int, ...]
    of_images: bool = False


def flops(products: Iterable[LayerProduct]) -> float:
    """FLOPs of forward and backward for one image.

    A product does a multiply-add of 2 FLOPs for each of its weights at each position, and backward is the same for the
    gradient of the weights and again for that of the input: 6 in all; 4 where the input is the images, whose gradient
    nobody needs. A convolution's padding counts as its pixels do. Left out is what is no product: normalisation,
    activations, pooling, softmax, the update.
    """
    return sum(
        (4.0 if product.of_images else 6.0) * product.positions * math.prod(product.shape) for product in products
    )
