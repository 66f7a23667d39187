"""Faults of the network, which serial training shares, and repeated batches are found."""

from __future__ import annotations

import dataclasses
import importlib
import sys
import types

import numpy as np
import pytest

from rnn_scaling.models.workloads import WORKLOADS
from tests.conftest import keep_as_built
from tests.support.training import LM, MODEL, SMALL, TRANSFORMER

pytestmark = pytest.mark.usefixtures("as_built")
BAHDANAU = dataclasses.replace(
    SMALL, model="nmt_attention", attention="bahdanau", normalize_attention=True
)


@pytest.fixture(scope="module")
def as_built(tf):
    """Build each graph once for the module."""
    with keep_as_built(tf):
        yield


def find_verdicts(model):
    """Return the verdicts on the network of a model."""
    from rnn_scaling.verification import network_check

    model = dataclasses.replace(model, encoder_type=model.encoder_type or "cudnn_lstm")
    return verdicts(network_check._compare_parts(model, "CPU", "CPU:0", 1))


def verdicts(comparisons):
    faults = []
    for comparison in comparisons:
        faults += comparison.faults
    return [fault.subject for fault in faults]


NORMALIZED = {"attention": "bahdanau", "normalize_attention": True}
NORMALIZED |= {"biases_per_gate": 2}
GNMT = {"attention_architecture": "gnmt_v2"}
GNMT |= {"num_encoder_layers": 3, "num_decoder_layers": 3}
TWO_LAYERS = {"num_encoder_layers": 2, "num_decoder_layers": 2}
LAYER_NORM = {"unit_type": "layer_norm_lstm", "encoder_type": "dynamic_rnn"}
BATCH_MAJOR_LOOP = {"encoder_type": "dynamic_rnn", "time_major": False}
BATCH_MAJOR_DECODER = {"decoder_type": "dynamic_rnn", "time_major": False}
SHARED = {"share_embedding": True, "src_vocab_size": MODEL.tgt_vocab_size}
# Each row: the model, and the options of SMALL that are changed.
VARIANTS = [
    ("nmt", BATCH_MAJOR_LOOP),
    ("nmt", BATCH_MAJOR_DECODER),
    ("nmt", LAYER_NORM),
    ("lm", {"unit_type": "nas", **BATCH_MAJOR_LOOP}),
    ("lm", {"unit_type": "gru", "encoder_type": "cudnn_gru", "time_major": False}),
    (
        "nmt_attention",
        {**BATCH_MAJOR_LOOP, "attention": "bahdanau", "decoder_type": "cudnn_lstm"},
    ),
    ("nmt_attention", {**NORMALIZED, **SHARED}),
    ("nmt_attention", {**NORMALIZED, "decoder_type": "dynamic_rnn"}),
    ("nmt_attention", {**NORMALIZED, **GNMT, **SHARED, "direction": "bi"}),
    ("nmt_attention", {**GNMT, **TWO_LAYERS, "time_major": False}),
]
RIGHT = [
    MODEL,
    dataclasses.replace(TRANSFORMER, num_encoder_layers=1),
    dataclasses.replace(TRANSFORMER, num_decoder_layers=1, label_smoothing=0.2),
    dataclasses.replace(LM, encoder_type="cudnn_lstm"),
    dataclasses.replace(SMALL, model="nmt_attention", **TWO_LAYERS),
    *(
        dataclasses.replace(SMALL, model=model, **options)
        for model, options in VARIANTS
    ),
]


def test_every_network_of_text_is_compared():
    assert {model.model for model in RIGHT} == {
        name for name, entry in WORKLOADS.items() if not entry.datasets
    }


@pytest.mark.parametrize(
    "model", RIGHT, ids=lambda model: f"{model.model}-{model.unit_type}"
)
def test_loss_and_gradients_of_a_network_are_those_of_its_formulas(model):
    assert find_verdicts(model) == []


def dropout_faults(model):
    """Return the kinds of the faults of a model's places of dropout."""
    from rnn_scaling.verification import network_check

    encoder_type = model.encoder_type or "cudnn_lstm"
    model = dataclasses.replace(model, encoder_type=encoder_type, dropout=0.4)
    comparison = network_check._compare_dropout_places(model, "CPU")
    return [fault.kind for fault in comparison.faults]


BIDIRECTIONAL = {"direction": "bi", "num_encoder_layers": 4, "num_decoder_layers": 4}


@pytest.mark.parametrize(
    "model",
    [
        TRANSFORMER,
        dataclasses.replace(SMALL, model="lm", encoder_type="dynamic_rnn"),
        dataclasses.replace(SMALL, model="nmt_attention", **NORMALIZED, **GNMT),
        dataclasses.replace(SMALL, **BIDIRECTIONAL),
        dataclasses.replace(BAHDANAU, **BIDIRECTIONAL),
    ],
    ids=lambda model: f"{model.model}-{model.unit_type}",
)
def test_dropout_acts_at_every_place_of_a_network(model):
    assert dropout_faults(model) == []


def test_a_place_without_dropout_and_equal_places_are_named(monkeypatch):
    from rnn_scaling.models import stacks, transformer

    real = stacks.drop
    feed_forward = transformer.multi_head.apply_feed_forward
    with monkeypatch.context() as patch:
        patch.setattr(
            stacks, "drop", lambda x, rate, seed, stream: real(x, rate, seed, 0)
        )
        assert dropout_faults(TRANSFORMER) == ["network-dropout-repeats"]
    skipped = []

    def mark(x, weights):
        skipped.append(None)
        return feed_forward(x, weights)

    def drop(x, rate, seed, stream):
        return x if skipped and skipped.pop() is None else real(x, rate, seed, stream)

    with monkeypatch.context() as patch:
        patch.setattr(transformer.multi_head, "apply_feed_forward", mark)
        patch.setattr(stacks, "drop", drop)
        assert dropout_faults(TRANSFORMER) == ["network-dropout-places"]
    with monkeypatch.context() as patch:
        patch.setattr(
            stacks,
            "drop",
            lambda x, rate, seed, stream: real(
                x, rate / 2 if stream else rate, seed, stream
            ),
        )
        assert dropout_faults(TRANSFORMER) == ["network-dropout"]


