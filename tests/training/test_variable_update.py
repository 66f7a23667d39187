"""Synchronous modes compute the serial update of the global batch.

Stale modes are one step late.
"""

import dataclasses
import functools

import numpy as np
import pytest

from rnn_scaling.config import registry
from rnn_scaling.models.batch import TargetBatch
from tests.support.training import (
    MAX_LEN,
    SMALL,
    TRANSFORMER,
    Serial,
    build_workload,
    concatenate,
    find_largest_difference,
    make_batches,
    make_local_engine,
    train,
)

pytestmark = pytest.mark.usefixtures("large_weights")

# Each mode's order of reads and updates is tested as TensorFlow rewrites the step; other tests need no rewriting.
as_built = pytest.mark.usefixtures("as_built")
STEPS = 20
TOLERANCE = 1e-5  # absolute, weights after 20 SGD steps

SMALL_LM = dataclasses.replace(SMALL, model="lm")
THREE_CELLS = dataclasses.replace(SMALL_LM, num_encoder_layers=3)
SMALL_TRANSFORMER = dataclasses.replace(
    TRANSFORMER, num_encoder_layers=1, num_decoder_layers=1
)
# test_all_reduce compares every all-reduce with numpy. These have several rounds,
# shards, or a choice by size.
BY_SIZE = "pscpu#2:100:xring:500:rechd"  # biases of 96 bytes, a projection of 408, kernels of 1,056
# Packs of two gradients and of one: the biases of THREE_CELLS.
AGGREGATED = {
    "variable_update": "replicated",
    "agg_small_grads_max_bytes": 200,
    "agg_small_grads_max_group": 2,
}
PARAMETER_SERVER = {"variable_update": "parameter_server"}
REPLICATED = {"variable_update": "replicated"}
REPLICATED_DENSE = {"variable_update": "replicated", "sparse_gradients": "densify"}
MIRRORED = {"variable_update": "mirrored"}
SLICED_ON_DEVICE = {"variable_update": "keras_slicing", "slice_on": "device"}
# A network with one side is traced in half the time.
# Cases in which TensorFlow rewrites the step.
REWRITTEN = [
    ("nmt", PARAMETER_SERVER),
    ("lm", REPLICATED),
    ("lm", MIRRORED),
    ("lm", {"variable_update": "keras_slicing"}),
]
OF_ONE_SIDE = [
    {"variable_update": "parameter_server", "sparse_gradients": "densify"},
    REPLICATED_DENSE,
    {"variable_update": "replicated", "all_reduce_spec": BY_SIZE},
    SLICED_ON_DEVICE,
]


def _name(value):
    return value if isinstance(value, str) else ",".join(map(str, value.values()))


@pytest.fixture(scope="module")
def trained(devices):
    """Return the result of `train` after STEPS; each configuration trains once."""

    @functools.cache
    def run(model, num_towers, **options):
        return train(
            devices[:num_towers],
            make_tower_batches(model, num_towers),
            model,
            **options,
        )

    return run


def make_tower_batches(model, num_towers):
    """Return `[step][tower]` batches.

    The first tower of recurrent networks has twice as many sentences.
    """
    if model is SMALL_TRANSFORMER:
        return make_batches(STEPS, num_towers, model)
    return [
        [concatenate([a, b]), *rest]
        for a, b, *rest in make_batches(STEPS, num_towers + 1, model)
    ]


def serial_weights(model, batches, **options):
    """Return the weights of serial training on the global batches."""
    plain = Serial(model, **options)
    for towers in batches:
        plain.apply(plain.gradient(concatenate(towers))[1])
    return plain.weights


@functools.cache
def serial(model, num_towers):
    """Return weights and losses of serial training on the towers' batches."""
    plain, losses = Serial(model), []
    for towers in make_tower_batches(model, num_towers):
        loss, gradients = plain.gradient(concatenate(towers))
        plain.apply(gradients)
        losses.append(loss)
    moved = {
        name: np.abs(w - Serial(model).weights[name]).max()
        for name, w in plain.weights.items()
    }
    assert min(moved.values()) > 1000 * TOLERANCE
    return plain.weights, losses


