"""Data source `constant`: one batch of random words a tower, drawn once and kept on its device: no input cost."""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from models.batch import Batch
from rnn_scaling.data import synthetic
from rnn_scaling.data.source import Source
from rnn_scaling.settings.config import DataOptions


class _ConstantSource:
    def __init__(self, batches: Sequence[Batch], devices: Sequence[str]):
        self._batches = tuple(batches)
        self._devices = tuple(devices)

    def next_batches(self, step: tf.Tensor) -> list[Batch]:
        del step  # the same words at every step
        batches = []
        for device, batch in zip(self._devices, self._batches):
            with tf.device(device):
                ids = {name: tf.identity(getattr(batch, name)) for name in _IDS}
                # Constants of the graph: cuDNN wants lengths in host memory, and would wait to copy them there.
                lengths = {name: tf.constant(getattr(batch, name)) for name in _LENGTHS}
                batches.append(Batch(**ids, **lengths))
        return batches


_IDS = ("source", "target_input", "target_output")
_LENGTHS = ("source_length", "target_length")


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
    """The words that the source `device` draws at step 0, at every step."""
    del split  # as for the source `device`
    shapes = synthetic.shapes_of(data, batch_sizes, src_vocab_size, tgt_vocab_size, time_major)
    batches = []
    for tower, (device, shape) in enumerate(zip(devices, shapes)):
        with tf.device(device):
            batch = synthetic.draw(shape, seed=seed, step=tf.constant(0, tf.int64), tower=tower)
            batches.append(batch._replace(**{name: getattr(batch, name).numpy() for name in _LENGTHS}))
    return _ConstantSource(batches, devices)
