"""The fused CPU kernel: `BlockLSTM` forward, and backward a loop of `LSTMBlockCellGrad` and one MatMul a step.

TensorFlow registers no gradient for the V1 op and a wrong one for V2, and its `BlockLSTMGrad` multiplies
small matrices for the weights' gradient at each step. Here these products are made once, after the loop.

`BlockLSTM` has no bfloat16, so there the forward pass is a loop too: products in bfloat16, the input's in one
piece before the loop, gates and cell states in float32. float16, which CPUs only emulate, is computed
in float32 from weights, inputs and to outputs rounded to float16.

Where our own operators were built and can be taken (models/extension), they are: one call a layer forward and one
backward. A step is then one product of its input and state with the kernel, which is packed once a call, and its gates
are computed while the product's sums are still in the caches.

T: steps, B: sentences, D: width of the input, U: units.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from rnn_scaling.models import stacks
from rnn_scaling.models.extension import operators

_CellResults = tuple[
    tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    Callable[..., tuple["tf.Tensor | None", ...]],
]


class LstmStep(NamedTuple):
    """Gates after their nonlinearity, cell states and outputs, [B, U] of a step or [T, B, U] of all; float32."""

    i: tf.Tensor
    cs: tf.Tensor
    f: tf.Tensor
    o: tf.Tensor
    ci: tf.Tensor
    co: tf.Tensor
    h: tf.Tensor


def kernel_name(stack: stacks.RecurrentStack) -> str:
    if operators.usable(stack.product_dtype):
        return "packed LSTM"
    return (
        "MatMul loop + LSTMBlockCellGrad"
        if stack.dtype == "bfloat16"
        else "BlockLSTM + LSTMBlockCellGrad"
    )


def build(stack: stacks.RecurrentStack) -> stacks.Run:
    """The function of `stack`; T and B may be unknown while tracing."""
    if operators.usable(stack.product_dtype):
        return build_packed(stack)
    run_forward = _loop_forward if stack.dtype == "bfloat16" else _block_forward

    @tf.custom_gradient
    def cell(
        x: tf.Tensor,
        lengths: tf.Tensor,
        c: tf.Tensor,
        h: tf.Tensor,
        kernel: tf.Tensor,
        bias: tf.Tensor,
    ) -> _CellResults:
        """x [T, B, D] and kernel in the products' dtype, the rest float32 -> float32 outputs, last c and h."""
        forward = run_forward(x, c, h, kernel, bias, stack.forget_bias)
        ends = stacks.Ends(lengths, tf.shape(x)[0], tf.shape(x)[1])

        def gradient(
            d_outputs: tf.Tensor, d_last_c: tf.Tensor, d_last_h: tf.Tensor
        ) -> tuple[tf.Tensor | None, ...]:
            d_sequence = ends.gradient(d_outputs, d_last_h)
            d_gates, d_c, d_h = _run_backward(
                forward, lengths, c, h, kernel, d_sequence, d_last_c
            )
            d_x, d_kernel, d_bias = _large_products(x, forward.h, h, kernel, d_gates)
            return d_x, None, d_c, d_h, d_kernel, d_bias

        return (
            forward.h * ends.inside,
            ends.of(forward.cs),
            ends.of(forward.h),
        ), gradient

    return stacks.run_fused_layers(stack, cell)


