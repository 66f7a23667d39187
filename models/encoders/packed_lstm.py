"""The LSTM of CPUs by our own operators (models/extension): one call a layer forward and one backward.

A step is one product of its input and state with the kernel, which is packed once a call, and its gates are computed
while the product's sums are still in the caches. Dtypes as in `block_lstm`, which takes these operators where it can.

T: steps, B: sentences, D: width of the input, U: units.
"""

from collections.abc import Callable

import tensorflow as tf

from rnn_scaling.models import stacks
from rnn_scaling.models.extension import operators


def kernel_name(stack: stacks.RecurrentStack) -> str:
    return "packed LSTM"


def build(stack: stacks.RecurrentStack) -> stacks.Run:
    """The function of `stack`; T and B may be unknown while tracing."""
    ours = operators.load()

    @tf.custom_gradient
    def cell(
        x: tf.Tensor, lengths: tf.Tensor, c: tf.Tensor, h: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, tf.Tensor, tf.Tensor], Callable[..., tuple[tf.Tensor | None, ...]]]:
        """x [T, B, D] and kernel in the products' dtype, the rest float32 -> outputs in that dtype, last c and h."""
        units = c.shape[1]
        all_biases = bias + tf.repeat(tf.constant([0.0, 0.0, stack.forget_bias, 0.0]), units)
        forward = ours.rnn_scaling_lstm(x, kernel, all_biases, c, h, lengths)

        def gradient(*d_results: tf.Tensor) -> tuple[tf.Tensor | None, ...]:
            made = forward.gates, forward.cs, forward.outputs
            d_x, d_kernel, d_bias, d_c, d_h = ours.rnn_scaling_lstm_grad(x, kernel, c, h, lengths, *made, *d_results)
            return d_x, None, d_c, d_h, d_kernel, d_bias

        return (forward.outputs, forward.last_c, forward.last_h), gradient

    return stacks.run_lstm_layers(stack, cell)
