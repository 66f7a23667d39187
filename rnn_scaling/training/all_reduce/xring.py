"""TensorFlow's ring all-reduce as graph operators: n - 1 additions and n - 1 copies.

Each operator handles an n-th of the tensor.

A training step, `links` and `verification` build it by its name in the registry.
"""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.distribute.v1 import all_reduce as tf_all_reduce

from rnn_scaling.training.gradients import Reduce, Tensors, copy_to_devices, reduce_with


def build(devices: Sequence[str], shards: int) -> Reduce:
    """Return a function that sums one tensor per tower, on each tower's device.

    `shards` rings, at most one per device, run at the same time. Each has its share of
    the tensor and a rotated order of the devices.
    """
    order = list(range(len(devices)))

    def sum_tensors(placed: Tensors) -> list[tf.Tensor]:
        return copy_to_devices(
            tf_all_reduce.build_ring_all_reduce(placed, 1, shards, order, tf.add),
            devices,
        )

    return reduce_with(devices, sum_tensors)
