"""Keras' layers and `fit` reach the losses that every framework must reach."""

import threading

import numpy as np

from rnn_scaling.frameworks import handoff, keras, loop
from tests.frameworks.test_reference import TOWERS, make_task


def test_fit_reaches_our_losses_and_ends_with_its_step(devices):
    task = make_task(devices, "replicated")
    step = keras.build(task.as_reference(), 0)
    loop.check(step, task, TOWERS)
    [fit] = (t for t in threading.enumerate() if t.name.startswith("fit "))
    del step
    fit.join(timeout=60)
    assert not fit.is_alive()


def test_gates_and_forget_bias_are_as_keras_has_them():
    rows = 10 * np.arange(5, dtype=np.float32)[:, None]
    kernel = np.repeat(np.arange(4, dtype=np.float32), 2) + rows
    weights = {"a/kernel": kernel, "a/bias": kernel[0]}
    ordered, bias = handoff.make_reference_cell(
        weights, "a", forget_bias=0.5, gates="ifjo"
    )
    first_row = [0, 0, 2, 2, 1, 1, 3, 3]
    np.testing.assert_array_equal(ordered[0], first_row)
    np.testing.assert_array_equal(ordered[4], np.add(40, first_row))
    assert list(bias) == [0, 0, 2.5, 2.5, 1, 1, 3, 3]
    assert kernel[0, 4] == 2  # the task does not change
