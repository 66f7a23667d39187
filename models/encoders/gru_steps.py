"""The fused CPU kernel of the GRU: one MatMul a step forward and one backward, with a gradient written by hand.

The input's products are made in one piece before the loop, and those of the weights' gradients after it. TensorFlow's
`GRUBlockCell` computes another GRU (see models/cells/gru.py). Backward, a step's gradients of r, u and of n's recurrent
product are its gradient of h times factors that need no loop, so the loop has little else than its MatMul.

Where our own operators can be used (models/extension), they compute both loops.

Products are in the stack's dtype, bfloat16 or float32; gates and states in float32. float16, which CPUs only emulate,
is computed in float32 from weights, inputs and to outputs rounded to float16.

T: steps, B: sentences, D: width of the input, U: units.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from rnn_scaling.models import stacks
from rnn_scaling.models.extension import operators


class _GruForward(NamedTuple):
    """Every step's gates, their nonlinearity applied, and outputs; each [T, B, U], float32."""

    r: tf.Tensor
    u: tf.Tensor
    n: tf.Tensor
    state_n: tf.Tensor  # what r is multiplied with: the state's product and its bias
    h: tf.Tensor


def kernel_name(stack: stacks.RecurrentStack) -> str:
    return "packed GRU" if operators.usable(stack.product_dtype) else "fused GRU steps"


def build(stack: stacks.RecurrentStack) -> stacks.Run:
    """The function of `stack`; T and B may be unknown while tracing."""
    return (
        build_packed(stack)
        if operators.usable(stack.product_dtype)
        else stacks.run_fused_layers(stack, _cell)
    )


def build_packed(stack: stacks.RecurrentStack) -> stacks.Run:
    """As `build`, by our own operators in any case."""
    return stacks.run_fused_layers(stack, _packed_cell)


_CellGradient = Callable[..., tuple["tf.Tensor | None", ...]]


@tf.custom_gradient
def _cell(
    x: tf.Tensor,
    lengths: tf.Tensor,
    h: tf.Tensor,
    kernel: tf.Tensor,
    recurrent: tf.Tensor,
    bias: tf.Tensor,
) -> tuple[tuple[tf.Tensor, tf.Tensor], _CellGradient]:
    """x [T, B, D] and both kernels in the products' dtype, the rest float32 -> float32 outputs and last h."""
    forward = _run_forward(x, h, kernel, recurrent, bias)
    ends = stacks.Ends(lengths, tf.shape(x)[0], tf.shape(x)[1])

    def gradient(
        d_outputs: tf.Tensor, d_last_h: tf.Tensor
    ) -> tuple[tf.Tensor | None, ...]:
        h_prev = tf.concat([h[None], forward.h[:-1]], axis=0)
        d_input, d_state, d_h = _run_backward(
            forward, h_prev, recurrent, ends.gradient(d_outputs, d_last_h)
        )
        return _large_products(x, h_prev, kernel, d_input, d_state, d_h)

    return (forward.h * ends.inside, ends.of(forward.h)), gradient


@tf.custom_gradient
def _packed_cell(
    x: tf.Tensor,
    lengths: tf.Tensor,
    h: tf.Tensor,
    kernel: tf.Tensor,
    recurrent: tf.Tensor,
    bias: tf.Tensor,
) -> tuple[tuple[tf.Tensor, tf.Tensor], _CellGradient]:
    """As `_cell`, by our own operators, with outputs in the products' dtype."""
    ours, units = operators.load(), h.shape[1]
    from_input = tf.reshape(
        tf.reshape(x, [-1, x.shape[2]]) @ kernel,
        [*tf.unstack(tf.shape(x)[:2]), 3 * units],
    )
    forward = ours.rnn_scaling_gru(from_input, recurrent, bias, h, lengths)

    def gradient(
        d_outputs: tf.Tensor, d_last_h: tf.Tensor
    ) -> tuple[tf.Tensor | None, ...]:
        made = forward.gates, forward.hs
        *d_products, d_h = ours.rnn_scaling_gru_grad(
            recurrent, h, lengths, *made, d_outputs, d_last_h
        )
        d_input, d_state = (tf.reshape(d, [-1, 3 * units]) for d in d_products)
        h_prev = tf.concat([h[None], forward.hs[:-1]], axis=0)
        return _large_products(x, h_prev, kernel, d_input, d_state, d_h)

    return (forward.outputs, forward.last_h), gradient


