"""Tests the operators against the plain reference before their first use: layers and losses, forward and backward."""

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

TOLERANCES = {
    "float32": 2e-5,
    "bfloat16": 0.04,
}  # relative to the largest entry of an array
LENGTHS = (
    4,
    1,
    3,
    4,
    2,
    4,
    1,
    4,
    3,
    2,
    4,
    4,
    1,
)  # 13 sentences and 41 units leave parts of blocks and vectors over
STACK = stacks.RecurrentStack(input_dim=9, num_units=41, num_layers=1, num_directions=1)
CELLS = {"lstm": block_lstm.build_packed, "gru": gru_steps.build_packed}
WORDS = 37
SMOOTHING = 0.1


def failure() -> str:
    """The first result that differs from the reference's, or "" if all agree.

    Raises:
      tf.errors.ResourceExhaustedError: if memory is short, so that nothing can be said.
    """
    try:
        with tf.device("CPU:0"):
            for name, dtype, got, want in _compared():
                error, where = parity.largest_error(got, want)
                if not error <= TOLERANCES[dtype]:
                    return f"{where} of {name} {dtype}: differs by {error:.2g}, more than {TOLERANCES[dtype]}"
    except tf.errors.ResourceExhaustedError:
        raise
    except (
        tf.errors.OpError,
        AttributeError,
        KeyError,
    ) as e:  # of an operator, or one of its results, that is not there
        return str(e).splitlines()[0]
    return ""


def _compared() -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    """(name, dtype, results of the operators, results of the reference)."""
    for cell, build in CELLS.items():
        stack = dataclasses.replace(STACK, unit_type=cell)
        want = parity.results(stacks.reference(stack), stack, LENGTHS, is_traced=False)
        for dtype in TOLERANCES:
            of_dtype = dataclasses.replace(stack, dtype=dtype)
            yield (
                cell,
                dtype,
                parity.results(build(of_dtype), of_dtype, LENGTHS, is_traced=False),
                want,
            )
    for dtype in TOLERANCES:
        for name, units_of_v in {"luong": 0, "bahdanau": 41}.items():
            yield name, dtype, *_decoders(dtype, units_of_v)
        for is_tied in (False, True):
            yield "tied loss" if is_tied else "loss", dtype, *_losses(dtype, is_tied)


def _losses(
    dtype: str, is_tied: bool
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(results of the operator, of TensorFlow) of a projection to words and its cross entropy."""
    random = np.random.default_rng(0)
    ours = operators.load()
    hidden, projection = (
        tf.cast(random.uniform(-1, 1, shape), dtype) for shape in ((5, 9), (9, WORDS))
    )
    bias = tf.constant(random.uniform(-1, 1, WORDS), tf.float32)
    logits = tf.cast(hidden, tf.float32) @ tf.cast(projection, tf.float32) + bias
    labels = np.where(
        [True, False, True, False, False],
        tf.argmax(logits, axis=1),
        np.arange(0, WORDS, 9),
    )
    target = (1 - SMOOTHING) * tf.one_hot(labels, WORDS) + SMOOTHING / WORDS
    want = {
        "losses": tf.nn.softmax_cross_entropy_with_logits(target, logits),
        "right": tf.cast(tf.argmax(logits, axis=1) == labels, tf.float32),
        "gradients": tf.nn.softmax(logits) - target,
    }
    compute = ours.rnn_scaling_tied_loss if is_tied else ours.rnn_scaling_loss
    made = compute(
        hidden,
        tf.transpose(projection) if is_tied else projection,
        bias,
        labels,
        SMOOTHING,
    )
    got = {"losses": made.losses, "gradients": made.d_logits, "right": made.is_right}
    return _arrays(got), _arrays(want)


def _arrays(tensors: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    return {
        name: tf.cast(tensor, tf.float32).numpy() for name, tensor in tensors.items()
    }


def _decoders(
    dtype: str, units_of_v: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(results of the operators, of TensorFlow) of a decoder with attention, bahdanau if there are units of v."""
    random, (steps, batch, words, width, units) = (
        np.random.default_rng(0),
        (3, 13, 21, 37, 41),
    )

    def draw(*shape: int) -> Tensor:
        """Numbers that both dtypes hold."""
        return tf.cast(
            tf.cast(random.uniform(-0.5, 0.5, shape), tf.bfloat16), tf.float32
        )

    read = width if units_of_v else units
    inputs = {
        "from_words": draw(steps, batch, 4 * units),
        "biases": draw(2, 4 * units),
        "kernels": [draw(read + units, 4 * units), draw(2 * units, 4 * units)],
        "state": [(draw(batch, units), draw(batch, units)) for _ in range(2)],
        "keys": draw(batch, words, units),
        "memory": draw(batch, words, width),
        "v": draw(units_of_v),
        "matrix": draw(units if units_of_v else width + units, units),
    }
    others = {
        "masked": draw(batch, words),
        "dropped": [draw(steps, batch, read), draw(steps, batch, units)],
    }
    d_results = (
        draw(steps, batch, width),
        draw(steps, batch, units),
        draw(steps, batch, units),
    )
    rounded = {"from_words", "kernels", "keys", "memory", "v", "matrix"}

    def results(
        decode: Callable[..., packed_decoder.Results], to: tf.DType
    ) -> dict[str, np.ndarray]:
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            cast = {
                n: tf.nest.map_structure(lambda x: tf.cast(x, to), x)
                for n, x in inputs.items()
                if n in rounded
            }
            made = decode(**{**inputs, **cast}, **others)
            total = tf.add_n(
                [tf.reduce_sum(x * d) for x, d in zip(made, d_results, strict=True)]
            )
        named = {
            f"gradient of {name}": tf.nest.flatten(d)
            for name, d in tape.gradient(total, inputs).items()
        }
        gradients = {
            f"{name}[{n}]": x
            for name, parts in named.items()
            for n, x in enumerate(parts)
            if x is not None
        }
        return _arrays({**made._asdict(), **gradients})

    return results(packed_decoder.decode, tf.as_dtype(dtype)), results(
        _plain_decode, tf.float32
    )


def _plain_decode(  # type: ignore[no-untyped-def]
    from_words, biases, kernels, state, keys, memory, masked, v, matrix, dropped
) -> packed_decoder.Results:
    """As `packed_decoder.decode`."""
    is_luong = v.shape[0] == 0
    states = list(state)
    steps = []

    def attend(query: Tensor) -> Tensor:
        pairs = (
            query[:, None] * keys if is_luong else tf.tanh(query[:, None] + keys) * v
        )
        return tf.reduce_sum(
            tf.nn.softmax(tf.reduce_sum(pairs, axis=2) + masked)[:, :, None] * memory,
            axis=1,
        )

    made = tf.zeros_like(states[0][1])
    for t, words in enumerate(tf.unstack(from_words)):
        query = made if is_luong else states[-1][1] @ matrix
        x = context = query if is_luong else attend(query)
        for layer, (c, h) in enumerate(states):
            sums = (
                tf.concat([x * dropped[layer][t], h], axis=1) @ kernels[layer]
                + biases[layer]
            )
            step = block_lstm.lstm_step(sums if layer else sums + words, c)
            states[layer], x = (step.cs, step.h), step.h
        context = attend(x) if is_luong else context
        made = tf.tanh(tf.concat([context, x], axis=1) @ matrix) if is_luong else query
        steps.append((context, x, made))
    return packed_decoder.Results(
        *(tf.stack(parts) for parts in zip(*steps, strict=True))
    )
