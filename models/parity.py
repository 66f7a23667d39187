"""Compute the outputs, final states and gradients of a kernel, to compare kernels.

T: steps, B: sentences, D: width of the input, U: units.

Tests, `operators_check` and `verification` compare kernels with it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rnn_scaling.models import stacks


def compute_results(
    run: Callable[..., Any],
    stack: stacks.RecurrentStack,
    lengths: Sequence[int],
    is_traced: bool = True,
) -> dict[str, np.ndarray]:
    """Run a kernel on the current device with random numbers.

    Args:
      run: A function like `stacks.build_reference(stack)`.
      lengths: [B], words per sentence; the longest is T.
      is_traced: Whether to run as a graph, whose tracing takes seconds, or operator by
        operator.

    Returns:
      Float32 arrays by name.
    """
    random = np.random.default_rng(0)
    batch = len(lengths)

    def draw(*shape: int) -> tf.Tensor:
        return tf.constant(random.uniform(-0.5, 0.5, shape).astype(np.float32))

    def compute(weights: Any, inputs: tf.Tensor, state: Any) -> dict[str, tf.Tensor]:
        with tf.GradientTape() as tape:
            tape.watch([weights, inputs, state])
            outputs, final = run(
                weights,
                inputs,
                tf.constant(lengths, tf.int32),
                state,
                tf.constant([1, 2]),
            )
            # Every cotangent differs, so that misplaced gradients cannot cancel out.
            results = [tf.cast(tensor, tf.float32) for tensor in (outputs, *final)]
            loss = sum(
                tf.reduce_sum(tf.sin(3 * tensor) * (1 + number))
                for number, tensor in enumerate(results)
            )
        gradients = tape.gradient(loss, [weights, inputs, state])
        return _name_arrays(results, *gradients)

    weights = []
    for cell in range(stack.num_cells):
        weights.append(
            tuple(draw(*spec.shape) for spec in stack.list_cell_weights(cell))
        )
    inputs = draw(max(lengths), batch, stack.input_dim)
    state = tuple(
        draw(stack.num_cells, batch, stack.num_units) for _ in stack.cell.STATE
    )
    if is_traced:
        compute = tf.function(compute, autograph=False, reduce_retracing=True)
    arrays = compute(weights, inputs, state)
    return {name: tensor.numpy() for name, tensor in arrays.items()}


def _name_arrays(
    results: Sequence[tf.Tensor],
    d_weights: Sequence[Sequence[tf.Tensor]],
    d_inputs: tf.Tensor,
    d_state: Sequence[tf.Tensor],
) -> dict[str, tf.Tensor]:
    """Return results and gradients by names for messages."""
    arrays = {"outputs": results[0], "gradient of the inputs": d_inputs}
    for number, tensor in enumerate(results[1:]):
        arrays[f"state {number}"] = tensor
    for number, tensor in enumerate(d_state):
        arrays[f"gradient of state {number}"] = tensor
    for cell, d_cell in enumerate(d_weights):
        for number, tensor in enumerate(d_cell):
            arrays[f"gradient of weight {number} of cell {cell}"] = tensor
    return arrays


def find_largest_error(
    got: Mapping[str, Any], want: Mapping[str, Any]
) -> tuple[float, str]:
    """Return the largest relative difference and the name of its array.

    A difference is relative to the largest entry of the expected array.
    """
    errors = {
        name: float(np.abs(got[name] - array).max() / np.abs(array).max())
        for name, array in want.items()
    }
    worst = max(errors, key=lambda name: np.nan_to_num(errors[name], nan=np.inf))
    return errors[worst], worst
