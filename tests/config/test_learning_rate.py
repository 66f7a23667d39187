"""Each schedule against its closed form, alone and with the scaling of large batches."""

from __future__ import annotations

import numpy as np
import pytest

from rnn_scaling.config import learning_rate
from rnn_scaling.config import run_config as configs

PIECEWISE = {"lr_schedule": "piecewise", "lr_steps": "2:0.05,5:0.01"}
SCALED = {"variable_update": "replicated", "num_devices": 4, "lr_scaling": "linear"}


def of(**given):
    return learning_rate.of(
        configs.resolve({"learning_rate": 0.1, **given}, num_gpus=0, num_cores=4)
    )


def rates(count=7, **given):
    return [float(of(**given).at(np.float64(update), np)) for update in range(count)]


def test_a_piecewise_rate_changes_at_its_boundaries():
    assert rates(**PIECEWISE) == pytest.approx([0.1, 0.1, 0.05, 0.05, 0.05, 0.01, 0.01])


def test_a_piecewise_rate_is_scaled_with_its_ramp():
    ramp = {**SCALED, "lr_warmup_batches": 3}
    assert rates(4, **ramp) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert rates(**ramp, **PIECEWISE) == pytest.approx(
        [0.1, 0.2, 0.15, 0.2, 0.2, 0.04, 0.04]
    )


def test_inverse_sqrt_is_the_papers_formula():
    """lr = d^-0.5 min(t^-0.5, t w^-1.5), of which the largest is d^-0.5 w^-0.5, at update w."""
    width, warmup = 512, 4
    given = {
        "lr_schedule": "inverse_sqrt",
        "lr_warmup_batches": warmup,
        "learning_rate": (width * warmup) ** -0.5,
    }
    steps = np.arange(1, 20)
    want = width**-0.5 * np.minimum(steps**-0.5, steps * warmup**-1.5)
    assert rates(19, **given) == pytest.approx(want)
    assert int(np.argmax(rates(19, **given))) + 1 == warmup
    assert rates(19, **given, **SCALED) == pytest.approx(4 * want)


def test_only_a_rate_that_never_changes_is_constant():
    assert of().is_constant and of(**SCALED).is_constant
    for given in (
        PIECEWISE,
        {"lr_schedule": "inverse_sqrt", "lr_warmup_batches": 1},
        {**SCALED, "lr_warmup_batches": 2},
    ):
        assert not of(**given).is_constant


@pytest.mark.parametrize(
    "steps",
    [
        "5:1,2:1",
        "0:1",
        "2:0",
        "2:-1",
        "2:nan",
        "2:inf",
        "2",
        "2:1:1",
        "a:1",
        "",
        "2:1,",
    ],
)
def test_what_is_no_schedule_has_no_steps(steps):
    given = configs.resolve(
        {"lr_schedule": "piecewise", "lr_steps": steps}, num_gpus=0, num_cores=1
    )
    assert learning_rate.steps_of(given.training) == ()
