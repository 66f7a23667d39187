"""The callback for `model.fit`: a real fit with a clock that the test moves."""

import os
import types

import numpy as np
import pytest

from rnn_scaling import Recorder
from rnn_scaling.analysis import folder_rows, rows
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

    recorder = Recorder(
        path, unit="images", num_warmup_batches=warmup, clock=lambda: now[0]
    )
    from rnn_scaling.keras import ItemsPerSecond

    watch = ItemsPerSecond(
        path,
        num_samples=num_samples,
        batch_size=4,
        num_warmup_batches=warmup,
        recorder=recorder,
        items_a_sample=3,
    )
    x, y = np.ones([10, 3], np.float32), np.ones([10, 1], np.float32)
    history = model.fit(
        x,
        y,
        batch_size=4,
        epochs=epochs,
        callbacks=[Batches(), watch],
        verbose=0,
        validation_data=(x, y),
    )
    return watch, history.history


def test_a_smaller_last_batch_counts_its_samples_and_validation_is_not_timed(
    model, tmp_path
):
    watch, history = fit(model, tmp_path / "run.json")
    run = record.read(tmp_path / "run.json")
    assert watch.record.throughput == run.throughput and run.status == "ok"
    assert run.batches.items == (12, 12, 6) * 3
    np.testing.assert_allclose(run.batches.seconds, 0.01)
    # Four equal gradients move the output by 0.02 of its error each. The losses are not the
    # mean of the epoch so far.
    np.testing.assert_allclose(
        np.divide(run.batches.loss[1:], run.batches.loss[:-1]),
        (1 - 4 * 0.02) ** 2,
        rtol=1e-3,
    )
    assert run.throughput.items == 6 + 2 * 30 and run.batches.early_steps is None
    np.testing.assert_allclose(history["items_per_second"], [600.0, 1000.0, 1000.0])
    np.testing.assert_allclose(
        history["median_items_per_second"], [600.0, 1200.0, 1200.0]
    )


def test_a_fit_with_another_number_of_samples_fails(model, tmp_path):
    with pytest.raises(ValueError, match="num_samples=8 and batch_size=4"):
        fit(model, tmp_path / "run.json", num_samples=8, warmup=0)
    assert record.read(tmp_path / "run.json").status == "failed"


def test_it_makes_its_own_recorder(tmp_path):
    from rnn_scaling.keras import ItemsPerSecond

    ItemsPerSecond(tmp_path / "run.json", num_samples=8, batch_size=4)
    config = record.read(tmp_path / "run.json").config
    assert config["framework"].startswith("keras on ") and config["batch_size"] == 4


@pytest.mark.parametrize("makes_new", [True, False])
def test_every_fit_has_a_record_of_its_own(model, tmp_path, capsys, makes_new):
    from rnn_scaling.keras import ItemsPerSecond

    def callback():
        return ItemsPerSecond(
            tmp_path / "run.json", num_samples=8, batch_size=4, num_warmup_batches=0
        )

    watch = callback()
    x, y = np.ones([8, 3], np.float32), np.ones([8, 1], np.float32)
    for epochs in (1, 2, 3):
        model.fit(x, y, batch_size=4, epochs=epochs, callbacks=[watch], verbose=0)
        assert watch.record.batches.measured == 2 * epochs
        watch = callback() if makes_new and epochs < 3 else watch
    runs = {path.name: record.read(path) for path in sorted(tmp_path.glob("*.json"))}
    measured = {name: run.batches.measured for name, run in runs.items()}
    assert measured == {"run.json": 2, "run-2.json": 4, "run-3.json": 6}
    assert {run.status for run in runs.values()} == {"ok"}
    err = capsys.readouterr().err
    assert "run-2.json" in err and "run-3.json" in err


def test_a_strategy_with_more_replicas_than_devices_is_refused(tmp_path):
    from rnn_scaling.keras import ItemsPerSecond

    watch = ItemsPerSecond(tmp_path / "run.json", num_samples=8, batch_size=4)
    strategy = types.SimpleNamespace(num_replicas_in_sync=2)
    watch.set_model(types.SimpleNamespace(distribute_strategy=strategy))
    with pytest.raises(ValueError, match="num_devices=1.*num_devices=2"):
        watch.on_train_begin()
    assert record.read(tmp_path / "run.json").error.type == "ValueError"


def test_one_batch_for_all_devices_is_strong_scaling(model, tmp_path):
    from rnn_scaling.keras import ItemsPerSecond

    for devices in (1, 2):
        watch = ItemsPerSecond(
            tmp_path / f"{devices}.json",
            num_samples=8,
            batch_size=4,
            num_devices=devices,
            num_warmup_batches=0,
        )
        model.fit(
            np.ones([8, 3]),
            np.ones([8, 1]),
            batch_size=4,
            epochs=1,
            callbacks=[watch],
            verbose=0,
        )
    one, two = sorted(folder_rows.load(tmp_path), key=lambda row: row.num_devices)
    assert two.baseline is one and two.global_batch_size == 4
    assert two.metric(rows.METRICS["speedup"])
