"""The operators of a decoder against TensorFlow's, at sizes that leave parts of blocks and vectors over."""

import dataclasses

import numpy as np
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


def make_inputs(tf, config, num_words, batch):
    """As of `test_workloads.make_inputs`, cut to that number of sentences of up to that many words."""
    network, dense, rows, whole = test_workloads.make_inputs(tf, config)
    cut = {name: row[:num_words, :batch] for name, row in rows.items()}
    words = {
        name: getattr(whole, name)[:num_words, :batch]
        for name in ("source", "target_input", "target_output")
    }
    lengths = {
        f"{s}_length": tf.minimum(getattr(whole, f"{s}_length")[:batch], num_words)
        for s in ("source", "target")
    }
    return network, dense, cut, whole._replace(**words, **lengths)


@pytest.mark.parametrize(
    "options, dtype, num_words, batch",
    [
        ({**LUONG, "dropout": 0.5}, "bfloat16", 99, 99),
        (LUONG, "float32", 1, 1),
        (BAHDANAU, "bfloat16", 1, 1),
        ({**NORMALIZED, "dropout": 0.5}, "float32", 99, 99),
        (
            {
                **LUONG,
                "direction": "uni",
                "num_encoder_layers": 1,
                "num_decoder_layers": 1,
            },
            "float32",
            99,
            99,
        ),
        (
            {
                **BAHDANAU,
                "direction": "uni",
                "num_encoder_layers": 3,
                "num_decoder_layers": 3,
            },
            "float32",
            99,
            99,
        ),
    ],
    ids=str,
)
def test_decoders_are_tensorflows(
    tf,
    taken,  # noqa: F811
    monkeypatch,
    options,
    dtype,
    num_words,
    batch,
):
    from rnn_scaling.models.extension import operators

    config = dataclasses.replace(
        TINY, **ODD, **options, compute_dtype=dtype, decoder_type="cudnn_lstm"
    )
    packed = make_inputs(tf, config, num_words, batch)
    got = traced(tf, packed)
    monkeypatch.setattr(operators, "usable", lambda dtype: False)
    plain = make_inputs(tf, config, num_words, batch)
    want = traced(tf, plain)
    assert packed[0].kernels["decoder_kernel"] != plain[0].kernels["decoder_kernel"]
    if (num_words, batch) == (
        1,
        1,
    ):  # all attend to the only word: what makes the scores has no gradient
        for _, gradients in (got, want):
            for name in [
                n
                for n in gradients
                if n.startswith("attention/") and n != "attention/output"
            ]:
                np.testing.assert_allclose(gradients.pop(name), 0, atol=1e-6)
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
