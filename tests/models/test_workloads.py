"""Properties of every workload, and its FLOPs against a traced graph."""

import dataclasses
import re
from types import SimpleNamespace

import numpy as np
import pytest

from rnn_scaling.config import registry
from rnn_scaling.config.run_config import OPTIONS
from rnn_scaling.models import encoder_table, stacks, workloads
from rnn_scaling.models.config import (
    GNMT_V2,
    TRANSFORMER_BASE,
    TRANSFORMER_BIG,
    ModelConfig,
)
from rnn_scaling.models.encoder_table import UNIT_TYPES
from rnn_scaling.models.workload import make_initial_value
from rnn_scaling.models.workloads import WORKLOADS
from tests.support import training
from tests.support.paths import ROOT
from tests.support.training import (
    BATCH_SIZE,
    LM,
    MAX_LEN,
    MODEL,
    SMALL,
    TRANSFORMER,
    build_workload,
    make_batches,
)

# tests/models/test_images.py tests the workloads of images.
TEXT = [name for name, entry in WORKLOADS.items() if not entry.datasets]
every_workload = pytest.mark.parametrize("name", TEXT)
OTHER_CELLS = [cell for cell in UNIT_TYPES if cell != ModelConfig().unit_type]
GNMT = {"attention_architecture": "gnmt_v2", "num_encoder_layers": 4}
# Networks with different products.
SHAPES = [
    *((name, {}) for name in TEXT),
    *(("lm", {"unit_type": cell}) for cell in OTHER_CELLS),
    ("nmt", {"direction": "uni", "unit_type": "gru"}),
    (
        "nmt_attention",
        {"attention": "bahdanau", "normalize_attention": True, "biases_per_gate": 2},
    ),
    ("nmt_attention", {"direction": "uni", "num_decoder_layers": 2}),
    ("nmt_attention", {**GNMT, "direction": "uni"}),
]
every_shape = pytest.mark.parametrize("name, shape", SHAPES, ids=str)


def make_inputs(tf, model):
    """Return a workload, its dense weights and embedded rows, and a batch.

    The weights are large enough for gradients to be seen.
    """
    workload = build_workload(model)
    random = np.random.default_rng(0)
    arrays = {}
    for spec in workload.variables:
        # Scores must differ between words, or rounding hides their gradients.
        limit = 2.0 if spec.name.startswith("attention/") else 0.6
        draw = random.uniform(-1.0, 1.0, spec.shape).astype(np.float32)
        arrays[spec.name] = tf.constant(spec.name.endswith("/gain") + limit * draw)
    [[batch]] = make_batches(1, 1, model)
    batch = type(batch)(*map(tf.constant, batch))
    rows = {
        name: tf.gather(arrays.pop(name), ids)
        for name, ids in workload.list_lookups(batch).items()
    }
    return workload, arrays, rows, batch


def compute_gradients(tf, loss, dense, rows):
    watched = {**dense, **rows}
    with tf.GradientTape() as tape:
        tape.watch(watched)
        value = loss(dense, rows)
    return value, tape.gradient(value, watched)


def assert_equal(got, want, tolerance=2e-5):
    """Compare pairs of a loss and its gradients by name."""
    (loss, gradients), (want_loss, want_gradients) = got, want
    np.testing.assert_allclose(loss, want_loss, rtol=max(1e-6, tolerance / 5))
    assert gradients.keys() == want_gradients.keys()
    for name, gradient in want_gradients.items():
        atol = tolerance * np.abs(gradient).max()
        np.testing.assert_allclose(
            gradients[name], gradient, rtol=0, atol=atol, err_msg=name
        )
        assert gradients[name].dtype == "float32" and np.any(gradient), name


ATTENTION = dataclasses.replace(MODEL, model="nmt_attention")
BAHDANAU = dataclasses.replace(ATTENTION, attention="bahdanau")


