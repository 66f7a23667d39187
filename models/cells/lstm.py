"""The LSTM without peepholes.

    i, j, f, o = [x_t, h_{t-1}] @ kernel + bias        kernel [D+U, 4U], bias [4U]
    c_t        = sigmoid(f + forget_bias) * c_{t-1} + sigmoid(i) * tanh(j)
    h_t        = sigmoid(o) * tanh(c_t)

B: sentences, D: width of the input, U: units. Source: Zaremba et al., "Recurrent Neural
Network Regularization", arXiv:1409.2329, section 3.1, and TensorFlow's BasicLSTMCell,
which has the same forget bias.

`models/encoder_table.py` lists the functions of a cell. Every encoder implementation of
the LSTM must agree with `step`.
"""

import tensorflow as tf

from rnn_scaling.models.stacks import CellWeights, State
from rnn_scaling.models.workload import VariableSpec

STATE = ("c", "h")


def weights(input_dim: int, num_units: int) -> tuple[VariableSpec, ...]:
    """Return the specs of kernel and bias; their columns are i, j, f, o.

    The kernel's first rows belong to the input.
    """
    return (
        VariableSpec("kernel", (input_dim + num_units, 4 * num_units)),
        VariableSpec("bias", (4 * num_units,)),
    )


def step(x: tf.Tensor, state: State, weights: CellWeights, forget_bias: float) -> State:
    """Return the next state for x [B, D] and state (c, h), each [B, U]."""
    c, h = state
    kernel, bias = weights
    i, j, f, o = tf.split(tf.concat([x, h], axis=1) @ kernel + bias, 4, axis=1)
    c = tf.sigmoid(f + forget_bias) * c + tf.sigmoid(i) * tf.tanh(j)
    return c, tf.sigmoid(o) * tf.tanh(c)
