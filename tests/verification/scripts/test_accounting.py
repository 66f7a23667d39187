"""Gradients judged by how much each target counts, without the same samples serially."""

from __future__ import annotations

import numpy as np
import pytest

from rnn_scaling.verification.scripts import accounting
from rnn_scaling.verification.scripts.accounting import MicroBatches

LOSS_PER_TARGET = 2.0


def step(targets, scales, rest=0.0):
    """Return a step whose micro-batches have these targets and factors."""
    passes = []
    for count, scale in zip(targets, scales):
        total = LOSS_PER_TARGET * count
        criterion = {"count": count, "sum": total, "scale": scale}
        passes.append({"loss": scale * total + rest, "criteria": [criterion]})
    return {"micro": passes}


SERIAL = [step([10], [1 / 10]), step([16], [1 / 16])]


def balance(steps, weights, serial=SERIAL):
    total = accounting.serial_total(serial)
    return accounting.balance(steps, serial[0], total, np.array(weights))


def test_a_sum_over_ranks_divided_by_all_targets_is_right():
    found = balance([step([6], [1 / 14]), step([8], [1 / 14])], [[1.0], [1.0]])
    assert found.is_right
    assert found.factor == pytest.approx(1.0)


def test_a_mean_of_means_is_wrong_unless_the_targets_are_equally_many():
    unequal = balance([step([6], [1 / 6]), step([8], [1 / 8])], [[0.5], [0.5]])
    assert not unequal.is_right
    assert unequal.share == pytest.approx(0.5)
    equal = balance([step([7], [1 / 7]), step([7], [1 / 7])], [[0.5], [0.5]])
    assert equal.is_right


def test_one_step_does_not_show_what_all_targets_weigh_together():
    growing = [step([10], [1.0]), step([16], [1.0])]
    ranks = [step([6], [1.0]), step([8], [1.0])]
    assert balance(ranks, [[1.0], [1.0]], growing).factor is None


def test_a_sum_of_means_has_the_factor_of_the_ranks():
    found = balance([step([7], [1 / 7]), step([7], [1 / 7])], [[1.0], [1.0]])
    assert not found.is_right
    assert found.factor == pytest.approx(2.0)


@pytest.mark.parametrize(("rest", "is_right"), [(0.15, True), (0.3, False)])
def test_a_regulariser_counts_as_often_as_on_one_process(rest, is_right):
    serial = [step([10], [1 / 10], 0.3), step([16], [1 / 16], 0.3)]
    ranks = [step([6], [1 / 14], rest), step([8], [1 / 14], rest)]
    assert balance(ranks, [[1.0], [1.0]], serial).is_right is is_right


def test_left_out_targets_are_counted():
    found = balance([step([4], [1 / 10]), step([5], [1 / 10])], [[1.0], [1.0]])
    assert found.missing == 1
    assert not found.is_right


def test_a_step_with_several_losses_has_no_account():
    several = step([3], [1 / 3])
    several["micro"][0]["criteria"] *= 2
    assert accounting.account(several) is None
    assert accounting.serial_total([several]) is None


def test_a_divisor_that_ignores_the_targets_has_no_serial_total():
    assert accounting.serial_total([step([10], [0.1]), step([16], [0.1])]) is None


@pytest.mark.parametrize(
    ("targets", "scales", "meaning"),
    [
        ([3, 5], [1 / 6, 1 / 10], MicroBatches.MEAN),
        ([3, 5], [1 / 8, 1 / 8], MicroBatches.BY_TARGETS),
        ([4, 4], [1 / 8, 1 / 8], MicroBatches.UNKNOWN),
    ],
)
def test_micro_batches_count_by_their_targets(targets, scales, meaning):
    found = accounting.account(step(targets, scales))
    assert accounting.weighting_of_micro_batches(found) is meaning
