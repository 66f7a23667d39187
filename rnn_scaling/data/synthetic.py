"""Random sentences of full length: the words that the sources device, constant and host share.

Letters: Ts, Tt words of a source and a target sentence, B sentence pairs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from models.batch import Batch
from rnn_scaling.settings.config import DataOptions

# The ids that NMT vocabularies give to <s> and </s>, after <unk>; every vocabulary has at least 4 words.
BOS_ID = 1
EOS_ID = 2
# Room for the number of the draw (two a tower) in the low bits of the generator's first seed word.
_DRAW_BITS = 20


@dataclasses.dataclass(frozen=True)
class Shape:
    """Sizes of one tower's batch."""

    batch_size: int
    src_vocab_size: int
    tgt_vocab_size: int
    src_max_len: int
    tgt_max_len: int
    time_major: bool


def shapes_of(
    data: DataOptions, batch_sizes: Sequence[int], src_vocab_size: int, tgt_vocab_size: int, time_major: bool
) -> list[Shape]:
    """The sizes of each tower's batch, of the values that a source's `build` is given."""
    return [
        Shape(
            batch_size=batch_size,
            src_vocab_size=src_vocab_size,
            tgt_vocab_size=tgt_vocab_size,
            src_max_len=data.src_max_len,
            tgt_max_len=data.tgt_max_len,
            time_major=time_major,
        )
        for batch_size in batch_sizes
    ]


def draw(shape: Shape, *, seed: int, step: tf.Tensor, tower: int | tf.Tensor) -> Batch:
    """The batch of one tower at one step: a pure function of `seed`, `step` and `tower`.

    The number of towers changes nothing, and neither does the kind of device.

    Args:
      shape: sizes of the batch.
      seed: of the run, not negative.
      step: int64 scalar.
      tower: its index, below 2**19; a number or an int64 scalar.

    Returns:
      A batch whose source sentences have `src_max_len` random words, and whose targets have `tgt_max_len - 1` and
      then EOS_ID. Ids are uniform over the vocabulary.
    """
    source = _words(shape, shape.src_max_len, shape.src_vocab_size, _seed_pair(seed, step, 2 * tower))
    target = _words(shape, shape.tgt_max_len - 1, shape.tgt_vocab_size, _seed_pair(seed, step, 2 * tower + 1))
    bos, eos = (tf.constant(word, tf.int64, _ids_shape(shape, 1)) for word in (BOS_ID, EOS_ID))
    time_axis = 0 if shape.time_major else 1
    source_length, target_length = full_lengths(shape)
    return Batch(
        source=source,
        source_length=source_length,
        target_input=tf.concat([bos, target], time_axis),
        target_output=tf.concat([target, eos], time_axis),
        target_length=target_length,
    )


def full_lengths(shape: Shape) -> tuple[tf.Tensor, tf.Tensor]:
    """Lengths of the source and the target sentences, known when tracing: cuDNN computes full sentences faster."""
    return tf.fill([shape.batch_size], shape.src_max_len), tf.fill([shape.batch_size], shape.tgt_max_len)


def _ids_shape(shape: Shape, num_words: int) -> list[int]:
    return [num_words, shape.batch_size] if shape.time_major else [shape.batch_size, num_words]


def _seed_pair(seed: int, step: tf.Tensor, index: int | tf.Tensor) -> tf.Tensor:
    """Two int64 seed words that differ for each (seed, step, index)."""
    high = (seed % (1 << (63 - _DRAW_BITS))) << _DRAW_BITS
    with tf.device("CPU:0"):  # generators take their seed from host memory, also on GPUs
        return tf.stack([tf.cast(index, tf.int64) + high, tf.cast(step, tf.int64)])


def _words(shape: Shape, num_words: int, vocab_size: int, seed_pair: tf.Tensor) -> tf.Tensor:
    # [B, T] whatever the layout, so that time_major transposes the same words.
    words = tf.random.stateless_uniform(
        [shape.batch_size, num_words], seed_pair, minval=0, maxval=vocab_size, dtype=tf.int64
    )
    return tf.transpose(words) if shape.time_major else words
