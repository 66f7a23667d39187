"""The fused CPU kernel: `BlockLSTM` forward, and backward a loop of `LSTMBlockCellGrad` and one MatMul a step.

TensorFlow registers no gradient for the V1 op and a wrong one for V2, and its `BlockLSTMGrad` multiplies
small matrices for the weights' gradient at each step. Here these products are made once, after the loop.

T: steps, B: sentences, D: width of the input, U: units.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from models import lstm

KERNEL = "BlockLSTM + LSTMBlockCellGrad"


class _Forward(NamedTuple):
    """Every step's gates after their nonlinearity, cell states and outputs; each [T, B, U]."""

    i: tf.Tensor
    cs: tf.Tensor
    f: tf.Tensor
    o: tf.Tensor
    ci: tf.Tensor
    co: tf.Tensor
    h: tf.Tensor


def build(stack: lstm.LstmStack) -> lstm.Run:
    """The function of `stack`; T and B may be unknown while tracing."""

    @tf.custom_gradient
    def run_cell(x, lengths, c, h, kernel, bias):
        forward = _run_forward(x, c, h, kernel, bias, stack.forget_bias)
        inside = tf.sequence_mask(lengths, tf.shape(x)[0], x.dtype)
        inside = tf.transpose(inside)[:, :, None]
        last = (lengths - 1) * tf.shape(x)[1] + tf.range(tf.shape(x)[1])

        def at_length(sequence):
            return tf.gather(tf.reshape(sequence, [-1, stack.num_units]), last)

        def gradient(d_outputs, d_last_c, d_last_h):
            d_h = d_outputs * inside
            d_h = tf.tensor_scatter_nd_add(tf.reshape(d_h, [-1, stack.num_units]), last[:, None], d_last_h)
            d_h = tf.reshape(d_h, tf.shape(forward.h))
            d_gates, d_c, d_first_h = _run_backward(forward, lengths, x, c, h, kernel, d_h, d_last_c)
            d_x, d_kernel, d_bias = _weight_gradients(x, forward.h, h, kernel, d_gates)
            return d_x, None, d_c, d_first_h, d_kernel, d_bias

        return lstm.CellResult(forward.h * inside, at_length(forward.cs), at_length(forward.h)), gradient

    return lstm.run_layers(stack, run_cell)


def _run_forward(x, c, h, kernel, bias, forget_bias: float) -> _Forward:
    peephole = tf.zeros_like(bias[: c.shape[1]])
    return _Forward(
        *tf.raw_ops.BlockLSTM(
            seq_len_max=tf.cast(tf.shape(x)[0], tf.int64),
            x=x,
            cs_prev=c,
            h_prev=h,
            w=kernel,
            wci=peephole,
            wcf=peephole,
            wco=peephole,
            b=bias,
            forget_bias=forget_bias,
            cell_clip=-1.0,
            use_peephole=False,
        )
    )


def _run_backward(forward: _Forward, lengths, x, c, h, kernel, d_h_sequence, d_last_c):
    """Gradients of the gates before their nonlinearity [T, B, 4U], and of the first c and h."""
    num_steps = tf.shape(x)[0]
    num_units = c.shape[1]
    recurrent = kernel[x.shape[2] :]
    peephole = tf.zeros([num_units], x.dtype)
    cs_prev = tf.concat([c[None], forward.cs[:-1]], axis=0)
    bias = tf.zeros([4 * num_units], x.dtype)

    def body(t, d_c, d_h, d_gates_list):
        d_c = tf.where((lengths == t + 1)[:, None], d_last_c, d_c)
        grad = tf.raw_ops.LSTMBlockCellGrad(
            x=x[t],
            cs_prev=cs_prev[t],
            h_prev=h,
            w=kernel,
            wci=peephole,
            wcf=peephole,
            wco=peephole,
            b=bias,
            i=forward.i[t],
            cs=forward.cs[t],
            f=forward.f[t],
            o=forward.o[t],
            ci=forward.ci[t],
            co=forward.co[t],
            cs_grad=d_c,
            h_grad=d_h_sequence[t] + d_h,
            use_peephole=False,
        )
        d_h = tf.matmul(grad.dicfo, recurrent, transpose_b=True)
        return t - 1, grad.cs_prev_grad, d_h, d_gates_list.write(t, grad.dicfo)

    d_gates_list = tf.TensorArray(x.dtype, size=num_steps, element_shape=[x.shape[1], 4 * num_units])
    zeros = tf.zeros_like(c)
    _, d_c, d_h, d_gates_list = tf.while_loop(
        lambda t, *_: t >= 0, body, (num_steps - 1, zeros, zeros, d_gates_list), parallel_iterations=1
    )
    return d_gates_list.stack(), d_c, d_h


def _weight_gradients(x, h_sequence, h, kernel, d_gates):
    """Gradients of x, kernel and bias: large products over all steps at once."""
    d_rows = tf.reshape(d_gates, [-1, kernel.shape[1]])
    d_x = tf.reshape(tf.matmul(d_rows, kernel[: x.shape[2]], transpose_b=True), tf.shape(x))
    h_prev = tf.concat([h[None], h_sequence[:-1]], axis=0)
    xh = tf.reshape(tf.concat([x, h_prev], axis=2), [-1, kernel.shape[0]])
    return d_x, tf.matmul(xh, d_rows, transpose_a=True), tf.reduce_sum(d_rows, axis=0)
