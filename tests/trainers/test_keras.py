"""Keras' own layers and `fit` train our network: its losses are those that every framework must reach."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from rnn_scaling.trainers import handoff, keras, loop
from tests.trainers.test_reference import TOWERS, work_of


@pytest.mark.parametrize("mode", ["replicated", "independent"])
def test_fit_reaches_our_losses_and_ends_with_its_step(devices, mode):
    work = work_of(devices, mode)
    loop.check(keras.build(work.as_reference(), 0), work, TOWERS)
    step = keras.build(work, 0)  # Adam, in bfloat16
    losses = [step() for _ in range(3)]
    assert all(map(math.isfinite, losses)) and losses[0] == pytest.approx(work.losses(TOWERS)[0], rel=0.01)
    assert losses[2] < losses[0]
    fits = [thread for thread in keras.threading.enumerate() if thread.name.startswith("fit ")]
    del step
    for thread in fits:
        thread.join(timeout=30)
    assert fits and not any(thread.is_alive() for thread in fits)


def test_what_fit_raises_ends_the_step(devices):
    work = work_of(devices, "independent")
    wrong = {**work.weights, "projection": np.zeros((3, 7), np.float32)}
    with pytest.raises(ValueError, match="projection"):
        keras.build(dataclasses.replace(work, weights=wrong).as_reference(), 0)


def test_gates_and_forget_bias_are_as_keras_has_them():
    kernel = np.repeat(np.arange(4, dtype=np.float32), 2)[None] + 10 * np.arange(5, dtype=np.float32)[:, None]
    of_input, recurrent, bias = keras.cell_weights(kernel, kernel[0], forget_bias=0.5)
    assert of_input.shape == (3, 8) and recurrent.shape == (2, 8)
    assert list(of_input[0]) == [0, 0, 2, 2, 1, 1, 3, 3] and list(recurrent[1]) == [40, 40, 42, 42, 41, 41, 43, 43]
    assert list(bias) == [0, 0, 2.5, 2.5, 1, 1, 3, 3] and kernel[0, 4] == 2, "what is handed over stays as it is"
    assert handoff.TOLERANCE == 1e-4
