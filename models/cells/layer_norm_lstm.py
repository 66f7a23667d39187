"""The LSTM with layer normalization of TensorFlow 1's LayerNormBasicLSTMCell.

    i, j, f, o = norm of each of the four [B, U] of [x_t, h_{t-1}] @ kernel        kernel [D+U, 4U]
    c_t        = norm(sigmoid(f + forget_bias) * c_{t-1} + sigmoid(i) * tanh(j))
    h_t        = sigmoid(o) * tanh(c_t)
    norm(a)    = gain * (a - mean(a)) / sqrt(variance(a) + 1e-12) + shift          over the U units of one sentence

gain and shift [5U] belong to i, j, f, o, c and replace the biases.

Source: Ba et al., "Layer Normalization", arXiv:1607.06450, equations 20 to 22. The
paper normalizes the input's product and the recurrent one separately, with 4U units in
one norm, and the next step reads c_t without its norm. TensorFlow's cell and this one
do not.

B: sentences, D: width of the input, U: units.

`models/encoder_table.py` lists the functions of a cell. Every encoder implementation of
this cell must agree with `step`.
"""

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models.stacks import CellWeights, State
from rnn_scaling.models.workload import VariableSpec

STATE = ("c", "h")
_EPSILON = 1e-12


def weights(input_dim: int, num_units: int) -> tuple[VariableSpec, ...]:
    """Return the specs of kernel, gain and shift.

    The kernel's first rows belong to the input; its columns are i, j, f, o.
    """
    return (
        VariableSpec("kernel", (input_dim + num_units, 4 * num_units)),
        VariableSpec("gain", (5 * num_units,), initial="ones"),
        VariableSpec("shift", (5 * num_units,), initial="zeros"),
    )


def step(x: Tensor, state: State, weights: CellWeights, forget_bias: float) -> State:
    """Return the next state for x [B, D] and state (c, h), each [B, U]."""
    c, h = state
    kernel, gain, shift = weights
    units = h.shape[1]
    gain = tf.reshape(gain, [5, units])
    shift = tf.reshape(shift, [5, units])
    gates = tf.reshape(tf.concat([x, h], axis=1) @ kernel, [-1, 4, units])
    i, j, f, o = tf.unstack(_normalize(gates, gain[:4], shift[:4]), axis=1)
    c = _normalize(
        tf.sigmoid(f + forget_bias) * c + tf.sigmoid(i) * tf.tanh(j), gain[4], shift[4]
    )
    return c, tf.sigmoid(o) * tf.tanh(c)


def _normalize(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    """Normalize x [..., U] over its units, in float32 or x's wider dtype."""
    dtype = tf.float32 if x.dtype.size < tf.float32.size else x.dtype
    precise = tf.cast(x, dtype)
    gain = tf.cast(gain, dtype)
    shift = tf.cast(shift, dtype)
    centred = precise - tf.reduce_mean(precise, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
    return tf.cast(centred * tf.math.rsqrt(variance + _EPSILON) * gain + shift, x.dtype)
