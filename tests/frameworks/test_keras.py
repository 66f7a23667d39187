"""Keras' own layers and `fit` train our network: its losses are those that every framework must reach."""

from __future__ import annotations

import threading

import numpy as np

from rnn_scaling.frameworks import handoff, keras, loop
from tests.frameworks.test_reference import TOWERS, work_of


def test_fit_reaches_our_losses_and_ends_with_its_step(devices):
    work = work_of(devices, "replicated")
    step = keras.build(work.as_reference(), 0)
    loop.check(step, work, TOWERS)
    (fit,) = [
        thread for thread in threading.enumerate() if thread.name.startswith("fit ")
    ]
    del step
    fit.join(timeout=60)
    assert not fit.is_alive()


def test_gates_and_forget_bias_are_as_keras_has_them():
    kernel = (
        np.repeat(np.arange(4, dtype=np.float32), 2)[None]
        + 10 * np.arange(5, dtype=np.float32)[:, None]
    )
    weights = {"a/kernel": kernel, "a/bias": kernel[0]}
    ordered, bias = handoff.cell(weights, "a", forget_bias=0.5, gates="ifjo")
    assert list(ordered[0]) == [0, 0, 2, 2, 1, 1, 3, 3] and list(ordered[4]) == [
        40,
        40,
        42,
        42,
        41,
        41,
        43,
        43,
    ]
    assert list(bias) == [0, 0, 2.5, 2.5, 1, 1, 3, 3] and kernel[0, 4] == 2, (
        "what is handed over stays as it is"
    )
