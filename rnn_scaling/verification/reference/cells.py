"""One step of each cell, and layers of cells over sentences, in float64 NumPy.

The formulas are the papers'. The code of `models/` is not used, so a fault in it shows.
Shapes: T steps, B sentences, D width of the input, U units; x is [T, B, D] and lengths
[B]. A weight has the name of the product's variable within its cell.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray
State = tuple[Array, ...]  # each [B, U], the output last
Weights = Mapping[str, Array]


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x), elementwise."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def lstm(x: Array, state: State, w: Weights, forget_bias: float) -> State:
    """Compute one step of an LSTM.

    Args:
      x: Inputs [B, D].
      state: c and h.
      w: Kernel [D+U, 4U] with columns i, j, f, o, and biases.
      forget_bias: Added to f.

    Source: Zaremba et al., arXiv:1409.2329, section 3.1.
    """
    c, h = state
    gates = np.concatenate([x, h], 1) @ w["kernel"] + w["bias"]
    gates = gates + w.get("recurrent_bias", 0.0)
    i, j, f, o = np.split(gates, 4, axis=1)
    c = sigmoid(f + forget_bias) * c + sigmoid(i) * np.tanh(j)
    return c, sigmoid(o) * np.tanh(c)


def gru(x: Array, state: State, w: Weights, forget_bias: float) -> State:
    """Compute one step of a GRU in cuDNN's form.

    kernel [D, 3U] and recurrent_kernel [U, 3U] have the columns r, u, n.

    Source: Cho et al., arXiv:1406.1078v1.
    """
    (h,) = state
    units = h.shape[1]
    input_bias, candidate_bias = np.split(w["bias"], [3 * units])
    xr, xu, xn = np.split(x @ w["kernel"] + input_bias, 3, axis=1)
    hr, hu, hn = np.split(h @ w["recurrent_kernel"], 3, axis=1)
    r = sigmoid(xr + hr)
    u = sigmoid(xu + hu)
    n = np.tanh(xn + r * (hn + candidate_bias))
    return ((1.0 - u) * n + u * h,)


def layer_norm_lstm(x: Array, state: State, w: Weights, forget_bias: float) -> State:
    """Compute one step of TensorFlow 1's LayerNormBasicLSTMCell.

    gain and shift [5U] have the parts i, j, f, o, c.

    Source: Ba et al., arXiv:1607.06450.
    """
    c, h = state

    def norm(a: Array, number: int) -> Array:
        columns = slice(number * a.shape[1], (number + 1) * a.shape[1])
        centred = a - a.mean(axis=1, keepdims=True)
        deviation = np.sqrt(np.mean(centred**2, axis=1, keepdims=True) + 1e-12)
        return w["gain"][columns] * centred / deviation + w["shift"][columns]

    products = np.split(np.concatenate([x, h], 1) @ w["kernel"], 4, axis=1)
    i, j, f, o = (norm(product, number) for number, product in enumerate(products))
    c = norm(sigmoid(f + forget_bias) * c + sigmoid(i) * np.tanh(j), 4)
    return c, sigmoid(o) * np.tanh(c)


def nas(x: Array, state: State, w: Weights, forget_bias: float) -> State:
    """Compute one step of the NAS cell.

    Shapes: kernel [D, 8U], recurrent_kernel [U, 8U].

    Source: Zoph and Le, arXiv:1611.01578, appendix.
    """
    c, h = state
    a = np.split(x @ w["kernel"], 8, axis=1)
    b = np.split(h @ w["recurrent_kernel"], 8, axis=1)
    k = [p + q for p, q in zip(a, b)]
    update = np.tanh(sigmoid(k[0]) * np.maximum(k[1], 0.0))
    factor = np.tanh(sigmoid(k[2]) + np.maximum(a[3] * b[3], 0.0))
    gate = np.tanh(np.tanh(k[4]) * sigmoid(k[5]))
    gate = gate + sigmoid(np.tanh(k[6]) + sigmoid(k[7]))
    c = np.tanh(update + c) * factor
    return c, np.tanh(c * np.tanh(gate))


# --unit_type -> its step and the number of arrays in its state.
CELLS: Mapping[str, tuple[Callable[[Array, State, Weights, float], State], int]] = {
    "lstm": (lstm, 2),
    "gru": (gru, 1),
    "layer_norm_lstm": (layer_norm_lstm, 2),
    "nas": (nas, 2),
}


def _run_direction(
    config: Any, x: Array, lengths: Array, state: State | None, w: Weights
) -> tuple[Array, State]:
    """Compute one cell over sentences.

    Args:
      config: Has a unit_type and a forget_bias.
      x: Inputs [T, B, D].
      lengths: Lengths [B].
      state: The first state; None for zeros.
      w: The weights of the cell.

    Returns:
      The outputs [T, B, U], zero in the padding, and the state at each sentence's end.
    """
    step, num_states = CELLS[config.unit_type]
    if state is None:
        units = w.get("recurrent_kernel", w["kernel"][x.shape[2] :]).shape[0]
        state = (np.zeros((x.shape[1], units)),) * num_states
    outputs = []
    for t in range(len(x)):
        is_word = (t < lengths)[:, None]
        next_state = step(x[t], state, w, config.forget_bias)
        outputs.append(np.where(is_word, next_state[-1], 0.0))
        state = tuple(
            np.where(is_word, new, old) for new, old in zip(next_state, state)
        )
    return np.stack(outputs), state


def reverse(x: Array, lengths: Array) -> Array:
    """Reverse the words of each sentence in x [T, B, D]; padding stays in place."""
    result = x.copy()
    for sentence, length in enumerate(lengths):
        result[:length, sentence] = x[:length, sentence][::-1]
    return result


def run_layers(
    config: Any,
    x: Array,
    lengths: Array,
    cells: Sequence[Sequence[Weights]],
    states: Sequence[State] | None = None,
) -> tuple[Array, list[State]]:
    """Compute layers one after the other.

    Args:
      config: Has a unit_type and a forget_bias.
      x: Inputs [T, B, D].
      lengths: Lengths [B].
      cells: The weights as [layer][direction]; the second direction is backward.
      states: The first state of each cell; None for zeros.

    Returns:
      The outputs [T, B, U * directions] and the last state of each cell in order.
    """
    last: list[State] = []
    for layer in cells:
        outputs = []
        for number, w in enumerate(layer):
            first = None if states is None else states[len(last)]
            ordered = reverse(x, lengths) if number else x
            y, state = _run_direction(config, ordered, lengths, first, w)
            outputs.append(reverse(y, lengths) if number else y)
            last.append(state)
        x = np.concatenate(outputs, axis=2)
    return x, last
