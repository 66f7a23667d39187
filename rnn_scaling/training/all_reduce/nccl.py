"""NVIDIA's NCCL through TensorFlow's own op: each tower on a GPU of its own."""

from collections.abc import Sequence

import tensorflow as tf
from tensorflow.python.ops import nccl_ops

from rnn_scaling.training.gradients import Reduce, place


def build(devices: Sequence[str], shards: int) -> Reduce:
    """One tensor a tower -> their sum on each tower's device, by TensorFlow's `nccl_ops.all_sum`.

    Every tower's result must be used: a step that fetches only some of them waits for ever.
    """
    types = {tf.DeviceSpec.from_string(device).device_type for device in devices}
    if types != {"GPU"} or shards != 1:
        raise ValueError(f"expected GPUs and 1 shard for nccl, got {', '.join(devices)} and {shards}")

    def reduce(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        placed = place(tensors, devices)
        return placed if len(placed) == 1 else nccl_ops.all_sum(placed)

    return reduce
