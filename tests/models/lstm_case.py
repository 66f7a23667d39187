"""Random stacks for the tests of the kernels, and runs with every gradient.

T: steps, B: sentences, D: width of the input, U: units.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from rnn_scaling.models import parity, stacks

NUM_STEPS = 5
BATCH = 3
INPUT_DIM = 4
NUM_UNITS = 6
EQUAL = (5, 5, 5)
UNEQUAL = (5, 1, 3)


@dataclasses.dataclass(frozen=True)
class Case:
    """Arguments of a kernel as NumPy arrays."""

    weights: list[tuple[np.ndarray, ...]]
    inputs: np.ndarray
    state: tuple[np.ndarray, ...]


def make_stack(num_layers, num_directions, **options):
    return stacks.RecurrentStack(
        INPUT_DIM, NUM_UNITS, num_layers, num_directions, **options
    )


def make_case(stack, dtype=np.float32, scale=0.5):
    rng = np.random.default_rng(0)

    def draw(*shape):
        return rng.uniform(-scale, scale, shape).astype(dtype)

    weights = [
        tuple(draw(*spec.shape) for spec in stack.list_cell_weights(cell))
        for cell in range(stack.num_cells)
    ]
    sizes = (NUM_STEPS, BATCH) if stack.time_major else (BATCH, NUM_STEPS)
    states = (stack.num_cells, BATCH, stack.num_units)
    inputs = 2 * draw(*sizes, stack.input_dim)
    return Case(weights, inputs, tuple(draw(*states) for _ in stack.cell.STATE))


def tensors(tf, case, lengths):
    """Return inputs and lengths."""
    return tf.constant(case.inputs), tf.constant(lengths, tf.int32)


def results(tf, run, stack, weights, inputs, lengths, state):
    """Return outputs, final states and all gradients by name."""
    watched = [weights, inputs, state]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        outputs, final = run(weights, inputs, lengths, state, tf.constant([1, 2]))
        # Every cotangent differs, so that misplaced gradients cannot cancel out.
        loss = sum(
            tf.reduce_sum(tf.sin(3 * tf.cast(y, inputs.dtype)) * (1 + n))
            for n, y in enumerate((outputs, *final))
        )
    d_weights, d_inputs, d_state = tape.gradient(loss, watched)
    named = {"outputs": outputs, "d_inputs": d_inputs}
    for name, last, d_first in zip(stack.cell.STATE, final, d_state, strict=True):
        named |= {name: last, f"d_{name}": d_first}
    for cell, d_of_cell in enumerate(d_weights):
        for spec, d_weight in zip(
            stack.list_cell_weights(cell), d_of_cell, strict=True
        ):
            named[f"d_{spec.name}_{cell}"] = d_weight
    return {name: tf.cast(value, inputs.dtype) for name, value in named.items()}


def compute_results_of_constants(tf, run, stack, case, lengths):
    """Return the `results` of a case; every shape is known."""
    weights = [tuple(map(tf.constant, of_cell)) for of_cell in case.weights]
    arrays = [
        tf.constant(case.inputs),
        tf.constant(lengths, tf.int32),
        tuple(map(tf.constant, case.state)),
    ]
    return results(tf, run, stack, weights, *arrays)


def trace_results(tf, run, stack, case, num_steps=None):
    """Return lengths -> `results` of a case, traced once without B, and T if None."""
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


def reference_results(tf, stack, case, lengths):
    """Return the `results` of the reference."""
    return compute_results_of_constants(
        tf, stacks.build_reference(stack), stack, case, lengths
    )


def assert_near(got, want, tolerance):
    """Compare results by `parity.find_largest_error`; return the error."""
    assert got.keys() == want.keys()
    arrays = {name: np.asarray(tensor) for name, tensor in got.items()}
    expected = {name: np.asarray(tensor) for name, tensor in want.items()}
    error, name = parity.find_largest_error(arrays, expected)
    assert error <= tolerance, name
    return error