@pytest.mark.parametrize(
    "model",
    [MODEL, LM, ATTENTION, BAHDANAU, TRANSFORMER],
    ids=["nmt", "lm", "luong", "bahdanau", "transformer"],
)
def test_dropout_follows_the_seed_and_changes_the_embedded_words(tf, model):
    config = dataclasses.replace(model, dropout=0.5)
    workload, dense, rows, batch = make_inputs(tf, config)

    def step(seed):
        def loss(dense, rows):
            return workload.forward(dense, rows, batch, tf.constant(seed)).loss_sum

        return compute_gradients(tf, loss, dense, rows)

    (first, gradients), (again, _), (different, _) = map(step, ((1, 2), (1, 2), (1, 3)))
    assert float(first) == float(again) != float(different)
    for name in rows:
        lengths = batch.source_length if name.startswith("src") else batch.target_length
        inside = np.arange(MAX_LEN)[:, None] < lengths.numpy()
        assert 0.2 < np.mean(gradients[name].numpy()[inside] == 0) < 0.8, name


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
    num_more = 3
    num_sides = len(workload.layout.sides)

    def step(rows, batch):
        forward = tf.function(
            lambda w, r, b: workload.forward(w, r, b, tf.constant([0, 0])).loss_sum,
            autograph=False,
        )
        return compute_gradients(
            tf, lambda dense, rows: forward(dense, rows, batch), dense, rows
        )

    padded = workload.layout.pad_to(batch, MAX_LEN + num_more)
    paddings = [[0, num_more], [0, 0], [0, 0]]
    padded_rows = {name: tf.pad(row, paddings) for name, row in rows.items()}
    want, want_gradients = step(rows, batch)
    got, gradients = step(padded_rows, padded)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    for name, gradient in want_gradients.items():
        size = len(gradient)
        np.testing.assert_allclose(
            gradients[name][:size], gradient, rtol=0, atol=1e-5, err_msg=name
        )
        assert not np.any(gradients[name][size:]), name
    counts = workload.count_batch(batch)
    padded_counts = workload.count_batch(padded)
    assert padded_counts[:2] == counts[:2]
    assert int(counts.positions) == num_sides * MAX_LEN * BATCH_SIZE
    added = num_sides * num_more * BATCH_SIZE
    assert padded_counts.positions == counts.positions + added


LARGE_SIZES = {
    "num_units": 512,
    "embedding_dim": 512,
    "src_vocab_size": 50_000,
    "tgt_vocab_size": 50_000,
    "num_encoder_layers": 4,
    "num_decoder_layers": 4,
}


# The presets small and large; the table of Vaswani et al.; GNMT v2 of NVIDIA and MLPerf, and
# without the second bias of its 36 gates per unit.
PARAMETERS = [
    ({}, 8_245_248),
    (LARGE_SIZES, 95_690_752),
    (TRANSFORMER_BASE, 60_485_632),
    (TRANSFORMER_BIG, 209_051_648),
    (GNMT_V2, 160_671_297),
    ({**GNMT_V2, "biases_per_gate": 1}, 160_671_297 - 36 * 1024),
    ({**GNMT_V2, "share_embedding": False}, 160_671_297 + 32_320 * 1024),
]


@pytest.mark.parametrize("options, count", PARAMETERS)
def test_the_presets_have_their_numbers_of_parameters(tf, options, count):
    variables = build_workload(ModelConfig(**options)).variables
    assert sum(int(np.prod(spec.shape)) for spec in variables) == count


@every_workload
def test_a_row_is_looked_up_for_each_position(tf, name):
    """Records derive the bytes of a step's rows from positions and row width."""
    workload, _, rows, batch = make_inputs(tf, dataclasses.replace(MODEL, model=name))
    widths = {row.shape[-1] for row in rows.values()}
    num_rows = sum(int(np.prod(row.shape[:-1])) for row in rows.values())
    has_embeddings = any(spec.kind == "embedding" for spec in workload.variables)
    assert len(widths) == has_embeddings
    assert num_rows == int(workload.count_batch(batch).positions) * has_embeddings


def test_initial_values_depend_only_on_seed_and_name(tf):
    specs = {spec.name: spec for spec in build_workload(MODEL).variables}
    first = specs["decoder/layer_0/kernel"]
    second = specs["decoder/layer_1/kernel"]
    kernel = make_initial_value(second, seed=1)
    assert kernel.dtype == np.float32 and kernel.shape == (12, 24)
    assert np.abs(kernel).max() <= 0.1 and kernel.std() > 0.05
    assert abs(kernel.mean()) < 0.02
    np.testing.assert_array_equal(kernel, make_initial_value(second, seed=1))
    assert np.any(kernel != make_initial_value(second, seed=2))
    assert np.any(kernel[:11] != make_initial_value(first, seed=1))
    assert not make_initial_value(specs["decoder/layer_1/bias"], seed=1).any()