def test_a_norm_that_counts_repeated_rows_apart_is_named(tf, monkeypatch):
    from rnn_scaling.training import gradients
    from rnn_scaling.verification import network_check

    def compare():
        random = np.random.default_rng(3)
        return [network_check._compare_gradient_norm(random)]

    assert verdicts(compare()) == []
    monkeypatch.setattr(
        gradients,
        "compute_squared_norm",
        lambda gradient: tf.reduce_sum(tf.square(gradient.values)),
    )
    assert verdicts(compare()) == ["wrong norm"]


def test_padding_in_the_loss_is_a_wrong_loss(monkeypatch):
    from rnn_scaling.models import cross_entropy

    real = cross_entropy.compute_word_weights
    monkeypatch.setattr(
        cross_entropy,
        "compute_word_weights",
        lambda labels, lengths, first: real(labels, lengths + 1, first),
    )
    assert find_verdicts(SMALL) == ["wrong loss"]


def test_padding_that_is_attended_to_is_a_wrong_attention(tf, monkeypatch):
    from rnn_scaling.models.attention import scores

    monkeypatch.setattr(
        scores,
        "make_padding_mask",
        lambda lengths, words: tf.zeros([tf.size(lengths), words]),
    )
    assert find_verdicts(BAHDANAU) == ["wrong attention"]


@pytest.mark.parametrize(
    ("module_name", "name", "place"),
    [
        ("cross_entropy", "compute_word_weights", "loss"),
        ("encoders.block_lstm", "_compute_large_products", "gradient of src_embedding"),
        ("encoders.block_lstm", "_run_block", "outputs of lstm cells"),
    ],
)
def test_a_number_that_is_nan_is_named_with_its_place(
    tf, monkeypatch, module_name, name, place
):
    from rnn_scaling.verification import network_check

    module = importlib.import_module(f"rnn_scaling.models.{module_name}")
    real = getattr(module, name)
    monkeypatch.setattr(
        module,
        name,
        lambda *given: tf.nest.map_structure(lambda x: x * np.nan, real(*given)),
    )
    model = dataclasses.replace(SMALL, encoder_type="cudnn_lstm")
    comparisons = network_check._compare_parts(model, "CPU", "CPU:0", 1)
    faults = []
    for comparison in comparisons:
        faults += comparison.faults
    assert [fault.kind for fault in faults] == ["network-nan"]
    assert place in faults[0].values["place"]


def test_a_gradient_that_is_not_that_of_the_loss_is_named(tf, monkeypatch):
    from rnn_scaling.models.encoders import block_lstm

    real = block_lstm._compute_large_products
    monkeypatch.setattr(
        block_lstm,
        "_compute_large_products",
        lambda *given: (*real(*given)[:2], 0.5 * real(*given)[2]),
    )
    assert find_verdicts(SMALL) == ["wrong gradient"]


def test_the_loss_of_images_has_the_label_smoothing_of_the_run():
    from rnn_scaling.models.config import ModelConfig
    from rnn_scaling.verification import network_check
    from tests.support.tiny_images import TinyClassifier

    workload = TinyClassifier(ModelConfig(label_smoothing=0.2), 1, 10)
    assert verdicts(network_check._compare_images(workload, 0.2)) == []
    assert verdicts(network_check._compare_images(workload, 0.0)) == ["wrong loss"]


def test_a_moving_variance_that_stays_is_named(tf, monkeypatch):
    from rnn_scaling.models.images import layers
    from rnn_scaling.verification import network_check

    # Other tests may have imported it.
    name = "rnn_scaling.models.images.keras_applications"
    monkeypatch.delitem(sys.modules, name, raising=False)
    assert (
        verdicts(network_check._compare_normalization(np.random.default_rng(1))) == []
    )
    real = layers.Layers.batch_normalization

    def frozen(self, x):
        y = real(self, x)
        self.moving["moving_variance"] = self._variable(
            "moving_variance", (3,), "ones", "moving"
        )
        return y

    monkeypatch.setattr(layers.Layers, "batch_normalization", frozen)
    comparisons = network_check._compare_normalization(np.random.default_rng(1))
    assert verdicts(comparisons) == ["other averages"]


def test_a_batch_that_comes_twice_is_named_unless_files_repeat():
    from rnn_scaling.verification.gradients import BatchCheck

    def towers(*seeds):
        batches = [[np.random.default_rng(seed).normal(size=(5, 4))] for seed in seeds]
        return types.SimpleNamespace(batches=batches)

    check = BatchCheck("device")
    assert not check.fault(0, towers(0, 1)) and not check.fault(1, towers(2, 3))
    for number, seeds, tower, earlier in ((2, (4, 4), 1, 2), (3, (0, 5), 0, 0)):
        values = check.fault(number, towers(*seeds)).values
        expected = {"tower": tower, "instead": 0, "step": number, "earlier": earlier}
        assert values == expected
    endless = BatchCheck("text")
    assert not endless.fault(0, towers(0, 1)) and not endless.fault(1, towers(0, 1))
