"""The fused loss against TensorFlow's losses.

N: words, U: units, V: vocabulary.
"""

import numpy as np
import pytest

from rnn_scaling.models import cross_entropy
from rnn_scaling.models.cross_entropy import LossOptions

N = 12
U = 5
V = 11
SMOOTHING = 0.3
# All words, pieces of five words with two left over, and word by word.
every_size = pytest.mark.parametrize("max_logits", [2**27, 5 * V, 1])


def arguments(tf, scale=1.0):
    rng = np.random.default_rng(0)
    hidden = tf.constant(rng.normal(size=(N, U)) * scale, tf.float32)
    projection = tf.constant(rng.normal(size=(U, V)), tf.float32)
    labels = tf.constant(rng.integers(0, V, N), tf.int64)
    weights = tf.constant(rng.integers(0, 2, N), tf.float32)
    return hidden, projection, labels, weights


def compute_by_definition(tf, hidden, projection, labels, weights, smoothing=0.0):
    """Compute the loss by its definition: the target is a distribution."""
    target = (1 - smoothing) * tf.one_hot(labels, V) + smoothing / V
    losses = tf.nn.softmax_cross_entropy_with_logits(target, hidden @ projection)
    return tf.reduce_sum(losses * weights)


def value_and_gradients(tf, function, hidden, projection, *inputs):
    with tf.GradientTape() as tape:
        tape.watch([hidden, projection])
        loss = 3.0 * function(hidden, projection, *inputs)
    return loss, *tape.gradient(loss, [hidden, projection])


def total(*inputs):
    return cross_entropy.sum_losses(*inputs).loss_sum


def assert_close(got, want, rtol):
    for g, w in zip(got, want, strict=True):
        g, w = np.asarray(g, np.float32), np.asarray(w)
        np.testing.assert_allclose(g, w, rtol=0, atol=rtol * np.abs(w).max())


def assert_loss_is_tensorflows(tf, num_words, scale=1.0):
    """Compare a graph for `num_words` words (None: unknown) with `stock`."""
    inputs = arguments(tf, scale)
    signature = [
        tf.TensorSpec([num_words if n == N else n for n in x.shape], x.dtype)
        for x in inputs
    ]
    fused = tf.function(
        lambda *args: value_and_gradients(tf, total, *args), signature, autograph=False
    )
    want = value_and_gradients(
        tf, lambda *args: compute_by_definition(tf, *args), *inputs
    )
    assert_close(fused(*inputs), want, rtol=2e-6)


@every_size
@pytest.mark.parametrize("num_words", [N, None])
def test_loss_and_gradients_are_tensorflows(tf, monkeypatch, max_logits, num_words):
    monkeypatch.setattr(cross_entropy, "MAX_LOGITS", max_logits)
    assert_loss_is_tensorflows(tf, num_words)


@every_size
def test_a_bias_is_added_to_the_logits_and_gets_its_gradient(
    tf, monkeypatch, max_logits
):
    """A bias is one more unit that is always 1."""
    monkeypatch.setattr(cross_entropy, "MAX_LOGITS", max_logits)
    hidden, projection, labels, weights = arguments(tf)
    bias = projection[0] + 1.0
    with tf.GradientTape() as tape:
        tape.watch([hidden, projection, bias])
        loss = 3.0 * total(hidden, projection, labels, weights, bias)
    got = [loss, *tape.gradient(loss, [hidden, projection, bias])]
    ones = tf.concat([hidden, tf.ones([N, 1])], axis=1)
    extended = tf.concat([projection, bias[None]], axis=0)
    loss, d_hidden, d_extended = value_and_gradients(
        tf,
        lambda *args: compute_by_definition(tf, *args),
        ones,
        extended,
        labels,
        weights,
    )
    assert_close(got, [loss, d_hidden[:, :-1], d_extended[:-1], d_extended[-1]], 2e-6)


@every_size
def test_correct_predictions_are_counted_and_change_nothing(
    tf, monkeypatch, max_logits
):
    """Loss and gradients stay equal to the last bit."""
    monkeypatch.setattr(cross_entropy, "MAX_LOGITS", max_logits)
    hidden, projection, labels, weights = arguments(tf)
    best = np.argmax(np.asarray(hidden @ projection), axis=1)
    labels = tf.where(tf.range(N) % 3 > 0, best, labels)
    inputs = hidden, projection, labels, weights
    options = LossOptions(accuracy=True)
    outcome = cross_entropy.sum_losses(*inputs, options=options)
    want = float(np.sum((np.asarray(labels) == best) * np.asarray(weights)))
    assert 0 < want < N and float(outcome.correct) == want
    assert outcome.correct.dtype == tf.float32
    assert cross_entropy.sum_losses(*inputs).correct is None

    @tf.function(autograph=False)
    def counting(*args):
        return cross_entropy.sum_losses(*args, options=options).loss_sum

    plain, counted = (
        value_and_gradients(tf, function, *inputs) for function in (total, counting)
    )
    for without, with_count in zip(plain, counted, strict=True):
        np.testing.assert_array_equal(without, with_count)


def test_a_label_of_no_probability_has_a_finite_exact_loss(tf):
    hidden = tf.constant([[1.0]])
    projection = tf.constant([[0.0, 500.0, -400.0]])
    loss, d_hidden, _ = value_and_gradients(
        tf, total, hidden, projection, tf.constant([2], tf.int64), tf.constant([1.0])
    )
    assert float(loss) == 3 * 900.0
    np.testing.assert_allclose(d_hidden, [[3 * 900.0]])


@pytest.mark.parametrize("max_logits", [2**27, 5 * V])
@pytest.mark.parametrize("dtype, rtol", [("bfloat16", 0.02), ("float16", 0.003)])
def test_reduced_precision_rounds_only_the_products(
    tf, monkeypatch, dtype, rtol, max_logits
):
    """Errors are a few units of the last place (2**-8, 2**-11)."""
    monkeypatch.setattr(cross_entropy, "MAX_LOGITS", max_logits)
    hidden, *others = arguments(tf)
    want = value_and_gradients(
        tf, lambda *args: compute_by_definition(tf, *args), hidden, *others
    )
    got = value_and_gradients(tf, total, tf.cast(hidden, dtype), *others)
    assert [x.dtype for x in got] == [tf.float32, tf.as_dtype(dtype), tf.float32]
    assert_close([tf.cast(x, tf.float32) for x in got], want, rtol)


@pytest.mark.parametrize("tied", [False, True])
@every_size
def test_a_smoothed_and_a_tied_loss_agree_with_the_definition(
    tf, monkeypatch, max_logits, tied
):
    monkeypatch.setattr(cross_entropy, "MAX_LOGITS", max_logits)
    options = LossOptions(label_smoothing=SMOOTHING, is_tied=tied)

    def loss(hidden, projection, *others):
        projection = tf.transpose(projection) if tied else projection
        outcome = cross_entropy.sum_losses(hidden, projection, *others, options=options)
        return outcome.loss_sum

    inputs = arguments(tf)
    want = value_and_gradients(
        tf, lambda *args: compute_by_definition(tf, *args, SMOOTHING), *inputs
    )
    assert_close(value_and_gradients(tf, loss, *inputs), want, rtol=2e-6)
