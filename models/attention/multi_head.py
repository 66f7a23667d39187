"""Sublayers of the Transformer as functions of the words' rows, which a step of decoding can use with T = 1.

Products have the dtype of the matrices that they are given; all else is float32.

T, S: words of a sentence's longest, B: sentences, N = B T: rows, sentence after sentence, D: width, H: heads.
Source: Vaswani et al., arXiv:1706.03762, sections 3.1 to 3.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

EPSILON = 1e-6  # of the layer norm, as in the authors' tensor2tensor

Weights = Mapping[str, tf.Tensor]
"""Of one sublayer, by their names within it."""


def positions(num_words: int | tf.Tensor, width: int) -> tf.Tensor:
    """sin(t / 10000^(2i/D)) in column 2i, the cosine in column 2i + 1: [T, D]."""
    column = np.arange(width)
    rates, phases = 10_000.0 ** -(column // 2 * 2 / width), column % 2 * (np.pi / 2)
    angles = tf.range(num_words, dtype=tf.float64)[:, None] * rates + phases
    return tf.cast(tf.sin(angles), tf.float32)


def causal_mask(num_words: int | tf.Tensor) -> tf.Tensor:
    """float32 [T, T], 0 where a word attends to itself and to those before it, else as low as can be."""
    # GPUs compare int32 on the host.
    steps = tf.range(tf.cast(num_words, tf.int64))
    return tf.where(steps <= steps[:, None], 0.0, tf.float32.min)


def product(x: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
    """x W, in the dtype of the matrix."""
    return tf.matmul(tf.cast(x, matrix.dtype), matrix)


def heads(x: tf.Tensor, matrix: tf.Tensor, num_heads: int, num_words: int | tf.Tensor) -> list[tf.Tensor]:
    """The products of rows [N, D] with each [D, D] of a matrix [D, P D]: P times [B, H, T, D/H]."""
    width = matrix.shape[0]
    rows = product(x, matrix)
    parts = tf.reshape(rows, [-1, num_words, matrix.shape[1] // width, num_heads, width // num_heads])
    return tf.unstack(tf.transpose(parts, [2, 0, 3, 1, 4]))


def attend(query: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, masked: tf.Tensor) -> tf.Tensor:
    """softmax(Q K' / sqrt(D/H)) V of every head: rows [N, D].

    Args:
      query: [B, H, T, D/H].
      keys, values: [B, H, S, D/H].
      masked: float32, added to the scores [B, H, T, S].
    """
    num_heads, size = query.shape[1], query.shape[3]
    scores = tf.matmul(query * tf.cast(size**-0.5, query.dtype), keys, transpose_b=True)
    shares = tf.nn.softmax(tf.cast(scores, tf.float32) + masked)
    contexts = tf.matmul(tf.cast(shares, values.dtype), values)
    return tf.reshape(tf.transpose(contexts, [0, 2, 1, 3]), [-1, num_heads * size])


def feed_forward(x: tf.Tensor, weights: Weights) -> tf.Tensor:
    """relu(x W + b) W' + b'."""
    hidden = tf.nn.relu(_add_bias(product(x, weights["inner"]), weights["inner/bias"]))
    return _add_bias(product(hidden, weights["outer"]), weights["outer/bias"])


def _add_bias(x: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    return tf.nn.bias_add(x, tf.cast(bias, x.dtype))


def add_and_norm(
    x: tf.Tensor, output: tf.Tensor, weights: Weights, drop: Callable[[tf.Tensor], tf.Tensor]
) -> tf.Tensor:
    """LayerNorm(x + Dropout(Sublayer(x))), as the paper has it: the norm comes after the sum."""
    return layer_norm(x + drop(tf.cast(output, tf.float32)), weights["norm/gain"], weights["norm/bias"])


def layer_norm(x: tf.Tensor, gain: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
    """Each row [D] with mean 0 and variance 1, times the gain, plus the bias: arXiv:1607.06450."""
    return _normalized(x) * gain + bias


@tf.custom_gradient
def _normalized(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
    def mean(rows: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(rows, axis=1, keepdims=True)

    centred = x - mean(x)
    scale = tf.math.rsqrt(mean(tf.square(centred)) + EPSILON)
    y = centred * scale
    return y, lambda d: (d - mean(d) - y * mean(d * y)) * scale
