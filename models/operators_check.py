"""Tests the operators against the plain reference before their first use: layers and losses, forward and backward."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rnn_scaling.models import parity, stacks
from rnn_scaling.models.encoders import block_lstm, gru_steps, packed_lstm
from rnn_scaling.models.extension import operators

TOLERANCES = {"float32": 2e-5, "bfloat16": 0.04}  # relative to the largest entry of an array
LENGTHS = (4, 1, 3, 4, 2, 4, 1, 4, 3, 2, 4, 4, 1)  # 13 sentences and 41 units leave parts of blocks and vectors over
STACK = stacks.RecurrentStack(input_dim=9, num_units=41, num_layers=1, num_directions=1)
CELLS = {"lstm": packed_lstm.build, "gru": gru_steps.build_packed}
WORDS, SMOOTHING = 37, 0.1


def failure() -> str:
    """The first result that differs from the reference's, or "" if all agree."""
    try:
        with tf.device("CPU:0"):
            for name, dtype, got, want in _compared():
                error, where = parity.largest_error(got, want)
                if not error <= TOLERANCES[dtype]:
                    return f"{where} of {name} {dtype}: differs by {error:.1g}, more than {TOLERANCES[dtype]}"
    except (tf.errors.OpError, AttributeError) as e:  # the latter of an operator that is not there
        return str(e).splitlines()[0]
    return ""


def _compared() -> Iterator[tuple[str, str, Mapping[str, Any], Mapping[str, Any]]]:
    """(name, dtype, results of the operators, results of the reference)."""
    for cell, build in CELLS.items():
        stack = dataclasses.replace(STACK, unit_type=cell)
        want = parity.results(stacks.reference(stack), stack, LENGTHS, is_traced=False)
        for dtype in TOLERANCES:
            of_dtype = dataclasses.replace(stack, dtype=dtype)
            yield cell, dtype, parity.results(build(of_dtype), of_dtype, LENGTHS, is_traced=False), want
    for dtype in TOLERANCES:
        for name, (got, want) in _steps(dtype).items():
            yield name, dtype, got, want
    for dtype in TOLERANCES:
        for is_tied in (False, True):
            yield "tied loss" if is_tied else "loss", dtype, *_losses(dtype, is_tied)


def _losses(dtype: str, is_tied: bool) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(results of the operator, of TensorFlow) of a projection to words and its cross entropy."""
    random, ours = np.random.default_rng(0), operators.load()
    hidden, projection = (tf.cast(random.uniform(-1, 1, shape), dtype) for shape in ((5, 9), (9, WORDS)))
    bias = tf.constant(random.uniform(-1, 1, WORDS), tf.float32)
    logits = tf.cast(hidden, tf.float32) @ tf.cast(projection, tf.float32) + bias
    labels = np.where([True, False, True, False, False], tf.argmax(logits, axis=1), np.arange(0, WORDS, 9))
    target = (1 - SMOOTHING) * tf.one_hot(labels, WORDS) + SMOOTHING / WORDS
    want = {
        "losses": tf.nn.softmax_cross_entropy_with_logits(target, logits),
        "right": tf.cast(tf.argmax(logits, axis=1) == labels, tf.float32),
        "gradients": tf.nn.softmax(logits) - target,
    }
    compute = ours.rnn_scaling_tied_loss if is_tied else ours.rnn_scaling_loss
    made = compute(hidden, tf.transpose(projection) if is_tied else projection, bias, labels, SMOOTHING)
    got = {"losses": made.losses, "gradients": made.d_logits, "right": made.is_right}
    return _arrays(got), _arrays(want)


def _arrays(tensors: Mapping[str, tf.Tensor]) -> dict[str, np.ndarray]:
    return {name: tf.cast(tensor, tf.float32).numpy() for name, tensor in tensors.items()}


def _steps(dtype: str) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """(results of the operators, of TensorFlow's) of the steps of a decoder with attention; B, U, S, D as there."""
    ours, random = operators.load(), np.random.default_rng(0)
    batch, units, words, width = 3, 41, 5, 9

    def draw(*shape: int) -> tf.Tensor:
        """Numbers that both dtypes hold."""
        return tf.cast(tf.cast(random.uniform(-1, 1, shape), tf.bfloat16), tf.float32)

    matrix, x, c, d_c, d_h = (draw(n, units) for n in (width, width, batch, batch, batch))
    panels, transposed = ours.rnn_scaling_pack(tf.cast(matrix, dtype))
    rows, sums = draw(batch, width), draw(batch, 4 * units)
    got = {"product": ours.rnn_scaling_step_product(rows, panels, c, T=dtype)}
    got["back"] = ours.rnn_scaling_step_product(x, transposed, tf.zeros([0, width]), T=dtype)
    result = {"product": (_arrays(got), _arrays({"product": rows @ matrix + c, "back": x @ tf.transpose(matrix)}))}
    with tf.GradientTape() as tape:
        tape.watch([sums, c])
        step = block_lstm.lstm_step(sums, c)
        total = tf.reduce_sum(step.cs * d_c + step.h * d_h)
    want = {"c": step.cs, "h": step.h} | dict(zip(("of sums", "of c"), tape.gradient(total, [sums, c])))
    gates, next_c, h = ours.rnn_scaling_step_gates(sums, c)
    of_sums, of_c = ours.rnn_scaling_step_gates_grad(gates, c, next_c, d_c, d_h)
    result["gates"] = _arrays({"c": next_c, "h": h, "of sums": of_sums, "of c": of_c}), _arrays(want)
    query, mask, d_context = draw(batch, units), draw(batch, words), draw(batch, width)
    keys, memory = draw(batch, words, units), draw(batch, words, width)
    for name, v in {"luong": draw(0), "bahdanau": draw(units)}.items():
        with tf.GradientTape() as tape:
            tape.watch([query, keys, v])
            hidden = tf.tanh(query[:, None] + keys) * v if name == "bahdanau" else query[:, None] * keys
            scores = tf.reduce_sum(hidden, axis=2)
            shares = tf.nn.softmax(scores + mask)
            context = tf.reduce_sum(shares[:, :, None] * memory, axis=1)
            total = tf.reduce_sum(context * d_context)
        of_scores, of_query, of_keys, of_v = tape.gradient(total, [scores, query, keys, v])
        want = {"context": context, "of scores": of_scores, "of query": of_query}
        factors = tf.cast(keys, dtype), tf.cast(memory, dtype)
        context, shares = ours.rnn_scaling_step_attend(query, *factors, mask, tf.cast(v, dtype))
        grad = ours.rnn_scaling_step_attend_grad(query, *factors, tf.cast(v, dtype), shares, d_context)
        got = {"context": context, "of scores": grad.d_scores, "of query": grad.d_query}
        if name == "bahdanau":
            d = ours.rnn_scaling_step_additive_grad(query[None], factors[0], tf.cast(v, dtype), of_scores[None])
            got |= {"of keys": d.d_keys, "of v": d.d_v}
            want |= {"of keys": of_keys, "of v": of_v}
        result[name] = _arrays(got), _arrays(want)
    return result
