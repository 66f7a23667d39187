"""The LSTM with layer normalization, as TensorFlow 1's LayerNormBasicLSTMCell has it.

    i, j, f, o = norm of each of the four [B, U] of [x_t, h_{t-1}] @ kernel        kernel [D+U, 4U]
    c_t        = norm(sigmoid(f + forget_bias) * c_{t-1} + sigmoid(i) * tanh(j))
    h_t        = sigmoid(o) * tanh(c_t)
    norm(a)    = gain * (a - mean(a)) / sqrt(variance(a) + 1e-12) + shift          over the U units of one sentence

gain and shift [5U] are those of i, j, f, o, c, and take the place of the biases.

Source: Ba et al., "Layer Normalization", arXiv:1607.06450, equations 20 to 22. The paper normalizes the input's product
and the recurrent one apart, with 4U units in one norm, and keeps c_t as it was before its norm; TensorFlow's cell, and
so this one, does not.

B: sentences, D: width of the input, U: units.
"""

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models.stacks import CellWeights, State
from rnn_scaling.models.workload import VariableSpec

STATE = ("c", "h")
_EPSILON = 1e-12


def weights(input_dim: int, num_units: int) -> tuple[VariableSpec, ...]:
    """kernel, the rows of the input first, columns i, j, f, o; gain and shift, of i, j, f, o, c."""
    return (
        VariableSpec("kernel", (input_dim + num_units, 4 * num_units), "dense"),
        VariableSpec("gain", (5 * num_units,), "dense", "ones"),
        VariableSpec("shift", (5 * num_units,), "dense", "zeros"),
    )


def step(x: Tensor, state: State, weights: CellWeights, forget_bias: float) -> State:
    """One step of x [B, D] and state (c, h), each [B, U] -> the next c and h."""
    (c, h), (kernel, gain, shift) = state, weights
    units = h.shape[1]
    gain, shift = (tf.reshape(w, [5, units]) for w in (gain, shift))
    gates = tf.reshape(tf.concat([x, h], axis=1) @ kernel, [-1, 4, units])
    i, j, f, o = tf.unstack(_norm(gates, gain[:4], shift[:4]), axis=1)
    c = _norm(
        tf.sigmoid(f + forget_bias) * c + tf.sigmoid(i) * tf.tanh(j), gain[4], shift[4]
    )
    return c, tf.sigmoid(o) * tf.tanh(c)


def _norm(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    """x [..., U] with mean `shift` and deviation `gain` over its units; computed in float32 at least."""
    dtype = tf.float32 if x.dtype.size < tf.float32.size else x.dtype
    precise, gain, shift = (tf.cast(tensor, dtype) for tensor in (x, gain, shift))
    centred = precise - tf.reduce_mean(precise, axis=-1, keepdims=True)
    variance = tf.reduce_mean(tf.square(centred), axis=-1, keepdims=True)
    return tf.cast(centred * tf.math.rsqrt(variance + _EPSILON) * gain + shift, x.dtype)
