"""Micro-batches of one update equal one batch of all their samples."""

import dataclasses

import numpy as np
import pytest

from rnn_scaling.models.batch import ImageBatch
from rnn_scaling.models.workload import make_first_values
from tests.support import tiny_images
from tests.support.training import (
    SMALL,
    FixedSource,
    build_step,
    concatenate,
    find_largest_difference,
    make_batches,
    train,
)
from tests.training.test_checkpoints import build

pytestmark = pytest.mark.usefixtures("as_built")

REPEATS, UPDATES = 2, 2
LM = dataclasses.replace(SMALL, model="lm")
MODES = [
    {
        "variable_update": "replicated",
        "optimizer": "momentum",
        "max_gradient_norm": 0.05,
    },
    {
        "variable_update": "replicated",
        "variable_consistency": "relaxed",
        "weight_decay": 0.1,
    },
    {"variable_update": "mirrored"},
]


@pytest.mark.parametrize(
    "options", MODES, ids=lambda options: "-".join(map(str, options.values()))
)
def test_micro_batches_make_the_update_of_one_batch(options, devices):
    # The numbers of words differ, so that a mean of means would differ too.
    micro = make_batches(REPEATS * UPDATES, 2, LM)
    groups = [micro[REPEATS * k : REPEATS * (k + 1)] for k in range(UPDATES)]
    whole = [[concatenate(own) for own in zip(*group)] for group in groups]
    repeated = train(
        devices[:2], micro, LM, gradient_accumulation_steps=REPEATS, **options
    )
    once = train(devices[:2], whole, LM, **options)
    for got, want in zip(repeated["replicas"], once["replicas"], strict=True):
        assert find_largest_difference(got, want) < 1e-6
    np.testing.assert_allclose(repeated["losses"], once["losses"], rtol=1e-5)
    for counted in ("items", "positions"):
        assert [list(each) for each in repeated[counted]] == [
            list(each) for each in once[counted]
        ]


def test_each_micro_batch_is_drawn_and_dropped_anew(tf):
    """Every update has the batches and correct predictions of steps 2n and 2n + 1."""
    given = {
        "data_source": "copy",
        "accuracy": True,
        "learning_rate": 1e-9,
        "num_devices": 1,
    }
    single, _ = build(given)
    double, _ = build({**given, "gradient_accumulation_steps": 2})
    for _ in range(2):
        first, second = single(), single()
        both = double()
        for name in ("loss_sum", "loss_items", "items", "correct"):
            np.testing.assert_allclose(
                getattr(both, name),
                getattr(first, name) + getattr(second, name),
                rtol=1e-5,
            )


def test_averages_of_a_tower_follow_each_of_its_micro_batches(tf, devices):
    random = np.random.default_rng(0)
    shape = (2, tiny_images.SIZE, tiny_images.SIZE, 3)
    batches = [
        [ImageBatch(random.normal(k, 1, shape).astype(np.float32), np.array([0, 1]))]
        for k in range(2)
    ]
    workload = tiny_images.workload()
    source = FixedSource(batches, devices[:1])
    given = {"model": "resnet50", "gradient_accumulation_steps": 2}
    step = build_step(devices[:1], source, workload, **given)
    step()
    weights = make_first_values(workload.variables, 1)
    moving = make_first_values(workload.moving, 1)
    for [batch] in batches:
        values = {**weights, **moving}
        moving = workload.forward(values, {}, batch, tf.constant([0, 0])).moving
    for name, variable in step.moving()[0].items():
        np.testing.assert_allclose(
            variable.numpy(), moving[name].numpy(), rtol=1e-5, err_msg=name
        )


def test_micro_batches_run_one_after_the_other(tf):
    """The second looks up its words only after the first has its gradients."""
    step, _ = build({"model": "lm", "num_devices": 1, "gradient_accumulation_steps": 2})
    operations = step.graph().get_operations()
    first, second = (
        op
        for op in operations
        if op.type == "ResourceGather" and op.name.startswith("tower_0/input/")
    )
    assert not first.control_inputs and len(second.control_inputs) > 3
    assert all(op.name.startswith("tower_0/backward/") for op in second.control_inputs)
