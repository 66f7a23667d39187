"""Sublayers of the Transformer as functions of the words' rows; a step of decoding can use them with T = 1.

Products have the dtype of the matrices that they are given; all else is float32.

T: words of the longest sentence, S: of the one that is attended to, B: sentences, N = B T: rows, sentence after
sentence, D: width, H: heads.
Source: Vaswani et al., arXiv:1706.03762, sections 3.1 to 3.5.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import Tensor

EPSILON = 1e-6  # of the layer norm, as in the authors' tensor2tensor
Weights = Mapping[str, Tensor]
"""Of one sublayer, by their names within it."""


class Words(NamedTuple):
    """What sublayers compute with."""

    rows: Tensor  # [N, D]
    num_words: int | Tensor  # T
    masked: Tensor  # float32, added to scores [B, H, *, T] of these words: 0, or as low as can be


def positions(num_words: int | Tensor, width: int) -> Tensor:
    """sin(t / 10000^(2i/D)) in column 2i, the cosine in column 2i + 1: [T, D]."""
    column = np.arange(width)
    rates = 10_000.0 ** -(column // 2 * 2 / width)
    phases = column % 2 * (np.pi / 2)
    angles = tf.range(num_words, dtype=tf.float64)[:, None] * rates + phases
    return tf.cast(tf.sin(angles), tf.float32)


def causal_mask(num_words: int | Tensor) -> Tensor:
    """float32 [T, T], 0 where a word attends to itself and to those before it, else as low as can be."""
    # GPUs compare int32 on the host.
    steps = tf.cast(tf.range(num_words), tf.int64)
    return tf.where(steps <= steps[:, None], 0.0, tf.float32.min)


def attention(
    x: Words, weights: Weights, num_heads: int, memory: Words | None = None
) -> Tensor:
    """What the words attend to, in themselves or in a memory: [N, D]."""
    if memory is None:
        query, keys, values = heads(x, weights["input"], num_heads)
    else:
        (query,), (keys, values) = (
            heads(x, weights["query"], num_heads),
            heads(memory, weights["input"], num_heads),
        )
    return product(attend(query, keys, values, (memory or x).masked), weights["output"])


def heads(x: Words, matrix: Tensor, num_heads: int) -> list[Tensor]:
    """The rows' product with each [D, D] of a matrix [D, P D]: P times [B, H, T, D/H]."""
    width = matrix.shape[0]
    parts = [-1, x.num_words, matrix.shape[1] // width, num_heads, width // num_heads]
    return tf.unstack(
        tf.transpose(tf.reshape(product(x.rows, matrix), parts), [2, 0, 3, 1, 4])
    )


def attend(query: Tensor, keys: Tensor, values: Tensor, masked: Tensor) -> Tensor:
    """softmax(Q K' / sqrt(D/H)) V of every head: [N, D], of [B, H, T, D/H] and twice [B, H, S, D/H]."""
    num_heads = query.shape[1]
    size = query.shape[3]
    scores = tf.matmul(query * tf.cast(size**-0.5, query.dtype), keys, transpose_b=True)
    shares = tf.nn.softmax(tf.cast(scores, tf.float32) + masked)
    contexts = tf.matmul(tf.cast(shares, values.dtype), values)
    return tf.reshape(tf.transpose(contexts, [0, 2, 1, 3]), [-1, num_heads * size])


def feed_forward(x: Words, weights: Weights) -> Tensor:
    """relu(x W + b) W' + b'."""
    hidden = tf.nn.relu(
        _add_bias(product(x.rows, weights["inner"]), weights["inner/bias"])
    )
    return _add_bias(product(hidden, weights["outer"]), weights["outer/bias"])


def product(x: Tensor, matrix: Tensor) -> Tensor:
    """x W, in the dtype of the matrix."""
    return tf.matmul(tf.cast(x, matrix.dtype), matrix)


def _add_bias(x: Tensor, bias: Tensor) -> Tensor:
    return tf.nn.bias_add(x, tf.cast(bias, x.dtype))


def layer_norm(x: Tensor, weights: Weights) -> Tensor:
    """Each row [D] with mean 0 and variance 1, times the gain, plus the bias: arXiv:1607.06450."""
    return _normalized(x) * weights["norm/gain"] + weights["norm/bias"]


@tf.custom_gradient
def _normalized(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    def mean(rows: Tensor) -> Tensor:
        return tf.reduce_mean(rows, axis=1, keepdims=True)

    centred = x - mean(x)
    scale = tf.math.rsqrt(mean(tf.square(centred)) + EPSILON)
    y = centred * scale
    return y, lambda d: (d - mean(d) - y * mean(d * y)) * scale
