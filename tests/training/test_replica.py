"""Placement, loss scaling and deferral, without a network."""

import types

import numpy as np
import pytest

from tests.training.test_checkpoints import build

pytestmark = pytest.mark.usefixtures("as_built")


def _specs(**shapes):
    return [
        types.SimpleNamespace(name=name, shape=shape, kind="dense")
        for name, shape in shapes.items()
    ]


@pytest.fixture
def updater(tf):
    from rnn_scaling.training import optimizers, replica

    variable = tf.Variable([1.0, 2.0], name="v")
    rule = replica.UpdateRule(optimizers.build("sgd", 1.0), loss_scale="dynamic")
    return variable, replica.Updater({"v": variable}, rule, "CPU:0")


def test_gradients_that_are_not_finite_skip_the_update_and_halve_the_loss_scale(
    updater, tf
):
    variable, update = updater
    step = tf.function(lambda g: update.apply({"v": g}), autograph=False)
    before = float(update.read_loss_scale())
    step(tf.constant([np.inf, 1.0]))
    assert variable.numpy().tolist() == [1.0, 2.0]
    assert float(update.read_loss_scale()) == before / 2
    step(tf.constant([np.nan, 1.0]))
    assert float(update.read_loss_scale()) == before / 4
    step(tf.constant([0.5, 1.0]))
    assert variable.numpy().tolist() == [0.5, 1.0]
    assert float(update.read_loss_scale()) == before / 4 and int(update.skipped) == 2


def test_a_static_loss_scale_stays_and_its_skipped_updates_are_counted(tf):
    from rnn_scaling.training import optimizers, replica

    variable = tf.Variable([1.0])
    rule = replica.UpdateRule(optimizers.build("sgd", 1.0), loss_scale="128")
    update = replica.Updater({"v": variable}, rule, "CPU:0")
    step = tf.function(lambda g: update.apply({"v": g}), autograph=False)
    for gradient in (np.inf, 0.5, np.nan):
        step(tf.constant([gradient]))
        assert float(update.read_loss_scale()) == 128
    assert variable.numpy().tolist() == [0.5]
    assert int(update.skipped) == 2
    unscaled = replica.Updater(
        {}, replica.UpdateRule(optimizers.build("sgd", 1.0)), "CPU:0"
    )
    assert unscaled.skipped is None


def test_loss_scale_doubles_after_as_many_finite_steps_as_documented(
    updater, tf, monkeypatch
):
    from rnn_scaling.training import replica

    monkeypatch.setattr(replica, "LOSS_SCALE_GROWTH_STEPS", 3)
    _, update = updater
    step = tf.function(lambda g: update.apply({"v": g}), autograph=False)
    before = float(update.read_loss_scale())
    scales = []
    for _ in range(6):
        step(tf.zeros([2]))
        scales.append(float(update.read_loss_scale()) / before)
    assert scales == [1, 1, 2, 2, 2, 4]


@pytest.mark.parametrize("mode", ["replicated", "parameter_server"])
def test_a_step_tells_the_updates_that_it_skipped(mode):
    given = {
        "model": "lm",
        "variable_update": mode,
        "compute_dtype": "float16",
        "loss_scale": "999999999",
    }
    step, _ = build(given)
    before = [state.variable.numpy() for state in step.list_variables()]
    assert (step(), step())[1].loss > 0 and step.count_skipped_updates() == 2
    assert all(
        np.array_equal(old, state.variable)
        for old, state in zip(before, step.list_variables(), strict=True)
    )


def test_variables_are_spread_by_bytes(tf):
    from rnn_scaling.training.variable_update.parameter_server import place_parts

    parts = place_parts(
        _specs(b=(50, 4), c=(50, 4), a=(100, 4)), ["d0", "d1"], divides_large=False
    )
    assert [part.device for part in (parts["a"][0], parts["b"][0], parts["c"][0])] == [
        "d0",
        "d1",
        "d1",
    ]


def test_large_variables_are_split_into_consecutive_rows_no_larger_than_a_share(tf):
    from rnn_scaling.training.variable_update.parameter_server import place_parts

    parts = place_parts(
        _specs(big=(101, 4), small=(3, 4)), ["d0", "d1", "d2"], divides_large=True
    )
    rows = [(part.start, part.stop) for part in parts["big"]]
    assert rows[0][0] == 0 and rows[-1][1] == 101
    assert all(a[1] == b[0] for a, b in zip(rows, rows[1:]))
    assert {part.device for part in parts["big"]} == {"d0", "d1", "d2"}
    assert max(stop - start for start, stop in rows) <= (101 + 3) / 3
    assert len(parts["small"]) == 1


def test_deferred_gradients_come_out_one_step_later_zeros_first(tf):
    from rnn_scaling.training.replica import DeferredGradients

    specs = [
        types.SimpleNamespace(name="dense", shape=(2,), kind="dense"),
        types.SimpleNamespace(name="table", shape=(4, 2), kind="embedding"),
    ]
    deferred = DeferredGradients(specs, "CPU:0")

    @tf.function(autograph=False)
    def step(dense, rows, indices):
        held = deferred.swap(
            {
                "dense": dense,
                "table": tf.IndexedSlices(rows, indices, tf.constant([4, 2])),
            }
        )
        return held["dense"], tf.convert_to_tensor(held["table"])

    outputs = []
    for k in (1.0, 2.0):
        dense, table = step(tf.fill([2], k), tf.fill([3, 2], k), tf.constant([1, 1, 3]))
        outputs.append((dense.numpy().tolist(), table.numpy()[:, 0].tolist()))
    assert outputs == [
        ([0.0, 0.0], [0.0, 0.0, 0.0, 0.0]),
        ([1.0, 1.0], [0.0, 2.0, 0.0, 1.0]),
    ]
