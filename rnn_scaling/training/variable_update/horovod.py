"""horovod: a copy of the variables on each device; Horovod sums over the workers.

`benchmark` builds the mode that --variable_update names; nothing else depends on it.
"""

from collections.abc import Sequence

import tensorflow as tf

from rnn_scaling.training import gradients
from rnn_scaling.training.engines import horovod
from rnn_scaling.training.replica import Gradients, Replicas, Setup


class Horovod(Replicas):
    """Copies of the variables whose gradients Horovod sums over the workers."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._host = setup.engine.host
        self._hvd = horovod.load()

    def count_total_items(self, items: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        return [self._sum_over_workers("items", tf.add_n(list(items)))] * len(items)

    def apply(self, tower_gradients: Sequence[Gradients]) -> None:
        with tf.name_scope("exchange/"), tf.device(self._host):
            # One operation per gradient in the order of backpropagation, last gradient
            # first. Horovod joins the operations that are ready.
            summed = {}
            for name in reversed(list(tower_gradients[0])):
                grads = [tower[name] for tower in tower_gradients]
                summed[name] = self._sum(name, grads)
        super().apply([summed] * len(self.updaters))

    def _sum(
        self, name: str, grads: Sequence[gradients.Gradient]
    ) -> gradients.Gradient:
        """Return the sum of one variable's gradients over the towers of all workers.

        Returns:
          A dense tensor, or IndexedSlices with the rows of all towers if the gradient
          is `gathered`.
        """
        if name not in self.gathered_embeddings:
            grads = [gradients.densify(gradient) for gradient in grads]
        return self._sum_over_workers(name, gradients.add(grads))

    def _sum_over_workers(
        self, name: str, gradient: gradients.Gradient
    ) -> gradients.Gradient:
        return self._hvd.allreduce(gradient, op=self._hvd.Sum, name=name)


build = Horovod
