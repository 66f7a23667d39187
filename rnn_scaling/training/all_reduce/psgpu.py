"""The additions on the towers' GPUs, spread over them: shards of the tensors meet there, as on parameter servers."""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.distribute.v1 import all_reduce as tf_all_reduce

from rnn_scaling.training.gradients import Reduce, Tensors, place, reduce_with


def build(
    devices: Sequence[str], shards: int, gather_devices: Sequence[str] = ()
) -> Reduce:
    """One tensor a tower -> their sum on each tower's device, added in `shards` pieces on `gather_devices`.

    Each piece is one AddN on the gather device that has been given the fewest bytes so far, so that whole tensors
    (`shards` = 1) spread over the devices too. By default they are the towers'.

    Source: TensorFlow's `build_shuffle_all_reduce`.
    """
    gather_devices = gather_devices or devices
    given_bytes = [0] * len(gather_devices)

    def next_device(num_bytes: int) -> str:
        index = given_bytes.index(min(given_bytes))
        given_bytes[index] += max(1, num_bytes)
        return gather_devices[index]

    def add(placed: Tensors) -> list[tf.Tensor]:
        shard_bytes = placed[0].shape.num_elements() * placed[0].dtype.size // shards
        gather = [next_device(shard_bytes) for _ in range(shards)]
        return place(
            tf_all_reduce.build_shuffle_all_reduce(placed, gather, tf.add_n), devices
        )

    return reduce_with(devices, add)
