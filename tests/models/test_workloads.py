"""What every workload keeps to, and FLOPs against those of a traced graph."""

from __future__ import annotations

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pytest

from rnn_scaling.config import registry
from rnn_scaling.config.run_config import OPTIONS
from rnn_scaling.models import workloads
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.kernels import UNIT_TYPES
from rnn_scaling.models.workloads import WORKLOADS
from tests.support.paths import ROOT
from tests.support.training import (
    BATCH_SIZE,
    LM,
    MAX_LEN,
    MODEL,
    SMALL,
    make_batches,
    workload_of,
)

TEXT = [
    name for name, entry in WORKLOADS.items() if not entry.datasets
]  # those of images: test_images.py
every_workload = pytest.mark.parametrize("name", TEXT)
OTHER_CELLS = [cell for cell in UNIT_TYPES if cell != ModelConfig().unit_type]
SHAPES = [  # of networks whose products are others
    *((name, {}) for name in TEXT),
    *(("lm", {"unit_type": cell}) for cell in OTHER_CELLS),
    (
        "nmt_attention",
        {"attention": "bahdanau", "normalize_attention": True, "biases_per_gate": 2},
    ),
    *(
        ("nmt_attention", {"attention_architecture": "gnmt_v2", "attention": kind})
        for kind in ("luong", "bahdanau")
    ),
]
every_shape = pytest.mark.parametrize("name, shape", SHAPES, ids=str)


def make_inputs(tf, model: ModelConfig):
    """A workload, its dense weights and embedded rows, large enough for gradients to be seen, and a batch."""
    workload, random = workload_of(model), np.random.default_rng(0)
    # Scores must differ from word to word, or rounding is all that is left of the gradients of what makes them.
    limits = {
        spec.name: 2.0 if spec.name.startswith("attention/") else 0.6
        for spec in workload.variables
    }
    draws = {
        spec.name: random.uniform(-1.0, 1.0, spec.shape).astype(np.float32)
        for spec in workload.variables
    }
    arrays = {
        name: tf.constant(name.endswith("/gain") + limits[name] * draw)
        for name, draw in draws.items()
    }
    [[batch]] = make_batches(1, 1, model)
    batch = type(batch)(*map(tf.constant, batch))
    rows = {
        name: tf.gather(arrays.pop(name), ids)
        for name, ids in workload.lookups(batch).items()
    }
    return workload, arrays, rows, batch


def gradients_of(tf, loss, dense, rows):
    watched = {**dense, **rows}
    with tf.GradientTape() as tape:
        tape.watch(watched)
        value = loss(dense, rows)
    return value, tape.gradient(value, watched)


ATTENTION = dataclasses.replace(MODEL, model="nmt_attention")
BAHDANAU = dataclasses.replace(ATTENTION, attention="bahdanau")


@pytest.mark.parametrize(
    "model", [MODEL, LM, ATTENTION, BAHDANAU], ids=["nmt", "lm", "luong", "bahdanau"]
)
def test_dropout_follows_the_seed_and_meets_the_embedded_words(tf, model):
    workload, dense, rows, batch = make_inputs(
        tf, dataclasses.replace(model, dropout=0.5)
    )

    def step(seed):
        def loss(dense, rows):
            return workload.forward(dense, rows, batch, tf.constant(seed)).loss_sum

        return gradients_of(tf, loss, dense, rows)

    (first, gradients), (again, _), (different, _) = map(step, ((1, 2), (1, 2), (1, 3)))
    assert float(first) == float(again) != float(different)
    for name in rows:
        lengths = batch.source_length if name.startswith("src") else batch.target_length
        inside = np.arange(MAX_LEN)[:, None] < lengths.numpy()
        assert 0.2 < np.mean(gradients[name].numpy()[inside] == 0) < 0.8, name


