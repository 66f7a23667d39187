"""Data source `device`: every step draws a fresh random batch on each tower's device; nothing comes from the host."""

from typing import Any

import tensorflow as tf

from rnn_scaling.data import synthetic
from rnn_scaling.data.source import Feed, Source


class _DeviceSource:
    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def next_batches(self, step: tf.Tensor) -> list[Any]:
        batches = []
        towers = zip(self._feed.devices, self._feed.own_batch_sizes)
        for tower, (device, batch_size) in enumerate(towers, self._feed.first_tower):
            with tf.device(device):
                batches.append(synthetic.draw(self._feed, batch_size, step=step, tower=tower))
        return batches


def build(feed: Feed) -> Source:
    """Random batches by (seed, step, tower): two runs with the same seed see the same ones.

    Fresh batches have no order that the number of towers could change, so `feed.split` is not read.
    """
    return _DeviceSource(feed)
