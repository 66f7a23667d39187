"""The callback for `model.fit`: a real fit under a clock that the test moves."""

from __future__ import annotations

import os

import numpy as np
import pytest

from rnn_scaling import Recorder
from rnn_scaling.records import record


@pytest.fixture(scope="module")
def model():
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    keras = pytest.importorskip("keras")
    model = keras.Sequential([keras.Input([3]), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model


def fit(model, path, num_samples=10, epochs=3, warmup=2):
    import keras

    now = [0.0]

    class Batches(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            now[0] += 0.01

        def on_test_begin(self, logs=None):
            now[0] += 1000.0

    recorder = Recorder(path, unit="images", num_warmup_batches=warmup, clock=lambda: now[0])
    watch = Recorder.callback_keras(
        path, num_samples=num_samples, batch_size=4, num_warmup_batches=warmup, recorder=recorder, items_a_sample=3
    )
    x, y = np.ones([10, 3], np.float32), np.ones([10, 1], np.float32)
    history = model.fit(
        x, y, batch_size=4, epochs=epochs, callbacks=[Batches(), watch], verbose=0, validation_data=(x, y)
    )
    return watch, history.history


def test_the_smaller_last_batch_counts_what_it_holds_and_no_epochs_end_is_timed(model, tmp_path):
    watch, history = fit(model, tmp_path / "run.json")
    run = record.read(tmp_path / "run.json")
    assert watch.record.throughput == run.throughput and run.status == "ok"
    assert run.batches.items == (12, 12, 6) * 3
    np.testing.assert_allclose(run.batches.seconds, 0.01)
    # Each of the four equal gradients of an error moves the output by 0.02 of it; not the mean of the epoch so far.
    np.testing.assert_allclose(np.divide(run.batches.loss[1:], run.batches.loss[:-1]), (1 - 4 * 0.02) ** 2, rtol=1e-3)
    assert run.throughput.items == 6 + 2 * 30 and run.batches.unwaited is None, "no validation is a late wait"
    np.testing.assert_allclose(history["items_per_second"], [600.0, 1000.0, 1000.0])
    np.testing.assert_allclose(history["median_items_per_second"], [600.0, 1200.0, 1200.0])


def test_numbers_that_are_not_those_of_fit_end_it(model, tmp_path):
    with pytest.raises(ValueError, match="had 3 batches in an epoch; expected 2 of num_samples=8 and batch_size=4"):
        fit(model, tmp_path / "run.json", num_samples=8, warmup=0)
    assert record.read(tmp_path / "run.json").status == "failed"


def test_it_makes_its_own_recorder(tmp_path):
    from rnn_scaling.keras import ItemsPerSecond

    ItemsPerSecond(tmp_path / "run.json", num_samples=8, batch_size=4)
    config = record.read(tmp_path / "run.json").config
    assert config["framework"].startswith("keras on ") and config["batch_size"] == 4


def test_numbers_below_one_are_refused_at_once(model, tmp_path):
    from rnn_scaling.keras import ItemsPerSecond

    with pytest.raises(ValueError, match="num_devices of at least 1, got 8, 4, 1 and 0"):
        ItemsPerSecond(tmp_path / "run.json", num_samples=8, batch_size=4, num_devices=0)
