"""TensorFlow's collective ops, `CollectiveReduceV2`: the ring that `tf.distribute` uses, in the runtime."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from rnn_scaling.training.gradients import place

# tf.distribute's strategies count both keys up from 1 and 100: start where they will not get to.
_group_keys = itertools.count(1_000_000)
_instance_keys = itertools.count(1_000_000)
SHAPES = 1_000_000
# A collective remembers its first shape by its key, so each shape of one whose shape changes gets a key of its own.
_shape_keys = itertools.count(10_000_000, SHAPES)


@dataclasses.dataclass(frozen=True)
class CollectiveGroup:
    """The towers, or other devices, of all processes that exchange tensors.

    Attributes:
      devices: of this process.
      size: how many there are in all processes.
      hint: what moves the tensors: "auto" (a ring of TensorFlow's own) or "nccl".
    """

    devices: tuple[str, ...]
    size: int
    hint: str = "auto"

    def reduce(self, tensors: Sequence[tf.Tensor], merge: str = "Add") -> list[tf.Tensor]:
        """The sum, or with `merge` "Max" the maximum, over all members, on each device.

        Args:
          tensors: one a device, on it; of all members of one static shape.
        """
        instance_key = next(_instance_keys)
        results = []
        for tensor, member in zip(tensors, self._members(), strict=True):
            with tf.device(member.device):
                results.append(
                    tf.raw_ops.CollectiveReduceV2(
                        input=tensor, instance_key=instance_key, merge_op=merge, final_op="Id", **member.options
                    )
                )
        return results

    def gather(self, tensors: Sequence[tf.Tensor], shape_key: tf.Tensor | None = None) -> list[tf.Tensor]:
        """All members' tensors, joined along the first axis in the order of ranks, on each device.

        Args:
          tensors: one a device, on it; of all members of one shape.
          shape_key: int32 scalar below SHAPES, another for each shape that they may have; None: they have but one.
        """
        instance_key = next(_shape_keys) if shape_key is not None else next(_instance_keys)
        results = []
        for tensor, member in zip(tensors, self._members(), strict=True):
            with tf.device(member.device):
                key = instance_key if shape_key is None else instance_key + shape_key
                results.append(tf.raw_ops.CollectiveGatherV2(input=tensor, instance_key=key, **member.options))
        return results

    def _members(self) -> list[_Member]:
        key = _group_key(self.devices)
        # Without a resource of each device to order them by, several ranks in one tf.function wait for ever.
        options = {"group_size": self.size, "group_key": key, "communication_hint": self.hint}
        return [_Member(device, {**options, "ordering_token": [_token(device).handle]}) for device in self.devices]


@dataclasses.dataclass(frozen=True)
class _Member:
    """One of this process's devices in a group, and the group's arguments of an operation there."""

    device: str
    options: dict[str, Any]


def build(
    devices: Sequence[str], shards: int, group: CollectiveGroup | None = None
) -> Callable[[Sequence[tf.Tensor]], list[tf.Tensor]]:
    """One tensor a tower -> their sum on each tower's device.

    Keys are unique in the process: each list of devices is a group, each traced reduction an instance. Processes that
    trace the same steps count them alike.

    Args:
      group: with the towers of other processes; None: there are none.
    """
    if shards != 1:
        raise ValueError(f"expected 1 shard for collective, got {shards}")
    members = group or CollectiveGroup(tuple(devices), len(devices))

    def reduce(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        placed = place(tensors, devices)
        return placed if members.size == 1 else members.reduce(placed)

    return reduce


@functools.cache
def _group_key(devices: tuple[str, ...]) -> int:
    return next(_group_keys)


@functools.cache
def _token(device: str) -> tf.Variable:
    # Outside of the tf.function that is being traced, and not as tf.Variable, whose later traces may make none.
    with tf.init_scope(), tf.device(device):
        return resource_variable_ops.ResourceVariable(0.0, trainable=False, name="collective_order")
