"""The fields of a workload's batches, random batches, and the axes of their samples.

T: words of a sentence, B: samples, H, W: height and width of an image, C: its channels.

Data sources ask a layout which fields to fill; steps ask it how to cut a batch.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models.batch import ImageBatch, SeedOf, Side

# The ids that NMT vocabularies give to <s> and </s>, after <unk>; every vocabulary has
# at least 4 words.
BOS_ID = 1
EOS_ID = 2
CHANNELS = 3
# Added to the stream of a side's words for its lengths. rnn_scaling/data/device.py uses
# only the streams below it.
_LENGTHS = 1 << 19
# Fixed per side, so that its words do not depend on the workload's other sides.
_STREAMS = {"src": 0, "tgt": 1}


@dataclasses.dataclass(frozen=True)
class TextLayout:
    """Batches of sentences; the methods of both layouts have the same arguments.

    Attributes:
      sides: In the order of the batch's fields. A side has two fields, its words and
        their lengths. A predicted side has its words twice: after the begin-of-sentence
        word and before the end-of-sentence word.
      type: The NamedTuple of the batches; the names of lengths end with "_length".
      time_major: Whether ids are [T, B] instead of [B, T].
      labels: The fields that only the loss reads.
    """

    sides: tuple[Side, ...]
    type: Callable[..., Any]
    time_major: bool
    labels = ("target_output",)

    def make_batch(self, fields: Iterable[Iterable[Any]]) -> Any:
        """Return a batch from the fields of each side, in the order of `sides`."""
        return self.type(*itertools.chain.from_iterable(fields))

    def draw(
        self,
        batch_size: int,
        lengths: Sequence[int],
        seed_of: SeedOf,
        is_ragged: bool = False,
        has_full: bool = True,
    ) -> Any:
        """Return sentences with uniform ids; full predicted sides end in EOS_ID.

        Args:
          lengths: Words of the full sentences per side.
          is_ragged: Whether to draw shorter lengths.
          has_full: Whether the first ragged sentence is full.
        """
        sides = list(zip(self.sides, lengths, strict=True))
        words = [
            self._draw_words(side, batch_size, length, seed_of(_STREAMS[side.name]))
            for side, length in sides
        ]
        time_axis = 0 if self.time_major else 1
        column = [1, batch_size] if self.time_major else [batch_size, 1]
        bos, eos = (tf.constant(word, tf.int64, column) for word in (BOS_ID, EOS_ID))
        fields: list[tuple[Any, ...]] = []
        sizes = _make_full_lengths(batch_size, lengths)
        if is_ragged:
            sizes = [
                _draw_lengths(full, seed_of(_LENGTHS + _STREAMS[side.name]), has_full)
                for side, full in zip(self.sides, sizes)
            ]
        for side, ids, length in zip(self.sides, words, sizes):
            if side.predicted:
                inputs = tf.concat([bos, ids], time_axis)
                fields.append((inputs, tf.concat([ids, eos], time_axis), length))
            else:
                fields.append((ids, length))
        return self.make_batch(fields)

    def pad_to(self, batch: Any, num_words: int) -> Any:
        """Return a drawn batch with all sentences padded to `num_words` words."""

        def pad(field: Tensor) -> Tensor:
            if field.shape.rank == 1:
                return field
            paddings = [[0, 0], [0, 0]]
            time_axis = 0 if self.time_major else 1
            paddings[time_axis][1] = num_words - field.shape[time_axis]
            return tf.pad(field, paddings, constant_values=EOS_ID)

        return type(batch)._make(map(pad, batch))

    def crop(self, batch: Any) -> Any:
        """Return a drawn batch without the positions after its longest sentences."""
        fields: list[Tensor] = []
        words: list[Tensor] = []
        for field in batch:
            if field.shape.rank > 1:
                words.append(field)
                continue
            longest = tf.reduce_max(field)
            for ids in words:
                fields.append(ids[:longest] if self.time_major else ids[:, :longest])
            fields.append(field)
            words = []
        return type(batch)._make(fields)

    def find_ends(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the first and the last word of the longest target sentence."""
        inputs = batch.target_input
        outputs = batch.target_output
        if not self.time_major:
            inputs = tf.transpose(inputs)
            outputs = tf.transpose(outputs)
        longest = tf.argmax(batch.target_length, output_type=tf.int32)
        return inputs[0, 0], outputs[batch.target_length[longest] - 1, longest]

    def sample_axis(self, tensor: Tensor) -> int:
        """Return the axis of the samples in a field of a batch, or in logits."""
        return 1 if self.time_major and tensor.shape.rank >= 2 else 0

    def set_static_lengths(
        self, batch: Any, batch_size: int, lengths: Sequence[int]
    ) -> Any:
        """Return a batch that `draw` made, with full lengths that tracing can read.

        cuDNN is faster if all sentences are full while tracing.
        """
        names = [name for name in batch._fields if name.endswith("_length")]
        full = zip(names, _make_full_lengths(batch_size, lengths), strict=True)
        return batch._replace(**dict(full))

    def _draw_words(
        self, side: Side, batch_size: int, length: int, seed: Tensor
    ) -> Tensor:
        """Return words without the end-of-sentence word; a predicted side has one."""
        # Always [B, T], so that time_major transposes the same words.
        shape = [batch_size, length - side.predicted]
        words = tf.random.stateless_uniform(
            shape, seed, minval=0, maxval=side.vocab_size, dtype=tf.int64
        )
        return tf.transpose(words) if self.time_major else words


