"""Additions spread over the towers' GPUs, like parameter servers.

A training step, `links` and `verification` build it by its name in the registry.
`pscpu` calls `build` with other devices.
"""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.distribute.v1 import all_reduce as tf_all_reduce

from rnn_scaling.training.gradients import Reduce, Tensors, copy_to_devices, reduce_with


def build(
    devices: Sequence[str], shards: int, gather_devices: Sequence[str] = ()
) -> Reduce:
    """Return a function that sums one tensor per tower, on each tower's device.

    Each piece is one AddN on the gather device that has received the fewest bytes so
    far. So even tensors that are not cut (`shards` = 1) are spread over the devices.

    Args:
      devices: The devices of the towers.
      shards: Pieces of each tensor.
      gather_devices: Devices that add the pieces; by default the towers' devices.

    Source: TensorFlow's `build_shuffle_all_reduce`.
    """
    gather_devices = gather_devices or devices
    device_bytes = [0] * len(gather_devices)

    def choose_device(num_bytes: int) -> str:
        index = device_bytes.index(min(device_bytes))
        device_bytes[index] += max(1, num_bytes)
        return gather_devices[index]

    def sum_tensors(placed: Tensors) -> list[tf.Tensor]:
        shard_bytes = placed[0].shape.num_elements() * placed[0].dtype.size // shards
        gather = [choose_device(shard_bytes) for _ in range(shards)]
        return copy_to_devices(
            tf_all_reduce.build_shuffle_all_reduce(placed, gather, tf.add_n), devices
        )

    return reduce_with(devices, sum_tensors)