@pytest.mark.parametrize(
    "workload, options",
    [
        *REWRITTEN,
        *(("lm", each) for each in OF_ONE_SIDE),
        ("lm", AGGREGATED),
        ("transformer", SLICED_ON_DEVICE),
    ],
    ids=_name,
)
def test_synchronous_update_equals_serial_update_on_global_batch(
    workload, options, trained, request
):
    # The towers have different numbers of words and sentences.
    if (workload, options) not in REWRITTEN:
        request.getfixturevalue("as_built")
    num_towers = 4 if options.get("all_reduce_spec") == BY_SIZE else 2
    models = {"nmt": SMALL, "lm": SMALL_LM, "transformer": SMALL_TRANSFORMER}
    model = THREE_CELLS if options is AGGREGATED else models[workload]
    result = trained(model, num_towers, **options)
    weights, losses = serial(model, num_towers)
    for replica in result["replicas"]:
        assert find_largest_difference(replica, weights) < TOLERANCE
    np.testing.assert_allclose(result["losses"], losses, rtol=1e-5)


@as_built
@pytest.mark.parametrize("mode", ["keras_slicing", "mirrored", "replicated"])
def test_one_tower_equals_serial_training(mode, trained):
    result = trained(SMALL_LM, 1, variable_update=mode)
    assert (
        find_largest_difference(result["replicas"][0], serial(SMALL_LM, 1)[0])
        < TOLERANCE
    )


@as_built
def test_independent_replicas_equal_serial_runs_on_their_own_data(trained):
    result = trained(SMALL_LM, 2, variable_update="independent")
    for tower, replica in enumerate(result["replicas"]):
        weights = serial_weights(
            SMALL_LM, [[towers[tower]] for towers in make_tower_batches(SMALL_LM, 2)]
        )
        assert find_largest_difference(replica, weights) < TOLERANCE


@pytest.mark.parametrize("mode", ["parameter_server", "replicated"])
def test_relaxed_applies_each_gradient_exactly_one_step_late(mode, trained):
    result = trained(SMALL_LM, 2, variable_update=mode, variable_consistency="relaxed")
    plain = Serial(SMALL_LM)
    late = {name: np.zeros_like(value) for name, value in plain.weights.items()}
    for towers in make_tower_batches(SMALL_LM, 2):
        fresh = plain.gradient(concatenate(towers))[1]
        plain.apply(late)
        late = fresh
    for replica in result["replicas"]:
        assert find_largest_difference(replica, plain.weights) < TOLERANCE


def test_staged_variables_are_exactly_one_step_stale(trained):
    result = trained(SMALL_LM, 2, variable_update="parameter_server", staged_vars=True)
    plain = Serial(SMALL_LM)
    stale = plain.weights
    for towers in make_tower_batches(SMALL_LM, 2):
        present = plain.weights
        plain.apply(plain.gradient(concatenate(towers), stale)[1])
        stale = present
    assert find_largest_difference(result["replicas"][0], plain.weights) < TOLERANCE


@as_built
@pytest.mark.parametrize(
    "options", [PARAMETER_SERVER, REPLICATED, SLICED_ON_DEVICE], ids=_name
)
def test_gradient_norm_is_that_of_the_global_batch(options, devices):
    batches = make_batches(5, 2, SMALL_LM)
    result = train(devices[:2], batches, SMALL_LM, max_gradient_norm=0.05, **options)
    clipped, unclipped = (
        serial_weights(SMALL_LM, batches, max_gradient_norm=0.05),
        serial_weights(SMALL_LM, batches),
    )
    for replica in result["replicas"]:
        assert find_largest_difference(replica, clipped) < TOLERANCE
        assert find_largest_difference(replica, unclipped) > 10 * TOLERANCE


@as_built
@pytest.mark.parametrize(
    "optimizer, modes",
    [("momentum", ["replicated"]), ("adam", ["parameter_server", "mirrored"])],
)
def test_optimizers_with_state_agree_between_modes(optimizer, modes, devices):
    """Adam's two arrays and its number of steps are all that a mode may lose; momentum has one array."""
    batches = make_batches(5, 2, SMALL_LM)
    options = {"optimizer": optimizer, "learning_rate": 0.01}
    runs = [
        train(devices[:2], batches, SMALL_LM, variable_update=mode, **options)[
            "replicas"
        ]
        for mode in modes
    ]
    one = train(
        devices[:1], [[concatenate(towers)] for towers in batches], SMALL_LM, **options
    )["replicas"][0]
    for replicas in runs:
        for replica in replicas:
            assert (
                find_largest_difference(replica, one) < 1e-4
            )  # Adam divides by the root of a tiny square