def _run_forward(
    x: tf.Tensor, h: tf.Tensor, kernel: tf.Tensor, recurrent: tf.Tensor, bias: tf.Tensor
) -> _GruForward:
    num_steps, units = tf.shape(x)[0], h.shape[1]
    input_bias, state_bias = tf.split(bias, [3 * units, units])
    from_input = (
        tf.cast(tf.reshape(x, [-1, x.shape[2]]) @ kernel, tf.float32) + input_bias
    )
    input_gates, input_n = (
        tf.reshape(part, [num_steps, -1, part.shape[1]])
        for part in tf.split(from_input, [2 * units, units], axis=1)
    )

    def body(
        t: tf.Tensor, h: tf.Tensor, sequences: tuple[tf.TensorArray, ...]
    ) -> tuple[tf.Tensor, tf.Tensor, tuple[tf.TensorArray, ...]]:
        from_state = tf.cast(tf.cast(h, x.dtype) @ recurrent, tf.float32)
        state_gates, state_n = tf.split(from_state, [2 * units, units], axis=1)
        gates, state_n = tf.sigmoid(input_gates[t] + state_gates), state_n + state_bias
        r, u = tf.split(gates, 2, axis=1)
        n = tf.tanh(input_n[t] + r * state_n)
        h = n + u * (h - n)
        return (
            t + 1,
            h,
            tuple(
                s.write(t, y)
                for s, y in zip(sequences, (r, u, n, state_n, h), strict=True)
            ),
        )

    sequences = tuple(
        tf.TensorArray(tf.float32, num_steps, element_shape=h.shape)
        for _ in _GruForward._fields
    )
    *_, sequences = tf.while_loop(
        lambda t, *_: t < num_steps, body, (0, h, sequences), parallel_iterations=1
    )
    return _GruForward(*(s.stack() for s in sequences))


def _run_backward(
    forward: _GruForward, h_prev: tf.Tensor, recurrent: tf.Tensor, d_sequence: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gradients of the input's products and of the state's [T * B, 3U], in the products' dtype, and of the first h.

    Args:
      h_prev: h before each step, [T, B, U].
      recurrent: [U, 3U], in the products' dtype.
      d_sequence: gradient of each h as an output, [T, B, U].
    """
    r, u, n, state_n, _ = forward
    num_steps, units = tf.shape(d_sequence)[0], r.shape[2]
    to_n = (1 - u) * (
        1 - n * n
    )  # gradient of n before its tanh, for a gradient of h of one; and so on
    to_gates = to_n * state_n * r * (1 - r), (h_prev - n) * u * (1 - u)
    to_state = tf.stack([*to_gates, to_n * r], axis=2)
    # Transposed once: a product with a transposed matrix takes longer, T times.
    transposed = tf.transpose(recurrent)

    def products(d_h: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
        """d_h [N, U] and factors [N, 3, U] -> [N, 3U]."""
        return tf.cast(
            tf.reshape(d_h[:, None] * factors, [-1, 3 * units]), recurrent.dtype
        )

    def body(
        t: tf.Tensor, d_h: tf.Tensor, d_steps: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray]:
        d_h += d_sequence[t]
        before = d_h * u[t] + tf.cast(
            products(d_h, to_state[t]) @ transposed, tf.float32
        )
        return t - 1, before, d_steps.write(t, d_h)

    d_steps = tf.TensorArray(tf.float32, num_steps, element_shape=r.shape[1:])
    loop = (num_steps - 1, tf.zeros_like(h_prev[0]), d_steps)
    _, d_h, d_steps = tf.while_loop(
        lambda t, *_: t >= 0, body, loop, parallel_iterations=1
    )
    rows = tf.reshape(d_steps.stack(), [-1, units])
    d_state = products(rows, tf.reshape(to_state, [-1, 3, units]))
    d_n = tf.cast(rows * tf.reshape(to_n, [-1, units]), recurrent.dtype)
    return tf.concat([d_state[:, : 2 * units], d_n], axis=1), d_state, d_h


def _large_products(
    x: tf.Tensor,
    h_prev: tf.Tensor,
    kernel: tf.Tensor,
    d_input: tf.Tensor,
    d_state: tf.Tensor,
    d_h: tf.Tensor,
) -> tuple[tf.Tensor | None, ...]:
    """Gradients of x, lengths, h, kernel, recurrent and bias, over all steps at once, as in `_run_backward`."""
    units = h_prev.shape[2]
    d_x = tf.reshape(tf.matmul(d_input, kernel, transpose_b=True), tf.shape(x))
    d_kernel = tf.matmul(tf.reshape(x, [-1, x.shape[2]]), d_input, transpose_a=True)
    h_rows = tf.cast(tf.reshape(h_prev, [-1, units]), x.dtype)
    d_recurrent = tf.matmul(h_rows, d_state, transpose_a=True)
    # A product with ones adds up the columns ten times as fast as reduce_sum(axis=0).
    ones = tf.ones([1, tf.shape(d_input)[0]], d_input.dtype)
    d_bias = tf.concat([ones @ d_input, ones @ d_state[:, 2 * units :]], axis=1)[0]
    return d_x, None, d_h, d_kernel, d_recurrent, tf.cast(d_bias, tf.float32)
