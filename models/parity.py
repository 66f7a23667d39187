"""A kernel's outputs, final states and gradients, to be compared with those of `stacks.reference`.

T: steps, B: sentences, D: width of the input, U: units.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from rnn_scaling.models import stacks


def results(
    run: Callable[..., Any],
    stack: stacks.RecurrentStack,
    lengths: Sequence[int],
    is_traced: bool = True,
) -> dict[str, np.ndarray]:
    """What `run` computes on the current device from random numbers, as float32 arrays by name.

    Args:
      run: a function as `stacks.reference(stack)`.
      lengths: [B], words of each sentence; the longest is T.
      is_traced: as a graph, which takes seconds to make, or operator by operator.
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
            # Every cotangent differs, so that a gradient in a wrong place cannot cancel out.
            made = [tf.cast(tensor, tf.float32) for tensor in (outputs, *final)]
            loss = sum(
                tf.reduce_sum(tf.sin(3 * tensor) * (1 + number))
                for number, tensor in enumerate(made)
            )
        d_weights, d_inputs, d_state = tape.gradient(loss, [weights, inputs, state])
        named = {"outputs": made[0], "gradient of the inputs": d_inputs}
        named |= {f"state {number}": tensor for number, tensor in enumerate(made[1:])}
        named |= {
            f"gradient of state {number}": tensor
            for number, tensor in enumerate(d_state)
        }
        for cell, of_cell in enumerate(d_weights):
            named |= {
                f"gradient of weight {number} of cell {cell}": tensor
                for number, tensor in enumerate(of_cell)
            }
        return named

    weights = [
        tuple(draw(*spec.shape) for spec in stack.cell_weights(cell))
        for cell in range(stack.num_cells)
    ]
    inputs = draw(max(lengths), batch, stack.input_dim)
    state = tuple(
        draw(stack.num_cells, batch, stack.num_units) for _ in stack.cell.STATE
    )
    if is_traced:
        compute = tf.function(compute, autograph=False, reduce_retracing=True)
    return {
        name: tensor.numpy() for name, tensor in compute(weights, inputs, state).items()
    }


def largest_error(got: Mapping[str, Any], want: Mapping[str, Any]) -> tuple[float, str]:
    """The largest difference, relative to the largest entry of its array, and the array's name."""
    errors = {
        name: float(np.abs(got[name] - array).max() / np.abs(array).max())
        for name, array in want.items()
    }
    where = max(
        errors, key=lambda name: errors[name] if np.isfinite(errors[name]) else np.inf
    )
    return errors[where], where
