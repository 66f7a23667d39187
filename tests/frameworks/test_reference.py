"""The losses that another framework must reach: only an equal network reaches them."""

import dataclasses

import numpy as np
import pytest

from rnn_scaling.frameworks import handoff, loop, reference
from rnn_scaling.frameworks.loop import RefusedError
from rnn_scaling.models.batch import Batch
from rnn_scaling.training.engines.local import Engine
from tests.support.configs import resolve
from tests.support.training import BATCH_SIZE, MAX_LEN, MODEL, SMALL, Serial

TOWERS = range(2)


def make_task(devices, mode, model=MODEL):
    values = {
        **vars(model),
        "framework": "torch",
        "variable_update": mode,
        "num_devices": len(TOWERS),
        "batch_size": BATCH_SIZE,
        "src_max_len": MAX_LEN,
        "tgt_max_len": MAX_LEN - 1,
        "compute_dtype": "bfloat16",
    }
    config = resolve(values)
    engine = Engine(0, 1, tuple(devices[: len(TOWERS)]), devices[0], "CPU", 1)
    resolved = {"cpu_affinity": [0, 1], "scaling": "weak"}
    return reference.build_task(engine, config, resolved, 0.0)


@pytest.fixture(scope="module")
def exchanging(devices):
    """Return a task whose towers train one model."""
    return make_task(devices, "replicated")


def serial_step(task, model=MODEL, tower=None, forget_bias=1.0, order=(0, 1, 2, 3)):
    """Return a step of plain training on a tower's batch, or on the global batch.

    Args:
      task: The task.
      model: Its network.
      tower: The tower, or None for the global batch.
      forget_bias: The forget bias of the network.
      order: Order of the gates; any order but the default gives a wrong network.
    """
    towers = TOWERS if tower is None else [tower]
    arrays = []
    for name in Batch._fields:
        name = name.replace("_length", "_lengths")
        joined = np.concatenate([task.batches[t][name] for t in towers], axis=-1)
        arrays.append(joined.astype(np.int32 if "lengths" in name else np.int64))
    batch = Batch(*arrays)
    config = dataclasses.replace(model, forget_bias=forget_bias)
    serial = Serial(config, task.sgd_learning_rate)
    serial.weights = {
        name: reorder(value, order) if "/" in name else value
        for name, value in task.weights.items()
    }

    def step():
        loss, gradients = serial.gradient(batch)
        serial.apply(gradients)
        return loss

    return step


def reorder(value, order):
    gates = np.split(value, 4, axis=-1)
    return np.concatenate([gates[gate] for gate in order], axis=-1)


def check_task(task, model):
    assert sorted(task.weights) == sorted(Serial(model).weights)
    assert task.items == (3 * (5 + 4),) * 2
    assert task.loss_items == (12, 12) and task.batches[0]["source"].dtype == np.int32
    assert (task.batches[0]["source"] != task.batches[1]["source"]).any()
    losses = task.compute_losses(TOWERS)
    # Steps without an update must not pass.
    assert losses[0] - losses[-1] > 10 * handoff.TOLERANCE * losses[0]


def test_plain_training_of_a_task_reaches_its_losses(exchanging):
    check_task(exchanging, MODEL)
    loop.check(serial_step(exchanging), exchanging, TOWERS)


def test_an_independent_replica_reaches_only_its_own_losses(devices):
    task = make_task(devices, "independent", SMALL)
    check_task(task, SMALL)
    loop.check(serial_step(task, SMALL, tower=1), task, range(1, 2))
    with pytest.raises(RefusedError, match="at step"):
        loop.check(serial_step(task, SMALL, tower=0), task, range(1, 2))


@pytest.mark.parametrize("fault", [{"forget_bias": 0.0}, {"order": (0, 2, 1, 3)}])
def test_another_forget_bias_or_order_of_gates_is_refused(exchanging, fault):
    with pytest.raises(RefusedError, match="at step"):
        loop.check(serial_step(exchanging, **fault), exchanging, TOWERS)


def test_towers_that_add_their_gradients_in_place_of_the_mean_are_refused(exchanging):
    twice = dataclasses.replace(
        exchanging, sgd_learning_rate=2 * exchanging.sgd_learning_rate
    )
    with pytest.raises(RefusedError, match="at step 1 of SGD"):
        loop.check(serial_step(twice), exchanging, TOWERS)
