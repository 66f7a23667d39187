"""Random stacks for the tests of the LSTM kernels: weights, inputs, states, and one run with every gradient.

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

    weights: list[tuple[np.ndarray, np.ndarray]]
    inputs: np.ndarray
    c: np.ndarray
    h: np.ndarray


def make_stack(num_layers: int, num_directions: int, **options):
    from models import lstm

    return lstm.LstmStack(INPUT_DIM, NUM_UNITS, num_layers, num_directions, **options)


def make_case(stack, dtype=np.float32, scale: float = 0.5) -> Case:
    rng = np.random.default_rng(0)

    def draw(*shape):
        return rng.uniform(-scale, scale, shape).astype(dtype)

    weights = [(draw(*stack.kernel_shape(cell)), draw(4 * stack.num_units)) for cell in range(stack.num_cells)]
    sizes = (NUM_STEPS, BATCH) if stack.time_major else (BATCH, NUM_STEPS)
    states = (stack.num_cells, BATCH, stack.num_units)
    return Case(weights, 2 * draw(*sizes, stack.input_dim), draw(*states), draw(*states))


def tensors(tf, case: Case, lengths) -> tuple:
    """Inputs and lengths."""
    return tf.constant(case.inputs), tf.constant(lengths, tf.int32)


def results(tf, run: Callable, weights, inputs, lengths, c, h) -> dict:
    """Outputs, final states, and the gradient of everything that has one."""
    from models import lstm

    watched = [weights, inputs, c, h]
    with tf.GradientTape() as tape:
        tape.watch(watched)
        outputs, final = run(weights, inputs, lengths, lstm.LstmState(c, h), tf.constant([1, 2]))
        # Every cotangent differs, so that a gradient in a wrong place cannot cancel out.
        loss = sum(
            tf.reduce_sum(tf.sin(3 * tf.cast(y, inputs.dtype)) * (1 + n))
            for n, y in enumerate((outputs, final.c, final.h))
        )
    d_weights, d_inputs, d_c, d_h = tape.gradient(loss, watched)
    named = {"outputs": outputs, "c": final.c, "h": final.h, "d_inputs": d_inputs, "d_c": d_c, "d_h": d_h}
    for cell, (d_kernel, d_bias) in enumerate(d_weights):
        named |= {f"d_kernel_{cell}": d_kernel, f"d_bias_{cell}": d_bias}
    return {name: tf.cast(value, inputs.dtype) for name, value in named.items()}


def results_of_constants(tf, run: Callable, case: Case, lengths) -> dict:
    """`results` of a case; every shape is known."""
    weights = [(tf.constant(kernel), tf.constant(bias)) for kernel, bias in case.weights]
    arrays = [tf.constant(case.inputs), tf.constant(lengths, tf.int32), tf.constant(case.c), tf.constant(case.h)]
    return results(tf, run, weights, *arrays)


def traced(tf, run: Callable, stack, case: Case) -> Callable[..., dict]:
    """lengths -> `results` of a case, by a tf.function that is traced once, without knowing T and B."""
    dtype = tf.as_dtype(case.inputs.dtype)
    signature = [
        [tuple(tf.TensorSpec(w.shape, dtype) for w in pair) for pair in case.weights],
        tf.TensorSpec([None, None, INPUT_DIM], dtype),
        tf.TensorSpec([None], tf.int32),
        tf.TensorSpec([stack.num_cells, None, NUM_UNITS], dtype),
        tf.TensorSpec([stack.num_cells, None, NUM_UNITS], dtype),
    ]
    function = tf.function(functools.partial(results, tf, run), input_signature=signature)
    return lambda lengths: function(case.weights, case.inputs, tf.constant(lengths, tf.int32), case.c, case.h)


def largest_error(got: dict, want: dict) -> tuple[float, str]:
    """The largest difference, relative to the largest entry of its array, and the array's name."""
    assert got.keys() == want.keys()
    pairs = {name: (np.asarray(got[name]), np.asarray(want[name])) for name in want}
    return max((float(np.abs(g - w).max() / np.abs(w).max()), name) for name, (g, w) in pairs.items())
