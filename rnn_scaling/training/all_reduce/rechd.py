"""TensorFlow's recursive halving and doubling: 2 log2(n) rounds between pairs.

A training step, `links` and `verification` build it by its name in the registry.
"""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.distribute.v1 import all_reduce as tf_all_reduce

from rnn_scaling.training.gradients import Reduce, Tensors, map_devices, reduce_with


def build(devices: Sequence[str], shards: int) -> Reduce:
    """Return a function that sums one tensor per tower, on each tower's device.

    The pieces of the algorithm are n-ths of the tensor.

    Source: TensorFlow's `build_recursive_hd_all_reduce`, after Thakur, Rabenseifner and
    Gropp, 2005.
    """

    def sum_tensors(placed: Tensors) -> list[tf.Tensor]:
        shape = placed[0].shape
        size = shape.num_elements()
        flat = map_devices(devices, lambda tensor: tf.reshape(tensor, [-1]), placed)
        # Each of the log2(n) halvings needs an even number of elements.
        padding = -size % len(devices)
        if padding:
            flat = map_devices(
                devices, lambda tensor: tf.pad(tensor, [[0, padding]]), flat
            )
        summed = tf_all_reduce.build_recursive_hd_all_reduce(flat, tf.add)
        return map_devices(
            devices,
            lambda tensor: tf.reshape(tensor[:size] if padding else tensor, shape),
            summed,
        )

    return reduce_with(devices, sum_tensors)
