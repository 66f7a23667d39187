"""The test of this project's operators against TensorFlow, before their first use.

It compares layers, decoders with attention and losses, forward and backward.

`extension.operators` runs it before the first use of a library, and `verification` on
demand. A new operator needs a comparison here.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import parity, stacks
from rnn_scaling.models.attention import packed_decoder
from rnn_scaling.models.encoders import block_lstm, gru_steps
from rnn_scaling.models.extension import operators

# Largest difference relative to the largest entry of an array, per dtype.
TOLERANCES = {"float32": 2e-5, "bfloat16": 0.04}
# Blocks and vectors divide neither the 13 sentences nor the 41 units.
LENGTHS = (4, 1, 3, 4, 2, 4, 1, 4, 3, 2, 4, 4, 1)
_STACK = stacks.RecurrentStack(
    input_dim=9, num_units=41, num_layers=1, num_directions=1
)
CELLS = {"lstm": block_lstm.build_packed, "gru": gru_steps.build_packed}
VOCABULARY = 37
SMOOTHING = 0.1


def find_failure() -> str:
    """Return a description of the first wrong result, or "" if all operators agree.

    Raises:
      tf.errors.ResourceExhaustedError: If there is too little memory for the test.
    """
    try:
        with tf.device("CPU:0"):
            return _find_first_difference()
    except tf.errors.ResourceExhaustedError:
        raise
    # The library lacks an operator or one of its results.
    except (tf.errors.OpError, AttributeError, KeyError) as e:
        return str(e).splitlines()[0]


def _find_first_difference() -> str:
    """Return the first difference above the tolerance, or ""."""
    for name, dtype, got, want in _compare_all():
        error, array = parity.find_largest_error(got, want)
        # A NaN is not below the tolerance either.
        if not error <= TOLERANCES[dtype]:
            return (
                f"{array} of {name} {dtype}: differs by {error:.2g}, "
                f"more than {TOLERANCES[dtype]}"
            )
    return ""


def _compare_all() -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    """Yield name, dtype, results of the operators, and results of the reference."""
    for cell, build in CELLS.items():
        stack = dataclasses.replace(_STACK, unit_type=cell)
        want = parity.compute_results(
            stacks.build_reference(stack), stack, LENGTHS, is_traced=False
        )
        for dtype in TOLERANCES:
            cast = dataclasses.replace(stack, dtype=dtype)
            got = parity.compute_results(build(cast), cast, LENGTHS, is_traced=False)
            yield cell, dtype, got, want
    for dtype in TOLERANCES:
        for name, units_of_v in {"luong": 0, "bahdanau": 41}.items():
            yield name, dtype, *_make_decoders(dtype, units_of_v)
        for is_tied in (False, True):
            yield (
                "tied loss" if is_tied else "loss",
                dtype,
                *_make_losses(dtype, is_tied),
            )


def _make_losses(
    dtype: str, is_tied: bool
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return results of a projection and cross entropy, from both implementations."""
    random = np.random.default_rng(0)
    library = operators.load()
    hidden, projection = (
        tf.cast(random.uniform(-1, 1, shape), dtype)
        for shape in ((5, 9), (9, VOCABULARY))
    )
    bias = tf.constant(random.uniform(-1, 1, VOCABULARY), tf.float32)
    logits = tf.cast(hidden, tf.float32) @ tf.cast(projection, tf.float32) + bias
    labels = np.where(
        [True, False, True, False, False],
        tf.argmax(logits, axis=1),
        np.arange(0, VOCABULARY, 9),
    )
    target = (1 - SMOOTHING) * tf.one_hot(labels, VOCABULARY) + SMOOTHING / VOCABULARY
    want = {
        "losses": tf.nn.softmax_cross_entropy_with_logits(target, logits),
        "is_right": tf.cast(tf.argmax(logits, axis=1) == labels, tf.float32),
        "d_logits": tf.nn.softmax(logits) - target,
    }
    compute = library.rnn_scaling_loss
    if is_tied:
        compute = library.rnn_scaling_tied_loss
        projection = tf.transpose(projection)
    result = compute(hidden, projection, bias, labels, SMOOTHING)
    return _make_arrays(result._asdict()), _make_arrays(want)