def _draw_lengths(full: Tensor, seed: Tensor, has_full: bool) -> Tensor:
    """Return lengths [B] from 1 to the full length; the first may have to be full."""
    lengths = tf.random.stateless_uniform(
        full.shape, seed, minval=1, maxval=full[0] + 1, dtype=tf.int32
    )
    if not has_full:
        return lengths
    return tf.concat([full[:1], lengths[1:]], 0)


def _make_full_lengths(batch_size: int, lengths: Sequence[int]) -> list[Tensor]:
    """Return full lengths [B] per side, as constants that tracing can read."""
    return [tf.fill([batch_size], length) for length in lengths]


@dataclasses.dataclass(frozen=True)
class ImageLayout:
    """Batches of images with a label each."""

    size: int  # height and width of an image
    num_classes: int  # labels are smaller
    data_format: str  # "NHWC" or "NCHW", the order of the images' axes
    sides: tuple[Side, ...] = ()
    labels = ("labels",)

    def draw(
        self,
        batch_size: int,
        lengths: Sequence[int],
        seed_of: SeedOf,
        is_ragged: bool = False,
        has_full: bool = True,
    ) -> ImageBatch:
        """Return uniform pixels in [-1, 1) and uniform labels.

        Args:
          batch_size: Number of images.
          lengths: Not used; images have no sentences.
          seed_of: Returns the seed of a stream of random numbers.
          is_ragged: Not used.
          has_full: Not used.
        """
        # Always [B, H, W, C], so that NCHW transposes the same pixels.
        shape = [batch_size, self.size, self.size, CHANNELS]
        images = tf.random.stateless_uniform(shape, seed_of(0), minval=-1.0, maxval=1.0)
        labels = tf.random.stateless_uniform(
            [batch_size], seed_of(1), minval=0, maxval=self.num_classes, dtype=tf.int64
        )
        return ImageBatch(self.transpose_images(images, "NHWC"), labels)

    def transpose_images(self, images: Tensor, data_format: str) -> Tensor:
        """Transpose images from this `data_format` to the layout's `data_format`."""
        axes = [data_format.index(axis) for axis in self.data_format]
        return images if axes == sorted(axes) else tf.transpose(images, axes)

    def sample_axis(self, tensor: Tensor) -> int:
        """Return 0, the axis of the samples in every tensor of a batch."""
        return 0

    def set_static_lengths(
        self, batch: ImageBatch, batch_size: int, lengths: Sequence[int]
    ) -> ImageBatch:
        """Return the batch unchanged; it has no lengths."""
        return batch


Layout = TextLayout | ImageLayout
