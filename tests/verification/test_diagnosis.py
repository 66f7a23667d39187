"""Explanations of single updates; rounding is not a fault."""

from __future__ import annotations

import numpy as np
import pytest

from rnn_scaling.analysis.statements import Statement
from rnn_scaling.config import run_config as configs
from rnn_scaling.reports import wording
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


def find_verdict(bias_gradient, bias_change, bias=0.0):
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
def test_rounding_is_not_called_wrong(did):
    """A bias in front of a batch normalisation has the gradient 0."""
    assert find_verdict([1e-7, 2e-7], did) == "right"


def test_a_small_variable_that_moves_where_it_should_not_is_still_wrong():
    assert find_verdict([1e-7, 2e-7], [1e-4, 0.0]) == "unequal"
    assert find_verdict([0.2, 0.0], [0.0, 0.0]) == "not updated"


def test_weight_decay_is_named():
    before = np.linspace(-1, 1, 9, dtype=np.float32)
    gradient = np.float32([0.2, -0.1, 0.4, 0.3, 0.1, -0.5, 0.2, 0.6, -0.3])
    right = -np.float32(RATE) * gradient
    decayed = right - np.float32(0.01) * before
    assert find_verdict(gradient, decayed, before) == "weight decay"
    assert find_verdict(gradient, right, before) == "right"


def test_a_lost_row_and_a_wrong_order_are_named():
    gradient = [0.2, -0.1, 0.4, -0.3]
    right = -np.float32(RATE) * np.float32(gradient)
    assert find_verdict(gradient, right * np.float32([1, 0, 1, 1])) == "rows lost"
    assert find_verdict(gradient, right[::-1]) == "wrong order"


def test_a_chunk_that_crosses_variables_is_named():
    random = np.random.default_rng(0)
    right = {name: random.normal(size=(4, 6)) for name in "abc"}
    changes = {name: array.copy() for name, array in right.items()}
    changes["a"][3] *= 2
    changes["b"] *= 2
    assert find_chunk(changes, right) == "wrong chunk"
    changes["c"] *= 2
    changes["a"] = 2 * right["a"]
    assert find_chunk(changes, right) is None
    # An element that is right by chance does not begin a chunk.
    changes["a"][0, 0] = right["a"][0, 0]
    assert find_chunk(changes, right) is None
    # Rows of one variable are not a chunk.
    rows = {name: array.copy() for name, array in right.items()}
    rows["b"][1] = 0
    assert find_chunk(rows, right) is None


def find_chunk(changes, right):
    before = {name: np.zeros_like(array) for name, array in right.items()}
    update = ReplicaUpdate(None, {}, dict, {}, changes, before)
    found = diagnosis._wrong_chunk_statement(update, right, 2.0**-10)
    return found.subject if found else None


def test_only_some_towers_are_affected_if_the_others_are_right():
    """Towers that are wrong in another way, or unexplained, are affected too."""
    first = Statement("update-part-wrong", "part wrong", {"wrong": 3})
    second = Statement("update-part-wrong", "part wrong", {"wrong": 4})

    def kinds(by_replica, wrong_replicas=()):
        faults = diagnosis.common_fault(by_replica, ["v", "w"], True, wrong_replicas)
        return [fault.kind for fault in faults]

    alone = ["update-part-wrong", "verify-only-on"]
    assert kinds({"tower 0": {"w": first}, "tower 1": {}}) == alone
    both = {"tower 0": {"w": first}, "tower 1": {"w": second}}
    assert kinds(both) == alone[:1]
    unexplained = {"tower 0": {"w": first}, "tower 1": {}}
    assert kinds(unexplained, {"tower 0", "tower 1"}) == alone[:1]


def test_a_small_difference_is_not_rounded_to_zero():
    fault = Statement("network-part", values={"part": "network", "off": 0.00013})
    assert "0.013 %" in wording.write_sentence(fault)


def test_a_tower_that_goes_too_far_alone_has_another_learning_rate():
    summed = Statement("update-summed", "sum", {"factor": 2.0})
    by_replica = {"tower 0": {}, "tower 1": {"w": summed}}
    fault, where = diagnosis.common_fault(by_replica, ["w"])
    assert (fault.subject, fault.values["factor"]) == ("learning rate", 2.0)
    assert where.values["towers"] == ["tower 1"]
