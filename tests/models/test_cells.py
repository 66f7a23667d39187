"""Every cell against the NumPy reference of `verify`, and its numbers against closed forms.

B: sentences, D: width of the input, U: units.
"""

import numpy as np
import pytest

from rnn_scaling.models.encoder_table import UNIT_TYPES
from rnn_scaling.models.workload import make_initial_value
from rnn_scaling.verification.reference import cells
from tests.models import lstm_case


def test_every_cell_of_the_table_is_tested_here():
    assert set(UNIT_TYPES) == set(cells.CELLS)


@pytest.mark.parametrize("cell", UNIT_TYPES)
def test_a_step_is_the_cells_equations(tf, cell):
    stack = lstm_case.make_stack(1, 1, dtype="float64", forget_bias=0.7, unit_type=cell)
    case = lstm_case.make_case(stack, np.float64, scale=1.0)
    x, state, weights = (
        case.inputs[0],
        [part[0] for part in case.state],
        case.weights[0],
    )
    got = stack.step(
        tf.constant(x), tuple(map(tf.constant, state)), tuple(map(tf.constant, weights))
    )
    named = {
        spec.name: array
        for spec, array in zip(stack.list_cell_weights(0), weights, strict=True)
    }
    for part, want in zip(
        got, cells.CELLS[cell][0](x, tuple(state), named, 0.7), strict=True
    ):
        np.testing.assert_allclose(part, want, rtol=0, atol=1e-10)


def test_gains_start_at_one_and_all_else_beside_matrices_at_zero(tf):
    for cell in UNIT_TYPES:
        for spec in lstm_case.make_stack(1, 1, unit_type=cell).list_variables(
            ["layer"]
        ):
            values = make_initial_value(spec, seed=1)
            if len(spec.shape) == 1:
                assert np.all(values == (1.0 if spec.name.endswith("gain") else 0.0)), (
                    spec
                )
            else:
                assert values.std() > 0.05, spec
