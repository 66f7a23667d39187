"""TensorFlow's collective operators, such as `CollectiveReduceV2`.

`tf.distribute` uses the same ring, which is part of the runtime.

Among the all-reduces only this one spans processes. Collective operators run in the
order of tracing: all ranks must build the same operators in the same order.
"""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.gradients import Reduce, Tensors, copy_to_devices, map_devices

# tf.distribute's strategies count both keys up from 1 and 100, so these start higher.
_group_keys = itertools.count(1_000_000)
_instance_keys = itertools.count(1_000_000)
SHAPES = 1_000_000
# A collective remembers its first shape by its key. So a collective whose shape changes
# needs one key per shape.
_shape_keys = itertools.count(10_000_000, SHAPES)


@dataclasses.dataclass(frozen=True)
class CollectiveGroup:
    """The towers, or other devices, of all processes that exchange tensors."""

    devices: tuple[str, ...]  # devices of this process
    size: int  # devices of all processes
    hint: str = "auto"  # the transport: "auto" (TensorFlow's ring) or "nccl"

    def reduce(self, tensors: Tensors, merge: str = "Add") -> list[tf.Tensor]:
        """Return the sum over all members, or the maximum, on each device.

        Args:
          tensors: One tensor per device, all of one static shape.
          merge: "Add" or "Max".
        """
        options = {
            **self._group_options(),
            "instance_key": next(_instance_keys),
            "merge_op": merge,
            "final_op": "Id",
        }

        def reduce_tensor(tensor: tf.Tensor, order: list[tf.Tensor]) -> tf.Tensor:
            return tf.raw_ops.CollectiveReduceV2(
                input=tensor, ordering_token=order, **options
            )

        return map_devices(
            self.devices, reduce_tensor, tensors, self._ordering_resources()
        )

    def gather(
        self, tensors: Tensors, shape_key: tf.Tensor | None = None
    ) -> list[tf.Tensor]:
        """Return the concatenation of all members' tensors on each device.

        They are joined along the first axis in the order of ranks.

        Args:
          tensors: One tensor per device, on that device. All members have the same
            shape.
          shape_key: int32 scalar below SHAPES that differs for each shape that the
            tensors may have, or None if their shape never changes.
        """
        options = self._group_options()
        instance_key = next(_instance_keys if shape_key is None else _shape_keys)

        def gather_tensor(tensor: tf.Tensor, order: list[tf.Tensor]) -> tf.Tensor:
            key = instance_key if shape_key is None else instance_key + shape_key
            return tf.raw_ops.CollectiveGatherV2(
                input=tensor, instance_key=key, ordering_token=order, **options
            )

        return map_devices(
            self.devices, gather_tensor, tensors, self._ordering_resources()
        )

    def _group_options(self) -> dict[str, Any]:
        return {
            "group_size": self.size,
            "group_key": _group_key(self.devices),
            "communication_hint": self.hint,
        }

    def _ordering_resources(self) -> list[list[tf.Tensor]]:
        """Return one resource per device that orders its collective operations.

        Without an order the ranks of one tf.function may wait for each other without
        end.
        """
        return [[_make_ordering_token(device).handle] for device in self.devices]


class WorkerReduce:
    """Exchange between the towers of all workers, and between the workers' hosts.

    The hosts exchange small numbers that each worker has once.
    """

    def __init__(self, engine: Engine) -> None:
        # NCCL takes one rank per GPU, so logical GPUs exchange through the hosts.
        has_gpus = engine.device_type == "GPU" and engine.num_physical == len(
            engine.devices
        )
        self.towers = CollectiveGroup(
            engine.devices, engine.num_towers, "nccl" if has_gpus else "auto"
        )
        self._hosts = CollectiveGroup((engine.host,), engine.size)

    def sum_over_workers(self, counts: Tensors) -> tf.Tensor:
        """Return the sum of a scalar over all towers of all workers, on the host.

        Args:
          counts: One scalar per tower of this worker.
        """
        with tf.device(self._hosts.devices[0]):
            worker_total = tf.add_n(list(counts))
        return self._hosts.reduce([worker_total])[0]

    def find_most_rows(
        self, tower_rows: Sequence[Mapping[str, tf.IndexedSlices]]
    ) -> dict[str, tf.Tensor]:
        """Return the largest number of rows that any tower of any worker has, by name.

        Returns:
          int32 scalars on the host, at least 1.
        """
        names = sorted(tower_rows[0])
        if not names:
            return {}
        with tf.device(self._hosts.devices[0]):
            counts = []
            for rows in tower_rows:
                counts.append([tf.shape(rows[name].indices)[0] for name in names])
            largest = tf.maximum(1, tf.reduce_max(tf.stack(counts), 0))
        return dict(
            zip(names, tf.unstack(self._hosts.reduce([largest], "Max")[0], len(names)))
        )

    def gather(
        self, slices: Sequence[tf.IndexedSlices], most_rows: tf.Tensor
    ) -> list[tf.IndexedSlices]:
        """Return the rows of all towers of all workers, on each tower's device.

        They are the sum of the sparse gradients. A tower with fewer rows `[R, D]` than
        the largest adds zeros to row 0, which do not change the sum.

        Args:
          slices: One sparse gradient per tower of this worker.
          most_rows: The largest number of rows of a tower.
        """

        def pad(rows: tf.IndexedSlices) -> tuple[tf.Tensor, tf.Tensor]:
            num_missing = most_rows - tf.shape(rows.indices)[0]
            values = tf.pad(rows.values, [[0, num_missing], [0, 0]])
            return values, tf.pad(tf.cast(rows.indices, tf.int64), [[0, num_missing]])

        values, indices = zip(*map_devices(self.towers.devices, pad, slices))
        all_values = self.towers.gather(values, most_rows)
        all_indices = self.towers.gather(indices, most_rows)
        shape = slices[0].dense_shape
        return [tf.IndexedSlices(v, i, shape) for v, i in zip(all_values, all_indices)]


def build(
    devices: Sequence[str], shards: int, group: CollectiveGroup | None = None
) -> Reduce:
    """Return a function that sums one tensor per tower, on each tower's device.

    Keys are unique in the process: each list of devices is a group, and each traced
    reduction is an instance. Processes that trace the same steps use the same keys.

    Args:
      devices: The devices of the towers.
      shards: Ignored.
      group: The towers of all processes, or None for this process only.
    """
    members = group or CollectiveGroup(tuple(devices), len(devices))

    def reduce(tensors: Tensors) -> list[tf.Tensor]:
        placed = copy_to_devices(tensors, devices)
        return placed if members.size == 1 else members.reduce(placed)

    return reduce


@functools.cache
def _group_key(devices: tuple[str, ...]) -> int:
    return next(_group_keys)


@functools.cache
def _make_ordering_token(device: str) -> tf.Variable:
    # Created outside of the tf.function that is traced now. A tf.Variable would fail
    # because later traces must not create variables.

    with tf.init_scope(), tf.device(device):
        return resource_variable_ops.ResourceVariable(
            0.0, trainable=False, name="collective_order"
        )