def test_the_kernels_that_run_are_named(tf):
    config = dataclasses.replace(MODEL, decoder_type="dynamic_rnn")
    assert build_workload(config).kernels == {
        "encoder_kernel": "BlockLSTM + LSTMBlockCellGrad",
        "decoder_kernel": "tf.compat.v1.nn.dynamic_rnn",
    }


@pytest.mark.parametrize(
    "options",
    [
        {"model": "nmt"},
        {"model": "lm", "time_major": False},
        {"model": "transformer", "label_smoothing": 0.2},
    ],
    ids=str,
)
def test_the_losses_of_the_outputs_sum_to_the_fused_loss(tf, options):
    """Their gradients agree, too."""
    config = dataclasses.replace(MODEL, **options)
    workload, dense, rows, batch = make_inputs(tf, config)
    seed = tf.constant([0, 0])

    def fused(dense, rows):
        return workload.forward(dense, rows, batch, seed).loss_sum

    def separate(dense, rows):
        logits = workload.compute_outputs(dense, rows, batch, seed).logits
        return tf.reduce_sum(workload.compute_losses(logits, batch))

    got = compute_gradients(tf, separate, dense, rows)
    assert_equal(got, compute_gradients(tf, fused, dense, rows))


# Words of each sentence: as few as keep a square apart from a sum.
FEW_WORDS = 3


def count_flops(graph):
    """Count 2*M*K*N per product of [M, K] and [K, N]; a loop counts once per step.

    A product of one row sums the gradient of a bias and does not count.
    """
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
            flops += FEW_WORDS * count_flops(
                graph._get_function(op.get_attr("body").name).graph
            )
    return flops


@every_shape
def test_flops_per_item_are_the_products_in_the_graph(tf, name, shape, monkeypatch):
    """The reference kernel is unrolled, so the graph has each of its products."""
    reference = SimpleNamespace(
        build=stacks.build_reference, kernel_name=lambda stack: "reference"
    )
    monkeypatch.setattr(encoder_table, "load", lambda *_: reference)
    monkeypatch.setattr(training, "MAX_LEN", FEW_WORDS)
    config = dataclasses.replace(MODEL, model=name, **shape)
    workload, dense, rows, batch = make_inputs(tf, config)

    @tf.function(autograph=False)
    def step(dense, rows):
        loss = workload.forward(dense, rows, batch, tf.constant([0, 0])).loss_sum
        return tf.gradients(loss, [*dense.values(), *rows.values()])

    flops = count_flops(step.get_concrete_function(dense, rows).graph)
    positions = int(workload.count_batch(batch).positions)
    num_sides = len(workload.layout.sides)
    assert positions == num_sides * FEW_WORDS * BATCH_SIZE  # padding included
    options = {**vars(config), "src_max_len": FEW_WORDS, "tgt_max_len": FEW_WORDS}
    per_item = workloads.count_flops_per_item(options, [FEW_WORDS] * num_sides)
    assert flops == pytest.approx(per_item * positions)


class _Own:
    """Options that fail if they belong only to other workloads."""

    def __init__(self, model):
        self._model = model
        self._readers = registry.find_readers(WORKLOADS)

    def __getattr__(self, option):
        if self._model.model not in self._readers.get(option, WORKLOADS):
            raise AssertionError(f"{self._model.model} reads --{option}")
        return getattr(self._model, option)


@every_workload
def test_a_workload_reads_the_options_of_the_table_and_the_help(tf, name):
    workloads.load(name).build(_Own(dataclasses.replace(MODEL, model=name)), "CPU")
    for option in registry.find_readers(WORKLOADS):
        help_text = OPTIONS[option].metadata["help"]
        assert workloads.name_readers(option) in help_text, option


def test_only_models_knows_workloads_by_name():
    """No other package asks which workload runs.

    The audit has other models, and the reference of `verify` repeats the formulas of each
    network.
    """
    asks = re.compile(
        rf"""\bmodel\b\W*(==|!=|\bin\b)|["']({"|".join(WORKLOADS)})["']"""
    )
    for path in (ROOT / "rnn_scaling").rglob("*.py"):
        if not {"audit", "reference"} & {*path.parts}:
            assert not asks.search(path.read_text()), path
