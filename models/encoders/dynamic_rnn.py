"""TensorFlow's own while loop over the steps, `tf.compat.v1.nn.dynamic_rnn`: a MatMul and twenty small ops a step.

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

    def __init__(self, kernel: tf.Tensor, bias: tf.Tensor, num_units: int, forget_bias: float) -> None:
        self._kernel = kernel
        self._bias = bias
        self._forget_bias = forget_bias
        self.output_size = num_units
        self.state_size = (num_units, num_units)

    def zero_state(self, batch_size: Any, dtype: Any) -> tuple[tf.Tensor, tf.Tensor]:
        return tuple(tf.zeros([batch_size, units], dtype) for units in self.state_size)

    def __call__(
        self, inputs: tf.Tensor, state: tuple[tf.Tensor, tf.Tensor], scope: Any = None
    ) -> tuple[tf.Tensor, tuple[tf.Tensor, tf.Tensor]]:
        c, h = lstm.step(inputs, *state, self._kernel, self._bias, self._forget_bias)
        return h, (c, h)


def kernel_name(stack: lstm.LstmStack) -> str:
    """What runs, for the record."""
    return "tf.compat.v1.nn.dynamic_rnn"


def build(stack: lstm.LstmStack) -> lstm.Run:
    """The function of `stack`; layer by layer and, as v1's bidirectional_dynamic_rnn, direction by direction."""

    def run_cell(
        inputs: tf.Tensor, lengths: tf.Tensor, c: tf.Tensor, h: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor
    ) -> lstm.CellResult:
        cell = _Cell(kernel, bias, stack.num_units, stack.forget_bias)
        with _without_deprecation_message():
            outputs, (c, h) = tf.compat.v1.nn.dynamic_rnn(
                cell, inputs, sequence_length=lengths, initial_state=(c, h), time_major=True
            )
        return lstm.CellResult(outputs, c, h)

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
