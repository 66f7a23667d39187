"""The GRU of cuDNN: the reset gate multiplies the recurrent product, not the state.

    r_t = sigmoid(x_t @ W_r + h_{t-1} @ R_r + b_r)
    u_t = sigmoid(x_t @ W_u + h_{t-1} @ R_u + b_u)
    n_t = tanh(x_t @ W_n + b_n + r_t * (h_{t-1} @ R_n + b_s))
    h_t = (1 - u_t) * n_t + u_t * h_{t-1}

W = kernel [D, 3U] and R = recurrent_kernel [U, 3U] with columns r, u, n; bias [4U] is
b_r, b_u, b_n, b_s.

Sources: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for
Statistical Machine Translation", arXiv:1406.1078v1 (first version), and NVIDIA's
CUDNN_GRU (cuDNN API reference, cudnnRNNMode_t). The paper's third version, TensorFlow's
GRUCell and its GRUBlockCell compute tanh(x @ W_n + (r * h) @ R_n + b_n): a different
function with the same number of products, which cuDNN does not compute.

B: sentences, D: width of the input, U: units.

`models/encoder_table.py` lists the functions of a cell. Every encoder implementation of
the GRU must agree with `step`.
"""

import tensorflow as tf

from rnn_scaling.models.stacks import CellWeights, State
from rnn_scaling.models.workload import VariableSpec

STATE = ("h",)


def weights(input_dim: int, num_units: int) -> tuple[VariableSpec, ...]:
    """Return the specs of the two kernels (columns r, u, n) and of four biases."""
    return (
        VariableSpec("kernel", (input_dim, 3 * num_units)),
        VariableSpec("recurrent_kernel", (num_units, 3 * num_units)),
        VariableSpec("bias", (4 * num_units,)),
    )


def step(x: tf.Tensor, state: State, weights: CellWeights, forget_bias: float) -> State:
    """Return the next state for x [B, D] and state (h,), each [B, U]."""
    (h,) = state
    kernel, recurrent_kernel, bias = weights
    units = h.shape[1]
    input_bias, state_bias = tf.split(bias, [3 * units, units])
    input_r, input_u, input_n = tf.split(x @ kernel + input_bias, 3, axis=1)
    state_r, state_u, state_n = tf.split(h @ recurrent_kernel, 3, axis=1)
    r = tf.sigmoid(input_r + state_r)
    u = tf.sigmoid(input_u + state_u)
    n = tf.tanh(input_n + r * (state_n + state_bias))
    return (n + u * (h - n),)
