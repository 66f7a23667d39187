"""TensorFlow's recursive halving and doubling: 2 log2(n) rounds between pairs of towers."""

from collections.abc import Callable, Sequence

import tensorflow as tf
from tensorflow.python.distribute.v1 import all_reduce as tf_all_reduce

from rnn_scaling.training.gradients import place


def build(devices: Sequence[str], shards: int) -> Callable[[Sequence[tf.Tensor]], list[tf.Tensor]]:
    """One tensor a tower -> their sum on each tower's device; the algorithm's own pieces are n-ths of the tensor.

    Source: TensorFlow's `build_recursive_hd_all_reduce`, after Thakur, Rabenseifner and Gropp, 2005.
    """
    if len(devices) & (len(devices) - 1) or shards != 1:
        raise ValueError(f"expected a power of two devices and 1 shard for rechd, got {len(devices)} and {shards}")

    def reduce(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        placed = place(tensors, devices)
        if len(placed) == 1:
            return placed
        size = placed[0].shape.num_elements()
        padding = -size % len(devices)  # each of the log2(n) halvings must come out even
        flat = [_flat(tensor, padding, device) for tensor, device in zip(placed, devices, strict=True)]
        summed = tf_all_reduce.build_recursive_hd_all_reduce(flat, tf.add)
        return [_shaped(s, size, tensors[0].shape, device) for s, device in zip(summed, devices, strict=True)]

    return reduce


def _flat(tensor: tf.Tensor, padding: int, device: str) -> tf.Tensor:
    with tf.device(device):
        flat = tf.reshape(tensor, [-1])
        return tf.pad(flat, [[0, padding]]) if padding else flat


def _shaped(flat: tf.Tensor, size: int, shape: tf.TensorShape, device: str) -> tf.Tensor:
    with tf.device(device):
        return tf.reshape(flat[:size] if flat.shape[0] != size else flat, shape)
