"""Projection to the vocabulary and cross entropy in one function with its own gradient.

N: words, U: units, V: vocabulary.
"""

from __future__ import annotations

import tensorflow as tf


def loss_sum(hidden: tf.Tensor, projection: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor) -> tf.Tensor:
    """Sum of -log p(label) over the words that count.

    Args:
      hidden: [N, U], float32, bfloat16 or float16; the products are made in its dtype.
      projection: [U, V] float32.
      labels: [N] int32, each in [0, V).
      weights: [N] float32, 1 for a word that counts and 0 for padding.

    Returns:
      float32 scalar; exponentials and sums are float32 whatever the dtype of `hidden`.
    """
    return _loss_sum(hidden, tf.cast(projection, hidden.dtype), labels, weights)


@tf.custom_gradient
def _loss_sum(hidden, projection, labels, weights):
    logits = tf.cast(tf.matmul(hidden, projection), tf.float32)
    largest = tf.reduce_max(logits, axis=1)
    probabilities = tf.nn.softmax(logits)
    at_label = tf.stack([tf.range(tf.shape(labels)[0]), labels], axis=1)
    # The likeliest word's p is 1/sum(exp(logit - largest)) >= 1/V: its logarithm is never that of 0.
    losses = largest - tf.gather_nd(logits, at_label) - tf.math.log(tf.reduce_max(probabilities, axis=1))

    def gradient(d_loss):
        scale = weights * d_loss
        d_logits = tf.tensor_scatter_nd_add(probabilities * scale[:, None], at_label, -scale)
        d_logits = tf.cast(d_logits, hidden.dtype)
        d_hidden = tf.matmul(d_logits, projection, transpose_b=True)
        return d_hidden, tf.matmul(hidden, d_logits, transpose_a=True), None, None

    return tf.reduce_sum(losses * weights), gradient
