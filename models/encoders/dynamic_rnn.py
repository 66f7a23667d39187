"""TensorFlow's own loop over the steps, `tf.compat.v1.nn.dynamic_rnn`.

A step has one or two MatMuls and about twenty small ops.

T: steps, B: sentences, D: width of the input, U: units.

`models/encoder_table.py` lists this implementation; nothing else depends on it.
"""

from typing import Any

import tensorflow as tf
from tensorflow import Tensor

# The function of tf.compat.v1.nn, without loading the rest of that module.
from tensorflow.python.ops.rnn import dynamic_rnn
from tensorflow.python.util import deprecation

from rnn_scaling.models import stacks


class _Cell:
    """The cell interface of TensorFlow 1 for one of this project's cells.

    TensorFlow's own cells were removed with Keras 3.
    """

    def __init__(
        self, stack: stacks.RecurrentStack, weights: stacks.CellWeights
    ) -> None:
        self._stack = stack
        self._weights = weights
        self.output_size = stack.num_units
        self.state_size = (stack.num_units,) * len(stack.cell.STATE)

    def zero_state(self, batch_size: Any, dtype: Any) -> stacks.State:
        return tuple(tf.zeros([batch_size, units], dtype) for units in self.state_size)

    def __call__(
        self, inputs: Tensor, state: stacks.State, scope: Any = None
    ) -> tuple[Tensor, stacks.State]:
        state = self._stack.step(inputs, state, self._weights)
        return state[-1], state


class _PaddedCell(_Cell):
    """A cell that returns zeros after the end of a sentence and leaves the state unchanged.

    Its state begins with the number of remaining words per sentence, [B].
    """

    def __call__(
        self, inputs: Tensor, state: stacks.State, scope: Any = None
    ) -> tuple[Tensor, stacks.State]:
        num_remaining, *previous = state
        is_inside = (num_remaining > 0)[:, None]
        output, next_state = self._stack.run_masked_step(
            inputs, tuple(previous), self._weights, is_inside
        )
        return output, (num_remaining - 1, *next_state)


def kernel_name(stack: stacks.RecurrentStack) -> str:
    """Return the name for the record."""
    return stack.format_kernel_title("tf.compat.v1.nn.dynamic_rnn")


def build(stack: stacks.RecurrentStack) -> stacks.Run:
    """Return the function that runs `stack`.

    It runs layer by layer and, like v1's bidirectional_dynamic_rnn, direction by
    direction.

    With `sequence_length` the loop ends after the longest sentence. If tracing shows
    the number of steps but not the lengths, sentences are padded to one length. Then
    the loop runs all steps, so that every tower runs the same number.
    """

    def run_cell(
        inputs: Tensor,
        lengths: Tensor,
        state: stacks.State,
        weights: stacks.CellWeights,
    ) -> stacks.CellResult:
        is_padded = inputs.shape[0] is not None and tf.get_static_value(lengths) is None
        # The op is measured on purpose, so its advice to use keras.layers.RNN is
        # silenced.
        with deprecation.silence():
            if is_padded:
                # GPUs keep int32 on the host.
                num_words = tf.cast(lengths, tf.int64)
                outputs, (_, *state) = dynamic_rnn(
                    _PaddedCell(stack, weights),
                    inputs,
                    initial_state=(num_words, *state),
                    dtype=inputs.dtype,
                    time_major=True,
                )
            else:
                outputs, state = dynamic_rnn(
                    _Cell(stack, weights),
                    inputs,
                    sequence_length=lengths,
                    initial_state=state,
                    time_major=True,
                )
        return outputs, tuple(state)

    return stacks.run_layers(stack, run_cell)
