"""Data source `host`: random batches made by the host's input pipeline, which then go the way of files to the devices.

The batches are those of the source `device`, and as much is known of them when tracing (sentences are full), so that a
comparison of the two shows the cost of the way alone. With a global batch that is split (strong scaling) the samples
are others, of the same shapes.
"""

import functools
from typing import Any

import tensorflow as tf

from rnn_scaling.data import device, pipeline
from rnn_scaling.data.source import Feed, Source


def build(feed: Feed) -> Source:
    """Random batches by (seed, step, tower), from `num_parallel_calls` threads of the host."""
    batch_size = feed.pipeline_batch_sizes[0]
    # A global batch is drawn whole, by every worker, before it is split; of the others each draws its own alone.
    num_towers, first = (1, 0) if feed.split else (len(feed.devices), feed.first_tower)

    @pipeline.without_rewriting
    def batch_of(index: tf.Tensor) -> Any:
        return device.draw(
            feed, index // num_towers, first + index % num_towers, batch_size
        )

    with tf.device(pipeline.host_device(feed.devices[0])):
        dataset = tf.data.Dataset.counter().map(
            batch_of, num_parallel_calls=feed.options.num_parallel_calls
        )
    source = pipeline.distribute(dataset, feed)
    if feed.options.random_lengths:
        return source
    # What is known when tracing of the batches that `device` draws, such as full lengths.
    known = functools.partial(feed.layout.as_drawn, lengths=feed.max_lengths)
    return Source(
        lambda step: pipeline.map_devices(
            feed.devices, known, source.next_batches(step), feed.own_batch_sizes
        ),
        keep=source,
    )
