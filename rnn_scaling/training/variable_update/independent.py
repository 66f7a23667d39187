"""independent: a copy of the variables on each device, nothing exchanged: the ceiling of what scaling can reach."""

from collections.abc import Sequence

import tensorflow as tf

from rnn_scaling.training.replica import Gradients, Replicas


class Independent(Replicas):
    synchronous = False

    def total_items(self, items: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return list(items)

    def apply(self, tower_gradients: Sequence[Gradients]) -> None:
        for index, grads in enumerate(tower_gradients):
            with tf.name_scope(f"update/tower_{index}/"):
                self.updaters[index].apply(grads)


build = Independent
