"""Random sentences of full length: the words that the sources device, constant and host share.

Letters: T words of a sentence, B sentences.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from models.batch import Side
from rnn_scaling.data.source import Feed

# The ids that NMT vocabularies give to <s> and </s>, after <unk>; every vocabulary has at least 4 words.
BOS_ID = 1
EOS_ID = 2
_STREAMS = {"src": 0, "tgt": 1}  # so that a side's words are the same whatever other sides a workload reads
# Room for the number of the draw (two a tower) in the low bits of the generator's first seed word.
_DRAW_BITS = 20


def draw(feed: Feed, batch_size: int, *, step: tf.Tensor, tower: int | tf.Tensor) -> Any:
    """The batch of one tower at one step: a pure function of the feed's seed, `step` and `tower`.

    The number of towers changes nothing, and neither does the kind of device.

    Args:
      feed: says what a batch is made of.
      batch_size: samples of this tower.
      step: int64 scalar.
      tower: its index, below 2**19; a number or an int64 scalar.

    Returns:
      A batch whose sentences have `feed.max_lengths` random words; of a side that is predicted the last one is EOS_ID.
      Ids are uniform over the vocabulary.
    """
    sides = list(zip(feed.layout.sides, feed.max_lengths))
    words = [
        _words(feed, side, batch_size, length, _seed_pair(feed.seed, step, 2 * tower + _STREAMS[side.name]))
        for side, length in sides
    ]
    bos, eos = (tf.constant(word, tf.int64, _ids_shape(feed, batch_size, 1)) for word in (BOS_ID, EOS_ID))
    time_axis = 0 if feed.time_major else 1
    lengths = full_lengths(feed, batch_size)
    parts = []
    for (side, _), ids, length in zip(sides, words, lengths):
        shifted = (tf.concat([bos, ids], time_axis), tf.concat([ids, eos], time_axis)) if side.predicted else (ids,)
        parts.append((*shifted, length))
    return feed.layout.batch(parts)


def full_lengths(feed: Feed, batch_size: int) -> list[tf.Tensor]:
    """Lengths [B] of each side's sentences, known when tracing: cuDNN computes full sentences faster."""
    return [tf.fill([batch_size], length) for length in feed.max_lengths]


def _ids_shape(feed: Feed, batch_size: int, num_words: int) -> list[int]:
    return [num_words, batch_size] if feed.time_major else [batch_size, num_words]


def _seed_pair(seed: int, step: tf.Tensor, index: int | tf.Tensor) -> tf.Tensor:
    """Two int64 seed words that differ for each (seed, step, index)."""
    high = (seed % (1 << (63 - _DRAW_BITS))) << _DRAW_BITS
    with tf.device("CPU:0"):  # generators take their seed from host memory, also on GPUs
        return tf.stack([tf.cast(index, tf.int64) + high, tf.cast(step, tf.int64)])


def _words(feed: Feed, side: Side, batch_size: int, length: int, seed_pair: tf.Tensor) -> tf.Tensor:
    """Words of a side whose sentences have `length` words, the end-of-sentence word, if any, left out."""
    # [B, T] whatever the layout, so that time_major transposes the same words.
    shape = [batch_size, length - side.predicted]
    words = tf.random.stateless_uniform(shape, seed_pair, minval=0, maxval=side.vocab_size, dtype=tf.int64)
    return tf.transpose(words) if feed.time_major else words
