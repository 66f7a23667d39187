"""The operators of a decoder against TensorFlow's operators, at odd sizes."""

import dataclasses
import functools

import pytest

from rnn_scaling.models.extension import operators
from tests.models.test_nmt_attention import (
    BAHDANAU,
    LUONG,
    NORMALIZED,
    TINY,
    trace,
    trace_network,
)
from tests.models.test_workloads import assert_equal, make_inputs

pytestmark = pytest.mark.usefixtures("as_built")

ODD = {"num_units": 11, "embedding_dim": 9}


# Both are computed once for all instruction sets.


@functools.cache
def compute_by_tensorflow(tf, config):
    """Return the kernel's name and the results of TensorFlow's own operators."""
    inputs = make_inputs(tf, config)
    return inputs[0].kernels["decoder_kernel"], trace_network(tf, inputs)


@functools.cache
def build_packed(tf, config):
    """Return the inputs and the graph of this project's operators."""
    inputs = make_inputs(tf, config)
    return inputs, trace(tf, inputs)


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
def test_decoders_agree_with_tensorflow(
    tf, taken, monkeypatch, options, num_layers, dtype
):
    config = dataclasses.replace(
        TINY,
        **ODD,
        **options,
        num_encoder_layers=num_layers,
        num_decoder_layers=num_layers,
        compute_dtype=dtype,
        decoder_type="cudnn_lstm",
    )
    inputs, step = build_packed(tf, config)
    got = step(*inputs[1:])
    monkeypatch.setattr(operators, "is_usable", lambda dtype: False)
    plain_kernel, want = compute_by_tensorflow(tf, config)
    assert inputs[0].kernels["decoder_kernel"] != plain_kernel
    assert_equal(got, want, 2e-5 if dtype == "float32" else 0.1)


@pytest.mark.parametrize(
    "name, shape",
    [("keys", [3, 2, 6]), ("kernels", [9, 20]), ("matrix", [9, 5]), ("v", [4])],
)
def test_inconsistent_sizes_are_refused(tf, taken, name, shape):
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
