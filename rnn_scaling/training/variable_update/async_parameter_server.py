"""async_parameter_server: workers update the variables without waiting for others.

All workers share one copy of the variables. A step reads the variables, computes, and
updates them without waiting for other workers. A counter next to the variables counts
the updates: a step reads it before the variables, and adds one after it has updated all
of them. The step's staleness is the number of updates by other workers in between.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from rnn_scaling.training.replica import Gradients, Setup, T
from rnn_scaling.training.variable_update.parameter_server import (
    ParameterServer,
)


class AsyncParameterServer(ParameterServer):
    """One copy of the variables that workers update independently."""

    # int64: updates by other workers since the traced step read the counter.
    staleness: tf.Tensor

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        with tf.device(self.servers[0]):
            self._version = tf.Variable(
                0, dtype=tf.int64, trainable=False, name="version"
            )

    @property
    def num_updates(self) -> int:
        """The number of updates so far; read it outside of a step."""
        return int(self._version.numpy())

    def run(self, tower: Callable[[int], T]) -> list[T]:
        with tf.name_scope("exchange/version/"):
            self._read_version = self._version.read_value()
        # The counter is read before any variable.
        with tf.control_dependencies([self._read_version]):
            return super().run(tower)

    def apply(self, tower_gradients: Sequence[Gradients]) -> None:
        super().apply(tower_gradients)
        with tf.name_scope("exchange/version/"), tf.control_dependencies(self._applied):
            # Reads and increments the counter atomically, so that no two steps get the
            # same number.
            num_updates = tf.raw_ops.ResourceCountUpTo(
                resource=self._version.handle, limit=tf.int64.max, T=tf.int64
            )
        self.staleness = num_updates - self._read_version


build = AsyncParameterServer
