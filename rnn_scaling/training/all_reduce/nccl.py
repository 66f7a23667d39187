"""NVIDIA's NCCL through TensorFlow's own op: each tower on a GPU of its own."""

from collections.abc import Sequence

from tensorflow.python.ops import nccl_ops

from rnn_scaling.training.gradients import Reduce, reduce_with


def build(devices: Sequence[str], shards: int) -> Reduce:
    """One tensor a tower -> their sum on each tower's device, by TensorFlow's `nccl_ops.all_sum`.

    Every tower's result must be used: a step that fetches only some of them waits for ever.
    """
    return reduce_with(devices, nccl_ops.all_sum)
