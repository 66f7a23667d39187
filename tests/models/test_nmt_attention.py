"""Both attentions and GNMT v2; test_network_check.py compares them with their formulas.

Tolerances are 1e-6 of the loss and 2e-5 of a gradient's largest entry. bfloat16 rounds only
the products: 0.2.
"""

import dataclasses

import numpy as np
import pytest

from rnn_scaling.models import workload, workloads
from tests.models.test_workloads import assert_equal, compute_gradients, make_inputs
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


def compute_loss_and_gradients(tf, inputs):
    """Run the network in Python, step by step."""
    network, dense, rows, batch = inputs

    def loss(dense, rows):
        return network.forward(dense, rows, batch, tf.constant((1, 2))).loss_sum

    return compute_gradients(tf, loss, dense, rows)


def trace_network(tf, inputs):
    """Run `loss_and_gradients` in a graph without static lengths and batch size."""
    return trace(tf, inputs)(*inputs[1:])


def trace(tf, inputs):
    """Return `loss_and_gradients` as such a graph."""

    def dynamic_spec(tensor):
        static = list(tensor.shape[2:]) if tensor.dtype.is_floating else []
        dynamic = [None] * (len(tensor.shape) - len(static))
        return tf.TensorSpec(dynamic + static, tensor.dtype)

    network, dense, rows, batch = inputs
    signature = [
        {name: tf.TensorSpec(w.shape, w.dtype) for name, w in dense.items()},
        {name: dynamic_spec(row) for name, row in rows.items()},
        type(batch)(*map(dynamic_spec, batch)),
    ]

    @tf.function(autograph=False, input_signature=signature)
    def step(dense, rows, batch):
        loss = network.forward(dense, rows, batch, tf.constant([1, 2])).loss_sum
        watched = {**dense, **rows}
        return loss, dict(zip(watched, tf.gradients(loss, list(watched.values()))))

    return step


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
def test_a_graph_without_static_lengths_computes_the_same(tf, options):
    inputs = make_inputs(tf, dataclasses.replace(TINY, **options))
    assert_equal(trace_network(tf, inputs), compute_loss_and_gradients(tf, inputs))


@pytest.mark.parametrize(
    "options", [LUONG, {**NORMALIZED, **GNMT}], ids=["luong", "gnmt_v2"]
)
def test_bfloat16_rounds_only_the_products(tf, options):
    config = dataclasses.replace(TINY, **options)
    rounded = make_inputs(tf, dataclasses.replace(config, compute_dtype="bfloat16"))
    assert_equal(
        compute_loss_and_gradients(tf, rounded),
        compute_loss_and_gradients(tf, make_inputs(tf, config)),
        tolerance=0.2,
    )


@pytest.mark.parametrize("attention", [LUONG, BAHDANAU], ids=["luong", "bahdanau"])
def test_with_dropout_both_decoders_draw_the_same_zeros(tf, attention):
    """The plain decoder has TensorFlow's own gradient of the loop."""
    config = dataclasses.replace(TINY, **attention, dropout=0.5)
    fused, plain = (
        make_inputs(tf, dataclasses.replace(config, decoder_type=decoder_type))
        for decoder_type in ("cudnn_lstm", "dynamic_rnn")
    )
    assert_equal(
        compute_loss_and_gradients(tf, fused), compute_loss_and_gradients(tf, plain)
    )


def test_the_first_values_of_gnmt_v2_follow_its_sources(tf):
    config = dataclasses.replace(TINY, **NORMALIZED, **GNMT)
    network = workloads.load(config.model).build(config, "CPU")
    values = workload.make_first_values(network.variables, seed=1)
    g = values["attention/g"]
    assert g == np.float32(6**-0.5) and g.shape == ()
    zeros = [name for name, value in values.items() if not value.any()]
    assert zeros == [name for name in values if name.endswith("bias")]
    assert "attention/bias" in zeros


@pytest.mark.parametrize("model", ["nmt", "nmt_attention"])
@pytest.mark.parametrize("time_major", [True, False])
def test_one_look_up_serves_both_sides(tf, model, time_major):
    """The sides have different lengths. A row of the table is the word itself."""
    config = dataclasses.replace(
        TINY, model=model, share_embedding=True, time_major=time_major
    )
    network, _, _, batch = make_inputs(tf, config)
    batch = batch._replace(
        source=batch.source[:4] if time_major else batch.source[:, :4]
    )
    [(name, ids)] = network.list_lookups(batch).items()
    assert [
        (spec.name, spec.shape)
        for spec in network.variables
        if spec.kind == "embedding"
    ] == [(name, (13, 5))]
    source, target = network.embed_words({name: ids[..., None]}, batch)
    np.testing.assert_array_equal(source[..., 0], batch.source)
    np.testing.assert_array_equal(target[..., 0], batch.target_input)
