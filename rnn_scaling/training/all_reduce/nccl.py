"""NVIDIA's NCCL through TensorFlow's operator, with one GPU per tower.

A training step, `links` and `verification` build it by its name in the registry.
"""

from collections.abc import Sequence

from tensorflow.python.ops import nccl_ops

from rnn_scaling.training.gradients import Reduce, reduce_with


def build(devices: Sequence[str], shards: int) -> Reduce:
    """Return a function that sums one tensor per tower, on each tower's device.

    Every tower's result must be used: a step that fetches only some results never ends.
    """
    return reduce_with(devices, nccl_ops.all_sum)
