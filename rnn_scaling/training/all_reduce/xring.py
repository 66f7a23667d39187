"""TensorFlow's ring all-reduce, drawn into the graph: n - 1 additions and n - 1 copies of an n-th each."""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.distribute.v1 import all_reduce as tf_all_reduce

from rnn_scaling.training.gradients import Reduce, Tensors, place, reduce_with


def build(devices: Sequence[str], shards: int) -> Reduce:
    """One tensor a tower -> their sum on each tower's device, by TensorFlow's `build_ring_all_reduce`.

    `shards` rings run at once, each in a rotated order over its share of the tensor; at most one a device.
    """
    order = list(range(len(devices)))

    def add(placed: Tensors) -> list[tf.Tensor]:
        return place(
            tf_all_reduce.build_ring_all_reduce(placed, 1, shards, order, tf.add),
            devices,
        )

    return reduce_with(devices, add)
