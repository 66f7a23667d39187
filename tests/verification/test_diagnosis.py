"""Explanations of single updates: what moves by roundings alone explains nothing."""

from __future__ import annotations

import numpy as np
import pytest

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config import run_config as configs
from rnn_scaling.verification import diagnosis
from rnn_scaling.verification.gradients import GradientPart
from rnn_scaling.verification.trials import ReplicaUpdate

RATE = 0.5
KERNEL = np.float32([3.0, -4.0])
OPTIONS = {
    "variable_update": "replicated",
    "num_devices": 2,
    "optimizer": "sgd",
    "learning_rate": RATE,
}


def verdict_on(bias_gradient, bias_change, bias=0.0):
    """Return the verdict on a bias next to a kernel that does what it should."""
    config = configs.resolve(OPTIONS, num_gpus=0, num_cores=2)
    half = {"kernel": KERNEL / 2, "bias": np.float32(bias_gradient) / 2}
    parts = {tower: GradientPart(1.0, half, {}) for tower in range(2)}
    change = {"kernel": -np.float32(RATE) * KERNEL, "bias": np.float32(bias_change)}
    before = {name: np.zeros_like(array) for name, array in change.items()}
    before["bias"] += np.float32(bias)
    shares = {0: 0.5, 1: 0.5}
    update = ReplicaUpdate(None, parts, lambda: parts, shares, change, before)
    found = diagnosis.explain(config, [update], 0)
    assert "kernel" not in found
    return found["bias"].subject if "bias" in found else "right"


@pytest.mark.parametrize("did", [[2e-7, -1e-7], [0.0, 0.0], [-3e-7, 1e-7]])
def test_what_only_roundings_move_is_not_called_wrong(did):
    """As the bias in front of a batch normalisation, whose gradient is 0."""
    assert verdict_on([1e-7, 2e-7], did) == "right"


def test_a_small_variable_that_moves_where_it_should_not_is_still_wrong():
    assert verdict_on([1e-7, 2e-7], [1e-4, 0.0]) == "unequal"
    assert verdict_on([0.2, 0.0], [0.0, 0.0]) == "not updated"


def test_weight_decay_is_named():
    before = np.linspace(-1, 1, 9, dtype=np.float32)
    gradient = np.float32([0.2, -0.1, 0.4, 0.3, 0.1, -0.5, 0.2, 0.6, -0.3])
    right = -np.float32(RATE) * gradient
    decayed = right - np.float32(0.01) * before
    assert verdict_on(gradient, decayed, before) == "weight decay"
    assert verdict_on(gradient, right, before) == "right"


def test_a_lost_row_and_a_wrong_order_are_named():
    gradient = [0.2, -0.1, 0.4, -0.3]
    right = -np.float32(RATE) * np.float32(gradient)
    assert verdict_on(gradient, right * np.float32([1, 0, 1, 1])) == "rows lost"
    assert verdict_on(gradient, right[::-1]) == "wrong order"


def test_a_tower_that_goes_too_far_alone_has_another_learning_rate():
    summed = Statement("update-summed", "sum", {"factor": 2.0})
    by_replica = {"tower 0": {}, "tower 1": {"w": summed}}
    fault, where = diagnosis.common_fault(by_replica, ["w"])
    assert (fault.subject, fault.values["factor"], where.values["towers"]) == (
        "learning rate",
        2.0,
        ["tower 1"],
    )
