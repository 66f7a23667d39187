"""The fused GRU for CPUs: one MatMul per step forward and one backward.

The input's products are computed before the loop, and the products for the weights'
gradients after it. TensorFlow's `GRUBlockCell` computes another GRU
(models/cells/gru.py). In a backward step, the gradients of r, u and of n's recurrent
product are the gradient of h times factors that are computed before the loop, so the
loop is little more than its MatMul.

If this project's operators can be used (models/extension), they compute both loops.

Products are in the stack's dtype, bfloat16 or float32; gates and states are float32.
CPUs only emulate float16: it is computed in float32, with weights, inputs and outputs
rounded to float16.

T: steps, B: sentences, D: width of the input, U: units.

`models/encoder_table.py` lists this implementation.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import loops, stacks
from rnn_scaling.models.extension import operators


class _GruForward(NamedTuple):
    """Gates after their nonlinearity, and outputs of every step: [T, B, U] float32."""

    r: Tensor
    u: Tensor
    n: Tensor
    state_n: Tensor  # the state's product for n plus its bias, before r multiplies it
    h: Tensor


def kernel_name(stack: stacks.RecurrentStack) -> str:
    """Return the name for the record; it depends on the dtype and our operators."""
    return (
        "packed GRU" if operators.is_usable(stack.product_dtype) else "fused GRU steps"
    )


def build(stack: stacks.RecurrentStack) -> stacks.Run:
    """Return the function that runs `stack`; T and B may be unknown while tracing."""
    if operators.is_usable(stack.product_dtype):
        return build_packed(stack)
    return stacks.run_fused_layers(stack, _make_cell)


def build_packed(stack: stacks.RecurrentStack) -> stacks.Run:
    """Like `build`, but always with this project's operators."""
    return stacks.run_fused_layers(stack, _make_packed_cell)


_Gradient = Callable[..., tuple[Tensor | None, ...]]


@tf.custom_gradient
def _make_cell(
    x: Tensor,
    lengths: Tensor,
    h: Tensor,
    kernel: Tensor,
    recurrent: Tensor,
    bias: Tensor,
) -> tuple[tuple[Tensor, Tensor], _Gradient]:
    """Run one direction of one layer.

    Args:
      x: [T, B, D], like both kernels in the products' dtype.

    Returns:
      Outputs and last h, float32.
    """
    forward = _run_forward(x, h, kernel, recurrent, bias)
    ends = stacks.SentenceEnds(lengths, tf.shape(x)[0], tf.shape(x)[1])

    def differentiate(d_outputs: Tensor, d_last_h: Tensor) -> tuple[Tensor | None, ...]:
        h_prev = tf.concat([h[None], forward.h[:-1]], axis=0)
        d_input, d_state, d_h = _run_backward(
            forward, h_prev, recurrent, ends.spread_gradient(d_outputs, d_last_h)
        )
        return _compute_large_products(x, h_prev, kernel, d_input, d_state, d_h)

    return (forward.h * ends.mask, ends.take_last(forward.h)), differentiate


@tf.custom_gradient
def _make_packed_cell(
    x: Tensor,
    lengths: Tensor,
    h: Tensor,
    kernel: Tensor,
    recurrent: Tensor,
    bias: Tensor,
) -> tuple[tuple[Tensor, Tensor], _Gradient]:
    """Run `_make_cell` with our own operators; outputs have the products' dtype."""
    library = operators.load()
    columns = 3 * h.shape[1]
    rows = tf.reshape(x, [-1, x.shape[2]])
    from_input = tf.reshape(rows @ kernel, [*tf.unstack(tf.shape(x)[:2]), columns])
    forward = library.rnn_scaling_gru(from_input, recurrent, bias, h, lengths)

    def differentiate(*d_results: Tensor) -> tuple[Tensor | None, ...]:
        *d_products, d_h = library.rnn_scaling_gru_grad(
            recurrent, h, lengths, forward.gates, forward.hs, *d_results
        )
        d_input, d_state = (tf.reshape(d, [-1, columns]) for d in d_products)
        h_prev = tf.concat([h[None], forward.hs[:-1]], axis=0)
        return _compute_large_products(x, h_prev, kernel, d_input, d_state, d_h)

    return (forward.outputs, forward.last_h), differentiate


