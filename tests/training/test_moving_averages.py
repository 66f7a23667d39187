"""Batch normalisation under each mode: each tower has its batch and its averages."""

import numpy as np
import pytest

from rnn_scaling.config import registry
from rnn_scaling.models.batch import ImageBatch
from rnn_scaling.models.workload import make_first_values
from tests.support import tiny_images
from tests.support.training import (
    FixedSource,
    build_step,
    find_largest_difference,
    replicas,
)

pytestmark = pytest.mark.usefixtures("as_built")

MODES = ["independent", "keras_slicing", "mirrored", "replicated"]
BATCH_SIZES, NUM_STEPS, LEARNING_RATE = (3, 2), 3, 0.5


def make_batches():
    """Return `[step][tower]` batches whose pixels differ in mean and spread."""
    random = np.random.default_rng(0)

    def one(tower, size):
        images = random.normal(
            tower, 1 + tower, (size, tiny_images.SIZE, tiny_images.SIZE, 3)
        ).astype(np.float32)
        return ImageBatch(images, random.integers(0, tiny_images.NUM_CLASSES, size))

    return [
        [one(tower, size) for tower, size in enumerate(BATCH_SIZES)]
        for _ in range(NUM_STEPS)
    ]


def serial(tf, batches, groups):
    """Train on the towers' batches in turn on one device, with averages per tower.

    Args:
      tf: TensorFlow.
      batches: `[step][tower]`.
      groups: numbers of the towers whose gradients make one update of one copy.

    Returns:
      The weights of each group, and the averages of each tower.
    """
    workload = tiny_images.workload()
    weights = [make_first_values(workload.variables, 1) for _ in groups]
    moving = [make_first_values(workload.moving, 1) for _ in BATCH_SIZES]
    for step in batches:
        for copy, towers in zip(weights, groups):
            sums = dict.fromkeys(copy, 0.0)
            for tower in towers:
                tensors = {name: tf.constant(value) for name, value in copy.items()}
                with tf.GradientTape() as tape:
                    tape.watch(tensors)
                    outcome = workload.forward(
                        {**tensors, **moving[tower]},
                        {},
                        step[tower],
                        tf.constant([0, 0]),
                    )
                for name, gradient in tape.gradient(outcome.loss_sum, tensors).items():
                    sums[name] = sums[name] + gradient.numpy()
                moving[tower] = {
                    name: value.numpy() for name, value in outcome.moving.items()
                }
            images = sum(len(step[tower].labels) for tower in towers)
            for name in copy:
                copy[name] = copy[name] - LEARNING_RATE * sums[name] / images
    return weights, moving


@pytest.mark.parametrize("mode", MODES)
def test_towers_normalise_by_their_own_batch_and_keep_their_own_averages(
    tf, devices, mode
):
    given = {"variable_update": mode, "learning_rate": LEARNING_RATE}
    given |= {"global_batch_size": sum(BATCH_SIZES), "model": "resnet50"}
    batches = make_batches()
    source = FixedSource(batches, devices[:2])
    if registry.VARIABLE_UPDATES[mode].cuts_global_batch:
        whole = [[ImageBatch(*map(np.concatenate, zip(*step)))] for step in batches]
        source = FixedSource(whole, devices[:1])
    step = build_step(devices[:2], source, tiny_images.workload(), **given)
    results = [step() for _ in batches]
    assert [list(result.items) for result in results] == [list(BATCH_SIZES)] * NUM_STEPS

    trains_one = registry.find_mode(mode).trains_one_model
    weights, moving = serial(tf, batches, [(0, 1)] if trains_one else [(0,), (1,)])
    expected = weights * 2 if trains_one else weights
    for replica, want in zip(replicas(step._update), expected):
        assert find_largest_difference(replica, want) < 1e-6
    for variables, want in zip(step._moving, moving):
        for name, variable in variables.items():
            np.testing.assert_allclose(variable, want[name], rtol=1e-5, err_msg=name)
    means = [variables["norm/moving_mean"].numpy() for variables in step._moving]
    assert (
        np.abs(means[0] - means[1]).max() > 0.01
    )  # otherwise the averages of all towers would be equal


def test_the_record_counts_trained_moving_and_optimizer_numbers_apart(devices):
    from rnn_scaling.training import benchmark

    workload = tiny_images.workload()
    source = FixedSource(make_batches(), devices[:2])
    trainable = 27 * 4 + 4 + 4 + 4 * 5
    for optimizer, slots in (("sgd", 0), ("momentum", 1), ("rmsprop", 2)):
        for mode in ("independent", "parameter_server"):
            given = {"variable_update": mode, "optimizer": optimizer}
            step = build_step(devices[:2], source, workload, **given)
            numbers = benchmark._count_parameters(workload, step.list_variables())
            assert numbers == {
                "trainable": trainable,
                "bytes": 4 * trainable,
                "moving": 8,
                "optimizer": slots * trainable,
                "embedding_bytes": 0,
                "row_bytes": 0,
            }
