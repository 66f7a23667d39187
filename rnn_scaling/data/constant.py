"""Data source `constant`: one random batch a tower, drawn once and kept on its device: no input cost."""

from typing import Any

import tensorflow as tf

from rnn_scaling.data import synthetic
from rnn_scaling.data.source import Feed, Source


class _ConstantSource:
    def __init__(self, feed: Feed) -> None:
        self._devices, self._batches = feed.devices, []
        self.num_samples = sum(feed.batch_sizes)
        for tower, (device, batch_size) in enumerate(zip(feed.devices, feed.own_batch_sizes), feed.first_tower):
            with tf.device(device):
                self._batches.append(synthetic.draw(feed, batch_size, step=tf.constant(0, tf.int64), tower=tower))

    def next_batches(self, step: tf.Tensor) -> list[Any]:
        del step  # the same batch at every step
        batches = []
        for device, batch in zip(self._devices, self._batches):
            with tf.device(device):
                batches.append(type(batch)._make(map(_keep, batch)))
        return batches


def _keep(part: tf.Tensor) -> tf.Tensor:
    # Lengths are constants of the graph: cuDNN wants them in host memory, and would wait to copy them there.
    return tf.constant(part.numpy()) if part.shape.rank == 1 else tf.identity(part)


def build(feed: Feed) -> Source:
    """The batches that the source `device` draws at step 0, at every step."""
    return _ConstantSource(feed)