@pytest.mark.parametrize("model", [MODEL, LM, ATTENTION], ids=["nmt", "lm", "luong"])
@pytest.mark.parametrize("encoder_type", ["cudnn_lstm", "dynamic_rnn"])
def test_what_stands_in_the_padding_changes_nothing(tf, model, encoder_type):
    workload, dense, rows, batch = make_inputs(
        tf, dataclasses.replace(model, encoder_type=encoder_type)
    )

    def soil(x, lengths, value):
        padding = np.arange(MAX_LEN)[:, None] >= lengths.numpy()
        x = np.array(x)
        x[padding] = value
        return tf.constant(x)

    def step(rows, batch):
        def loss(dense, rows):
            return workload.forward(dense, rows, batch, tf.constant([0, 0])).loss_sum

        return gradients_of(tf, loss, dense, rows)

    lengths = {
        name: batch.source_length if name.startswith("src") else batch.target_length
        for name in rows
    }
    soiled = {name: soil(part, lengths[name], 9.0) for name, part in rows.items()}
    labels = soil(batch.target_output, batch.target_length, 7)
    (want, wanted), (got, gradients) = (
        step(rows, batch),
        step(soiled, batch._replace(target_output=labels)),
    )
    np.testing.assert_allclose(got, want, rtol=1e-6)
    for name, gradient in wanted.items():
        np.testing.assert_allclose(
            gradients[name], gradient, rtol=0, atol=1e-5, err_msg=name
        )


@pytest.mark.parametrize(
    "name, kernel", [(name, "cudnn_lstm") for name in TEXT] + [("nmt", "dynamic_rnn")]
)
def test_padding_to_one_length_changes_positions_and_neither_loss_nor_gradients(
    tf, name, kernel
):
    model = dataclasses.replace(
        SMALL, model=name, encoder_type=kernel, decoder_type=kernel
    )
    workload, dense, rows, batch = make_inputs(tf, model)
    more, num_sides = 3, len(workload.layout.sides)

    def step(rows, batch):
        forward = tf.function(
            lambda w, r, b: workload.forward(w, r, b, tf.constant([0, 0])).loss_sum,
            autograph=False,
        )
        return gradients_of(
            tf, lambda dense, rows: forward(dense, rows, batch), dense, rows
        )

    padded = workload.layout.padded(batch, MAX_LEN + more)
    zeros = {
        name: tf.pad(part, [[0, more], [0, 0], [0, 0]]) for name, part in rows.items()
    }
    (want, wanted), (got, gradients) = step(rows, batch), step(zeros, padded)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    for name, gradient in wanted.items():
        np.testing.assert_allclose(
            gradients[name][: len(gradient)], gradient, rtol=0, atol=1e-5, err_msg=name
        )
        assert not np.any(gradients[name][len(gradient) :]), name
    before, after = workload.counts(batch), workload.counts(padded)
    assert after[:2] == before[:2]
    assert (
        int(after.positions)
        == num_sides * (MAX_LEN + more) * BATCH_SIZE
        == int(before.positions) + num_sides * more * BATCH_SIZE
    )


SEED_SIZES = {
    "num_units": 512,
    "embedding_dim": 512,
    "src_vocab_size": 50_000,
    "tgt_vocab_size": 50_000,
}
SEED_SIZES |= {"num_encoder_layers": 4, "num_decoder_layers": 4}


@pytest.mark.parametrize(
    "options, count", [({}, 8_245_248), (SEED_SIZES, 95_690_752)], ids=["small", "seed"]
)
def test_trainable_count_of_the_presets(tf, options, count):
    assert (
        sum(
            int(np.prod(spec.shape))
            for spec in workload_of(ModelConfig(**options)).variables
        )
        == count
    )


@every_workload
def test_a_row_is_looked_up_for_each_position(tf, name):
    """So records derive the bytes of a step's rows from positions and the width of a row."""
    workload, _, rows, batch = make_inputs(tf, dataclasses.replace(MODEL, model=name))
    widths = {part.shape[-1] for part in rows.values()}
    looked_up = sum(int(np.prod(part.shape[:-1])) for part in rows.values())
    has_embeddings = any(spec.kind == "embedding" for spec in workload.variables)
    assert (
        len(widths) == has_embeddings
        and looked_up == int(workload.counts(batch).positions) * has_embeddings
    )


