"""What it takes to learn: made-up curves, whose crossings are known."""

from __future__ import annotations

import math

import pytest

from rnn_scaling.analysis import learning
from rnn_scaling.analysis.learning import ACCURACY, LOSS, Curve, Target, curve, items_to
from rnn_scaling.analysis.rows import build_rows
from rnn_scaling.records.decoding import build
from rnn_scaling.records.parts import Batches
from tests.support.records import make_record


def batches(correct=None, loss=None, loss_items=None, items=None):
    count = len(correct or loss)
    told = {
        "seconds": [1.0] * count,
        "items": items or [20] * count,
        "loss": loss or [1.0] * count,
    }
    counted = (
        {"loss_items": loss_items or [10] * count, "correct": correct}
        if correct
        else {}
    )
    return build(Batches, {**told, "warmup": 0, "measured": count, **counted})


def test_a_point_is_the_mean_of_the_last_window_by_what_was_predicted():
    told = batches([0, 10, 5, 0], loss_items=[10, 10, 20, 10])
    assert curve(told, ACCURACY, 10) == Curve(
        (20, 40, 60, 80), (10, 20, 40, 50), (0.0, 1.0, 0.25, 0.0), 10
    )
    assert curve(told, ACCURACY, 20).values == (0.5, 0.25, pytest.approx(5 / 30))
    assert curve(told, ACCURACY, 21).values == (0.5, pytest.approx(5 / 30))
    assert curve(told, ACCURACY, 51).values == ()
    losses = batches(loss=[3.0, 1.0, None, 2.0])
    assert curve(losses, LOSS, 40).values == (2.0, math.inf, math.inf), (
        "without loss_items by the items"
    )
    assert curve(losses, ACCURACY, 40).values == ()
    assert curve(batches(loss=[None, None]), LOSS, 20).values == (), (
        "nobody told a loss"
    )


@pytest.mark.parametrize(
    "values, want",
    [
        ((0.1, 0.9, 0.95, 0.9, 0.9), 20),
        ((0.1, 0.9, 0.85, 0.9, 0.9), 40),  # the first crossing did not stay
        (
            (0.1, 0.2, 0.3, 0.85, 0.95),
            None,
        ),  # on the last point: nobody knows whether it stays
        ((0.9, 0.95, 0.9, 0.9, 0.89), None),
        ((0.95, 0.95, 0.9, 0.9, 0.9), 10),
        ((), None),
    ],
)
def test_a_target_is_reached_where_it_is_kept_for_a_window(values, want):
    at = tuple(10 * k for k in range(1, len(values) + 1))
    assert items_to(Curve(at, at, values, 10), Target(ACCURACY, 0.9)) == want
    falling = tuple(1 - value for value in values)
    assert items_to(Curve(at, at, falling, 10), Target(LOSS, 1 - 0.9)) == want


def run(devices, rate, until, best=9, count=60, **config):
    """A run whose right predictions jump to `best` of 10 in batch `until`."""
    correct = [1] * until + [best] * (count - until)
    return make_record(
        config={
            "device": "cpu",
            "num_devices": devices,
            "variable_update": "replicated",
            "accuracy": True,
            **config,
        },
        seconds=[100 / rate] * count,
        items=[100] * count,
        warmup=5,
        batches={"correct": correct, "loss_items": [10] * count, "loss": [2.0] * count},
    )


def learned(records, target=None):
    found = learning.time_to_target(build_rows(records), target)
    return found, {each.row.num_devices: each for each in found.learned}


def test_the_time_is_the_items_over_the_speed_and_is_compared_with_one_device():
    strong = {"global_batch_size": 8}
    found, by_devices = learned(
        [run(1, 100.0, 10, **strong), run(2, 150.0, 10, **strong)],
        Target(ACCURACY, 0.9),
    )
    one, two = by_devices[1], by_devices[2]
    assert found.windows == {"words": 100.0}  # ten batches of ten predictions
    assert one.needed == two.needed == (2000,), "a whole window behind the jump"
    assert (one.seconds.value, two.seconds.value) == (
        pytest.approx(20.0),
        pytest.approx(2000 / 150),
    )
    assert (
        found.time_speedup(two).value == pytest.approx(1.5)
        and found.time_speedup(two).ends is None
    )
    assert found.baseline(one) is None and found.time_speedup(one) is None


def test_repeats_give_an_interval_and_a_run_that_missed_it_none():
    records = [
        run(n, rate, 10, seed=1)
        for n, rate in ((1, 100.0), (1, 102.0), (2, 150.0), (2, 149.0))
    ]
    found, by_devices = learned(records, Target(ACCURACY, 0.9))
    low, high = found.time_speedup(by_devices[2]).ends
    assert low < 1.48 < high
    assert by_devices[2].items.value == 2000 and by_devices[2].items.ends is None
    found, by_devices = learned(
        [*records, run(2, 150.0, 10, best=7, seed=1)], Target(ACCURACY, 0.9)
    )
    assert by_devices[2].needed == (2000, 2000, None)
    assert by_devices[2].seconds is None and found.time_speedup(by_devices[2]) is None
    assert by_devices[2].best == pytest.approx(0.9)


def test_without_a_target_it_is_the_highest_that_all_reach():
    found, _ = learned([run(1, 100.0, 10), run(2, 150.0, 20, best=8)])
    assert found.target == Target(ACCURACY, 0.8, is_chosen_by_user=False)
    assert learning.time_to_target(build_rows([make_record()]), None) is None, (
        "nothing was counted"
    )
    assert learned([make_record()], Target(ACCURACY, 0.5))[1][1].best is None
    assert learned([run(1, 100.0, 55), run(2, 150.0, 55)])[0].target.value == 0.1


def test_towers_that_train_a_model_each_are_left_out():
    found, by_devices = learned(
        [run(n, 100.0 * n, 10, variable_update="independent") for n in (1, 2)]
    )
    assert list(by_devices) == [1] and found.target.value == 0.9
