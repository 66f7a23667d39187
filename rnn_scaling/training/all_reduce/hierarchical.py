"""TensorFlow's hierarchical copy: two halves of the towers add up, then the halves' sums meet and go back."""

import itertools
from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.distribute import cross_device_utils

from rnn_scaling.training.gradients import Reduce, Tensors, reduce_with


def build(devices: Sequence[str], shards: int) -> Reduce:
    """One tensor a tower -> their sum on each tower's device; made for two groups of GPUs with fast links inside.

    Whole tensors are added, on devices that take turns. TensorFlow's `aggregate_gradients_using_hierarchical_copy`
    would silently leave the last of an odd number of towers out of the sum: the registry's `ranks` refuse these.
    """
    turns = itertools.count()

    def add(placed: Tensors) -> list[tf.Tensor]:
        order = _order(len(devices), next(turns))
        grads_and_vars = [[(placed[tower], None)] for tower in order]
        summed = cross_device_utils.aggregate_gradients_using_hierarchical_copy(
            [devices[tower] for tower in order], grads_and_vars
        )
        by_tower = {
            tower: summed[position][0][0] for position, tower in enumerate(order)
        }
        return [by_tower[tower] for tower in range(len(devices))]

    return reduce_with(devices, add)


def _order(num_devices: int, turn: int) -> list[int]:
    """The towers, so that TensorFlow's function, which adds on the first, adds on tower `turn`; the groups stay."""
    half = num_devices // 2
    lead = turn % num_devices
    order = [(lead + i) % half for i in range(half)]
    first, second = (0, half) if lead < half else (half, 0)
    return [first + i for i in order] + [second + i for i in order]
