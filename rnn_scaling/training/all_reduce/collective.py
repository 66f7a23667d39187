"""TensorFlow's collective ops, `CollectiveReduceV2`: the ring that `tf.distribute` uses, in the runtime."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.python.ops import resource_variable_ops

from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.gradients import Reduce, Tensors, map_devices, place

# tf.distribute's strategies count both keys up from 1 and 100: start where they will not get to.
_group_keys = itertools.count(1_000_000)
_instance_keys = itertools.count(1_000_000)
SHAPES = 1_000_000
# A collective remembers its first shape by its key, so each shape of one whose shape changes gets a key of its own.
_shape_keys = itertools.count(10_000_000, SHAPES)


@dataclasses.dataclass(frozen=True)
class CollectiveGroup:
    """The towers, or other devices, of all processes that exchange tensors."""

    devices: tuple[str, ...]  # of this process
    size: int  # how many there are in all processes
    hint: str = (
        "auto"  # what moves the tensors: "auto" (a ring of TensorFlow's own) or "nccl"
    )

    def reduce(self, tensors: Tensors, merge: str = "Add") -> list[tf.Tensor]:
        """The sum, or with `merge` "Max" the maximum, over all members' tensors of one static shape, on each device."""
        options = {
            **self._options(),
            "instance_key": next(_instance_keys),
            "merge_op": merge,
            "final_op": "Id",
        }

        def reduced(tensor: tf.Tensor, order: list[tf.Tensor]) -> tf.Tensor:
            return tf.raw_ops.CollectiveReduceV2(
                input=tensor, ordering_token=order, **options
            )

        return map_devices(self.devices, reduced, tensors, self._orders())

    def gather(
        self, tensors: Tensors, shape_key: tf.Tensor | None = None
    ) -> list[tf.Tensor]:
        """All members' tensors, joined along the first axis in the order of ranks, on each device.

        Args:
          tensors: one a device, on it; of all members of one shape.
          shape_key: int32 scalar below SHAPES, another for each shape that they may have; None: they have but one.
        """
        options = self._options()
        instance_key = next(_instance_keys if shape_key is None else _shape_keys)

        def gathered(tensor: tf.Tensor, order: list[tf.Tensor]) -> tf.Tensor:
            key = instance_key if shape_key is None else instance_key + shape_key
            return tf.raw_ops.CollectiveGatherV2(
                input=tensor, instance_key=key, ordering_token=order, **options
            )

        return map_devices(self.devices, gathered, tensors, self._orders())

    def _options(self) -> dict[str, Any]:
        return {
            "group_size": self.size,
            "group_key": _group_key(self.devices),
            "communication_hint": self.hint,
        }

    def _orders(self) -> list[list[tf.Tensor]]:
        """A resource of each device to order operations by, without which ranks of one tf.function wait for ever."""
        return [[_token(device).handle] for device in self.devices]


class WorkerReduce:
    """The workers of an engine: their towers, and their hosts for what is small and concerns a process."""

    def __init__(self, engine: Engine) -> None:
        # NCCL takes one rank a GPU, so logical GPUs go through the hosts.
        has_gpus = engine.device_type == "GPU" and engine.num_physical == len(
            engine.devices
        )
        self.towers = CollectiveGroup(
            engine.devices, engine.num_towers, "nccl" if has_gpus else "auto"
        )
        self._hosts = CollectiveGroup((engine.host,), engine.size)

    def total(self, counts: Tensors) -> tf.Tensor:
        """The sum of a scalar over all towers of all workers, on the host; `counts`: one a tower of this worker."""
        with tf.device(self._hosts.devices[0]):
            worker_total = tf.add_n(list(counts))
        return self._hosts.reduce([worker_total])[0]

    def most_rows(
        self, tower_rows: Sequence[Mapping[str, tf.IndexedSlices]]
    ) -> dict[str, tf.Tensor]:
        """Rows of the largest tower of all, at least 1, by name: int32 scalars on the host."""
        names = sorted(tower_rows[0])
        if not names:
            return {}
        with tf.device(self._hosts.devices[0]):
            counts = tf.stack(
                [
                    [tf.shape(rows[name].indices)[0] for name in names]
                    for rows in tower_rows
                ]
            )
            largest = tf.maximum(1, tf.reduce_max(counts, 0))
        return dict(
            zip(names, tf.unstack(self._hosts.reduce([largest], "Max")[0], len(names)))
        )

    def gather(
        self, slices: Sequence[tf.IndexedSlices], most_rows: tf.Tensor
    ) -> list[tf.IndexedSlices]:
        """The sum of sparse gradients, one a tower here: the rows of all towers of all workers, on each tower's device.

        A tower with fewer rows `[R, D]` than the largest adds zeros to row 0, which change nothing.
        """

        def padded(rows: tf.IndexedSlices) -> tuple[tf.Tensor, tf.Tensor]:
            missing = most_rows - tf.shape(rows.indices)[0]
            values = tf.pad(rows.values, [[0, missing], [0, 0]])
            return values, tf.pad(tf.cast(rows.indices, tf.int64), [[0, missing]])

        parts = zip(*map_devices(self.towers.devices, padded, slices))
        all_values, all_indices = (
            self.towers.gather(part, most_rows) for part in parts
        )
        shape = slices[0].dense_shape
        return [tf.IndexedSlices(v, i, shape) for v, i in zip(all_values, all_indices)]


def build(
    devices: Sequence[str], shards: int, group: CollectiveGroup | None = None
) -> Reduce:
    """One tensor a tower -> their sum on each tower's device; `group`: with the towers of other processes.

    Keys are unique in the process: each list of devices is a group, each traced reduction an instance. Processes that
    trace the same steps count them alike.
    """
    members = group or CollectiveGroup(tuple(devices), len(devices))

    def reduce(tensors: Tensors) -> list[tf.Tensor]:
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
        return resource_variable_ops.ResourceVariable(
            0.0, trainable=False, name="collective_order"
        )
