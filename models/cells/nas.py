"""The cell that an architecture search found: TensorFlow 1's NASCell.

It has neither the optional biases nor the projection.

    a, b  = the eight [B, U] of x_t @ kernel and of h_{t-1} @ recurrent_kernel       kernel [D, 8U], recurrent [U, 8U]
    k     = sigmoid(a0 + b0), relu(a1 + b1), sigmoid(a2 + b2), relu(a3 * b3),
            tanh(a4 + b4), sigmoid(a5 + b5), tanh(a6 + b6), sigmoid(a7 + b7)
    c_t   = tanh(tanh(k0 * k1) + c_{t-1}) * tanh(k2 + k3)
    h_t   = tanh(c_t * tanh(tanh(k4 * k5) + sigmoid(k6 + k7)))

Source: Zoph and Le, "Neural Architecture Search with Reinforcement Learning",
arXiv:1611.01578, its appendix.

B: sentences, D: width of the input, U: units.

`models/encoder_table.py` lists the functions of a cell. Every encoder implementation of
this cell must agree with `step`.
"""

import tensorflow as tf

from rnn_scaling.models.stacks import CellWeights, State
from rnn_scaling.models.workload import VariableSpec

STATE = ("c", "h")


def weights(input_dim: int, num_units: int) -> tuple[VariableSpec, ...]:
    """Return the specs of the two kernels, each with eight columns per unit."""
    return (
        VariableSpec("kernel", (input_dim, 8 * num_units)),
        VariableSpec("recurrent_kernel", (num_units, 8 * num_units)),
    )


def step(x: tf.Tensor, state: State, weights: CellWeights, forget_bias: float) -> State:
    """Return the next state for x [B, D] and state (c, h), each [B, U]."""
    c, h = state
    kernel, recurrent_kernel = weights
    a = tf.split(x @ kernel, 8, axis=1)
    b = tf.split(h @ recurrent_kernel, 8, axis=1)
    sums = [input_part + state_part for input_part, state_part in zip(a, b)]
    first = tf.tanh(tf.sigmoid(sums[0]) * tf.nn.relu(sums[1]))
    second = tf.tanh(tf.sigmoid(sums[2]) + tf.nn.relu(a[3] * b[3]))
    third = tf.tanh(tf.tanh(sums[4]) * tf.sigmoid(sums[5]))
    fourth = tf.sigmoid(tf.tanh(sums[6]) + tf.sigmoid(sums[7]))
    c = tf.tanh(first + c) * second
    return c, tf.tanh(c * tf.tanh(third + fourth))
