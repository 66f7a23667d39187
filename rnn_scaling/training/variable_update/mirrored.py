"""mirrored and multi_worker_mirrored: the strategies of tf.distribute.

Users of TensorFlow train with MirroredStrategy on several devices of a machine. On
several machines they use MultiWorkerMirroredStrategy, which the engine creates.

`benchmark` builds the mode that --variable_update names; nothing else depends on it.
"""

import itertools
from collections.abc import Callable, Sequence

import tensorflow as tf

from rnn_scaling.training.replica import Gradients, Replicas, Setup, Specs, T, Values

# The first collective key of each strategy. all_reduce/collective.py uses other keys.
_key_bases = itertools.count(2_000_000, 1_000)


class _Strategy(tf.distribute.MirroredStrategy):
    """A strategy with collective keys that no other strategy of the process has.

    TensorFlow remembers the shape of each key, so a second strategy with the same keys
    would fail if its tensors had other shapes.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        self._collective_key_base = next(_key_bases)
        super().__init__(devices=list(devices))


class Mirrored(Replicas):
    """Mirrored variables whose gradients tf.distribute sums in the replica context.

    The towers run in `strategy.run`.
    """

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
        self._mirrored = mirrored  # The strategy's objects must outlive the copies.
        copies: list[dict[str, tf.Variable]] = [{} for _ in self.devices]
        for name, variable in mirrored.items():
            local_results = self._strategy.experimental_local_results(variable)
            for copy, local_variable in zip(copies, local_results):
                copy[name] = local_variable
        return copies

    def count_total_items(self, items: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        if not self._has_peers:
            return super().count_total_items(items)

        def sum_items(index: int) -> tf.Tensor:
            context = tf.distribute.get_replica_context()
            return context.all_reduce(
                tf.distribute.ReduceOp.SUM, tf.identity(items[index])
            )

        return self.run(sum_items)

    def run(self, tower: Callable[[int], T]) -> list[T]:
        results: dict[int, T] = {}

        def run_tower() -> tf.Tensor:
            index = self._find_current_tower()
            results[index] = tower(index)
            return tf.zeros([])

        self._strategy.run(run_tower)
        return [results[index] for index in range(len(self.devices))]

    def apply(self, tower_gradients: Sequence[Gradients]) -> None:
        names = list(tower_gradients[0])

        def update_tower() -> tf.Tensor:
            index = self._find_current_tower()
            context = tf.distribute.get_replica_context()
            with tf.name_scope("exchange/"):
                local = [tower_gradients[index][name] for name in names]
                summed = context.all_reduce(tf.distribute.ReduceOp.SUM, local)
            with tf.name_scope(f"update/tower_{index}/"):
                self.updaters[index].apply(dict(zip(names, summed)))
            return tf.zeros([])

        self._strategy.run(update_tower)

    def _find_current_tower(self) -> int:
        """Return the number of this process's tower that is built now."""
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        return int(tf.get_static_value(number)) - self._first_tower


build = Mirrored
