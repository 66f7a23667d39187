"""Run a data source inside one tf.function, like the training step."""

import numpy as np

from rnn_scaling.config import registry
from rnn_scaling.config.run_options import DataOptions
from rnn_scaling.data.source import Feed


def build(
    name,
    devices,
    layout,
    *,
    prefetch=False,
    batch_size=3,
    batch_sizes=(),
    num_towers=0,
    seed=1,
    first_tower=0,
    first_step=0,
    **options,
):
    """Build a data source for towers on devices.

    Args:
      name: Name of the source.
      devices: One device per tower of this worker.
      layout: The layout of batches.
      prefetch: Whether batches are prefetched to the devices.
      batch_size: Samples per tower under weak scaling.
      batch_sizes: Samples of each tower under strong scaling.
      num_towers: Towers of all workers; 0 for those of this worker.
      seed: The seed of the run.
      first_tower: Number of this worker's first tower.
      first_step: The step from which a run goes on.
      options: Other data options.
    """
    data = DataOptions(data_source=name, prefetch_data_to_device=prefetch, **options)
    sizes = batch_sizes or (batch_size,) * (num_towers or len(devices))
    places = (seed, tuple(devices), first_tower, first_step)
    feed = Feed(data, layout, tuple(sizes), bool(batch_sizes), *places)
    return registry.load(registry.DATA_SOURCES, name).build(feed)


def run_steps(tf, source, num_steps, first_step=0):
    """Return `[step][tower]` batches of NumPy arrays."""

    @tf.function(autograph=False)
    def step_function(step):
        return source.next_batches(step)

    steps = range(first_step, first_step + num_steps)
    return [
        [
            type(batch)(*(tensor.numpy() for tensor in batch))
            for batch in step_function(tf.constant(step, tf.int64))
        ]
        for step in steps
    ]


def flat(steps):
    """Return all batches in one list."""
    return [batch for step in steps for batch in step]


def assert_equal(left, right):
    """Assert that all batches are equal."""
    assert len(left) == len(right)
    for left_step, right_step in zip(left, right):
        assert len(left_step) == len(right_step)
        for left_batch, right_batch in zip(left_step, right_step):
            for name, a, b in zip(
                left_batch._fields, left_batch, right_batch, strict=True
            ):
                np.testing.assert_array_equal(a, b, err_msg=name)


def list_ids(batches):
    """Return one value per batch that identifies it."""
    return [
        b"".join(np.ascontiguousarray(array).tobytes() for array in batch)
        for batch in batches
    ]
