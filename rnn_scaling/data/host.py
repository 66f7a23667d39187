"""Data source `host`: random words made by the host's input pipeline, which then go the way of text to the devices.

The words are those of the source `device`, and all sentences are known to be full when tracing, as there, so that a
comparison of the two shows the cost of the way alone. With a global batch that is split (strong scaling) the words are
others, of the same shapes.
"""

from __future__ import annotations

from collections.abc import Sequence

import tensorflow as tf

from models.batch import Batch
from rnn_scaling.data import feed, synthetic
from rnn_scaling.data.source import Source
from rnn_scaling.settings.config import DataOptions


class _FullSentences:
    """Gives the batches of a feed lengths that are known when tracing: cuDNN then computes as for `device`."""

    def __init__(self, source: Source, shapes: Sequence[synthetic.Shape], devices: Sequence[str]):
        self._source = source
        self._shapes = tuple(shapes)
        self._devices = tuple(devices)

    def next_batches(self, step: tf.Tensor) -> list[Batch]:
        batches = []
        for device, shape, batch in zip(self._devices, self._shapes, self._source.next_batches(step)):
            with tf.device(device):
                source_length, target_length = synthetic.full_lengths(shape)
                batches.append(batch._replace(source_length=source_length, target_length=target_length))
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
    """Random words by (seed, step, tower), from `num_parallel_calls` threads of the host."""
    pipeline_sizes = feed.pipeline_batch_sizes(batch_sizes, split)
    shape = synthetic.shapes_of(data, pipeline_sizes, src_vocab_size, tgt_vocab_size, time_major)[0]
    num_towers = len(pipeline_sizes)

    def batch_of(index: tf.Tensor) -> Batch:
        return synthetic.draw(shape, seed=seed, step=index // num_towers, tower=index % num_towers)

    with tf.device(feed.host_of(devices[0])):
        dataset = tf.data.Dataset.counter().map(batch_of, num_parallel_calls=data.num_parallel_calls)
        if split:
            dataset = feed.split(dataset, batch_sizes, time_major)
        dataset = feed.synchronous(dataset, num_threads=data.num_parallel_calls)
    source = feed.to_towers(
        dataset, devices=devices, prefetch=bool(data.prefetch_data_to_device), buffer_size=data.prefetch_buffer_size
    )
    shapes = synthetic.shapes_of(data, batch_sizes, src_vocab_size, tgt_vocab_size, time_major)
    return _FullSentences(source, shapes, devices)
