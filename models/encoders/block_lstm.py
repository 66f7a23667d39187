"""The fused LSTM for CPUs: `BlockLSTM` forward, `LSTMBlockCellGrad` and a MatMul backward.

TensorFlow registers no gradient for the V1 op and a wrong one for V2, and its
`BlockLSTMGrad` multiplies small matrices for the weights' gradient at each step. Here
these products are computed once, after the loop.

`BlockLSTM` has no bfloat16, so the bfloat16 forward pass is a loop. Its products are
bfloat16, with the input's product computed once before the loop; gates and cell states
are float32. CPUs only emulate float16: it is computed in float32, with weights, inputs
and outputs rounded to float16.

If this project's operators can be used (models/extension), each layer is one call
forward and one call backward. A step is then one product of its input and state with
the kernel, which is packed once per call, and its gates are computed while the sums are
in the caches.

T: steps, B: sentences, D: width of the input, U: units.

`models/encoder_table.py` lists this implementation. Decoders with attention use its
steps.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import loops, stacks
from rnn_scaling.models.extension import operators

_Gradient = Callable[..., tuple[Tensor | None, ...]]


class LstmStep(NamedTuple):
    """Gates after their nonlinearity, cell states and outputs, float32.

    [B, U] of one step, or [T, B, U] of all.
    """

    i: Tensor
    cs: Tensor
    f: Tensor
    o: Tensor
    ci: Tensor
    co: Tensor
    h: Tensor


def kernel_name(stack: stacks.RecurrentStack) -> str:
    """Return the name for the record; it depends on the dtype and our operators."""
    if operators.is_usable(stack.product_dtype):
        return "packed LSTM"
    if stack.dtype == "bfloat16":
        return "MatMul loop + LSTMBlockCellGrad"
    return "BlockLSTM + LSTMBlockCellGrad"


def build(stack: stacks.RecurrentStack) -> stacks.Run:
    """Return the function that runs `stack`; T and B may be unknown while tracing."""
    if operators.is_usable(stack.product_dtype):
        return build_packed(stack)
    run_forward = _run_loop if stack.dtype == "bfloat16" else _run_block

    @tf.custom_gradient
    def run_cell(
        x: Tensor,
        lengths: Tensor,
        c: Tensor,
        h: Tensor,
        kernel: Tensor,
        bias: Tensor,
    ) -> tuple[tuple[Tensor, ...], _Gradient]:
        """Run one direction of one layer.

        Args:
          x: [T, B, D], like the kernel in the products' dtype.

        Returns:
          Outputs, last c and last h, float32.
        """
        forward = run_forward(x, c, h, kernel, bias, stack.forget_bias)
        ends = stacks.SentenceEnds(lengths, tf.shape(x)[0], tf.shape(x)[1])

        def differentiate(
            d_outputs: Tensor, d_last_c: Tensor, d_last_h: Tensor
        ) -> tuple[Tensor | None, ...]:
            d_sequence = ends.spread_gradient(d_outputs, d_last_h)
            d_gates, d_c, d_h = _run_backward(
                forward, lengths, c, h, kernel, d_sequence, d_last_c
            )
            d_x, d_kernel, d_bias = _compute_large_products(
                x, forward.h, h, kernel, d_gates
            )
            return d_x, None, d_c, d_h, d_kernel, d_bias

        results = (
            forward.h * ends.mask,
            ends.take_last(forward.cs),
            ends.take_last(forward.h),
        )
        return results, differentiate

    return stacks.run_fused_layers(stack, run_cell)


def build_packed(stack: stacks.RecurrentStack) -> stacks.Run:
    """Like `build`, but always with this project's operators."""
    library = operators.load()

    @tf.custom_gradient
    def run_cell(
        x: Tensor,
        lengths: Tensor,
        c: Tensor,
        h: Tensor,
        kernel: Tensor,
        bias: Tensor,
    ) -> tuple[tuple[Tensor, ...], _Gradient]:
        """Run one direction of one layer; outputs have the products' dtype."""
        all_biases = make_gate_biases(bias, stack.forget_bias)
        forward = library.rnn_scaling_lstm(x, kernel, all_biases, c, h, lengths)

        def differentiate(*d_results: Tensor) -> tuple[Tensor | None, ...]:
            d_x, d_kernel, d_bias, d_c, d_h = library.rnn_scaling_lstm_grad(
                x,
                kernel,
                c,
                h,
                lengths,
                forward.gates,
                forward.cs,
                forward.outputs,
                *d_results,
            )
            return d_x, None, d_c, d_h, d_kernel, d_bias

        return (forward.outputs, forward.last_c, forward.last_h), differentiate

    return stacks.run_fused_layers(stack, run_cell)


def make_gate_biases(bias: Tensor, forget_bias: float) -> Tensor:
    """Return the biases [4U] of i, ci, f, o, including the forget bias."""
    return bias + tf.repeat(
        tf.constant([0.0, 0.0, forget_bias, 0.0]), bias.shape[0] // 4
    )


