"""The network: its variables, dropout, and what padding may do."""

import dataclasses

import numpy as np
import pytest

from rnn_scaling.models.config import ModelConfig

SEED_MODEL = {
    "num_encoder_layers": 4,
    "num_decoder_layers": 4,
    "num_units": 512,
    "embedding_dim": 512,
    "src_vocab_size": 50_000,
    "tgt_vocab_size": 50_000,
}
TINY = ModelConfig(
    num_encoder_layers=4, num_decoder_layers=4, num_units=6, embedding_dim=5, src_vocab_size=11, tgt_vocab_size=13
)
SOURCE_LENGTHS, TARGET_LENGTHS = (4, 2, 3), (1, 5, 5)


def make_inputs(tf, config):
    """Dense weights, embedded source and target rows, batch."""
    from rnn_scaling.models import seq2seq, workload
    from rnn_scaling.models.batch import Batch

    specs = seq2seq.variable_specs(config)
    arrays = {spec.name: 5 * workload.initial_value(spec, seed=1) for spec in specs}
    rng = np.random.default_rng(0)

    def ids(length, size):
        words = rng.integers(0, size, (length, 3))
        return tf.constant(words if config.time_major else words.T)

    source, target_input, target_output = ids(4, 11), ids(5, 13), ids(5, 13)
    batch = Batch(source, tf.constant(SOURCE_LENGTHS), target_input, target_output, tf.constant(TARGET_LENGTHS))
    dense = {spec.name: tf.constant(arrays[spec.name]) for spec in specs if spec.kind == "dense"}
    rows = [tf.gather(arrays["src_embedding"], source), tf.gather(arrays["tgt_embedding"], target_input)]
    return dense, *rows, batch


def loss_and_gradients(tf, config, inputs, seed=(1, 2)):
    from rnn_scaling.models import seq2seq

    network = seq2seq.build(config, "CPU")
    dense, source_rows, target_rows, batch = inputs
    watched = {**dense, "source_rows": source_rows, "target_rows": target_rows}
    with tf.GradientTape() as tape:
        tape.watch(watched)
        rows = {"src_embedding": source_rows, "tgt_embedding": target_rows}
        loss = network.forward(dense, rows, batch, tf.constant(seed)).loss_sum
    return loss, tape.gradient(loss, watched)


@pytest.mark.parametrize("options, count", [({}, 8_245_248), (SEED_MODEL, 95_690_752)], ids=["small", "seed"])
def test_trainable_count_of_the_presets(tf, options, count):
    from rnn_scaling.models import seq2seq

    assert sum(int(np.prod(spec.shape)) for spec in seq2seq.variable_specs(ModelConfig(**options))) == count


def test_initial_values_depend_on_seed_and_name_alone(tf):
    from rnn_scaling.models import seq2seq, workload

    specs = {spec.name: spec for spec in seq2seq.variable_specs(TINY)}
    kernel = workload.initial_value(specs["decoder/layer_1/kernel"], seed=1)
    assert kernel.dtype == np.float32 and kernel.shape == (12, 24)
    assert np.abs(kernel).max() <= 0.1 and abs(kernel.mean()) < 0.02 and kernel.std() > 0.05
    np.testing.assert_array_equal(kernel, workload.initial_value(specs["decoder/layer_1/kernel"], seed=1))
    assert np.any(kernel != workload.initial_value(specs["decoder/layer_1/kernel"], seed=2))
    assert np.any(kernel != workload.initial_value(specs["decoder/layer_2/kernel"], seed=1))
    assert not workload.initial_value(specs["decoder/layer_1/bias"], seed=1).any()


@pytest.mark.parametrize("encoder_type", ["cudnn_lstm", "dynamic_rnn"])
def test_what_stands_in_the_padding_changes_nothing(tf, encoder_type):
    config = dataclasses.replace(TINY, encoder_type=encoder_type)
    dense, source_rows, target_rows, batch = make_inputs(tf, config)
    want, want_gradients = loss_and_gradients(tf, config, (dense, source_rows, target_rows, batch))

    def soil(x, lengths, value):
        padding = np.arange(x.shape[0])[:, None] >= lengths
        x = np.array(x)
        x[padding] = value
        return tf.constant(x)

    soiled = batch._replace(target_output=soil(batch.target_output, TARGET_LENGTHS, 7))
    rows = soil(source_rows, SOURCE_LENGTHS, 9.0), soil(target_rows, TARGET_LENGTHS, -9.0)
    got, gradients = loss_and_gradients(tf, config, (dense, *rows, soiled))
    np.testing.assert_allclose(got, want, rtol=1e-6)
    for name, gradient in want_gradients.items():
        np.testing.assert_allclose(gradients[name], gradient, rtol=0, atol=1e-6, err_msg=name)


def test_dropout_follows_the_seed_and_meets_the_embedded_words(tf):
    config = dataclasses.replace(TINY, dropout=0.5, num_encoder_layers=2, num_decoder_layers=2)
    inputs = make_inputs(tf, config)
    first, gradients = loss_and_gradients(tf, config, inputs, (1, 2))
    again, _ = loss_and_gradients(tf, config, inputs, (1, 2))
    other, _ = loss_and_gradients(tf, config, inputs, (1, 3))
    assert float(first) == float(again) != float(other)
    for name, lengths in (("source_rows", SOURCE_LENGTHS), ("target_rows", TARGET_LENGTHS)):
        inside = np.arange(gradients[name].shape[0])[:, None] < lengths
        share = np.mean(np.asarray(gradients[name])[inside] == 0)
        assert 0.25 < share < 0.75, name


def test_the_kernels_that_run_are_named(tf):
    from rnn_scaling.models import seq2seq

    network = seq2seq.build(dataclasses.replace(TINY, decoder_type="dynamic_rnn"), "CPU")
    assert network.kernels == {
        "encoder_kernel": "BlockLSTM + LSTMBlockCellGrad",
        "decoder_kernel": "tf.compat.v1.nn.dynamic_rnn",
    }
    assert seq2seq.build(TINY, "GPU").kernels["encoder_kernel"] == "CudnnRNNV3"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_encoder_layers": 3, "num_decoder_layers": 3}, "expected an even number of encoder cells with bi, got 3"),
        ({"num_decoder_layers": 2}, "expected 4 decoder cells, got 2"),
    ],
)
def test_cells_that_do_not_fit_are_an_error(tf, options, message):
    from rnn_scaling.models import seq2seq

    with pytest.raises(ValueError, match=message):
        seq2seq.build(dataclasses.replace(TINY, **options), "CPU")
