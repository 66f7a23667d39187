"""Data source `device`: every step draws fresh random words on each tower's device; nothing comes from the host."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from models.batch import Batch
from rnn_scaling.data import synthetic
from rnn_scaling.data.source import Source
from rnn_scaling.settings.config import DataOptions


class _DeviceSource:
    def __init__(self, shapes: Sequence[synthetic.Shape], seed: int, devices: Sequence[str]):
        self._shapes = tuple(shapes)
        self._seed = seed
        self._devices = tuple(devices)

    def next_batches(self, step: tf.Tensor) -> list[Batch]:
        batches = []
        for tower, (device, shape) in enumerate(zip(self._devices, self._shapes)):
            with tf.device(device):
                batches.append(synthetic.draw(shape, seed=self._seed, step=step, tower=tower))
        return batches


def build(
    data: DataOptions,
    *,
    batch_sizes: Sequence[int],
    split: bool,
    src_vocab_size: int,
    tgt_vocab_size: int,
    time_major: bool,
    seed: int,
    devices: Sequence[str],
) -> Source:
    """Random words by (seed, step, tower): two runs with the same seed see the same words."""
    del split  # fresh words have no order that the number of towers could change
    shapes = synthetic.shapes_of(data, batch_sizes, src_vocab_size, tgt_vocab_size, time_major)
    return _DeviceSource(shapes, seed, devices)
