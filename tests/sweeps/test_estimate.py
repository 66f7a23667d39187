"""Estimates: learned where something is known, labelled as rough where not."""

from __future__ import annotations

import pytest

from rnn_scaling.sweeps.estimate import (
    Estimator,
    duration,
    given_limit,
    limit_of,
    rough_s,
    sharing,
)
from rnn_scaling.sweeps.plan import identity, plan
from rnn_scaling.sweeps.thread_search import plan_threads


def options(**given):
    (run,) = plan(
        {
            "encoder_type": ["cudnn_lstm"],
            "variable_update": ["independent"],
            "num_devices": [1],
            **{k: [v] for k, v in given.items()},
        },
        num_gpus=0,
        num_cores=2,
    )
    return identity(run.config.flat())


def test_nothing_known_is_rough_and_says_so():
    estimator = Estimator(2)
    assert estimator.seconds(options()) == rough_s(dict(options()), 2)
    assert estimator.source([options()]).startswith("rough")


def test_finished_runs_of_the_same_flags_are_averaged():
    estimator = Estimator(2)
    estimator.add(options(), 10.0)
    estimator.add(options(), 20.0)
    assert estimator.seconds(options()) == 15.0
    assert estimator.source([options()] * 2).endswith("same flags")


def test_others_are_scaled_by_what_is_known():
    estimator = Estimator(2)
    estimator.add(options(), 3.0 * rough_s(dict(options()), 2))
    larger = options(batch_size=320)
    assert estimator.seconds(larger) == pytest.approx(3.0 * rough_s(dict(larger), 2))
    assert estimator.total_s([options(), larger]) == pytest.approx(
        3.0 * (rough_s(dict(options()), 2) + rough_s(dict(larger), 2))
    )
    assert estimator.source([larger]).startswith("scaled from")
    assert estimator.source([options(), larger]).startswith("1 run from finished runs")


def test_devices_that_share_cores_are_slower_in_the_estimate():
    """`recommend --threads --num_devices=4` on two cores was foretold 4 minutes and would have taken 46."""
    runs, _ = plan_threads({"num_devices": [4], "trace_batches": [5]})
    planned = [identity(run.config.flat()) for run in runs] * 3
    assert len(planned) == 21
    scarce, plenty = Estimator(2), Estimator(4)
    assert 20 * 60 < scarce.total_s(planned) < 90 * 60
    assert plenty.total_s(planned) < 0.6 * scarce.total_s(planned)
    assert "on 2 shared cores" in scarce.source(planned)
    assert "share" not in plenty.source(planned)
    one, four = (
        Estimator(4).seconds(options(num_devices=4, inter_op_parallelism_threads=n))
        for n in (1, 4)
    )
    assert one > four  # they take turns
    assert sharing({**dict(options(num_devices=4)), "device": "gpu"}, 2) == 1.0


def test_workers_share_the_cores_unless_a_launcher_finds_them_others():
    one, four = (
        options(variable_update="collective_all_reduce", num_workers=n) for n in (1, 4)
    )
    assert Estimator(2).seconds(four) > 2 * Estimator(2).seconds(one)
    elsewhere = Estimator(2, workers_share=False)
    assert elsewhere.seconds(four) == pytest.approx(elsewhere.seconds(one))
    assert "shared" in Estimator(2).source([four]) and "shared" not in elsewhere.source(
        [four]
    )
    here = Estimator(2)
    here.add(four, 1000.0)
    assert here.seconds(options(num_devices=4)) == pytest.approx(
        1000 * rough_s(dict(options(num_devices=4)), 2) / rough_s(dict(four), 2)
    )


def test_the_first_finished_run_corrects_the_estimate_of_runs_like_it():
    four, four_larger, one = (
        options(num_devices=n, batch_size=b) for n, b in ((4, 32), (4, 64), (1, 32))
    )
    estimator = Estimator(2)
    before = estimator.seconds(four_larger)
    estimator.add(one, rough_s(dict(one), 2))  # as foretold
    estimator.add(four, 10 * rough_s(dict(four), 2))  # far slower than foretold
    assert estimator.seconds(four_larger) == pytest.approx(10 * before)
    assert estimator.seconds(options(batch_size=64)) == pytest.approx(
        rough_s(dict(options(batch_size=64)), 2)
    )


@pytest.mark.parametrize(
    ("took_s", "asked", "seconds", "words"),
    [
        ([12.0, 14.0], 32, 300.0, "killed after 300 s, more than 10 times"),
        ([120.0], 32, 1200.0, "killed after 1200 s, 10 times"),
        ([120.0], 64, None, "10 times"),
        ([], 32, 300.0, "without a new batch"),
    ],
)
def test_the_limit_of_a_run_follows_what_is_known(took_s, asked, seconds, words):
    estimator = Estimator(2)
    for each in took_s:
        estimator.add(options(), each)
    found = limit_of(options(batch_size=asked), estimator, None)
    assert words in found.words and "--run_timeout=SECONDS" in found.words
    assert found.seconds == seconds if seconds else 1200 < found.seconds < 2400
    assert found.is_rough == (not took_s)
    assert limit_of(options(), estimator, 7.0) == given_limit(7.0)


def test_operations_follow_the_work():
    def work(**given):
        return rough_s(dict(options(**given)), 2) - rough_s(
            dict(options(num_batches=1, num_warmup_batches=0, batch_size=1)), 2
        )

    base = work()
    assert work(batch_size=64) == pytest.approx(2 * base, rel=0.01)
    # 6 operations a weight of a matrix product and word: LSTM cells 4(E+U)U, then 8U^2, and the softmax layer
    cells, softmax = 4 * 256 * 512 + 8 * 256**2, 256 * 8000
    flop = 6 * 30 * 32 * (30 * cells + 30 * (cells + softmax))
    assert rough_s(dict(options()), 2) == pytest.approx(3.0 + 1.0 + flop / 150e9)


def test_a_language_model_has_no_encoder_beside_it():
    cells, softmax = 4 * 256 * 512 + 8 * 256**2, 256 * 8000
    flop = 6 * 30 * 32 * 30 * (cells + softmax)
    assert rough_s(dict(options(model="lm")), 2) == pytest.approx(
        3.0 + 1.0 + flop / 150e9
    )


@pytest.mark.parametrize(
    "seconds,text",
    [(0.2, "0 s"), (89, "89 s"), (90, "2 min"), (5300, "88 min"), (7800, "2 h 10 min")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text
