"""The operators of a decoder's steps against TensorFlow's, at sizes that leave parts of blocks and vectors over."""

import dataclasses

import numpy as np
import pytest

from tests.models import test_workloads
from tests.models.test_extension import library, taken  # noqa: F401
from tests.models.test_nmt_attention import BAHDANAU, LUONG, NORMALIZED, TINY, assert_equal, traced

ODD = {"num_units": 11, "embedding_dim": 9}


def make_inputs(tf, config, num_words, batch):
    """As of `test_workloads.make_inputs`, cut to that number of sentences of up to that many words."""
    network, dense, rows, whole = test_workloads.make_inputs(tf, config)
    cut = {name: row[:num_words, :batch] for name, row in rows.items()}
    words = {name: getattr(whole, name)[:num_words, :batch] for name in ("source", "target_input", "target_output")}
    lengths = {
        f"{s}_length": tf.minimum(getattr(whole, f"{s}_length")[:batch], num_words) for s in ("source", "target")
    }
    return network, dense, cut, whole._replace(**words, **lengths)


@pytest.mark.parametrize(
    "options, dtype, num_words, batch",
    [
        ({**LUONG, "dropout": 0.5}, "bfloat16", 99, 99),
        (LUONG, "float32", 1, 1),
        (BAHDANAU, "bfloat16", 1, 1),
        ({**NORMALIZED, "dropout": 0.5}, "float32", 99, 99),
    ],
    ids=str,
)
def test_decoders_are_tensorflows(tf, taken, monkeypatch, options, dtype, num_words, batch):  # noqa: F811
    from rnn_scaling.models.extension import operators

    config = dataclasses.replace(TINY, **ODD, **options, compute_dtype=dtype, decoder_type="cudnn_lstm")
    packed = make_inputs(tf, config, num_words, batch)
    got = traced(tf, packed)
    monkeypatch.setattr(operators, "usable", lambda dtype: False)
    plain = make_inputs(tf, config, num_words, batch)
    want = traced(tf, plain)
    assert packed[0].kernels["decoder_kernel"] != plain[0].kernels["decoder_kernel"]
    if (num_words, batch) == (1, 1):  # all attend to the only word: what makes the scores has no gradient
        for _, gradients in (got, want):
            for name in [n for n in gradients if n.startswith("attention/") and n != "attention/output"]:
                np.testing.assert_allclose(gradients.pop(name), 0, atol=1e-6)
    assert_equal(got, want, 2e-5 if dtype == "float32" else 0.1)


@pytest.mark.parametrize("rows, depth, columns", [(1, 1, 1), (3, 5, 2), (13, 41, 50), (32, 64, 96)])
@pytest.mark.parametrize("dtype, tolerance", [("float32", 1e-5), ("bfloat16", 1e-4)])
def test_products_are_numpys(tf, taken, rows, depth, columns, dtype, tolerance):  # noqa: F811
    from rnn_scaling.models.extension import operators

    ours, random = operators.load(), np.random.default_rng(0)
    shapes = (rows, depth), (depth, columns), (rows, columns)
    x, matrix, addend = (random.normal(size=shape).astype(np.float32) for shape in shapes)
    x, matrix = (np.asarray(tf.cast(tf.cast(y, dtype), tf.float32)) for y in (x, matrix))
    panels, transposed = ours.rnn_scaling_pack(tf.cast(matrix, dtype))
    result = ours.rnn_scaling_step_product(x, panels, addend, T=dtype)
    np.testing.assert_allclose(result, x @ matrix + addend, atol=tolerance * depth)
    d = ours.rnn_scaling_step_product(addend, transposed, np.zeros([0, depth], np.float32), T=dtype)
    addend = np.asarray(tf.cast(tf.cast(addend, dtype), tf.float32))
    np.testing.assert_allclose(d, addend @ matrix.T, atol=tolerance * columns)


def test_sizes_that_do_not_agree_are_refused(tf, taken):  # noqa: F811
    from rnn_scaling.models.extension import operators

    ours = operators.load()
    panels, _ = ours.rnn_scaling_pack(tf.ones([3, 40]))
    with pytest.raises(tf.errors.OpError):
        ours.rnn_scaling_step_product(tf.ones([2, 4]), panels, tf.ones([2, 90]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="sizes"):
        ours.rnn_scaling_step_gates(tf.ones([2, 8]), tf.ones([3, 2]))
    with pytest.raises(tf.errors.OpError):
        ours.rnn_scaling_step_gates(tf.ones([2, 9]), tf.ones([2, 2]))
