"""Data source `constant`: one random batch a tower, drawn once and kept on its device: no input cost."""

from typing import Any

import tensorflow as tf

from rnn_scaling.data import device
from rnn_scaling.data.source import Feed, Source


def build(feed: Feed) -> Source:
    """The batches that the source `device` draws at step 0, at every step."""
    batches = device.build(feed).next_batches(tf.constant(0, tf.int64))

    def kept(step: tf.Tensor, tower: int, batch_size: int) -> Any:
        batch = batches[tower - feed.first_tower]
        # Lengths are constants of the graph: cuDNN wants them in host memory, and would wait to copy them there.
        parts = (
            tf.constant(part.numpy()) if part.shape.rank == 1 else tf.identity(part)
            for part in batch
        )
        return type(batch)._make(parts)

    return device.drawn(feed, kept, sum(feed.batch_sizes))
