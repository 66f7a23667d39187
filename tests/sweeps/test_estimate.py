"""Estimates: learned where something is known, labelled as rough where not."""

from __future__ import annotations

import pytest

from rnn_scaling.sweeps.estimate import Estimator, duration, rough_s
from rnn_scaling.sweeps.plan import identity, plan


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
    estimator = Estimator()
    assert estimator.seconds(options()) == rough_s(dict(options()))
    assert estimator.source([options()]).startswith("rough: no run has finished yet")


def test_finished_runs_of_the_same_flags_are_averaged():
    estimator = Estimator()
    estimator.add(options(), 10.0)
    estimator.add(options(), 20.0)
    assert estimator.seconds(options()) == 15.0
    assert estimator.source([options()] * 2) == "from finished runs of the same flags"


def test_others_are_scaled_by_what_is_known():
    estimator = Estimator()
    estimator.add(options(), 3.0 * rough_s(dict(options())))
    larger = options(batch_size=320)
    assert estimator.seconds(larger) == pytest.approx(3.0 * rough_s(dict(larger)))
    assert estimator.total_s([options(), larger]) == pytest.approx(
        3.0 * (rough_s(dict(options())) + rough_s(dict(larger)))
    )
    assert estimator.source([larger]) == "scaled from finished runs of other flags"
    assert estimator.source([options(), larger]).startswith("1 of them from finished runs")


def test_operations_follow_the_work():
    def work(**given):
        return rough_s(dict(options(**given))) - rough_s(
            dict(options(num_batches=1, num_warmup_batches=0, batch_size=1))
        )

    base = work()
    assert work(batch_size=64) == pytest.approx(2 * base, rel=0.01)
    # 6 operations a weight of a matrix product and word: LSTM cells 4(E+U)U, then 8U^2, and the softmax layer
    cells, softmax = 4 * 256 * 512 + 8 * 256**2, 256 * 8000
    flop = 6 * 30 * 32 * (30 * cells + 30 * (cells + softmax))
    assert rough_s(dict(options())) == pytest.approx(8.0 + flop / 150e9)


def test_a_language_model_has_no_encoder_beside_it():
    cells, softmax = 4 * 256 * 512 + 8 * 256**2, 256 * 8000
    flop = 6 * 30 * 32 * 30 * (cells + softmax)
    assert rough_s(dict(options(model="lm"))) == pytest.approx(8.0 + flop / 150e9)


@pytest.mark.parametrize(
    "seconds,text", [(0.2, "0 s"), (89, "89 s"), (90, "2 min"), (5300, "88 min"), (7800, "2 h 10 min")]
)
def test_duration(seconds, text):
    assert duration(seconds) == text
