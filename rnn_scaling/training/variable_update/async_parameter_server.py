"""async_parameter_server: one copy of the variables, updated by each worker as soon as it has a gradient.

A step reads the variables, computes, and updates them, without regard to other workers. A counter next to the variables
says how many updates there were: read before the variables are, and raised by one after all of them are updated. How
far it moved in between, the own update left out, is the step's staleness.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from rnn_scaling.training.replica import Gradients, Setup, T
from rnn_scaling.training.variable_update.parameter_server import (
    ParameterServer,
)


class AsyncParameterServer(ParameterServer):
    staleness: tf.Tensor  # int64, of the traced step: updates of others that were counted since it read the counter

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        with tf.device(self.servers[0]):
            self._version = tf.Variable(
                0, dtype=tf.int64, trainable=False, name="version"
            )

    @property
    def num_updates(self) -> int:
        """Steps that were applied so far; to be read outside of a step."""
        return int(self._version.numpy())

    def run(self, tower: Callable[[int], T]) -> list[T]:
        with tf.name_scope("exchange/version/"):
            self._read_version = self._version.read_value()
        with tf.control_dependencies([self._read_version]):  # before any variable
            return super().run(tower)

    def apply(self, tower_gradients: Sequence[Gradients]) -> None:
        super().apply(tower_gradients)
        with tf.name_scope("exchange/version/"), tf.control_dependencies(self._applied):
            # Reads and raises the counter as one action: no two steps get the same number.
            before = tf.raw_ops.ResourceCountUpTo(
                resource=self._version.handle, limit=tf.int64.max, T=tf.int64
            )
        self.staleness = before - self._read_version


build = AsyncParameterServer
