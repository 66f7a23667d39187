"""The losses that another framework must reach are those of our step; a network that differs does not reach them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rnn_scaling.config import run_config as configs
from rnn_scaling.frameworks import handoff, loop
from rnn_scaling.frameworks.loop import RefusedError
from tests.support.training import BATCH_SIZE, MAX_LEN, MODEL, Serial

TOWERS = range(2)


def work_of(devices, mode):
    from rnn_scaling.frameworks import reference
    from rnn_scaling.training.engines.local import Engine

    given = {
        **vars(MODEL),
        "framework": "torch",
        "variable_update": mode,
        "num_devices": len(TOWERS),
    }
    given |= {
        "batch_size": BATCH_SIZE,
        "src_max_len": MAX_LEN,
        "tgt_max_len": MAX_LEN - 1,
        "compute_dtype": "bfloat16",
    }
    config = configs.resolve(given, num_gpus=0, num_cores=2)
    engine = Engine(0, 1, tuple(devices[: len(TOWERS)]), devices[0], "CPU", 1)
    return reference.on(
        engine, config, {"cpu_affinity": [0, 1], "scaling": "weak"}, 0.0
    )


@pytest.fixture(scope="module", params=["replicated", "independent"])
def work(request, devices):
    return work_of(devices, request.param)


def serial_step(work, tower=None, forget_bias=1.0, order=(0, 1, 2, 3)):
    """A step of plain training on a tower's batch, or on all as one; gates may be taken for others."""
    from rnn_scaling.models.batch import Batch

    towers = TOWERS if tower is None else [tower]
    parts = (
        "source",
        "source_lengths",
        "target_input",
        "target_output",
        "target_lengths",
    )
    joined = {
        name: np.concatenate([work.batches[t][name] for t in towers], axis=-1)
        for name in parts
    }
    batch = Batch(
        *(
            joined[name].astype(np.int32 if "lengths" in name else np.int64)
            for name in parts
        )
    )
    serial = Serial(
        dataclasses.replace(MODEL, forget_bias=forget_bias), work.sgd_learning_rate
    )
    serial.weights = {
        name: taken_for(value, order) if "/" in name else value
        for name, value in work.weights.items()
    }

    def step():
        loss, gradients = serial.gradient(batch)
        serial.apply(gradients)
        return loss

    return step


def taken_for(value, order):
    gates = np.split(value, 4, axis=-1)
    return np.concatenate([gates[gate] for gate in order], axis=-1)


def test_plain_training_of_what_is_handed_over_reaches_the_losses(work):
    assert (
        sorted(work.weights) == sorted(Serial(MODEL).weights)
        and work.items == (3 * (5 + 4),) * 2
    )
    assert work.loss_items == (12, 12) and work.batches[0]["source"].dtype == np.int32
    assert (work.batches[0]["source"] != work.batches[1]["source"]).any()
    if work.exchanges:
        loop.check(serial_step(work), work, TOWERS)
    else:
        loop.check(serial_step(work, tower=1), work, range(1, 2))
        with pytest.raises(RefusedError, match="at step"):
            loop.check(serial_step(work, tower=0), work, range(1, 2))
    losses = work.losses(TOWERS)
    assert losses[0] - losses[-1] > 10 * handoff.TOLERANCE * losses[0], (
        "or steps without an update would pass"
    )


@pytest.mark.parametrize("fault", [{"forget_bias": 0.0}, {"order": (0, 2, 1, 3)}])
def test_another_forget_bias_or_order_of_gates_is_refused(work, fault):
    if work.exchanges:
        with pytest.raises(
            RefusedError, match="torch does not train the same network: loss .* at step"
        ):
            loop.check(serial_step(work, **fault), work, TOWERS)


def test_towers_that_add_their_gradients_in_place_of_the_mean_are_refused(work):
    if work.exchanges:
        twice = dataclasses.replace(work, sgd_learning_rate=2 * work.sgd_learning_rate)
        with pytest.raises(RefusedError, match="at step 1 of SGD"):
            loop.check(serial_step(twice), work, TOWERS)
