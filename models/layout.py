"""How batches of a workload are made: which parts they have, how random ones are drawn, where a batch may be cut.

Letters: T words of a sentence, B samples, H and W height and width of an image, C its channels.
"""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models.batch import ImageBatch, SeedOf, Side

# The ids that NMT vocabularies give to <s> and </s>, after <unk>; every vocabulary has at least 4 words.
BOS_ID = 1
EOS_ID = 2
CHANNELS = 3
_LENGTHS = 1 << 19  # added to a side's stream for that of its lengths
_STREAMS = {
    "src": 0,
    "tgt": 1,
}  # so that a side's words are the same whatever other sides a workload reads


@dataclasses.dataclass(frozen=True)
class TextLayout:
    """Batches of sentences; the methods of both layouts have the same arguments.

    labels: the parts that the loss alone reads.
    """

    # In the order of the batch's fields. A side gives its words and their lengths; one that is predicted gives its
    # words twice, after the begin-of-sentence word and before the end-of-sentence word.
    sides: tuple[Side, ...]
    type: Callable[
        ..., Any
    ]  # of the batches, a NamedTuple; the names of lengths end with "_length"
    time_major: bool  # ids are [T, B] and not [B, T]
    labels = ("target_output",)

    def batch(self, parts: Iterable[Iterable[Any]]) -> Any:
        return self.type(*(part for side in parts for part in side))

    def draw(
        self,
        batch_size: int,
        lengths: Sequence[int],
        seed_of: SeedOf,
        ragged: bool = False,
    ) -> Any:
        """Sentences whose ids are uniform; of a side that is predicted the word at its longest is EOS_ID.

        `lengths`: words of each sentence of each of `sides`.
        """
        sides = list(zip(self.sides, lengths, strict=True))
        words = [
            self._words(side, batch_size, length, seed_of(_STREAMS[side.name]))
            for side, length in sides
        ]
        time_axis, column = (
            (0, [1, batch_size]) if self.time_major else (1, [batch_size, 1])
        )
        bos, eos = (tf.constant(word, tf.int64, column) for word in (BOS_ID, EOS_ID))
        parts = []
        sizes = _full_lengths(batch_size, lengths)
        if ragged:
            sizes = [
                _ragged(full, seed_of(_LENGTHS + _STREAMS[side.name]))
                for side, full in zip(self.sides, sizes)
            ]
        for side, ids, length in zip(self.sides, words, sizes):
            shifted = (
                (tf.concat([bos, ids], time_axis), tf.concat([ids, eos], time_axis))
                if side.predicted
                else (ids,)
            )
            parts.append((*shifted, length))
        return self.batch(parts)

    def padded(self, batch: Any, num_words: int) -> Any:
        """A drawn batch whose sentences all have so many words, padding included."""

        def pad(part: Tensor) -> Tensor:
            if part.shape.rank == 1:
                return part
            more = [0, num_words - part.shape[0 if self.time_major else 1]]
            return tf.pad(
                part,
                [more, [0, 0]] if self.time_major else [[0, 0], more],
                constant_values=EOS_ID,
            )

        return type(batch)._make(map(pad, batch))

    def ends(self, batch: Any) -> tuple[Tensor, Tensor]:
        """The begin-of-sentence and the end-of-sentence word, as a batch's longest target sentence has them."""
        before, words = (
            part if self.time_major else tf.transpose(part)
            for part in (batch.target_input, batch.target_output)
        )
        longest = tf.argmax(batch.target_length, output_type=tf.int32)
        return before[0, 0], words[batch.target_length[longest] - 1, longest]

    def sample_axis(self, part: Tensor) -> int:
        """The axis of one of a batch's parts, or of logits, along which the samples lie."""
        return 1 if self.time_major and part.shape.rank >= 2 else 0

    def as_drawn(self, batch: Any, batch_size: int, lengths: Sequence[int]) -> Any:
        """A batch that `draw` made elsewhere, with its lengths, known when tracing: cuDNN is faster with full ones."""
        names = [name for name in batch._fields if name.endswith("_length")]
        return batch._replace(
            **dict(zip(names, _full_lengths(batch_size, lengths), strict=True))
        )

    def _words(self, side: Side, batch_size: int, length: int, seed: Tensor) -> Tensor:
        """Words of a side whose sentences have `length` words, the end-of-sentence word, if any, left out."""
        # [B, T] whatever the layout, so that time_major transposes the same words.
        shape = [batch_size, length - side.predicted]
        words = tf.random.stateless_uniform(
            shape, seed, minval=0, maxval=side.vocab_size, dtype=tf.int64
        )
        return tf.transpose(words) if self.time_major else words


def _ragged(full: Tensor, seed: Tensor) -> Tensor:
    """Lengths [B] from 1 to that of a full sentence, which the first one has."""
    drawn = tf.random.stateless_uniform(
        full.shape, seed, minval=1, maxval=full[0] + 1, dtype=tf.int32
    )
    return tf.concat([full[:1], drawn[1:]], 0)


def _full_lengths(batch_size: int, lengths: Sequence[int]) -> list[Tensor]:
    """Lengths [B] of each side's sentences, known when tracing."""
    return [tf.fill([batch_size], length) for length in lengths]


@dataclasses.dataclass(frozen=True)
class ImageLayout:
    """Batches of images with a label each."""

    size: int  # height and width of an image
    num_classes: int  # labels are below it
    data_format: str  # "NHWC" or "NCHW", the order of the images' axes
    sides: tuple[Side, ...] = ()
    labels = ("labels",)

    def draw(
        self,
        batch_size: int,
        lengths: Sequence[int],
        seed_of: SeedOf,
        ragged: bool = False,
    ) -> ImageBatch:
        """Pixels uniform in [-1, 1), labels uniform over the classes."""
        # [B, H, W, C] whatever the format, so that NCHW transposes the same pixels.
        shape = [batch_size, self.size, self.size, CHANNELS]
        images = tf.random.stateless_uniform(shape, seed_of(0), minval=-1.0, maxval=1.0)
        labels = tf.random.stateless_uniform(
            [batch_size], seed_of(1), minval=0, maxval=self.num_classes, dtype=tf.int64
        )
        return ImageBatch(self.ordered(images, "NHWC"), labels)

    def ordered(self, images: Tensor, data_format: str) -> Tensor:
        """Images whose axes are in the order of this `data_format`, in that of the layout's."""
        axes = [data_format.index(axis) for axis in self.data_format]
        return images if axes == sorted(axes) else tf.transpose(images, axes)

    def sample_axis(self, part: Tensor) -> int:
        return 0

    def as_drawn(
        self, batch: ImageBatch, batch_size: int, lengths: Sequence[int]
    ) -> ImageBatch:
        """As it is: nothing of it but its shape is known."""
        return batch


Layout = TextLayout | ImageLayout  # the batches of a workload
