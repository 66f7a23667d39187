"""Data source `device`: each step draws a random batch on each tower's device.

The host sends nothing. The functions of this module also make the batches of the other
sources that draw them.

`config.registry` names this module; the trainer calls `build`.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from rnn_scaling.data.pipeline import map_devices
from rnn_scaling.data.source import Feed, Source
from rnn_scaling.models.layout import TextLayout

# Low bits of the generator's first seed word: the index of a draw. Each tower has
# two indices per step in the lower half. A layout draws lengths in the upper half: it
# adds 2**19 to a stream (`_LENGTHS` in models/layout.py).
_DRAW_BITS = 20


def build(feed: Feed) -> Source:
    """Return random batches that depend only on the seed, the step and the tower.

    `feed.split` changes nothing, because random batches have no order that the number
    of towers could change.
    """
    return make_source(feed, functools.partial(draw, feed))


def make_source(
    feed: Feed,
    make_batch: Callable[[tf.Tensor, int, int], Any],
    num_samples: int | None = None,
) -> Source:
    """Return a source whose batches are made on the devices of their towers.

    Args:
      feed: The devices and batch sizes.
      make_batch: Takes the step, the tower and its batch size. It is traced once per
        tower, on its device, with the step as a tensor.
      num_samples: Samples of a fixed set; None if they are not counted.
    """
    towers = range(len(feed.batch_sizes))[feed.own_towers]

    def make_next_batches(step: tf.Tensor) -> list[Any]:
        return map_devices(
            feed.devices,
            functools.partial(make_batch, step),
            towers,
            feed.own_batch_sizes,
        )

    return Source(make_next_batches, num_samples)


def draw(feed: Feed, step: tf.Tensor, tower: int | tf.Tensor, batch_size: int) -> Any:
    """Return the random batch of one tower at one step.

    It depends only on the feed's seed, the step and the tower, not on the number of
    towers or the kind of device.

    Args:
      feed: The seed, the layout and the lengths.
      step: The number of the step.
      tower: The number of the tower, below 2**18, so that its indices stay in the lower
        half.
      batch_size: Samples of the batch.
    """

    def derive_stream_seed(stream: int) -> tf.Tensor:
        return seed_pair(feed.seed, step, 2 * tower + stream)

    options = feed.options
    layout = feed.layout
    batch = layout.draw(
        batch_size,
        feed.max_lengths,
        derive_stream_seed,
        is_ragged=options.random_lengths,
        has_full=not options.ragged_batches,
    )
    if not isinstance(layout, TextLayout) or not options.random_lengths:
        return batch
    if options.pad_to:
        return layout.pad_to(batch, options.pad_to)
    if options.ragged_batches:
        return layout.crop(batch)
    return batch


def seed_pair(seed: int, step: tf.Tensor, index: int | tf.Tensor) -> tf.Tensor:
    """Return two int64 seed words that differ for each (seed, step, index).

    Args:
      seed: The seed of the run.
      step: The number of the step.
      index: The number of a draw within the step, below 2**20.
    """
    high = (seed % (1 << (63 - _DRAW_BITS))) << _DRAW_BITS
    # Generators read their seed from host memory, even on a GPU.
    with tf.device("CPU:0"):
        return tf.stack([tf.cast(index, tf.int64) + high, tf.cast(step, tf.int64)])
