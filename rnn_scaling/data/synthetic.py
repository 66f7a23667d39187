"""Random batches: what the sources device, constant and host share."""

from typing import Any

import tensorflow as tf

from rnn_scaling.data.source import Feed
from rnn_scaling.models.layout import TextLayout

# Room for the number of the draw (two a tower) in the low bits of the generator's first seed word.
_DRAW_BITS = 20


def draw(feed: Feed, batch_size: int, *, step: tf.Tensor, tower: int | tf.Tensor) -> Any:
    """The batch of one tower at one step: a pure function of the feed's seed, `step` and `tower`.

    The number of towers changes nothing, and neither does the kind of device.

    Args:
      step: int64 scalar.
      tower: its index, below 2**18; a number or an int64 scalar.
    """

    def seed_of(stream: int) -> tf.Tensor:
        return seed_pair(feed.seed, step, 2 * tower + stream)

    options, layout = feed.options, feed.layout
    batch = layout.draw(batch_size, feed.max_lengths, seed_of, options.random_lengths)
    if isinstance(layout, TextLayout) and options.random_lengths and options.pad_to:
        return layout.padded(batch, options.pad_to)
    return batch


def seed_pair(seed: int, step: tf.Tensor, index: int | tf.Tensor) -> tf.Tensor:
    """Two int64 seed words that differ for each (seed, step, index).

    Args:
      step: int64 scalar.
      index: of what is drawn in a step, below 2**20.
    """
    high = (seed % (1 << (63 - _DRAW_BITS))) << _DRAW_BITS
    with tf.device("CPU:0"):  # generators take their seed from host memory, also on GPUs
        return tf.stack([tf.cast(index, tf.int64) + high, tf.cast(step, tf.int64)])
