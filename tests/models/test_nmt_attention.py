"""Both attentions and GNMT v2; tests/verification/test_network_check.py compares them with their formulas.

Tolerance: 1e-6 of the loss, and of a gradient 2e-5 of its largest entry. bfloat16 rounds the products alone: 0.1.
"""

import dataclasses

import numpy as np
import pytest

from rnn_scaling.models.config import GNMT_V2, ModelConfig
from tests.models.test_workloads import gradients_of, make_inputs
from tests.support.training import MODEL

TINY = dataclasses.replace(
    MODEL, model="nmt_attention", src_vocab_size=13, tgt_vocab_size=13, forget_bias=0.6
)
LUONG = {"attention": "luong"}
BAHDANAU = {"attention": "bahdanau"}
NORMALIZED = {
    "attention": "bahdanau",
    "normalize_attention": True,
    "biases_per_gate": 2,
}
GNMT = {
    "attention_architecture": "gnmt_v2",
    "num_encoder_layers": 4,
    "num_decoder_layers": 3,
}


def loss_and_gradients(tf, inputs):
    """As Python runs the network, step by step."""
    network, dense, rows, batch = inputs

    def loss(dense, rows):
        return network.forward(dense, rows, batch, tf.constant((1, 2))).loss_sum

    return gradients_of(tf, loss, dense, rows)


def traced(tf, inputs):
    """As `loss_and_gradients`, of a graph that knows neither lengths nor the number of sentences."""

    def unknown(tensor):
        known = tensor.shape[2:] if tensor.dtype.is_floating else []
        return tf.TensorSpec(
            [None] * (len(tensor.shape) - len(known)) + list(known), tensor.dtype
        )

    network, dense, rows, batch = inputs
    exactly = {name: tf.TensorSpec(w.shape, w.dtype) for name, w in dense.items()}
    signature = [
        exactly,
        {name: unknown(row) for name, row in rows.items()},
        type(batch)(*map(unknown, batch)),
    ]

    @tf.function(autograph=False, input_signature=signature)
    def step(dense, rows, batch):
        loss = network.forward(dense, rows, batch, tf.constant([1, 2])).loss_sum
        watched = {**dense, **rows}
        return loss, dict(zip(watched, tf.gradients(loss, list(watched.values()))))

    return step(dense, rows, batch)


def assert_equal(got, want, tolerance=2e-5):
    """Of pairs (loss, gradients by name)."""
    (loss, gradients), (want_loss, want_gradients) = got, want
    np.testing.assert_allclose(loss, want_loss, rtol=max(1e-6, tolerance / 5))
    assert gradients.keys() == want_gradients.keys()
    for name, gradient in want_gradients.items():
        atol = tolerance * np.abs(gradient).max()
        np.testing.assert_allclose(
            gradients[name], gradient, rtol=0, atol=atol, err_msg=name
        )
        assert gradients[name].dtype == "float32" and np.any(gradient), name


@pytest.mark.usefixtures("as_built")
@pytest.mark.parametrize(
    "options",
    [
        LUONG,
        {
            **BAHDANAU,
            "encoder_type": "dynamic_rnn",
            "decoder_type": "cudnn_lstm",
            "time_major": False,
        },
        {**NORMALIZED, **GNMT, "share_embedding": True},
    ],
    ids=str,
)
def test_a_graph_that_knows_no_lengths_computes_the_same(tf, options):
    inputs = make_inputs(tf, dataclasses.replace(TINY, **options))
    assert_equal(traced(tf, inputs), loss_and_gradients(tf, inputs))


@pytest.mark.parametrize(
    "options", [LUONG, {**NORMALIZED, **GNMT}], ids=["luong", "gnmt_v2"]
)
def test_bfloat16_rounds_the_products_alone(tf, options):
    config = dataclasses.replace(TINY, **options)
    rounded = make_inputs(tf, dataclasses.replace(config, compute_dtype="bfloat16"))
    assert_equal(
        loss_and_gradients(tf, rounded),
        loss_and_gradients(tf, make_inputs(tf, config)),
        tolerance=0.2,
    )


@pytest.mark.parametrize("attention", [LUONG, BAHDANAU], ids=["luong", "bahdanau"])
def test_with_dropout_both_decoders_draw_the_same_zeros(tf, attention):
    """TensorFlow's own gradient of the loop is the reference of the one whose weights' gradients are made after it."""
    fused, plain = (
        make_inputs(
            tf,
            dataclasses.replace(
                TINY, **attention, dropout=0.5, decoder_type=decoder_type
            ),
        )
        for decoder_type in ("cudnn_lstm", "dynamic_rnn")
    )
    assert_equal(loss_and_gradients(tf, fused), loss_and_gradients(tf, plain))


def test_gnmt_v2_has_its_number_of_parameters(tf):
    """90 H^2 + 74 H + 1 of the layers and the attention, 2 V H + V of embedding and classifier.

    Of the 74 H, 36 H are the second bias of each of the 9 cells' gates, which cuDNN and PyTorch have.
    """
    from rnn_scaling.models import workloads

    def parameters(**options):
        config = ModelConfig(**{**GNMT_V2, **options})
        network = workloads.load(config.model).build(config, "CPU")
        return sum(int(np.prod(spec.shape)) for spec in network.variables)

    units, words = 1024, 32_320
    assert (
        parameters()
        == 160_671_297
        == 90 * units**2 + 74 * units + 1 + 2 * words * units + words
    )
    assert parameters(biases_per_gate=1) == 160_671_297 - 36 * units
    assert parameters(share_embedding=False) == 160_671_297 + words * units


def test_the_first_values_of_gnmt_v2_are_those_of_its_sources(tf):
    from rnn_scaling.models import workload, workloads

    config = dataclasses.replace(TINY, **NORMALIZED, **GNMT)
    values = workload.first_values(
        workloads.load(config.model).build(config, "CPU").variables, seed=1
    )
    assert (
        values["attention/g"] == np.float32(6**-0.5)
        and values["attention/g"].shape == ()
    )
    zeros = [name for name, value in values.items() if not value.any()]
    assert (
        zeros == [name for name in values if name.endswith("bias")]
        and "attention/bias" in zeros
    )


@pytest.mark.parametrize("model", ["nmt", "nmt_attention"])
@pytest.mark.parametrize("time_major", [True, False])
def test_one_look_up_serves_both_sides(tf, model, time_major):
    """Of words of different lengths, whose rows are here the words themselves."""
    config = dataclasses.replace(
        TINY, model=model, share_embedding=True, time_major=time_major
    )
    network, _, _, batch = make_inputs(tf, config)
    batch = batch._replace(
        source=batch.source[:4] if time_major else batch.source[:, :4]
    )
    ((name, ids),) = network.lookups(batch).items()
    assert [
        (spec.name, spec.shape)
        for spec in network.variables
        if spec.kind == "embedding"
    ] == [(name, (13, 5))]
    source, target = network.embedded({name: ids[..., None]}, batch)
    np.testing.assert_array_equal(source[..., 0], batch.source)
    np.testing.assert_array_equal(target[..., 0], batch.target_input)
