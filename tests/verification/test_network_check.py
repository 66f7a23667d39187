"""Faults in the network itself, which serial and parallel training share, and batches that come twice."""

from __future__ import annotations

import dataclasses
import sys
import types

import numpy as np
import pytest

from rnn_scaling.models.workloads import WORKLOADS
from tests.conftest import unrewritten
from tests.support.training import LM, MODEL, SMALL, TRANSFORMER

pytestmark = pytest.mark.usefixtures("as_built")
BAHDANAU = dataclasses.replace(
    SMALL, model="nmt_attention", attention="bahdanau", normalize_attention=True
)


@pytest.fixture(scope="module")
def as_built(tf):
    """As everywhere, for the whole module: each graph runs once."""
    with unrewritten(tf):
        yield


def words_of(model):
    """What is found, by its words."""
    from rnn_scaling.verification import network_check

    model = dataclasses.replace(model, encoder_type=model.encoder_type or "cudnn_lstm")
    return verdicts(network_check._comparisons(model, "CPU", "CPU:0", 1))


def verdicts(comparisons):
    """The verdicts of all faults."""
    return [fault.subject for comparison in comparisons for fault in comparison.faults]


NORMALIZED = {
    "attention": "bahdanau",
    "normalize_attention": True,
    "biases_per_gate": 2,
}
GNMT = {
    "attention_architecture": "gnmt_v2",
    "num_encoder_layers": 3,
    "num_decoder_layers": 3,
}
BATCH_MAJOR_LOOP = {"encoder_type": "dynamic_rnn", "time_major": False}
BATCH_MAJOR_DECODER = {"decoder_type": "dynamic_rnn", "time_major": False}
SHARED = {"share_embedding": True, "src_vocab_size": MODEL.tgt_vocab_size}
# Each row: the model, and the options of SMALL that are changed.
VARIANTS = [
    ("nmt", BATCH_MAJOR_LOOP),
    ("nmt", BATCH_MAJOR_DECODER),
    ("nmt", {"unit_type": "gru", "encoder_type": "dynamic_rnn"}),
    ("nmt", {"unit_type": "layer_norm_lstm", "encoder_type": "dynamic_rnn"}),
    ("lm", {"encoder_type": "dynamic_rnn"}),
    ("lm", {"unit_type": "nas", **BATCH_MAJOR_LOOP}),
    ("lm", {"unit_type": "gru", "encoder_type": "cudnn_gru", "time_major": False}),
    (
        "nmt_attention",
        {**BATCH_MAJOR_LOOP, "attention": "bahdanau", "decoder_type": "cudnn_lstm"},
    ),
    ("nmt_attention", {**NORMALIZED, **SHARED}),
    ("nmt_attention", BATCH_MAJOR_DECODER),
    ("nmt_attention", {**NORMALIZED, "decoder_type": "dynamic_rnn"}),
    ("nmt_attention", {"unit_type": "gru", "encoder_type": "cudnn_gru"}),
    ("nmt_attention", {**NORMALIZED, **GNMT, **SHARED, "direction": "bi"}),
    ("nmt_attention", {**GNMT, "time_major": False}),
    (
        "nmt_attention",
        {
            "attention": "bahdanau",
            "unit_type": "layer_norm_lstm",
            "encoder_type": "dynamic_rnn",
        },
    ),
]
RIGHT = [
    MODEL,
    TRANSFORMER,
    dataclasses.replace(TRANSFORMER, num_decoder_layers=1, label_smoothing=0.2),
    dataclasses.replace(LM, encoder_type="cudnn_lstm"),
    dataclasses.replace(MODEL, model="nmt_attention"),
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
    assert words_of(model) == []


def test_padding_in_the_loss_is_a_wrong_loss(monkeypatch):
    from rnn_scaling.models import cross_entropy

    real = cross_entropy.word_weights
    monkeypatch.setattr(
        cross_entropy,
        "word_weights",
        lambda labels, lengths, first: real(labels, lengths + 1, first),
    )
    assert words_of(SMALL) == ["wrong loss"]


def test_padding_that_is_attended_to_is_a_wrong_attention(tf, monkeypatch):
    from rnn_scaling.models.attention import scores

    monkeypatch.setattr(
        scores, "mask", lambda lengths, words: tf.zeros([tf.size(lengths), words])
    )
    assert words_of(BAHDANAU) == ["wrong attention"]


def test_a_gradient_that_is_not_that_of_the_loss_is_named(tf, monkeypatch):
    from rnn_scaling.models.encoders import block_lstm

    real = block_lstm._large_products
    monkeypatch.setattr(
        block_lstm,
        "_large_products",
        lambda *given: (*real(*given)[:2], 0.5 * real(*given)[2]),
    )
    assert words_of(SMALL) == ["wrong gradient"]


def test_the_loss_of_images_has_the_label_smoothing_of_the_run():
    from rnn_scaling.models.config import ModelConfig
    from rnn_scaling.verification import network_check
    from tests.support.tiny_images import TinyClassifier

    workload = TinyClassifier(ModelConfig(label_smoothing=0.2), 1, 10)
    assert verdicts(network_check._images(workload, 0.2)) == []
    assert verdicts(network_check._images(workload, 0.0)) == ["wrong loss"]


def test_a_moving_variance_that_stays_is_named(tf, monkeypatch):
    from rnn_scaling.models.images import layers
    from rnn_scaling.verification import network_check

    monkeypatch.delitem(
        sys.modules, "rnn_scaling.models.images.keras_applications", raising=False
    )  # of other tests
    assert verdicts(network_check._normalization(np.random.default_rng(1))) == []
    real = layers.Layers.batch_normalization

    def frozen(self, x):
        y = real(self, x)
        self.moving["moving_variance"] = self._variable(
            "moving_variance", (3,), "ones", "moving"
        )
        return y

    monkeypatch.setattr(layers.Layers, "batch_normalization", frozen)
    assert verdicts(network_check._normalization(np.random.default_rng(1))) == [
        "other averages"
    ]


def test_a_batch_that_comes_twice_is_named_unless_files_repeat():
    from rnn_scaling.verification.gradients import BatchCheck

    def towers(*seeds):
        return types.SimpleNamespace(
            batches=[
                [np.random.default_rng(seed).normal(size=(5, 4))] for seed in seeds
            ]
        )

    check = BatchCheck("device")
    assert not check.fault(0, towers(0, 1)) and not check.fault(1, towers(2, 3))
    assert check.fault(2, towers(4, 4)).values == {
        "tower": 1,
        "instead": 0,
        "step": 2,
        "earlier": 2,
    }
    assert check.fault(3, towers(0, 5)).values == {
        "tower": 0,
        "instead": 0,
        "step": 3,
        "earlier": 0,
    }
    endless = BatchCheck("text")
    assert not endless.fault(0, towers(0, 1)) and not endless.fault(1, towers(0, 1))
