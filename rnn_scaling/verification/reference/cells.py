"""One step of each cell, and layers of cells over sentences, in float64 NumPy: written from the papers' formulas.

Nothing of `models/` is used, so that a fault there shows. Shapes: T steps, B sentences, D width of the input, U units;
x is [T, B, D] and lengths [B]. A weight has the name that the product's variable has within its cell.
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
    """Zaremba et al., arXiv:1409.2329, section 3.1. x: [B, D]; kernel [D+U, 4U] has columns i, j, f, o."""
    c, h = state
    gates = (
        np.concatenate([x, h], 1) @ w["kernel"]
        + w["bias"]
        + w.get("recurrent_bias", 0.0)
    )
    i, j, f, o = np.split(gates, 4, axis=1)
    c = sigmoid(f + forget_bias) * c + sigmoid(i) * np.tanh(j)
    return c, sigmoid(o) * np.tanh(c)


def gru(x: Array, state: State, w: Weights, forget_bias: float) -> State:
    """Cho et al., arXiv:1406.1078v1, as cuDNN has it. kernel [D, 3U] and recurrent_kernel [U, 3U]: columns r, u, n."""
    (h,), units = state, state[0].shape[1]
    of_x = x @ w["kernel"] + w["bias"][: 3 * units]
    of_h = h @ w["recurrent_kernel"]
    r = sigmoid(of_x[:, :units] + of_h[:, :units])
    u = sigmoid(of_x[:, units : 2 * units] + of_h[:, units : 2 * units])
    n = np.tanh(
        of_x[:, 2 * units :] + r * (of_h[:, 2 * units :] + w["bias"][3 * units :])
    )
    return ((1.0 - u) * n + u * h,)


def layer_norm_lstm(x: Array, state: State, w: Weights, forget_bias: float) -> State:
    """Ba et al., arXiv:1607.06450, as TensorFlow 1's LayerNormBasicLSTMCell. gain and shift [5U]: i, j, f, o, c."""
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
    """Zoph and Le, arXiv:1611.01578, appendix. kernel [D, 8U], recurrent_kernel [U, 8U]."""
    c, h = state
    a = np.split(x @ w["kernel"], 8, axis=1)
    b = np.split(h @ w["recurrent_kernel"], 8, axis=1)
    k = [p + q for p, q in zip(a, b)]
    left = np.tanh(sigmoid(k[0]) * np.maximum(k[1], 0.0))
    right = np.tanh(sigmoid(k[2]) + np.maximum(a[3] * b[3], 0.0))
    gate = np.tanh(np.tanh(k[4]) * sigmoid(k[5])) + sigmoid(
        np.tanh(k[6]) + sigmoid(k[7])
    )
    c = np.tanh(left + c) * right
    return c, np.tanh(c * np.tanh(gate))


# --unit_type -> its step, and how many arrays its state has.
CELLS: Mapping[str, tuple[Callable[[Array, State, Weights, float], State], int]] = {
    "lstm": (lstm, 2),
    "gru": (gru, 1),
    "layer_norm_lstm": (layer_norm_lstm, 2),
    "nas": (nas, 2),
}


def direction(
    config: Any, x: Array, lengths: Array, state: State | None, w: Weights
) -> tuple[Array, State]:
    """One cell over sentences -> (outputs [T, B, U], zero past the ends; the state at each sentence's end)."""
    step, num_states = CELLS[config.unit_type]
    if state is None:
        units = w.get("recurrent_kernel", w["kernel"][x.shape[2] :]).shape[0]
        state = (np.zeros((x.shape[1], units)),) * num_states
    outputs = []
    for t in range(len(x)):
        inside = (t < lengths)[:, None]
        following = step(x[t], state, w, config.forget_bias)
        outputs.append(np.where(inside, following[-1], 0.0))
        state = tuple(
            np.where(inside, after, before) for after, before in zip(following, state)
        )
    return np.stack(outputs), state


def backwards(x: Array, lengths: Array) -> Array:
    """[T, B, D] with the words of each sentence turned round, its padding left in place."""
    result = x.copy()
    for sentence, length in enumerate(lengths):
        result[:length, sentence] = x[:length, sentence][::-1]
    return result


def layers(
    config: Any,
    x: Array,
    lengths: Array,
    cells: Sequence[Sequence[Weights]],
    states: Sequence[State] | None = None,
) -> tuple[Array, list[State]]:
    """Layers one after the other -> (outputs [T, B, U * directions], the last state of each cell, layer by layer).

    config: has a unit_type and a forget_bias. cells: `[layer][direction]`: forward, and where there are two backward.
    states: of each cell before the first step; zeros by default.
    """
    last: list[State] = []
    for layer in cells:
        outputs = []
        for number, w in enumerate(layer):
            first = None if states is None else states[len(last)]
            ordered = backwards(x, lengths) if number else x
            y, state = direction(config, ordered, lengths, first, w)
            outputs.append(backwards(y, lengths) if number else y)
            last.append(state)
        x = np.concatenate(outputs, axis=2)
    return x, last
