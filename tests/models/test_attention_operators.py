"""The operators of a decoder against TensorFlow's, at sizes that leave parts of blocks and vectors over."""

import dataclasses

import pytest

from tests.models import test_workloads
from tests.models.test_extension import library, taken  # noqa: F401
from tests.models.test_nmt_attention import (
    BAHDANAU,
    LUONG,
    NORMALIZED,
    TINY,
    assert_equal,
    traced,
)

ODD = {"num_units": 11, "embedding_dim": 9}


@pytest.mark.parametrize(
    "options, num_layers, dtype",
    [
        ({**LUONG, "dropout": 0.5}, 2, "bfloat16"),
        ({**NORMALIZED, "dropout": 0.5}, 2, "float32"),
        ({**LUONG, "direction": "uni"}, 1, "float32"),
        ({**BAHDANAU, "direction": "uni"}, 3, "float32"),
    ],
    ids=str,
)
def test_decoders_are_tensorflows(
    tf,
    taken,  # noqa: F811
    monkeypatch,
    options,
    num_layers,
    dtype,
):
    from rnn_scaling.models.extension import operators

    config = dataclasses.replace(
        TINY,
        **ODD,
        **options,
        num_encoder_layers=num_layers,
        num_decoder_layers=num_layers,
        compute_dtype=dtype,
        decoder_type="cudnn_lstm",
    )
    packed = test_workloads.make_inputs(tf, config)
    got = traced(tf, packed)
    monkeypatch.setattr(operators, "usable", lambda dtype: False)
    plain = test_workloads.make_inputs(tf, config)
    want = traced(tf, plain)
    assert packed[0].kernels["decoder_kernel"] != plain[0].kernels["decoder_kernel"]
    assert_equal(got, want, 2e-5 if dtype == "float32" else 0.1)


@pytest.mark.parametrize(
    "name, shape",
    [("keys", [3, 2, 6]), ("kernels", [9, 20]), ("matrix", [9, 5]), ("v", [4])],
)
def test_sizes_that_do_not_agree_are_refused(tf, taken, name, shape):  # noqa: F811
    from rnn_scaling.models.extension import operators

    shapes = {
        "from_words": [1, 3, 20],
        "biases": [1, 20],
        "kernels": [10, 20],
        "first_c": [1, 3, 5],
        "first_h": [1, 3, 5],
        "keys": [3, 2, 5],
        "memory": [3, 2, 3],
        "mask": [3, 2],
        "v": [0],
        "matrix": [8, 5],
        "dropped": [0],
    }
    decode = operators.load().rnn_scaling_decode
    decode(**{n: tf.ones(s) for n, s in shapes.items()})
    with pytest.raises(tf.errors.InvalidArgumentError, match="sizes"):
        decode(**{n: tf.ones(s) for n, s in {**shapes, name: shape}.items()})
