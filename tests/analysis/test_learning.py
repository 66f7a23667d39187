"""Test times to targets with curves whose crossings are known."""

import math

import pytest

from rnn_scaling.analysis import learning
from rnn_scaling.analysis.learning import (
    ACCURACY,
    LOSS,
    Curve,
    Target,
    find_items_to,
    smooth,
)
from rnn_scaling.analysis.rows import Row, build_rows
from rnn_scaling.records.decoding import build
from rnn_scaling.records.parts import Batches
from tests.support.records import make_record


def batches(correct=None, loss=None, loss_items=None):
    count = len(correct or loss)
    fields = {
        "seconds": [1.0] * count,
        "items": [20] * count,
        "loss": loss or [1.0] * count,
        "warmup": 0,
        "measured": count,
    }
    if correct:
        fields |= {"loss_items": loss_items, "correct": correct}
    return build(Batches, fields)


def test_a_point_is_the_mean_over_the_predictions_of_a_window():
    recorded = batches([0, 10, 5, 0], loss_items=[10, 10, 20, 10])
    assert smooth(recorded, ACCURACY, 10) == Curve(
        (20, 40, 60, 80), (10, 20, 40, 50), (0.0, 1.0, 0.25, 0.0), 10
    )
    assert smooth(recorded, ACCURACY, 20).values == (0.5, 0.25, pytest.approx(5 / 30))
    assert smooth(recorded, ACCURACY, 21).values == (0.5, pytest.approx(5 / 30))
    assert smooth(recorded, ACCURACY, 51).values == ()
    # Without loss_items, items are the weights.
    losses = batches(loss=[3.0, 1.0, None, 2.0])
    assert smooth(losses, LOSS, 40).values == (2.0, math.inf, math.inf)
    assert smooth(losses, ACCURACY, 40).values == ()
    assert smooth(batches(loss=[None, None]), LOSS, 20).values == ()


@pytest.mark.parametrize(
    "values, items",
    [
        ((0.1, 0.9, 0.95, 0.9, 0.9), 20),
        ((0.1, 0.9, 0.85, 0.9, 0.9), 40),  # the first crossing did not stay
        ((0.1, 0.2, 0.3, 0.85, 0.95), None),  # the last point may not stay
        ((0.95, 0.95, 0.9, 0.9, 0.9), 10),
        ((), None),
    ],
)
def test_a_target_must_hold_for_a_window(values, items):
    counts = tuple(10 * k for k in range(1, len(values) + 1))
    assert (
        find_items_to(Curve(counts, counts, values, 10), Target(ACCURACY, 0.9)) == items
    )
    falling = tuple(1 - value for value in values)
    assert (
        find_items_to(Curve(counts, counts, falling, 10), Target(LOSS, 1 - 0.9))
        == items
    )


def run(devices, rate, until, best=9, count=60, **config):
    """Return a run whose correct predictions jump to `best` of 10 in batch `until`."""
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


def compare_learning(records, target=None):
    comparison = learning.measure_learning(build_rows(records), target)
    by_devices = {result.row.num_devices: result for result in comparison.results}
    return comparison, by_devices


def test_the_time_to_a_target_is_compared_with_one_device():
    strong = {"global_batch_size": 8}
    runs = [run(1, 100.0, 10, **strong), run(2, 150.0, 10, **strong)]
    comparison, by_devices = compare_learning(runs, Target(ACCURACY, 0.9))
    one = by_devices[1]
    two = by_devices[2]
    assert comparison.windows == {"words": 100.0}  # ten batches of ten predictions
    assert one.run_items == two.run_items == (2000,)  # a full window after the jump
    assert one.seconds.value == pytest.approx(20.0)
    assert two.seconds.value == pytest.approx(2000 / 150)
    assert comparison.time_speedup(two).value == pytest.approx(1.5)
    assert comparison.time_speedup(two).ends is None
    assert comparison.baseline(one) is None
    assert comparison.time_speedup(one) is None


def test_disturbed_runs_are_compared_with_one_device(monkeypatch):
    monkeypatch.setattr(Row, "is_slowed", True)
    runs = [run(1, 100.0, 10), run(2, 150.0, 10)]
    comparison, by_devices = compare_learning(runs, Target(ACCURACY, 0.9))
    assert comparison.baseline(by_devices[2]) is by_devices[1]


def test_repeats_give_an_interval_unless_one_misses_the_target():
    records = [run(1, rate, 10, seed=1) for rate in (100.0, 102.0)]
    records += [run(2, rate, 10, seed=1) for rate in (150.0, 149.0)]
    comparison, by_devices = compare_learning(records, Target(ACCURACY, 0.9))
    low, high = comparison.time_speedup(by_devices[2]).ends
    assert low < 1.48 < high
    assert by_devices[2].items.value == 2000
    assert by_devices[2].items.ends is None
    records.append(run(2, 150.0, 10, best=7, seed=1))
    comparison, by_devices = compare_learning(records, Target(ACCURACY, 0.9))
    assert by_devices[2].run_items == (2000, 2000, None)
    assert comparison.time_speedup(by_devices[2]) is None


def test_the_default_target_is_the_highest_that_all_reach():
    comparison, _ = compare_learning([run(1, 100.0, 10), run(2, 150.0, 20, best=8)])
    assert comparison.target == Target(ACCURACY, 0.8, is_chosen_by_user=False)
    late, _ = compare_learning([run(1, 100.0, 55), run(2, 150.0, 55)])
    assert late.target.value == 0.1


def test_runs_without_counted_predictions_have_no_default_target():
    assert learning.measure_learning(build_rows([make_record()]), None) is None
    assert compare_learning([make_record()], Target(ACCURACY, 0.5))[1][1].best is None


def test_independent_towers_are_left_out():
    runs = [run(n, 100.0 * n, 10, variable_update="independent") for n in (1, 2)]
    comparison, by_devices = compare_learning(runs)
    assert list(by_devices) == [1]
    assert comparison.target.value == 0.9
