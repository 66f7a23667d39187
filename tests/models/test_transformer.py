"""The Transformer against float64 NumPy, and its masks.

A gradient is compared in a random direction. Tolerances are 1e-6 of the loss and 2e-5 of a
gradient's length. bfloat16 is rounded in many layers: 0.4.
"""

import dataclasses

import numpy as np
import pytest

from rnn_scaling.models import stacks, transformer
from rnn_scaling.models.workload import make_first_values
from rnn_scaling.verification.reference import network
from tests.models.test_nmt_attention import compute_loss_and_gradients, trace_network
from tests.models.test_workloads import assert_equal, compute_gradients, make_inputs
from tests.support.training import MAX_LEN, TRANSFORMER, build_workload

NO_DROPOUT = (0, 0)


@pytest.fixture(scope="module")
def inputs(tf):
    """Return the network, its variables and a batch of sentences of unequal lengths."""
    workload, weights, rows, batch = make_inputs(tf, TRANSFORMER)
    assert not rows
    assert len({*batch.source_length.numpy(), *batch.target_length.numpy()}) > 2
    return workload, weights, rows, batch


@pytest.mark.parametrize(
    "options",
    [{}, {"label_smoothing": 0.1}, {"num_heads": 1, "num_encoder_layers": 3}],
    ids=str,
)
def test_loss_and_gradients_agree_with_float64(tf, options):
    """Sentences are padded; the reference computes each sentence separately."""
    config = dataclasses.replace(TRANSFORMER, **options)
    inputs = make_inputs(tf, config)
    loss, gradients = compute_loss_and_gradients(tf, inputs)
    weights = {name: w.numpy().astype(np.float64) for name, w in inputs[1].items()}
    batch = {name: part.numpy().T for name, part in inputs[3]._asdict().items()}
    np.testing.assert_allclose(
        loss, network.loss_sum(config, weights, batch), rtol=1e-6
    )
    random = np.random.default_rng(0)
    for name, gradient in gradients.items():
        direction = random.normal(size=gradient.shape)

        def loss_at(step, name=name, direction=direction):
            moved = {**weights, name: weights[name] + step * direction}
            return network.loss_sum(config, moved, batch)

        slope = (loss_at(1e-6) - loss_at(-1e-6)) / 2e-6
        scale = float(np.linalg.norm(gradient) * np.linalg.norm(direction))
        error = abs(slope - np.sum(direction * gradient))
        assert scale > 0 and error < 2e-5 * scale, name


def test_the_padding_changes_nothing(tf, inputs):
    workload, weights, rows, batch = inputs

    def soil(ids, lengths):
        return tf.where(np.arange(MAX_LEN) < lengths.numpy()[:, None], ids, 3)

    soiled = batch._replace(source=soil(batch.source, batch.source_length))
    for name in ("target_input", "target_output"):
        soiled = soiled._replace(
            **{name: soil(getattr(batch, name), batch.target_length)}
        )
    assert not np.array_equal(soiled.source, batch.source)
    assert_equal(
        compute_loss_and_gradients(tf, (workload, weights, rows, soiled)),
        compute_loss_and_gradients(tf, inputs),
        tolerance=1e-5,
    )


@pytest.mark.parametrize("changed", [0, MAX_LEN - 2])
def test_a_target_word_changes_nothing_before_it(tf, inputs, changed):
    workload, weights, rows, batch = inputs
    other = batch.target_input.numpy()
    other[:, changed] = (other[:, changed] + 1) % TRANSFORMER.tgt_vocab_size
    before, after = (
        workload.compute_outputs(
            weights, rows, each, tf.constant(NO_DROPOUT)
        ).logits.numpy()
        for each in (batch, batch._replace(target_input=tf.constant(other)))
    )
    np.testing.assert_array_equal(after[:, :changed], before[:, :changed])
    assert np.all(np.any(after[:, changed:] != before[:, changed:], axis=2))


def test_a_graph_without_static_lengths_computes_the_same(tf, inputs):
    assert_equal(trace_network(tf, inputs), compute_loss_and_gradients(tf, inputs))


def test_bfloat16_rounds_only_the_products(tf, inputs):
    rounded = make_inputs(
        tf, dataclasses.replace(TRANSFORMER, compute_dtype="bfloat16")
    )
    assert_equal(
        compute_loss_and_gradients(tf, rounded),
        compute_loss_and_gradients(tf, inputs),
        tolerance=0.4,
    )


def test_every_sublayer_and_the_words_of_both_sides_have_a_dropout(tf, monkeypatch):
    """Expect a different random stream for each dropout."""
    streams = []
    monkeypatch.setattr(
        stacks, "drop", lambda x, rate, seed, stream: streams.append(stream) or x
    )
    compute_loss_and_gradients(
        tf, make_inputs(tf, dataclasses.replace(TRANSFORMER, dropout=0.5))
    )
    assert sorted(streams) == list(range(2 + 2 * 2 + 2 * 3))


def test_first_values_are_distributed_like_the_authors(tf):
    """Expect rows of length 1, Glorot's range, gains of 1 and biases of 0."""
    config = dataclasses.replace(TRANSFORMER, num_units=64, filter_size=128)
    values = make_first_values(build_workload(config).variables, seed=1)
    assert np.linalg.norm(values["embedding"], axis=1).mean() == pytest.approx(
        1.0, abs=0.1
    )
    inner = values["encoder/layer_0/feed_forward/inner"]
    assert np.abs(inner).max() == pytest.approx((6 / (64 + 128)) ** 0.5, rel=0.01)
    assert {
        float(value.min()) for name, value in values.items() if name.endswith("/gain")
    } == {1.0}
    assert not any(
        value.any() for name, value in values.items() if name.endswith("/bias")
    )


def test_rows_of_the_table_get_the_gradients_of_all_their_readers(tf):
    """Expect sums for words that occur twice, plus the projection's gradient."""
    table, ids = (
        tf.constant(np.random.default_rng(0).normal(size=(5, 3)), tf.float32),
        tf.constant([2, 0, 2], tf.int64),
    )

    def loss(look_up):
        def of(dense, rows):
            found, projection = look_up(dense["table"], ids)
            return tf.reduce_sum(tf.sin(found)) + tf.reduce_sum(projection**2)

        return compute_gradients(tf, of, {"table": table}, {})

    plain = loss(lambda table, ids: (tf.gather(table, ids), table))
    assert_equal(
        loss(transformer._look_up),
        (plain[0], {"table": tf.convert_to_tensor(plain[1]["table"])}),
    )
