"""TensorFlow's collective ops, `CollectiveReduceV2`: the ring that `tf.distribute` uses, in the runtime."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from rnn_scaling.training.gradients import place

# tf.distribute's strategies count both keys up from 1 and 100: start where they will not get to.
_group_keys = itertools.count(1_000_000)
_instance_keys = itertools.count(1_000_000)


def build(devices: Sequence[str], shards: int) -> Callable[[Sequence[tf.Tensor]], list[tf.Tensor]]:
    """One tensor a tower -> their sum on each tower's device.

    Keys are unique in the process: each list of devices is a group, each traced reduction an instance.

    Args:
      devices: tower i's device.
      shards: 1; the ring cuts tensors itself.

    Raises:
      ValueError: if shards is not 1.
    """
    if shards != 1:
        raise ValueError(f"expected 1 shard for collective, got {shards}")
    group_key = _group_key(tuple(devices))
    tokens = [_token(device) for device in devices]

    def reduce(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        placed = place(tensors, devices)
        if len(placed) == 1:
            return placed
        instance_key = next(_instance_keys)
        return [
            _reduce_one(tensor, token, device, len(devices), group_key, instance_key)
            for tensor, token, device in zip(placed, tokens, devices, strict=True)
        ]

    return reduce


@functools.cache
def _group_key(devices: tuple[str, ...]) -> int:
    return next(_group_keys)


@functools.cache
def _token(device: str) -> tf.Variable:
    # Outside of the tf.function that is being traced, and not as tf.Variable, whose later traces may make none.
    with tf.init_scope(), tf.device(device):
        return resource_variable_ops.ResourceVariable(0.0, trainable=False, name="collective_order")


def _reduce_one(
    tensor: tf.Tensor, token: tf.Variable, device: str, group_size: int, group_key: int, instance_key: int
) -> tf.Tensor:
    with tf.device(device):
        return tf.raw_ops.CollectiveReduceV2(
            input=tensor,
            group_size=group_size,
            group_key=group_key,
            instance_key=instance_key,
            # Without a resource of each device to order them by, several ranks in one tf.function wait for ever.
            ordering_token=[token.handle],
            merge_op="Add",
            final_op="Id",
        )