def test_initial_values_depend_on_seed_and_name_alone(tf):
    from rnn_scaling.models.workload import initial_value

    specs = {spec.name: spec for spec in workload_of(MODEL).variables}
    first, second = specs["decoder/layer_0/kernel"], specs["decoder/layer_1/kernel"]
    kernel = initial_value(second, seed=1)
    assert kernel.dtype == np.float32 and kernel.shape == (12, 24)
    assert (
        np.abs(kernel).max() <= 0.1
        and abs(kernel.mean()) < 0.02
        and kernel.std() > 0.05
    )
    np.testing.assert_array_equal(kernel, initial_value(second, seed=1))
    assert np.any(kernel != initial_value(second, seed=2))
    assert np.any(kernel[:11] != initial_value(first, seed=1))
    assert not initial_value(specs["decoder/layer_1/bias"], seed=1).any()


def test_the_kernels_that_run_are_named(tf):
    assert workload_of(
        dataclasses.replace(MODEL, decoder_type="dynamic_rnn")
    ).kernels == {
        "encoder_kernel": "BlockLSTM + LSTMBlockCellGrad",
        "decoder_kernel": "tf.compat.v1.nn.dynamic_rnn",
    }
    assert (
        workloads.load("nmt").build(MODEL, "GPU").kernels["encoder_kernel"]
        == "CudnnRNNV3"
    )


@pytest.mark.parametrize(
    "options",
    [
        *(
            {"model": name, "time_major": is_first}
            for name in ("nmt", "lm")
            for is_first in (True, False)
        ),
        {"model": "transformer"},
        {"model": "transformer", "label_smoothing": 0.2},
    ],
    ids=str,
)
def test_the_losses_of_the_outputs_sum_to_that_of_the_forward_pass(tf, options):
    """Also its gradients; the one computes logits, the other is fused."""
    workload, dense, rows, batch = make_inputs(
        tf, dataclasses.replace(MODEL, **options)
    )
    seed = tf.constant([0, 0])

    def forward(dense, rows):
        return workload.forward(dense, rows, batch, seed).loss_sum

    def in_two(dense, rows):
        return tf.reduce_sum(
            workload.losses(workload.outputs(dense, rows, batch, seed).logits, batch)
        )

    (want, wanted), (got, gradients) = (
        gradients_of(tf, loss, dense, rows) for loss in (forward, in_two)
    )
    np.testing.assert_allclose(got, want, rtol=1e-6)
    for key, gradient in wanted.items():
        np.testing.assert_allclose(
            gradients[key],
            gradient,
            rtol=0,
            atol=2e-5 * np.abs(gradient).max(),
            err_msg=key,
        )


def flops_of(graph) -> int:
    """Every product of [M, K] with [K, N] is 2*M*K*N, those of a loop once a step; one row adds up a bias' gradient."""
    flops = 0
    for op in graph.get_operations():
        if op.type == "MatMul" and op.outputs[0].shape[0] > 1:
            rows_of_a, columns_of_a = op.inputs[0].shape
            inner = rows_of_a if op.get_attr("transpose_a") else columns_of_a
            flops += 2 * inner * op.outputs[0].shape.num_elements()
        elif op.type == "BatchMatMulV2":
            inner = op.inputs[0].shape[-2 if op.get_attr("adj_x") else -1]
            flops += 2 * inner * op.outputs[0].shape.num_elements()
        elif op.type in ("While", "StatelessWhile"):
            flops += MAX_LEN * flops_of(
                graph._get_function(op.get_attr("body").name).graph
            )
    return flops


