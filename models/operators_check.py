"""Tests the operators against the plain reference before their first use: layers and losses, forward and backward."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from rnn_scaling.models import parity, stacks
from rnn_scaling.models.encoders import gru_steps, packed_lstm
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
    logits, labels = np.random.default_rng(0).normal(size=(5, WORDS)).astype(np.float32), np.arange(0, WORDS, 9)
    target = (1 - SMOOTHING) * tf.one_hot(labels, WORDS) + SMOOTHING / WORDS
    for dtype in TOLERANCES:
        rounded = tf.cast(logits, dtype)
        made = operators.load().rnn_scaling_softmax_loss(rounded, labels, SMOOTHING)
        rounded = tf.cast(tf.cast(logits, dtype), tf.float32)
        losses = tf.nn.softmax_cross_entropy_with_logits(target, rounded).numpy()
        d_logits = (tf.nn.softmax(rounded) - target).numpy()
        got = {"losses": made.losses.numpy(), "gradients": tf.cast(made.d_logits, tf.float32).numpy()}
        yield "softmax loss", dtype, got, {"losses": losses, "gradients": d_logits}
