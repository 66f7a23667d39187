"""The LSTM without peepholes.

    i, j, f, o = [x_t, h_{t-1}] @ kernel + bias        kernel [D+U, 4U], bias [4U]
    c_t        = sigmoid(f + forget_bias) * c_{t-1} + sigmoid(i) * tanh(j)
    h_t        = sigmoid(o) * tanh(c_t)

B: sentences, D: width of the input, U: units.
Source: Zaremba et al., "Recurrent Neural Network Regularization", arXiv:1409.2329, section 3.1, and TensorFlow's
BasicLSTMCell, whose forget bias it has.
"""

import tensorflow as tf

from rnn_scaling.models.stacks import CellWeights, State
from rnn_scaling.models.workload import VariableSpec

STATE = ("c", "h")


def weights(input_dim: int, num_units: int) -> tuple[VariableSpec, ...]:
    """kernel, the rows of the input first, and bias; columns i, j, f, o."""
    return (
        VariableSpec("kernel", (input_dim + num_units, 4 * num_units), "dense"),
        VariableSpec("bias", (4 * num_units,), "dense"),
    )


def step(x: tf.Tensor, state: State, weights: CellWeights, forget_bias: float) -> State:
    """One step of x [B, D] and state (c, h), each [B, U] -> the next c and h."""
    (c, h), (kernel, bias) = state, weights
    i, j, f, o = tf.split(tf.concat([x, h], axis=1) @ kernel + bias, 4, axis=1)
    c = tf.sigmoid(f + forget_bias) * c + tf.sigmoid(i) * tf.tanh(j)
    return c, tf.sigmoid(o) * tf.tanh(c)