def _run_forward(
    x: Tensor, h: Tensor, kernel: Tensor, recurrent: Tensor, bias: Tensor
) -> _GruForward:
    """Run all steps in a loop, and keep what the gradient needs."""
    num_steps = tf.shape(x)[0]
    units = h.shape[1]
    input_bias, state_bias = tf.split(bias, [3 * units, units])
    rows = tf.reshape(x, [-1, x.shape[2]])
    from_input = tf.cast(rows @ kernel, tf.float32) + input_bias
    input_gates, input_n = (
        tf.reshape(columns, [num_steps, -1, columns.shape[1]])
        for columns in tf.split(from_input, [2 * units, units], axis=1)
    )

    def step(t: Tensor, h: Tensor) -> tuple[tuple[Tensor, ...], _GruForward]:
        from_state = tf.cast(tf.cast(h, x.dtype) @ recurrent, tf.float32)
        state_gates, state_n = tf.split(from_state, [2 * units, units], axis=1)
        gates = tf.sigmoid(input_gates[t] + state_gates)
        state_n += state_bias
        r, u = tf.split(gates, 2, axis=1)
        n = tf.tanh(input_n[t] + r * state_n)
        h = n + u * (h - n)
        return (h,), _GruForward(r, u, n, state_n, h)

    specs = [tf.TensorSpec(h.shape)] * len(_GruForward._fields)
    _, sequences = loops.scan(step, (h,), num_steps, specs)
    return _GruForward(*sequences)


def _run_backward(
    forward: _GruForward, h_prev: Tensor, recurrent: Tensor, d_sequence: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the steps backward.

    Args:
      h_prev: h before each step, [T, B, U].
      recurrent: [U, 3U], in the products' dtype.
      d_sequence: Gradient of each h as an output, [T, B, U].

    Returns:
      The gradients of the products with the input and with the state, [T * B, 3U] in
      their dtype, and the gradient of the first h.
    """
    r, u, n, state_n, _ = forward
    units = r.shape[2]
    # Gradient of n before its tanh if the gradient of h is one; r and u likewise.
    to_n = (1 - u) * (1 - n * n)
    to_r = to_n * state_n * r * (1 - r)
    to_u = (h_prev - n) * u * (1 - u)
    to_state = tf.stack([to_r, to_u, to_n * r], axis=2)
    # Transposed once, because a product with a transposed matrix takes longer.
    transposed = tf.transpose(recurrent)

    def multiply_gates(d_h: Tensor, factors: Tensor) -> Tensor:
        """Return d_h [N, U] times factors [N, 3, U] as rows [N, 3U]."""
        rows = tf.reshape(d_h[:, None] * factors, [-1, 3 * units])
        return tf.cast(rows, recurrent.dtype)

    def step(t: Tensor, d_h: Tensor) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        d_h += d_sequence[t]
        d_previous = d_h * u[t]
        d_previous += tf.cast(multiply_gates(d_h, to_state[t]) @ transposed, tf.float32)
        return (d_previous,), [d_h]

    (d_h,), [d_steps] = loops.scan(
        step,
        (tf.zeros_like(h_prev[0]),),
        tf.shape(d_sequence)[0],
        [tf.TensorSpec(r.shape[1:])],
        backward=True,
    )
    rows = tf.reshape(d_steps, [-1, units])
    d_state = multiply_gates(rows, tf.reshape(to_state, [-1, 3, units]))
    d_n = tf.cast(rows * tf.reshape(to_n, [-1, units]), recurrent.dtype)
    return tf.concat([d_state[:, : 2 * units], d_n], axis=1), d_state, d_h


def _compute_large_products(
    x: Tensor,
    h_prev: Tensor,
    kernel: Tensor,
    d_input: Tensor,
    d_state: Tensor,
    d_h: Tensor,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of x, lengths, h, kernel, recurrent and bias for all steps.

    Args:
      h_prev: See `_run_backward`, which returns the gradients.
    """
    units = h_prev.shape[2]
    d_x = tf.reshape(tf.matmul(d_input, kernel, transpose_b=True), tf.shape(x))
    d_kernel = tf.matmul(tf.reshape(x, [-1, x.shape[2]]), d_input, transpose_a=True)
    h_rows = tf.cast(tf.reshape(h_prev, [-1, units]), x.dtype)
    d_recurrent = tf.matmul(h_rows, d_state, transpose_a=True)
    # A product with ones adds up the columns ten times as fast as reduce_sum(axis=0).
    ones = tf.ones([1, tf.shape(d_input)[0]], d_input.dtype)
    d_bias = tf.concat([ones @ d_input, ones @ d_state[:, 2 * units :]], axis=1)[0]
    return d_x, None, d_h, d_kernel, d_recurrent, tf.cast(d_bias, tf.float32)
