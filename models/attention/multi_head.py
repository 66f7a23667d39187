"""Sublayers of the Transformer as functions of the words' rows.

A step of decoding uses them with T = 1. Products have the dtype of their matrices, and
all other tensors are float32.

T: words of the longest sentence, S: words of the longest attended sentence, B:
sentences, N = B T: rows, sentence after sentence, D: width, H: heads. Source: Vaswani
et al., arXiv:1706.03762, sections 3.1 to 3.5.

The functions have no state: `transformer` passes the weights.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow import Tensor

EPSILON = 1e-6  # layer norm; the value in the authors' tensor2tensor
Weights = Mapping[str, Tensor]
"""The weights of one sublayer, by their names within it."""


class WordRows(NamedTuple):
    """The words of a batch as inputs of a sublayer."""

    rows: Tensor  # [N, D]
    num_words: int | Tensor  # T
    # Float32, added to the scores [B, H, *, T] of these words: 0, or the lowest float32
    # for a word that must not be attended.
    mask: Tensor


def encode_positions(num_words: int | Tensor, width: int) -> Tensor:
    """Return [T, D]: sin(t / 10000^(2i/D)) in column 2i, its cosine in column 2i + 1."""
    column = np.arange(width)
    rates = 10_000.0 ** -(column // 2 * 2 / width)
    phases = column % 2 * (np.pi / 2)
    angles = tf.range(num_words, dtype=tf.float64)[:, None] * rates + phases
    return tf.cast(tf.sin(angles), tf.float32)


def make_causal_mask(num_words: int | Tensor) -> Tensor:
    """Return float32 [T, T]: 0 up to a word itself, the lowest float32 after it."""
    # GPUs compare int32 on the host.
    steps = tf.cast(tf.range(num_words), tf.int64)
    return tf.where(steps <= steps[:, None], 0.0, tf.float32.min)


def apply_attention(
    x: WordRows, weights: Weights, num_heads: int, memory: WordRows | None = None
) -> Tensor:
    """Return the attention [N, D] to the words themselves, or to a memory."""
    if memory is None:
        query, keys, values = split_heads(x, weights["input"], num_heads)
    else:
        (query,) = split_heads(x, weights["query"], num_heads)
        keys, values = split_heads(memory, weights["input"], num_heads)
    contexts = attend(query, keys, values, (memory or x).mask)
    return multiply(contexts, weights["output"])


def split_heads(x: WordRows, matrix: Tensor, num_heads: int) -> list[Tensor]:
    """Return the heads of the rows' product with each square of a matrix.

    Args:
      matrix: P squares [D, D] next to each other.

    Returns:
      P tensors [B, H, T, D/H].
    """
    width = matrix.shape[0]
    shape = [-1, x.num_words, matrix.shape[1] // width, num_heads, width // num_heads]
    products = tf.reshape(multiply(x.rows, matrix), shape)
    return tf.unstack(tf.transpose(products, [2, 0, 3, 1, 4]))


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Return softmax(Q K' / sqrt(D/H)) V of every head.

    Args:
      query: [B, H, T, D/H].
      keys: [B, H, S, D/H].
      values: [B, H, S, D/H].
      mask: Added to the scores [B, H, T, S].

    Returns:
      [N, D].
    """
    num_heads = query.shape[1]
    size = query.shape[3]
    scores = tf.matmul(query * tf.cast(size**-0.5, query.dtype), keys, transpose_b=True)
    shares = tf.nn.softmax(tf.cast(scores, tf.float32) + mask)
    contexts = tf.matmul(tf.cast(shares, values.dtype), values)
    return tf.reshape(tf.transpose(contexts, [0, 2, 1, 3]), [-1, num_heads * size])


def apply_feed_forward(x: WordRows, weights: Weights) -> Tensor:
    """Return relu(x W + b) W' + b'."""
    inner = multiply(x.rows, weights["inner"])
    hidden = tf.nn.relu(_add_bias(inner, weights["inner/bias"]))
    return _add_bias(multiply(hidden, weights["outer"]), weights["outer/bias"])


def multiply(x: Tensor, matrix: Tensor) -> Tensor:
    """Return x W in the dtype of the matrix."""
    return tf.matmul(tf.cast(x, matrix.dtype), matrix)


def _add_bias(x: Tensor, bias: Tensor) -> Tensor:
    return tf.nn.bias_add(x, tf.cast(bias, x.dtype))


def normalize_layer(x: Tensor, weights: Weights) -> Tensor:
    """Normalize each row [D] to mean 0 and variance 1; apply gain and bias.

    Source: Ba et al., arXiv:1607.06450.
    """
    return _normalize(x) * weights["norm/gain"] + weights["norm/bias"]


@tf.custom_gradient
def _normalize(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    def compute_mean(rows: Tensor) -> Tensor:
        return tf.reduce_mean(rows, axis=1, keepdims=True)

    centred = x - compute_mean(x)
    scale = tf.math.rsqrt(compute_mean(tf.square(centred)) + EPSILON)
    y = centred * scale
    return y, lambda d: (d - compute_mean(d) - y * compute_mean(d * y)) * scale
