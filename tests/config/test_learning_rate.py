"""Each schedule equals its closed form, with and without scaling for large batches."""

import numpy as np
import pytest

from rnn_scaling.config import learning_rate
from tests.support.configs import resolve

PIECEWISE = {"lr_schedule": "piecewise", "lr_steps": "2:0.05,5:0.01"}
SCALED = {"variable_update": "replicated", "num_devices": 4, "lr_scaling": "linear"}


def make_learning_rate(**options):
    options = {"learning_rate": 0.1, **options}
    return learning_rate.from_config(resolve(options))


def rates(count=7, **options):
    rate = make_learning_rate(**options)
    return [float(rate.compute(np.float64(update), np)) for update in range(count)]


def test_a_piecewise_rate_changes_at_its_boundaries():
    assert rates(**PIECEWISE) == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.05, 0.01, 0.01])


def test_a_piecewise_rate_is_scaled_with_its_ramp():
    ramp = {**SCALED, "lr_warmup_batches": 3}
    assert rates(4, **ramp) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert rates(**ramp, **PIECEWISE) == pytest.approx(
        [0.1, 0.2, 0.15, 0.2, 0.2, 0.04, 0.04]
    )


def test_inverse_sqrt_is_the_formula_of_the_paper():
    """lr = d^-0.5 min(t^-0.5, t w^-1.5); its maximum is d^-0.5 w^-0.5 at update w."""
    width = 512
    warmup = 4
    options = {
        "lr_schedule": "inverse_sqrt",
        "lr_warmup_batches": warmup,
        "learning_rate": (width * warmup) ** -0.5,
    }
    steps = np.arange(1, 20)
    expected = width**-0.5 * np.minimum(steps**-0.5, steps * warmup**-1.5)
    assert rates(19, **options) == pytest.approx(expected)
    assert int(np.argmax(rates(19, **options))) + 1 == warmup
    assert rates(19, **options, **SCALED) == pytest.approx(4 * expected)


def test_only_a_rate_that_never_changes_is_constant():
    for options in ({}, SCALED):
        assert make_learning_rate(**options).is_constant
    for options in (
        PIECEWISE,
        {"lr_schedule": "inverse_sqrt", "lr_warmup_batches": 1},
        {**SCALED, "lr_warmup_batches": 2},
    ):
        assert not make_learning_rate(**options).is_constant


@pytest.mark.parametrize(
    "steps", ["5:1,2:1", "0:1", "2:0", "2:nan", "2:inf", "2", "2:1:1", "a:1", "2:1,"]
)
def test_invalid_schedules_have_no_steps(steps):
    options = {"lr_schedule": "piecewise", "lr_steps": steps}
    config = resolve(options)
    assert learning_rate.parse_steps(config.training) == ()