@every_shape
def test_flops_of_an_item_are_those_of_the_products_in_the_graph(
    tf, name, shape, monkeypatch
):
    """The reference kernel is unrolled, so each of its products stands there."""
    from rnn_scaling.models import kernels, stacks

    reference = SimpleNamespace(
        build=stacks.reference, kernel_name=lambda stack: "reference"
    )
    monkeypatch.setattr(
        kernels, "load", lambda kernel, device_type, unit_type: reference
    )
    workload, dense, rows, batch = make_inputs(
        tf, dataclasses.replace(MODEL, model=name, **shape)
    )

    @tf.function(autograph=False)
    def step(dense, rows):
        loss = workload.forward(dense, rows, batch, tf.constant([0, 0])).loss_sum
        return tf.gradients(loss, [*dense.values(), *rows.values()])

    flops = flops_of(step.get_concrete_function(dense, rows).graph)
    positions = int(workload.counts(batch).positions)
    assert (
        positions == len(workload.layout.sides) * MAX_LEN * BATCH_SIZE
    )  # all of them computed, padding too
    lengths = [MAX_LEN] * len(workload.layout.sides)
    options = {
        **vars(MODEL),
        "model": name,
        **shape,
        "src_max_len": MAX_LEN,
        "tgt_max_len": MAX_LEN,
    }
    assert flops == pytest.approx(
        workloads.flops_per_item(options, lengths) * positions
    )


@every_workload
def test_counts_are_sums_of_the_lengths(tf, name):
    workload, _, _, batch = make_inputs(tf, dataclasses.replace(MODEL, model=name))
    counts = workload.counts(batch)
    lengths = [part.numpy().sum() for part in batch if part.shape.rank == 1]
    assert (int(counts.items), int(counts.loss_items)) == (sum(lengths), lengths[-1])
    assert float(workload.loss_items(batch)) == lengths[-1]


class _Own:
    """Options of which a workload may read all but those that are another one's."""

    def __init__(self, model: ModelConfig) -> None:
        self._model, self._others = model, registry.readers(WORKLOADS)

    def __getattr__(self, option: str):
        if self._model.model not in self._others.get(option, WORKLOADS):
            raise AssertionError(f"{self._model.model} reads --{option}")
        return getattr(self._model, option)


@every_workload
def test_a_workload_reads_what_the_table_says_and_help_tells_it(tf, name):
    workloads.load(name).build(_Own(dataclasses.replace(MODEL, model=name)), "CPU")
    for option in registry.readers(WORKLOADS):
        assert (
            OPTIONS[option].metadata["help"].startswith(workloads.readers_of(option))
        ), option


def test_only_models_knows_workloads_by_name():
    """No room asks which workload runs: what depends on it is the workload's own.

    The audit's models are others, and the reference of `verify` repeats the formulas of each network by itself.
    """
    asks = re.compile(
        rf"""\bmodel\b\W*(==|!=|\bin\b)|["']({"|".join(WORKLOADS)})["']"""
    )
    for path in (ROOT / "rnn_scaling").rglob("*.py"):
        if not {"audit", "reference"} & {*path.parts}:
            assert not [
                line for line in path.read_text().splitlines() if asks.search(line)
            ], path


def flops_of_variables(workload, source, target):
    """6 for each number of a matrix at each word that it meets; a pair of words costs a score and a weighing."""
    flops = 0
    for spec in workload.variables:
        if spec.kind == "dense" and len(spec.shape) == 2:
            of_source = (
                spec.name.startswith("encoder/") or spec.name == "attention/memory"
            )
            flops += 6 * np.prod(spec.shape) * (source if of_source else target)
        flops += (
            6 * source * target * sum(spec.shape) * (spec.name == "attention/memory")
        )
    return flops


@pytest.mark.parametrize(
    "name, shape", [case for case in SHAPES if case[0] != "transformer"], ids=str
)
@pytest.mark.parametrize("cell", UNIT_TYPES)
@pytest.mark.parametrize("direction", ["uni", "bi"])
def test_the_flops_on_paper_are_those_of_the_variables(name, shape, cell, direction):
    sizes = {
        "num_encoder_layers": 4,
        "num_decoder_layers": 4,
        "num_units": 6,
        "embedding_dim": 5,
        "num_heads": 2,
    }
    config = ModelConfig(
        model=name, direction=direction, **{**sizes, "unit_type": cell, **shape}
    )
    workload = workloads.load(name).build(config, "CPU")
    options = {**dataclasses.asdict(config), "src_max_len": 3, "tgt_max_len": 7}
    assert WORKLOADS[name].flops_a_sample(options) == flops_of_variables(workload, 3, 7)
