"""Exchange between the towers of several workers: totals, and sparse gradients of whatever number of rows."""

from collections.abc import Mapping, Sequence

import tensorflow as tf

from rnn_scaling.training.all_reduce.collective import CollectiveGroup
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.training.gradients import on_each

Rows = Mapping[str, tf.IndexedSlices]


class WorkerReduce:
    """The workers of an engine: their towers, and their hosts for what is small and concerns a process."""

    def __init__(self, engine: Engine) -> None:
        # NCCL takes one rank a GPU, so logical GPUs go through the hosts.
        has_gpus = engine.device_type == "GPU" and engine.num_physical == len(engine.devices)
        self.towers = CollectiveGroup(engine.devices, engine.num_towers, "nccl" if has_gpus else "auto")
        self._hosts = CollectiveGroup((engine.host,), engine.size)

    def total(self, counts: Sequence[tf.Tensor]) -> tf.Tensor:
        """The sum of a scalar over all towers of all workers, on the host; `counts`: one a tower of this worker."""
        with tf.device(self._hosts.devices[0]):
            worker_total = tf.add_n(list(counts))
        return self._hosts.reduce([worker_total])[0]

    def most_rows(self, tower_rows: Sequence[Rows]) -> dict[str, tf.Tensor]:
        """Rows of the largest tower of all, at least 1, by name: int32 scalars on the host."""
        names = sorted(tower_rows[0])
        if not names:
            return {}
        with tf.device(self._hosts.devices[0]):
            counts = tf.stack([[tf.shape(rows[name].indices)[0] for name in names] for rows in tower_rows])
            largest = tf.maximum(1, tf.reduce_max(counts, 0))
        return dict(zip(names, tf.unstack(self._hosts.reduce([largest], "Max")[0], len(names))))

    def gather(self, slices: Sequence[tf.IndexedSlices], most_rows: tf.Tensor) -> list[tf.IndexedSlices]:
        """The sum of sparse gradients, one a tower here: the rows of all towers of all workers, on each tower's device.

        A tower with fewer rows `[R, D]` than the largest adds zeros to row 0, which change nothing.
        """

        def padded(rows: tf.IndexedSlices) -> tuple[tf.Tensor, tf.Tensor]:
            missing = most_rows - tf.shape(rows.indices)[0]
            values = tf.pad(rows.values, [[0, missing], [0, 0]])
            return values, tf.pad(tf.cast(rows.indices, tf.int64), [[0, missing]])

        parts = zip(*on_each(self.towers.devices, padded, slices))
        all_values, all_indices = (self.towers.gather(part, most_rows) for part in parts)
        shape = slices[0].dense_shape
        return [tf.IndexedSlices(v, i, shape) for v, i in zip(all_values, all_indices)]
