"""Data source `host`: random batches that the host's input pipeline makes.

They reach the devices like the batches of files. The batches equal the batches of the
source `device`, and tracing has the same static shapes and lengths (all sentences are
full). So comparing the two sources shows the cost of the pipeline and the copies. If a
global batch is split (strong scaling), the samples differ, but their shapes are the
same.

`config.registry` names this module; the trainer calls `build`.
"""

import functools
from typing import Any

import tensorflow as tf

from rnn_scaling.data import device, pipeline
from rnn_scaling.data.source import Feed, Source


def build(feed: Feed) -> Source:
    """Return random batches that `num_parallel_calls` threads of the host draw."""
    batch_size = feed.pipeline_batch_sizes[0]
    # Every worker draws the full global batch if it is split later. Otherwise each
    # worker draws only its towers' batches.
    num_towers = 1 if feed.split else len(feed.devices)
    first_tower = 0 if feed.split else feed.first_tower

    @pipeline.without_rewriting
    def draw_batch(index: tf.Tensor) -> Any:
        tower = first_tower + index % num_towers
        return device.draw(feed, index // num_towers, tower, batch_size)

    with tf.device(pipeline.name_host_device(feed.devices[0])):
        dataset = tf.data.Dataset.counter().map(
            draw_batch, num_parallel_calls=feed.options.num_parallel_calls
        )
    source = pipeline.distribute(dataset, feed)
    if feed.options.random_lengths:
        return source
    # Full lengths are constants while tracing, like in the batches of `device`.
    set_static_lengths = functools.partial(
        feed.layout.set_static_lengths, lengths=feed.max_lengths
    )
    return Source(
        lambda step: pipeline.map_devices(
            feed.devices,
            set_static_lengths,
            source.next_batches(step),
            feed.own_batch_sizes,
        ),
        keep=source,
    )
