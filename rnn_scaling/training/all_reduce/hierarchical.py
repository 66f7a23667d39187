"""TensorFlow's hierarchical copy: sum within each half of the towers first.

A training step, `links` and `verification` build it by its name in the registry.
"""

import itertools
from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.distribute import cross_device_utils

from rnn_scaling.training.gradients import Reduce, Tensors, reduce_with


def build(devices: Sequence[str], shards: int) -> Reduce:
    """Return a function that sums one tensor per tower, on each tower's device.

    It suits two groups of GPUs with fast links inside each group. Tensors are not cut;
    the devices that add them take turns. The registry's `ranks` refuse an odd number of
    towers, because TensorFlow's `aggregate_gradients_using_hierarchical_copy` would
    silently omit the last one from the sum.
    """
    turns = itertools.count()

    def sum_tensors(placed: Tensors) -> list[tf.Tensor]:
        order = _order(len(devices), next(turns))
        grads_and_vars = [[(placed[tower], None)] for tower in order]
        summed = cross_device_utils.aggregate_gradients_using_hierarchical_copy(
            [devices[tower] for tower in order], grads_and_vars
        )
        by_tower = {
            tower: summed[position][0][0] for position, tower in enumerate(order)
        }
        return [by_tower[tower] for tower in range(len(devices))]

    return reduce_with(devices, sum_tensors)


def _order(num_devices: int, turn: int) -> list[int]:
    """Return the towers in an order that begins with tower `turn`.

    TensorFlow's function adds on the first tower. Both groups keep their members.
    """
    half = num_devices // 2
    lead = turn % num_devices
    order = [(lead + i) % half for i in range(half)]
    first, second = (0, half) if lead < half else (half, 0)
    return [first + i for i in order] + [second + i for i in order]
