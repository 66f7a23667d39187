"""Estimates: learned from previous runs if there are any, otherwise labelled as rough."""

import functools
import math

import pytest

from rnn_scaling.sweeps.estimate import (
    SILENT_S,
    Basis,
    Estimator,
    choose_limit,
    compute_oversubscription,
    estimate_rough_s,
    make_user_limit,
)
from rnn_scaling.sweeps.plan import identify, plan
from rnn_scaling.sweeps.thread_search import plan_threads

ONE_KERNEL = {
    "encoder_type": ["cudnn_lstm"],
    "variable_update": ["independent"],
    "num_devices": [1],
}


def options(**given):
    lists = {**ONE_KERNEL, **{name: [value] for name, value in given.items()}}
    [run] = plan(lists, num_gpus=0, num_cores=2)
    return identify(run.config.flat())


def on_cores(num_cores, **sharing):
    return Estimator(
        functools.partial(estimate_rough_s, num_cores=num_cores, **sharing)
    )


def estimate_rough(**given):
    return estimate_rough_s(dict(options(**given)), 2)


def test_nothing_known_is_rough():
    estimator = on_cores(2)
    assert estimator.seconds(options()) == estimate_rough()
    assert estimator.basis([options()]) == Basis.ROUGH
    assert math.isnan(Estimator().seconds(options()))
    assert Estimator().basis([options()]) == Basis.UNKNOWN


def test_finished_runs_of_the_same_flags_are_averaged():
    estimator = Estimator()
    estimator.add(options(), 10.0)
    estimator.add(options(), 20.0)
    assert estimator.seconds(options()) == 15.0
    assert estimator.basis([options()] * 2) == Basis.SAME
    assert estimator.seconds(options(batch_size=320)) == 15.0


def test_others_are_scaled_by_what_is_known():
    estimator = on_cores(2)
    estimator.add(options(), 3.0 * estimate_rough())
    larger = options(batch_size=320)
    both = 3.0 * (estimate_rough() + estimate_rough(batch_size=320))
    assert estimator.total_s([options(), larger]) == pytest.approx(both)
    assert estimator.basis([options(), larger]) == Basis.SCALED


def test_devices_that_share_cores_are_slower_in_the_estimate():
    """`recommend --threads --num_devices=4` on two cores was foretold 4 minutes and would have taken 46."""
    runs, _ = plan_threads({"num_devices": [4], "trace_batches": [5]})
    planned = [identify(run.config.flat()) for run in runs] * 3
    assert len(planned) == 21
    scarce, plenty = (on_cores(n).total_s(planned) for n in (2, 4))
    assert 20 * 60 < scarce < 90 * 60
    assert plenty < 0.6 * scarce
    one, four = (
        on_cores(4).seconds(options(num_devices=4, inter_op_parallelism_threads=n))
        for n in (1, 4)
    )
    assert one > four  # they take turns
    assert (
        compute_oversubscription({**dict(options(num_devices=4)), "device": "gpu"}, 2)
        == 1.0
    )


def test_workers_share_the_cores_unless_a_launcher_finds_them_others():
    one, four = (
        options(variable_update="collective_all_reduce", num_workers=n) for n in (1, 4)
    )
    assert on_cores(2).seconds(four) > 2 * on_cores(2).seconds(one)
    elsewhere = on_cores(2, workers_share=False)
    assert elsewhere.seconds(four) == pytest.approx(elsewhere.seconds(one))
    here = on_cores(2)
    here.add(four, 1000.0)
    assert here.seconds(options(num_devices=4)) == pytest.approx(
        1000 * estimate_rough(num_devices=4) / estimate_rough_s(dict(four), 2)
    )


def test_the_first_finished_run_corrects_the_estimate_of_runs_like_it():
    estimator = on_cores(2)
    larger = options(num_devices=4, batch_size=64)
    before = estimator.seconds(larger)
    estimator.add(options(), estimate_rough())  # as foretold
    estimator.add(options(num_devices=4), 10 * estimate_rough(num_devices=4))
    assert estimator.seconds(larger) == pytest.approx(10 * before)
    assert estimator.seconds(options(batch_size=64)) == pytest.approx(
        estimate_rough(batch_size=64)
    )


@pytest.mark.parametrize(
    "took_s, batch_size, seconds",
    [
        ([12.0, 14.0], 32, 300.0),
        ([120.0], 32, 1200.0),
        ([120.0], 64, pytest.approx(1800, abs=600)),
        ([], 32, 300.0),
    ],
)
def test_the_limit_of_a_run_follows_what_is_known(took_s, batch_size, seconds):
    estimator = on_cores(2)
    for each in took_s:
        estimator.add(options(), each)
    found = choose_limit(options(batch_size=batch_size), estimator, None)
    assert found.seconds == seconds
    assert found.is_rough == (not took_s)
    assert choose_limit(options(), estimator, 7.0) == make_user_limit(7.0)
    unknown = choose_limit(options(), Estimator(), None)
    assert (unknown.seconds, unknown.is_rough) == (SILENT_S, True)


# 6 operations per weight of a matrix product and word: LSTM cells 4(E+U)U, then 8U^2,
# and the softmax layer.
CELLS = 4 * 256 * 512 + 8 * 256**2
SOFTMAX = 256 * 8000


@pytest.mark.parametrize(
    "model, weights", [("nmt", 2 * CELLS + SOFTMAX), ("lm", CELLS + SOFTMAX)]
)
def test_operations_follow_the_work(model, weights):
    flop = 6 * 30 * 32 * 30 * weights
    assert estimate_rough(model=model) == pytest.approx(3.0 + 1.0 + flop / 150e9)
