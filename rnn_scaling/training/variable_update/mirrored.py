"""mirrored: tf.distribute.MirroredStrategy, the way a TensorFlow user trains on several devices of a machine.

multi_worker_mirrored: MultiWorkerMirroredStrategy, the same for several machines; the engine has made it.
"""

import itertools
from collections.abc import Callable, Sequence

import tensorflow as tf

from rnn_scaling.training.replica import Gradients, Replicas, Setup, Specs, T, Values

_key_bases = itertools.count(
    2_000_000, 1_000
)  # apart from those of all_reduce/collective.py


class _Strategy(tf.distribute.MirroredStrategy):
    """Has collective keys of its own, since TensorFlow remembers the shapes of each key: a second strategy of a process
    would fail where its tensors have others.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self._collective_key_base = next(_key_bases)
        super().__init__(devices=list(devices))


class Mirrored(Replicas):
    """Mirrored variables; towers run in `strategy.run`, gradients meet in the replica context's all_reduce."""

    def __init__(self, setup: Setup) -> None:
        engine = setup.engine
        self._strategy = engine.strategy or _Strategy(engine.devices)
        self._first_tower = engine.first_tower
        self._has_peers = engine.size > 1
        super().__init__(setup)

    def _create(self, specs: Specs, values: Values) -> list[dict[str, tf.Variable]]:
        with self._strategy.scope():
            mirrored = {
                spec.name: tf.Variable(values[spec.name], name=spec.name)
                for spec in specs
            }
        self._mirrored = mirrored  # the strategy's own objects must outlive their parts
        parts = {
            name: self._strategy.experimental_local_results(v)
            for name, v in mirrored.items()
        }
        return [
            {name: parts[name][i] for name in parts} for i in range(len(self.devices))
        ]

    def total_items(self, items: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        if not self._has_peers:
            return super().total_items(items)

        def total(index: int) -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            return context.all_reduce(
                tf.distribute.ReduceOp.SUM, tf.identity(items[index])
            )

        return self.run(total)

    def run(self, tower: Callable[[int], T]) -> list[T]:
        results: dict[int, T] = {}

        def replica() -> tf.Tensor:
            index = self._index()
            results[index] = tower(index)
            return tf.zeros([])

        self._strategy.run(replica)
        return [results[index] for index in range(len(self.devices))]

    def apply(self, tower_gradients: Sequence[Gradients]) -> None:
        names = list(tower_gradients[0])

        def replica() -> tf.Tensor:
            index = self._index()
            context = tf.distribute.get_replica_context()
            with tf.name_scope("exchange/"):
                local = [tower_gradients[index][name] for name in names]
                summed = context.all_reduce(tf.distribute.ReduceOp.SUM, local)
            with tf.name_scope(f"update/tower_{index}/"):
                self.updaters[index].apply(dict(zip(names, summed)))
            return tf.zeros([])

        self._strategy.run(replica)

    def _index(self) -> int:
        """Which of this process's towers is being built."""
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        return int(tf.get_static_value(number)) - self._first_tower


build = Mirrored
