"""horovod: as replicated, a copy of the variables on each device; the sums over workers are Horovod's."""

from collections.abc import Sequence

import tensorflow as tf

from rnn_scaling.training import gradients
from rnn_scaling.training.engines import horovod
from rnn_scaling.training.replica import Gradients, Replicas, Setup


class Horovod(Replicas):
    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._host = setup.engine.host
        self._hvd = horovod.load()

    def total_items(self, items: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return [self._over_workers("items", tf.add_n(list(items)))] * len(items)

    def apply(self, tower_gradients: Sequence[Gradients]) -> None:
        with tf.name_scope("exchange/"), tf.device(self._host):
            # An operation each, last first, as backpropagation yields them: Horovod joins those that are ready.
            names = reversed(list(tower_gradients[0]))
            summed = {
                name: self._sum(name, [grads[name] for grads in tower_gradients])
                for name in names
            }
        super().apply([summed] * len(self.updaters))

    def _sum(
        self, name: str, grads: Sequence[gradients.Gradient]
    ) -> gradients.Gradient:
        """The sum over the towers of all workers: dense, or the rows of all."""
        if name not in self.gathered:
            grads = [gradients.densify(gradient) for gradient in grads]
        return self._over_workers(name, gradients.add(grads))

    def _over_workers(
        self, name: str, gradient: gradients.Gradient
    ) -> gradients.Gradient:
        return self._hvd.allreduce(gradient, op=self._hvd.Sum, name=name)


build = Horovod