def build_packed(stack: stacks.RecurrentStack) -> stacks.Run:
    """As `build`, by our own operators in any case."""
    ours = operators.load()

    @tf.custom_gradient
    def cell(
        x: tf.Tensor,
        lengths: tf.Tensor,
        c: tf.Tensor,
        h: tf.Tensor,
        kernel: tf.Tensor,
        bias: tf.Tensor,
    ) -> _CellResults:
        """As `build`'s, with outputs in the products' dtype."""
        all_biases = bias + tf.repeat(
            tf.constant([0.0, 0.0, stack.forget_bias, 0.0]), c.shape[1]
        )
        forward = ours.rnn_scaling_lstm(x, kernel, all_biases, c, h, lengths)

        def gradient(*d_results: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
            made = forward.gates, forward.cs, forward.outputs
            d_x, d_kernel, d_bias, d_c, d_h = ours.rnn_scaling_lstm_grad(
                x, kernel, c, h, lengths, *made, *d_results
            )
            return d_x, None, d_c, d_h, d_kernel, d_bias

        return (forward.outputs, forward.last_c, forward.last_h), gradient

    return stacks.run_fused_layers(stack, cell)


def _block_forward(
    x: tf.Tensor,
    c: tf.Tensor,
    h: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    forget_bias: float,
) -> LstmStep:
    peephole = tf.zeros([c.shape[1]])
    return LstmStep(
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


def _loop_forward(
    x: tf.Tensor,
    c: tf.Tensor,
    h: tf.Tensor,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    forget_bias: float,
) -> LstmStep:
    num_steps, input_dim, units = tf.shape(x)[0], x.shape[2], c.shape[1]
    recurrent = kernel[input_dim:]
    from_input = tf.matmul(tf.reshape(x, [-1, input_dim]), kernel[:input_dim])
    from_input = tf.reshape(from_input, [num_steps, -1, 4 * units])
    bias += tf.repeat(tf.constant([0.0, 0.0, forget_bias, 0.0]), units)

    def body(
        t: tf.Tensor, c: tf.Tensor, h: tf.Tensor, sequences: LstmStep
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, LstmStep]:
        gates = (
            tf.cast(from_input[t], tf.float32)
            + tf.cast(tf.cast(h, x.dtype) @ recurrent, tf.float32)
            + bias
        )
        step = lstm_step(gates, c)
        return (
            t + 1,
            step.cs,
            step.h,
            LstmStep(*(s.write(t, y) for s, y in zip(sequences, step, strict=True))),
        )

    sequences = LstmStep(
        *(
            tf.TensorArray(tf.float32, num_steps, element_shape=c.shape)
            for _ in LstmStep._fields
        )
    )
    *_, sequences = tf.while_loop(
        lambda t, *_: t < num_steps, body, (0, c, h, sequences), parallel_iterations=1
    )
    return LstmStep(*(s.stack() for s in sequences))


def lstm_step(gates: tf.Tensor, c: tf.Tensor) -> LstmStep:
    """One step of gates [B, 4U] before their nonlinearity, ordered i, ci, f, o, and of c [B, U]; all float32."""
    i, ci, f, o = tf.split(gates, 4, axis=1)
    i, ci, f, o = tf.sigmoid(i), tf.tanh(ci), tf.sigmoid(f), tf.sigmoid(o)
    cs = f * c + i * ci
    co = tf.tanh(cs)
    return LstmStep(i, cs, f, o, ci, co, o * co)


def lstm_step_gradient(units: int) -> Callable[..., tuple[tf.Tensor, tf.Tensor]]:
    """(step, c before it, gradients of its cs and h) -> those of the gates before their nonlinearity and of that c."""
    # Only their shapes are read; made here, they are made once.
    peephole, b, w = (
        tf.zeros([units]),
        tf.zeros([4 * units]),
        tf.zeros([2 * units, 4 * units]),
    )

    def differentiate(
        step: LstmStep, c: tf.Tensor, d_cs: tf.Tensor, d_h: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        result = tf.raw_ops.LSTMBlockCellGrad(
            x=step.h,  # only the shapes of x and h_prev are read
            h_prev=step.h,
            cs_prev=c,
            w=w,
            wci=peephole,
            wcf=peephole,
            wco=peephole,
            b=b,
            cs_grad=d_cs,
            h_grad=d_h,
            use_peephole=False,
            **{name: value for name, value in step._asdict().items() if name != "h"},
        )
        return result.dicfo, result.cs_prev_grad

    return differentiate


def _run_backward(
    forward: LstmStep,
    lengths: tf.Tensor,
    c: tf.Tensor,
    h: tf.Tensor,
    kernel: tf.Tensor,
    d_sequence: tf.Tensor,
    d_last_c: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gradients of the gates before their nonlinearity [T, B, 4U], in the kernel's dtype, and of the first c and h."""
    num_steps, units = tf.shape(d_sequence)[0], c.shape[1]
    # Transposed once: a product with a transposed [U, 4U] matrix takes 1.8 times as long, T times.
    recurrent = tf.transpose(kernel[-units:])
    cs_prev = tf.concat([c[None], forward.cs[:-1]], axis=0)
    differentiate = lstm_step_gradient(units)

    def body(
        t: tf.Tensor, d_c: tf.Tensor, d_h: tf.Tensor, d_gates: tf.TensorArray
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.TensorArray]:
        # A sentence's last state gets its gradient where the sentence ends; all gradients after it are zero.
        d_c = tf.where((lengths == t + 1)[:, None], d_last_c, d_c)
        gates = (
            forward.i[t],
            forward.cs[t],
            forward.f[t],
            forward.o[t],
            forward.ci[t],
            forward.co[t],
        )
        d_gates_of_step, d_c = differentiate(
            LstmStep(*gates, h), cs_prev[t], d_c, d_sequence[t] + d_h
        )
        d_step = tf.cast(d_gates_of_step, kernel.dtype)
        d_h = tf.cast(tf.matmul(d_step, recurrent), tf.float32)
        return t - 1, d_c, d_h, d_gates.write(t, d_step)

    d_gates = tf.TensorArray(
        kernel.dtype, size=num_steps, element_shape=[c.shape[0], 4 * units]
    )
    zeros = tf.zeros_like(c)
    _, d_c, d_h, d_gates = tf.while_loop(
        lambda t, *_: t >= 0,
        body,
        (num_steps - 1, zeros, zeros, d_gates),
        parallel_iterations=1,
    )
    return d_gates.stack(), d_c, d_h


def _large_products(
    x: tf.Tensor,
    h_sequence: tf.Tensor,
    h: tf.Tensor,
    kernel: tf.Tensor,
    d_gates: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Gradients of x, kernel and bias, over all steps at once."""
    d_rows = tf.reshape(d_gates, [-1, kernel.shape[1]])
    d_x = tf.reshape(
        tf.matmul(d_rows, kernel[: x.shape[2]], transpose_b=True), tf.shape(x)
    )
    h_prev = tf.cast(tf.concat([h[None], h_sequence[:-1]], axis=0), x.dtype)
    xh = tf.reshape(tf.concat([x, h_prev], axis=2), [-1, kernel.shape[0]])
    # A product with ones adds up the columns ten times as fast as reduce_sum(axis=0).
    d_bias = tf.matmul(tf.ones([1, tf.shape(d_rows)[0]], d_rows.dtype), d_rows)[0]
    return d_x, tf.matmul(xh, d_rows, transpose_a=True), tf.cast(d_bias, tf.float32)