def _make_arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    return {
        name: tf.cast(tensor, tf.float32).numpy() for name, tensor in tensors.items()
    }


def _make_decoders(
    dtype: str, units_of_v: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return results of a decoder with attention, from both implementations.

    Args:
      units_of_v: 0 for luong.
    """
    random = np.random.default_rng(0)
    num_steps = 3
    batch = 13
    source_words = 21
    width = 37
    units = 41

    def draw(*shape: int) -> Tensor:
        """Return numbers that are exact in both dtypes."""
        values = tf.cast(random.uniform(-0.5, 0.5, shape), tf.bfloat16)
        return tf.cast(values, tf.float32)

    first_width = width if units_of_v else units
    inputs = {
        "from_words": draw(num_steps, batch, 4 * units),
        "biases": draw(2, 4 * units),
        "kernels": [draw(first_width + units, 4 * units), draw(2 * units, 4 * units)],
        "state": [(draw(batch, units), draw(batch, units)) for _ in range(2)],
        "keys": draw(batch, source_words, units),
        "memory": draw(batch, source_words, width),
        "v": draw(units_of_v),
        "matrix": draw(units if units_of_v else width + units, units),
    }
    constants = {
        "mask": draw(batch, source_words),
        "dropout_masks": [
            draw(num_steps, batch, first_width),
            draw(num_steps, batch, units),
        ],
    }
    d_results = [draw(num_steps, batch, columns) for columns in (width, units, units)]

    def compute_results(
        decode: Callable[..., packed_decoder.Results], dtype: str
    ) -> dict[str, np.ndarray]:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            outputs = decode(**_cast_product_inputs(inputs, dtype), **constants)
            products = [x * d for x, d in zip(outputs, d_results, strict=True)]
            total = tf.add_n([tf.reduce_sum(product) for product in products])
        tensors = outputs._asdict()
        for name, d_input in tape.gradient(total, inputs).items():
            for number, d in enumerate(tf.nest.flatten(d_input)):
                if d is not None:
                    tensors[f"gradient of {name}[{number}]"] = d
        return _make_arrays(tensors)

    return compute_results(packed_decoder.decode, dtype), compute_results(
        _decode_plainly, "float32"
    )


def _cast_product_inputs(inputs: Mapping[str, Any], dtype: str) -> dict[str, Any]:
    """Return the inputs of a decoder; factors of products have the dtype."""
    values = dict(inputs)
    for name in ("from_words", "kernels", "keys", "memory", "v", "matrix"):
        values[name] = tf.nest.map_structure(lambda x: tf.cast(x, dtype), inputs[name])
    return values


def _decode_plainly(  # type: ignore[no-untyped-def]
    from_words, biases, kernels, state, keys, memory, mask, v, matrix, dropout_masks
) -> packed_decoder.Results:
    """Compute `packed_decoder.decode` with TensorFlow's operators."""
    is_luong = v.shape[0] == 0
    states = list(state)
    steps = []

    def attend(query: Tensor) -> Tensor:
        rows = query[:, None]
        pairs = rows * keys if is_luong else tf.tanh(rows + keys) * v
        shares = tf.nn.softmax(tf.reduce_sum(pairs, axis=2) + mask)
        return tf.reduce_sum(shares[:, :, None] * memory, axis=1)

    fed = tf.zeros_like(states[0][1])
    for t, from_step in enumerate(tf.unstack(from_words)):
        if is_luong:
            x = fed
        else:
            fed = states[-1][1] @ matrix
            x = context = attend(fed)
        for layer, (c, h) in enumerate(states):
            joined = tf.concat([x * dropout_masks[layer][t], h], axis=1)
            gates = joined @ kernels[layer] + biases[layer]
            if layer == 0:
                gates += from_step
            step = block_lstm.run_lstm_step(gates, c)
            states[layer] = (step.cs, step.h)
            x = step.h
        if is_luong:
            context = attend(x)
            fed = tf.tanh(tf.concat([context, x], axis=1) @ matrix)
        steps.append((context, x, fed))
    return packed_decoder.Results(
        *(tf.stack(tensors) for tensors in zip(*steps, strict=True))
    )
