"""TensorFlow's own while loop over the steps, `tf.compat.v1.nn.dynamic_rnn`: one or two MatMuls and
twenty small ops a step.

T: steps, B: sentences, D: width of the input, U: units.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from models import lstm


class _Cell:
    """The cell interface of TensorFlow 1 (its own cells went with Keras 3), around weights made elsewhere."""

    def __init__(self, stack: lstm.LstmStack, weights: lstm.CellWeights) -> None:
        self._stack, self._weights = stack, weights
        self.output_size = stack.num_units
        self.state_size = (stack.num_units,) * len(stack.cell.STATE)

    def zero_state(self, batch_size: Any, dtype: Any) -> lstm.State:
        return tuple(tf.zeros([batch_size, units], dtype) for units in self.state_size)

    def __call__(self, inputs: tf.Tensor, state: lstm.State, scope: Any = None) -> tuple[tf.Tensor, lstm.State]:
        state = self._stack.step(inputs, state, self._weights)
        return state[-1], state


def kernel_name(stack: lstm.LstmStack) -> str:
    """What runs, for the record."""
    return stack.named("tf.compat.v1.nn.dynamic_rnn")


def build(stack: lstm.LstmStack) -> lstm.Run:
    """The function of `stack`; layer by layer and, as v1's bidirectional_dynamic_rnn, direction by direction."""

    def run_cell(
        inputs: tf.Tensor, lengths: tf.Tensor, state: lstm.State, weights: lstm.CellWeights
    ) -> lstm.CellResult:
        with _without_deprecation_message():
            outputs, state = tf.compat.v1.nn.dynamic_rnn(
                _Cell(stack, weights), inputs, sequence_length=lengths, initial_state=state, time_major=True
            )
        return lstm.CellResult(outputs, state)

    return lstm.run_layers(stack, run_cell)


@contextlib.contextmanager
def _without_deprecation_message() -> Iterator[None]:
    # "Please use keras.layers.RNN": the op is deprecated, and it is what this module measures.
    logger = tf.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