def _run_block(
    x: Tensor,
    c: Tensor,
    h: Tensor,
    kernel: Tensor,
    bias: Tensor,
    forget_bias: float,
) -> LstmStep:
    """Run all steps with `BlockLSTM`, in float32."""
    peephole = tf.zeros([c.shape[1]])
    sequences = tf.raw_ops.BlockLSTM(
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
    return LstmStep(*sequences)


def _run_loop(
    x: Tensor,
    c: Tensor,
    h: Tensor,
    kernel: Tensor,
    bias: Tensor,
    forget_bias: float,
) -> LstmStep:
    """Run all steps in a loop with bfloat16 products."""
    num_steps = tf.shape(x)[0]
    input_dim = x.shape[2]
    recurrent = kernel[input_dim:]
    from_input = tf.matmul(tf.reshape(x, [-1, input_dim]), kernel[:input_dim])
    from_input = tf.reshape(from_input, [num_steps, -1, kernel.shape[1]])
    bias = make_gate_biases(bias, forget_bias)

    def step(t: Tensor, c: Tensor, h: Tensor) -> tuple[tuple[Tensor, ...], LstmStep]:
        gates = tf.cast(from_input[t], tf.float32)
        gates += tf.cast(tf.cast(h, x.dtype) @ recurrent, tf.float32)
        result = run_lstm_step(gates + bias, c)
        return (result.cs, result.h), result

    specs = [tf.TensorSpec(c.shape)] * len(LstmStep._fields)
    _, sequences = loops.scan(step, (c, h), num_steps, specs)
    return LstmStep(*sequences)


def run_lstm_step(gates: Tensor, c: Tensor) -> LstmStep:
    """Run one step; all tensors are float32.

    Args:
      gates: [B, 4U] before their nonlinearity, ordered i, ci, f, o.
      c: [B, U] before the step.
    """
    i, ci, f, o = tf.split(gates, 4, axis=1)
    i = tf.sigmoid(i)
    ci = tf.tanh(ci)
    f = tf.sigmoid(f)
    o = tf.sigmoid(o)
    cs = f * c + i * ci
    co = tf.tanh(cs)
    return LstmStep(i, cs, f, o, ci, co, o * co)


def differentiate_lstm_step(units: int) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return the gradient of `run_lstm_step`.

    Returns:
      (step, c before it, gradients of its cs and h) -> the gradients of the gates
      before their nonlinearity and of that c.
    """
    # The operator reads only their shapes. They are created once for all steps.
    peephole = tf.zeros([units])
    b = tf.zeros([4 * units])
    w = tf.zeros([2 * units, 4 * units])

    def differentiate(
        step: LstmStep, c: Tensor, d_cs: Tensor, d_h: Tensor
    ) -> tuple[Tensor, Tensor]:
        gates = step._asdict()
        h = gates.pop("h")
        result = tf.raw_ops.LSTMBlockCellGrad(
            x=h,  # only the shapes of x and h_prev are read
            h_prev=h,
            cs_prev=c,
            w=w,
            wci=peephole,
            wcf=peephole,
            wco=peephole,
            b=b,
            cs_grad=d_cs,
            h_grad=d_h,
            use_peephole=False,
            **gates,
        )
        return result.dicfo, result.cs_prev_grad

    return differentiate


def _run_backward(
    forward: LstmStep,
    lengths: Tensor,
    c: Tensor,
    h: Tensor,
    kernel: Tensor,
    d_sequence: Tensor,
    d_last_c: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the steps backward.

    Returns:
      The gradient of the gates before their nonlinearity, [T, B, 4U] in the kernel's
      dtype, and the gradients of the first c and h.
    """
    units = c.shape[1]
    # Transposed once, because a product with a transposed [U, 4U] matrix takes 1.8
    # times as long in each step.
    recurrent = tf.transpose(kernel[-units:])
    cs_prev = tf.concat([c[None], forward.cs[:-1]], axis=0)
    gate_sequences = forward._asdict()
    del gate_sequences["h"]
    differentiate = differentiate_lstm_step(units)

    def step(
        t: Tensor, d_c: Tensor, d_h: Tensor
    ) -> tuple[tuple[Tensor, ...], list[Tensor]]:
        # A sentence's last state gets its gradient where the sentence ends. All
        # gradients after its end are zero.
        d_c = tf.where((lengths == t + 1)[:, None], d_last_c, d_c)
        gates = {name: sequence[t] for name, sequence in gate_sequences.items()}
        d_step, d_c = differentiate(
            LstmStep(**gates, h=h), cs_prev[t], d_c, d_sequence[t] + d_h
        )
        d_step = tf.cast(d_step, kernel.dtype)
        d_h = tf.cast(tf.matmul(d_step, recurrent), tf.float32)
        return (d_c, d_h), [d_step]

    zeros = tf.zeros_like(c)
    specs = [tf.TensorSpec([c.shape[0], 4 * units], kernel.dtype)]
    num_steps = tf.shape(d_sequence)[0]
    (d_c, d_h), [d_gates] = loops.scan(
        step, (zeros, zeros), num_steps, specs, backward=True
    )
    return d_gates, d_c, d_h


def _compute_large_products(
    x: Tensor,
    h_sequence: Tensor,
    h: Tensor,
    kernel: Tensor,
    d_gates: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, kernel and bias, over all steps at once."""
    d_rows = tf.reshape(d_gates, [-1, kernel.shape[1]])
    d_x = tf.matmul(d_rows, kernel[: x.shape[2]], transpose_b=True)
    h_prev = tf.cast(tf.concat([h[None], h_sequence[:-1]], axis=0), x.dtype)
    xh = tf.reshape(tf.concat([x, h_prev], axis=2), [-1, kernel.shape[0]])
    d_kernel = tf.matmul(xh, d_rows, transpose_a=True)
    return tf.reshape(d_x, tf.shape(x)), d_kernel, loops.sum_columns(d_rows)
