"""Random stacks for the tests of the kernels: weights, inputs, states, and one run with every gradient.

T: steps, B: sentences, D: width of the input, U: units.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

NUM_STEPS, BATCH, INPUT_DIM, NUM_UNITS = 5, 3, 4, 6
EQUAL, UNEQUAL = (5, 5, 5), (5, 1, 3)


@dataclasses.dataclass(frozen=True)
class Case:
    """Arguments of a kernel, as NumPy arrays."""

    weights: list[tuple[np.ndarray, ...]]
    inputs: np.ndarray
    state: tuple[np.ndarray, ...]


def make_stack(num_layers: int, num_directions: int, **options):
    from rnn_scaling.models import stacks

    return stacks.RecurrentStack(
        INPUT_DIM, NUM_UNITS, num_layers, num_directions, **options
    )


def make_case(stack, dtype=np.float32, scale: float = 0.5) -> Case:
    rng = np.random.default_rng(0)

    def draw(*shape):
        return rng.uniform(-scale, scale, shape).astype(dtype)

    weights = [
        tuple(draw(*spec.shape) for spec in stack.cell_weights(cell))
        for cell in range(stack.num_cells)
    ]
    sizes = (NUM_STEPS, BATCH) if stack.time_major else (BATCH, NUM_STEPS)
    states = (stack.num_cells, BATCH, stack.num_units)
    return Case(
        weights,
        2 * draw(*sizes, stack.input_dim),
        tuple(draw(*states) for _ in stack.cell.STATE),
    )


def tensors(tf, case: Case, lengths) -> tuple:
    """Inputs and lengths."""
    return tf.constant(case.inputs), tf.constant(lengths, tf.int32)


def results(tf, run: Callable, stack, weights, inputs, lengths, state) -> dict:
    """Outputs, final states, and the gradient of everything that has one."""
    watched = [weights, inputs, state]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        outputs, final = run(weights, inputs, lengths, state, tf.constant([1, 2]))
        # Every cotangent differs, so that a gradient in a wrong place cannot cancel out.
        loss = sum(
            tf.reduce_sum(tf.sin(3 * tf.cast(y, inputs.dtype)) * (1 + n))
            for n, y in enumerate((outputs, *final))
        )
    d_weights, d_inputs, d_state = tape.gradient(loss, watched)
    named = {"outputs": outputs, "d_inputs": d_inputs}
    for name, last, d_first in zip(stack.cell.STATE, final, d_state, strict=True):
        named |= {name: last, f"d_{name}": d_first}
    for cell, d_of_cell in enumerate(d_weights):
        for spec, d_weight in zip(stack.cell_weights(cell), d_of_cell, strict=True):
            named[f"d_{spec.name}_{cell}"] = d_weight
    return {name: tf.cast(value, inputs.dtype) for name, value in named.items()}


def results_of_constants(tf, run: Callable, stack, case: Case, lengths) -> dict:
    """`results` of a case; every shape is known."""
    weights = [tuple(map(tf.constant, of_cell)) for of_cell in case.weights]
    arrays = [
        tf.constant(case.inputs),
        tf.constant(lengths, tf.int32),
        tuple(map(tf.constant, case.state)),
    ]
    return results(tf, run, stack, weights, *arrays)


def traced(
    tf, run: Callable, stack, case: Case, num_steps: int | None = None
) -> Callable[..., dict]:
    """lengths -> `results` of a case, by a tf.function that is traced once, without knowing T (unless given) and B."""
    dtype = tf.as_dtype(case.inputs.dtype)
    signature = [
        [
            tuple(tf.TensorSpec(w.shape, dtype) for w in of_cell)
            for of_cell in case.weights
        ],
        tf.TensorSpec([num_steps, None, INPUT_DIM], dtype),
        tf.TensorSpec([None], tf.int32),
        (tf.TensorSpec([stack.num_cells, None, NUM_UNITS], dtype),) * len(case.state),
    ]
    function = tf.function(
        functools.partial(results, tf, run, stack),
        input_signature=signature,
        autograph=False,
    )
    return lambda lengths: function(
        case.weights, case.inputs, tf.constant(lengths, tf.int32), case.state
    )


def largest_error(got: dict, want: dict) -> tuple[float, str]:
    """The largest difference, relative to the largest entry of its array, and the array's name."""
    assert got.keys() == want.keys()
    pairs = {name: (np.asarray(got[name]), np.asarray(want[name])) for name in want}
    return max(
        (float(np.abs(g - w).max() / np.abs(w).max()), name)
        for name, (g, w) in pairs.items()
    )
