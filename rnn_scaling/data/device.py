"""Data source `device`: every step draws a fresh random batch on each tower's device; nothing comes from the host.

Its functions also make the batches of the other sources that draw them.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rnn_scaling.data.pipeline import map_devices
from rnn_scaling.data.source import Feed, Source
from rnn_scaling.models.layout import TextLayout

# Room for the number of the draw (two a tower) in the low bits of the generator's first seed word.
_DRAW_BITS = 20


def build(feed: Feed) -> Source:
    """Random batches by (seed, step, tower): two runs with the same seed see the same ones.

    Fresh batches have no order that the number of towers could change, so `feed.split` is not read.
    """
    return drawn(feed, functools.partial(draw, feed))


def drawn(
    feed: Feed,
    batch_of: Callable[[tf.Tensor, int, int], Any],
    num_samples: int | None = None,
) -> Source:
    """A source whose batches are made on their towers' devices, by `batch_of(step, tower, batch_size)`."""
    towers = range(len(feed.batch_sizes))[feed.own_towers]

    def next_batches(step: tf.Tensor) -> list[Any]:
        return map_devices(
            feed.devices,
            functools.partial(batch_of, step),
            towers,
            feed.own_batch_sizes,
        )

    return Source(next_batches, num_samples)


def draw(feed: Feed, step: tf.Tensor, tower: int | tf.Tensor, batch_size: int) -> Any:
    """The batch of one tower at one step: a pure function of the feed's seed, `step` and `tower`.

    The number of towers changes nothing, and neither does the kind of device. `tower` is below 2**18.
    """

    def seed_of(stream: int) -> tf.Tensor:
        return seed_pair(feed.seed, step, 2 * tower + stream)

    options = feed.options
    layout = feed.layout
    batch = layout.draw(batch_size, feed.max_lengths, seed_of, options.random_lengths)
    if isinstance(layout, TextLayout) and options.random_lengths and options.pad_to:
        return layout.padded(batch, options.pad_to)
    return batch


def seed_pair(seed: int, step: tf.Tensor, index: int | tf.Tensor) -> tf.Tensor:
    """Two int64 seed words that differ for each (seed, step, index); index: of a draw in a step, below 2**20."""
    high = (seed % (1 << (63 - _DRAW_BITS))) << _DRAW_BITS
    with tf.device(
        "CPU:0"
    ):  # generators take their seed from host memory, also on GPUs
        return tf.stack([tf.cast(index, tf.int64) + high, tf.cast(step, tf.int64)])
