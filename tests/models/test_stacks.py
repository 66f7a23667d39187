"""The reference of the kernels against NumPy, and the functions that kernels share."""

import numpy as np
import pytest

from rnn_scaling.models import stacks
from rnn_scaling.verification.reference import cells
from tests.models import lstm_case


def numpy_stack(stack, case, lengths):
    """Return outputs and last states of the NumPy reference of `verify`."""
    weights = []
    for cell in range(stack.num_cells):
        names = [spec.name for spec in stack.list_cell_weights(cell)]
        weights.append(dict(zip(names, case.weights[cell])))
    by_layer = []
    for first in range(0, stack.num_cells, stack.num_directions):
        by_layer.append(weights[first : first + stack.num_directions])
    states = list(zip(*case.state))
    inputs = case.inputs if stack.time_major else case.inputs.transpose(1, 0, 2)
    outputs, last = cells.run_layers(stack, inputs, np.array(lengths), by_layer, states)
    if not stack.time_major:
        outputs = outputs.transpose(1, 0, 2)
    return outputs, *map(np.stack, zip(*last))


@pytest.mark.parametrize(
    "num_layers, num_directions, time_major",
    [(1, 1, True), (2, 2, True), (2, 2, False)],
)
def test_the_reference_follows_the_lstm_equations(
    tf, num_layers, num_directions, time_major
):
    stack = lstm_case.make_stack(
        num_layers,
        num_directions,
        time_major=time_major,
        dtype="float64",
        forget_bias=0.7,
    )
    case = lstm_case.make_case(stack, np.float64)
    inputs = lstm_case.tensors(tf, case, lstm_case.UNEQUAL)
    run = stacks.build_reference(stack)
    outputs, state = run(case.weights, *inputs, case.state, None)
    expected = numpy_stack(stack, case, lstm_case.UNEQUAL)
    for got, want in zip((outputs, *state), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)


def test_no_initial_state_is_zeros(tf):
    stack = lstm_case.make_stack(1, 2)
    case = lstm_case.make_case(stack)
    zeros = tuple(map(np.zeros_like, case.state))
    inputs = lstm_case.tensors(tf, case, lstm_case.EQUAL)
    run = stacks.build_reference(stack)
    explicit, _ = run(case.weights, *inputs, zeros, None)
    default, _ = run(case.weights, *inputs, None, None)
    np.testing.assert_array_equal(explicit, default)


def test_reverse_time_and_its_gradient_agree_with_reverse_sequence(tf):
    x = tf.random.stateless_normal([5, 3, 4], [1, 2])
    lengths = tf.constant(lstm_case.UNEQUAL)
    factors = tf.random.stateless_normal([5, 3, 4], [3, 4])

    def value_and_gradient(reverse):
        with tf.GradientTape() as tape:
            tape.watch(x)
            result = reverse(x)
            loss = tf.reduce_sum(result * factors)
        return result, tape.gradient(loss, x)

    got = value_and_gradient(lambda x: stacks.reverse_time(x, lengths))
    want = value_and_gradient(
        lambda x: tf.reverse_sequence(x, lengths, seq_axis=0, batch_axis=1)
    )
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)


def test_dropout_zeroes_its_share_and_scales_the_rest(tf):
    x = tf.ones([100, 1000])
    dropped = np.asarray(stacks.drop(x, 0.3, tf.constant([1, 2]), 5))
    assert abs(np.mean(dropped == 0) - 0.3) < 0.01
    np.testing.assert_allclose(dropped[dropped != 0], 1 / 0.7, rtol=1e-6)
    np.testing.assert_array_equal(dropped, stacks.drop(x, 0.3, tf.constant([1, 2]), 5))
    assert np.any(dropped != np.asarray(stacks.drop(x, 0.3, tf.constant([1, 3]), 5)))
    assert np.any(dropped != np.asarray(stacks.drop(x, 0.3, tf.constant([1, 2]), 6)))


def test_dropout_does_not_change_the_first_layers_inputs(tf):
    def outputs(num_layers, dropout, seed):
        stack = lstm_case.make_stack(num_layers, 1, dropout=dropout)
        case = lstm_case.make_case(stack)
        arguments = lstm_case.tensors(tf, case, lstm_case.EQUAL)
        return np.asarray(
            stacks.build_reference(stack)(case.weights, *arguments, None, seed)[0]
        )

    np.testing.assert_array_equal(outputs(1, 0.5, [1, 2]), outputs(1, 0.0, [1, 2]))
    assert np.any(outputs(2, 0.5, [1, 2]) != outputs(2, 0.0, [1, 2]))
    assert np.any(outputs(2, 0.5, [1, 2]) != outputs(2, 0.5, [1, 3]))