@as_built
@pytest.mark.parametrize("partition", [False, True])
def test_parameter_server_spread_over_devices_equals_serial(partition, devices, tf):
    from rnn_scaling.config.run_options import UpdateOptions
    from rnn_scaling.models import workload
    from rnn_scaling.training import optimizers
    from rnn_scaling.training.replica import Setup, UpdateRule, sum_bytes_by_device
    from rnn_scaling.training.variable_update.parameter_server import (
        ParameterServer,
        place_parts,
    )

    model = dataclasses.replace(
        SMALL_LM, tgt_vocab_size=300
    )  # embedding and projection are larger than a share
    batches = make_batches(STEPS, 2, model)
    specs = build_workload(model).variables
    setup = Setup(
        specs,
        {spec.name: workload.make_initial_value(spec, 1) for spec in specs},
        dataclasses.replace(make_local_engine(devices[:2]), servers=tuple(devices[:4])),
        UpdateOptions(
            variable_update="parameter_server", partition_large_variables=partition
        ),
        UpdateRule(optimizers.build("sgd", 0.5)),
    )
    update = ParameterServer(setup)
    result = train(devices[:2], batches, model, update=update)
    assert (
        find_largest_difference(result["replicas"][0], serial_weights(model, batches))
        < TOLERANCE
    )
    assert len(sum_bytes_by_device(update.list_variables())) == 4
    split = {
        name
        for name, parts in place_parts(specs, devices[:4], partition).items()
        if len(parts) > 1
    }
    assert split == ({"embedding", "projection"} if partition else set())


@pytest.mark.parametrize(
    "model, options, lengths",
    [
        (SMALL, PARAMETER_SERVER, ("source_length", "target_length")),
        (SMALL_LM, REPLICATED_DENSE, ("target_length",)),
    ],
)
def test_items_are_counted_from_the_lengths_the_towers_consumed(
    model, options, lengths, trained
):
    result = trained(model, 2, **options)
    for step, towers in enumerate(make_tower_batches(model, 2)):
        expected = [
            sum(int(getattr(batch, name).sum()) for name in lengths) for batch in towers
        ]
        assert result["items"][step].tolist() == expected
        sentences = [batch.target_length.size for batch in towers]
        assert result["positions"][step].tolist() == [
            len(lengths) * MAX_LEN * number for number in sentences
        ]


@as_built
def test_a_second_strategy_of_a_process_trains_on_other_shapes(devices, trained):
    assert len(trained(SMALL_LM, 2, variable_update="mirrored")["losses"]) == STEPS
    length = 2
    cut = [
        [
            TargetBatch(
                *(
                    part[:length] if part.ndim > 1 else part.clip(max=length)
                    for part in tower
                )
            )
            for tower in step
        ]
        for step in make_batches(2, 2, SMALL_LM)
    ]
    assert (
        len(train(devices[:2], cut, SMALL_LM, variable_update="mirrored")["losses"])
        == 2
    )


@as_built
@pytest.mark.parametrize(
    "mode, dtype, tolerance",
    [
        ("keras_slicing", "float16", 0.02),
        ("mirrored", "float16", 0.02),
        ("parameter_server", "float16", 0.02),
        ("replicated", "bfloat16", 0.1),
    ],
)
def test_reduced_precision_trains_close_to_float32_in_every_mode(
    mode, dtype, tolerance, devices
):
    # Weights move by about 1 in 5 steps. Each mode scales and unscales gradients for
    # float16, but bfloat16 only changes the network.
    batches = make_batches(5, 2, SMALL_LM)
    model = dataclasses.replace(SMALL_LM, compute_dtype=dtype)
    reduced = train(devices[:2], batches, model, variable_update=mode)
    trains_one_model = registry.VARIABLE_UPDATES[mode].trains_one_model
    for tower, other in enumerate(reduced["replicas"]):
        own = batches if trains_one_model else [[towers[tower]] for towers in batches]
        one = serial_weights(SMALL_LM, own)
        assert 0 < find_largest_difference(one, other) < tolerance
    scale = reduced["update"].read_loss_scale(0)
    assert (float(scale) == 2.0**15) if dtype == "float16" else scale is None
