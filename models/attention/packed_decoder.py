"""The decoder of `step_wise` by our own operators (models/extension): one call for all steps, and one backward.

T: target words, S: source words, B: sentences, L: layers, U: units, D: width of the memory, F: width of what the first
layer reads of the step before: U (luong) or D (bahdanau).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import stacks
from rnn_scaling.models.attention.loop_products import outer_sum
from rnn_scaling.models.extension import operators


class Results(NamedTuple):
    """Of all steps, float32."""

    contexts: Tensor  # [T, B, D]
    tops: Tensor  # [T, B, U], the last layer's h
    made: Tensor  # [T, B, U]: tanh([context, h] matrix) with luong, the queries with bahdanau


def decode(
    from_words: Tensor,
    biases: Tensor,
    kernels: Sequence[Tensor],
    state: Sequence[stacks.State],
    keys: Tensor,
    memory: Tensor,
    masked: Tensor,
    v: Tensor,
    matrix: Tensor,
    dropped: Sequence[Tensor],
) -> Results:
    """Runs all steps in order. Tensors have the dtype of products unless float32 is stated.

    Args:
      from_words: [T, B, 4U], the words' part of the first layer's product.
      biases: float32 [L, 4U], with the forget gate's.
      kernels: [F + U, 4U] of the first layer, [2U, 4U] of each other.
      state: each layer's (c, h), float32 [B, U].
      keys: [B, S, U].
      memory: [B, S, D].
      masked: float32 [B, S], added to the scores.
      v: [U] with bahdanau, [0] with luong.
      matrix: [D + U, U] of the output with luong, [U, U] of the query with bahdanau.
      dropped: float32 [T, B, F or U] per layer, which multiplies the layer's input; empty without dropout.
    """
    ours = operators.load()
    dtype = memory.dtype
    is_luong = v.shape[0] == 0
    flat = (
        tf.concat([tf.reshape(mask, [-1]) for mask in dropped], axis=0)
        if dropped
        else tf.zeros([0])
    )

    def product_sum(x: Sequence[Tensor], y: Tensor, rank: int) -> Tensor:
        return outer_sum(tf.cast(tf.concat(x, axis=2), dtype), tf.cast(y, dtype), rank)

    @tf.custom_gradient
    def run(from_words, biases, all_kernels, first_c, first_h, keys, memory, v, matrix):  # type: ignore[no-untyped-def]
        gates, cs, hs, shares, contexts, made = ours.rnn_scaling_decode(
            from_words,
            biases,
            all_kernels,
            first_c,
            first_h,
            keys,
            memory,
            masked,
            v,
            matrix,
            flat,
        )

        def gradient(*d_results: Tensor) -> tuple[Tensor, ...]:
            d = ours.rnn_scaling_decode_grad(
                all_kernels,
                first_c,
                keys,
                memory,
                v,
                matrix,
                flat,
                gates,
                cs,
                hs,
                shares,
                made,
                *d_results,
            )
            before = tf.concat([first_h[:, None], hs], axis=1)[:, :-1]
            if is_luong:
                fed = tf.concat([tf.zeros_like(made[:1]), made[:-1]], axis=0)
                d_keys = product_sum([d.d_scores], hs[-1], 3)
                d_matrix = product_sum([contexts, hs[-1]], d.d_products, 2)
            else:
                fed = contexts
                d_keys = tf.cast(d.d_keys, dtype)
                d_matrix = product_sum([before[-1]], d.d_products, 2)
            read = [fed, *(hs[layer] for layer in range(len(kernels) - 1))]
            read = (
                [x * mask for x, mask in zip(read, dropped, strict=True)]
                if dropped
                else read
            )
            d_kernels = [
                product_sum([x, before[n]], d.d_gates[n], 2) for n, x in enumerate(read)
            ]
            d_memory = product_sum([shares], d.d_all_contexts, 3)
            d_weights = (
                d.d_biases,
                tf.concat(d_kernels, axis=0),
                d.d_first_c,
                d.d_first_h,
            )
            return (
                d.d_gates[0],
                *d_weights,
                d_keys,
                d_memory,
                tf.cast(d.d_v, dtype),
                d_matrix,
            )

        return (contexts, hs[-1], made), gradient

    first_c, first_h = (tf.stack(parts) for parts in zip(*state, strict=True))
    all_kernels = tf.concat(kernels, axis=0)
    return Results(
        *run(from_words, biases, all_kernels, first_c, first_h, keys, memory, v, matrix)
    )
