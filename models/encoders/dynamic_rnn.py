"""TensorFlow's own while loop over the steps, `tf.compat.v1.nn.dynamic_rnn`: one or two MatMuls and
twenty small ops a step.

T: steps, B: sentences, D: width of the input, U: units.
"""

from typing import Any

import tensorflow as tf
from tensorflow import Tensor
from tensorflow.python.ops.rnn import (
    dynamic_rnn,
)  # tf.compat.v1.nn's, without loading the rest of it
from tensorflow.python.util import deprecation

from rnn_scaling.models import stacks


class _Cell:
    """The cell interface of TensorFlow 1 (its own cells went with Keras 3), around weights made elsewhere."""

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
    """The cell that computes past the end of a sentence too: there it keeps the state and puts out zeros.

    Its state begins with the words that are left of each sentence, [B].
    """

    def __call__(
        self, inputs: Tensor, state: stacks.State, scope: Any = None
    ) -> tuple[Tensor, stacks.State]:
        left, *before = state
        inside = (left > 0)[:, None]
        after = self._stack.step(inputs, tuple(before), self._weights)
        kept = tuple(tf.where(inside, new, old) for new, old in zip(after, before))
        return tf.where(inside, after[-1], tf.zeros_like(after[-1])), (left - 1, *kept)


def kernel_name(stack: stacks.RecurrentStack) -> str:
    return stack.named("tf.compat.v1.nn.dynamic_rnn")


def build(stack: stacks.RecurrentStack) -> stacks.Run:
    """The function of `stack`; layer by layer and, as v1's bidirectional_dynamic_rnn, direction by direction.

    With `sequence_length` the loop ends after the longest sentence. Where the number of steps is known when tracing but
    the lengths are not, sentences are padded to one length, and the loop takes all steps, so that every tower does.
    """

    def run_cell(
        inputs: Tensor,
        lengths: Tensor,
        state: stacks.State,
        weights: stacks.CellWeights,
    ) -> stacks.CellResult:
        is_padded = inputs.shape[0] is not None and tf.get_static_value(lengths) is None
        with (
            deprecation.silence()
        ):  # "Please use keras.layers.RNN": the op is what this module measures
            if is_padded:
                outputs, (_, *state) = dynamic_rnn(
                    _PaddedCell(stack, weights),
                    inputs,
                    initial_state=(
                        tf.cast(lengths, tf.int64),
                        *state,
                    ),  # GPUs keep int32 on the host
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
