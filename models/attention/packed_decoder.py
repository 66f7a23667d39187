"""The decoder of `step_wise` with this project's operators (models/extension).

One call computes all steps forward, and one call all steps backward.

T: target words, S: source words, B: sentences, L: layers, U: units, D: width of the
memory, F: width of the first layer's input from the previous step: U (luong) or D
(bahdanau).

`step_wise` calls `decode` if the operators can be used. Its own loop computes the same,
and `operators_check` compares both forms: change them together, and the C code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import stacks
from rnn_scaling.models.attention.loop_products import sum_outer_products
from rnn_scaling.models.extension import operators


class Results(NamedTuple):
    """The results of all steps, float32."""

    contexts: Tensor  # [T, B, D]
    top_states: Tensor  # [T, B, U], the last layer's h
    # [T, B, U]; luong: tanh([context, h] matrix), bahdanau: the queries.
    fed: Tensor


def decode(
    from_words: Tensor,
    biases: Tensor,
    kernels: Sequence[Tensor],
    state: Sequence[stacks.State],
    keys: Tensor,
    memory: Tensor,
    mask: Tensor,
    v: Tensor,
    matrix: Tensor,
    dropout_masks: Sequence[Tensor],
) -> Results:
    """Run all steps in order. Tensors have the dtype of products unless noted otherwise.

    Args:
      from_words: [T, B, 4U], the embedded words times their rows of the first kernel.
      biases: Float32 [L, 4U], including the forget bias.
      kernels: [F + U, 4U] of the first layer, [2U, 4U] of every other layer.
      state: (c, h) per layer, float32 [B, U].
      keys: [B, S, U].
      memory: [B, S, D].
      mask: Float32 [B, S], added to the scores.
      v: [U] for bahdanau, [0] for luong.
      matrix: The output's [D + U, U] for luong, the query's [U, U] for bahdanau.
      dropout_masks: Factors of the layers' inputs, float32 [T, B, F or U] per layer;
        empty without dropout.
    """
    library = operators.load()
    dtype = memory.dtype
    is_luong = v.shape[0] == 0
    flat_masks = tf.zeros([0])
    if dropout_masks:
        rows = [tf.reshape(factors, [-1]) for factors in dropout_masks]
        flat_masks = tf.concat(rows, axis=0)

    def sum_products(x: Sequence[Tensor], y: Tensor, rank: int) -> Tensor:
        return sum_outer_products(
            tf.cast(tf.concat(x, axis=2), dtype), tf.cast(y, dtype), rank
        )

    def differentiate_kernels(
        inputs: Sequence[Tensor], previous_hs: Tensor, d_gates: Tensor
    ) -> list[Tensor]:
        if dropout_masks:
            inputs = [x * m for x, m in zip(inputs, dropout_masks, strict=True)]
        d_kernels = []
        for layer, x in enumerate(inputs):
            factors = [x, previous_hs[layer]]
            d_kernels.append(sum_products(factors, d_gates[layer], 2))
        return d_kernels

    @tf.custom_gradient
    def run(from_words, biases, all_kernels, first_c, first_h, keys, memory, v, matrix):  # type: ignore[no-untyped-def]
        gates, cs, hs, shares, contexts, fed = library.rnn_scaling_decode(
            from_words,
            biases,
            all_kernels,
            first_c,
            first_h,
            keys,
            memory,
            mask,
            v,
            matrix,
            flat_masks,
        )

        def differentiate(*d_results: Tensor) -> tuple[Tensor, ...]:
            d = library.rnn_scaling_decode_grad(
                all_kernels,
                first_c,
                keys,
                memory,
                v,
                matrix,
                flat_masks,
                gates,
                cs,
                hs,
                shares,
                fed,
                *d_results,
            )
            previous_hs = tf.concat([first_h[:, None], hs], axis=1)[:, :-1]
            if is_luong:
                first_input = tf.concat([tf.zeros_like(fed[:1]), fed[:-1]], axis=0)
                d_keys = sum_products([d.d_scores], hs[-1], 3)
                d_matrix = sum_products([contexts, hs[-1]], d.d_products, 2)
            else:
                first_input = contexts
                d_keys = tf.cast(d.d_keys, dtype)
                d_matrix = sum_products([previous_hs[-1]], d.d_products, 2)
            inputs = [first_input, *(hs[layer] for layer in range(len(kernels) - 1))]
            d_kernels = differentiate_kernels(inputs, previous_hs, d.d_gates)
            d_memory = sum_products([shares], d.d_all_contexts, 3)
            return (
                d.d_gates[0],
                d.d_biases,
                tf.concat(d_kernels, axis=0),
                d.d_first_c,
                d.d_first_h,
                d_keys,
                d_memory,
                tf.cast(d.d_v, dtype),
                d_matrix,
            )

        return (contexts, hs[-1], fed), differentiate

    first_c, first_h = (tf.stack(states) for states in zip(*state, strict=True))
    all_kernels = tf.concat(kernels, axis=0)
    return Results(
        *run(from_words, biases, all_kernels, first_c, first_h, keys, memory, v, matrix)
    )
