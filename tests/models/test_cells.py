"""Every cell against its equations written a second time in NumPy, and its numbers against closed forms.

B: sentences, D: width of the input, U: units.
"""

import numpy as np
import pytest

from rnn_scaling.models.unit_types import UNIT_TYPES
from tests.models import lstm_case


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, c, h, kernel, bias, forget_bias):
    i, j, f, o = np.split(np.concatenate([x, h]) @ kernel + bias, 4)
    c = sigmoid(f + forget_bias) * c + sigmoid(i) * np.tanh(j)
    return c, sigmoid(o) * np.tanh(c)


def gru(x, h, kernel, recurrent_kernel, bias, forget_bias):
    """NVIDIA, cuDNN API reference, CUDNN_GRU: h'_t = tanh(W_h x + r * (R_h h + b_Rh) + b_Wh)."""
    (w_r, w_i, w_h), (r_r, r_i, r_h) = (np.split(matrix, 3, axis=1) for matrix in (kernel, recurrent_kernel))
    b_r, b_i, b_wh, b_rh = np.split(bias, 4)
    r, i = sigmoid(x @ w_r + h @ r_r + b_r), sigmoid(x @ w_i + h @ r_i + b_i)
    return ((1 - i) * np.tanh(x @ w_h + r * (h @ r_h + b_rh) + b_wh) + i * h,)


def layer_norm_lstm(x, c, h, kernel, gain, shift, forget_bias):
    def norm(a, number):
        units = slice(number * len(a), (number + 1) * len(a))
        return gain[units] * (a - np.mean(a)) / np.std(a) + shift[units]

    i, j, f, o = (norm(a, number) for number, a in enumerate(np.split(np.concatenate([x, h]) @ kernel, 4)))
    c = norm(c * sigmoid(f + forget_bias) + sigmoid(i) * np.tanh(j), 4)
    return c, np.tanh(c) * sigmoid(o)


def nas(x, c, h, kernel, recurrent_kernel, forget_bias):
    """Node by node, as the tree of tensorflow/contrib/rnn, NASCell.call: three layers that halve what there is."""
    leaves = list(zip(np.split(x @ kernel, 8), np.split(h @ recurrent_kernel, 8)))
    functions = [sigmoid, lambda a: np.maximum(a, 0)] * 2 + [np.tanh, sigmoid] * 2
    k = [f(a * b if number == 3 else a + b) for number, (f, (a, b)) in enumerate(zip(functions, leaves))]
    pairs = [np.tanh(k[0] * k[1]), np.tanh(k[2] + k[3]), np.tanh(k[4] * k[5]), sigmoid(k[6] + k[7])]
    c = np.tanh(pairs[0] + c) * pairs[1]
    return c, np.tanh(c * np.tanh(pairs[2] + pairs[3]))


EQUATIONS = {"lstm": lstm, "gru": gru, "layer_norm_lstm": layer_norm_lstm, "nas": nas}
# D, U -> numbers of one cell. GRU: three gates, and a bias more for what the reset gate meets.
NUM_WEIGHTS = {
    "lstm": lambda d, u: 4 * u * (d + u + 1),
    "gru": lambda d, u: 3 * u * (d + u + 1) + u,
    "layer_norm_lstm": lambda d, u: 4 * u * (d + u) + 2 * 5 * u,
    "nas": lambda d, u: 8 * u * (d + u),
}


def test_every_cell_of_the_table_is_tested_here():
    assert set(UNIT_TYPES) == set(EQUATIONS) == set(NUM_WEIGHTS)


@pytest.mark.parametrize("cell", UNIT_TYPES)
def test_a_step_is_the_cells_equations(tf, cell):
    stack = lstm_case.make_stack(1, 1, dtype="float64", forget_bias=0.7, unit_type=cell)
    case = lstm_case.make_case(stack, np.float64, scale=1.0)
    x, state, weights = case.inputs[0], [part[0] for part in case.state], case.weights[0]
    got = stack.step(tf.constant(x), tuple(map(tf.constant, state)), tuple(map(tf.constant, weights)))
    for sentence in range(lstm_case.BATCH):
        want = EQUATIONS[cell](x[sentence], *(part[sentence] for part in state), *weights, forget_bias=0.7)
        for part, wanted in zip(got, want, strict=True):
            np.testing.assert_allclose(part[sentence], wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("cell", UNIT_TYPES)
def test_numbers_of_a_stack_are_the_closed_form(tf, cell):
    stack = lstm_case.make_stack(2, 2, unit_type=cell)
    names = ["first", "first_back", "second", "second_back"]
    specs = list(stack.variables(names))
    assert len({spec.name for spec in specs}) == len(specs) and {spec.kind for spec in specs} == {"dense"}
    count, d, u = NUM_WEIGHTS[cell], lstm_case.INPUT_DIM, lstm_case.NUM_UNITS
    assert sum(int(np.prod(spec.shape)) for spec in specs) == 2 * count(d, u) + 2 * count(2 * u, u)


def test_the_gru_is_not_tensorflows_gru_cell(tf):
    """GRUBlockCell resets the state before its product: with a reset gate that is open both are one function."""
    stack = lstm_case.make_stack(1, 1, unit_type="gru")
    case = lstm_case.make_case(stack)
    units, x, h = stack.num_units, case.inputs[0], case.state[0][0]
    kernel, recurrent, bias = case.weights[0]

    def both(reset_bias):
        ours = np.concatenate([np.full(units, reset_bias), bias[units : 3 * units], np.zeros(units)]).astype(np.float32)
        whole = np.concatenate([kernel, recurrent])
        theirs = tf.raw_ops.GRUBlockCell(
            x=x,
            h_prev=h,
            w_ru=whole[:, : 2 * units],
            w_c=whole[:, 2 * units :],
            b_ru=ours[: 2 * units],
            b_c=ours[2 * units : 3 * units],
        ).h
        (mine,) = stack.step(tf.constant(x), (tf.constant(h),), tuple(map(tf.constant, (kernel, recurrent, ours))))
        return mine.numpy(), theirs.numpy()

    np.testing.assert_allclose(*both(30.0), rtol=0, atol=1e-6)
    mine, theirs = both(0.0)
    assert np.abs(mine - theirs).max() > 1e-3


def test_gains_start_at_one_and_all_else_beside_matrices_at_zero(tf):
    from rnn_scaling.models.workload import initial_value

    for cell in UNIT_TYPES:
        for spec in lstm_case.make_stack(1, 1, unit_type=cell).variables(["layer"]):
            values = initial_value(spec, seed=1)
            if len(spec.shape) == 1:
                assert np.all(values == (1.0 if spec.name.endswith("gain") else 0.0)), spec
            else:
                assert values.std() > 0.05, spec
