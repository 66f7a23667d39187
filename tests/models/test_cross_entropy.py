"""The fused loss against TensorFlow's own, and in places where a naive one breaks."""

import numpy as np
import pytest

N, U, V = 12, 5, 11


def arguments(tf, scale=1.0):
    rng = np.random.default_rng(0)
    hidden = tf.constant(rng.normal(size=(N, U)) * scale, tf.float32)
    projection = tf.constant(rng.normal(size=(U, V)), tf.float32)
    labels = tf.constant(rng.integers(0, V, N), tf.int64)
    weights = tf.constant(rng.integers(0, 2, N), tf.float32)
    return hidden, projection, labels, weights


def stock(tf, hidden, projection, labels, weights):
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, hidden @ projection)
    return tf.reduce_sum(losses * weights)


def value_and_gradients(tf, function, hidden, projection, labels, weights):
    with tf.GradientTape() as tape:
        tape.watch([hidden, projection])
        loss = 3.0 * function(hidden, projection, labels, weights)
    return loss, *tape.gradient(loss, [hidden, projection])


def total(*given):
    from rnn_scaling.models import cross_entropy

    return cross_entropy.loss_sum(*given).loss_sum


def assert_close(got, want, rtol):
    for g, w in zip(got, want, strict=True):
        g, w = np.asarray(g, np.float32), np.asarray(w)
        np.testing.assert_allclose(g, w, rtol=0, atol=rtol * np.abs(w).max())


@pytest.mark.parametrize("max_logits", [2**27, 5 * V, 1])
@pytest.mark.parametrize("known_words", [True, False])
def test_loss_and_gradients_are_tensorflows(tf, monkeypatch, max_logits, known_words):
    """At once, in pieces of five words with two left over, and word by word."""
    from rnn_scaling.models import cross_entropy

    monkeypatch.setattr(cross_entropy, "MAX_LOGITS", max_logits)
    given = arguments(tf)
    words = N if known_words else None
    signature = [
        tf.TensorSpec([words if size == N else size for size in t.shape], t.dtype)
        for t in given
    ]
    fused = tf.function(
        lambda *args: value_and_gradients(tf, total, *args),
        input_signature=signature,
        autograph=False,
    )
    want = value_and_gradients(tf, lambda *args: stock(tf, *args), *given)
    assert_close(fused(*given), want, rtol=2e-6)


@pytest.mark.parametrize("max_logits", [2**27, 5 * V])
def test_a_bias_is_added_to_the_logits_and_gets_its_gradient(
    tf, monkeypatch, max_logits
):
    """As one more unit that is always 1."""
    from rnn_scaling.models import cross_entropy

    monkeypatch.setattr(cross_entropy, "MAX_LOGITS", max_logits)
    hidden, projection, labels, weights = arguments(tf)
    bias = projection[0] + 1.0
    with tf.GradientTape() as tape:
        tape.watch([hidden, projection, bias])
        loss = (
            3.0
            * cross_entropy.loss_sum(hidden, projection, labels, weights, bias).loss_sum
        )
    d_hidden, d_projection, d_bias = tape.gradient(loss, [hidden, projection, bias])
    ones = tf.concat([hidden, tf.ones([N, 1])], axis=1)
    extended = tf.concat([projection, bias[None]], axis=0)
    want = value_and_gradients(
        tf, lambda *args: stock(tf, *args), ones, extended, labels, weights
    )
    assert_close(
        [loss, d_hidden, d_projection, d_bias],
        [want[0], want[1][:, :-1], want[2][:-1], want[2][-1]],
        2e-6,
    )


@pytest.mark.parametrize("max_logits", [2**27, 5 * V])
def test_right_predictions_are_counted_on_the_way_and_change_nothing(
    tf, monkeypatch, max_logits
):
    """At once and in pieces: numpy's argmax, padding left out; loss and gradients stay bit for bit."""
    from rnn_scaling.models import cross_entropy

    monkeypatch.setattr(cross_entropy, "MAX_LOGITS", max_logits)
    hidden, projection, labels, weights = arguments(tf)
    best = np.argmax(np.asarray(hidden @ projection), axis=1)
    labels = tf.where(tf.range(N) % 3 > 0, best, labels)
    counted = []

    @tf.function(autograph=False)
    def with_accuracy(*given):
        outcome = cross_entropy.loss_sum(
            *given, options=cross_entropy.LossOptions(accuracy=True)
        )
        counted.append(outcome.correct)
        return outcome.loss_sum

    given = hidden, projection, labels, weights
    outcome = cross_entropy.loss_sum(
        *given, options=cross_entropy.LossOptions(accuracy=True)
    )
    want = float(np.sum((np.asarray(labels) == best) * np.asarray(weights)))
    assert (
        0 < want < N
        and outcome.correct.dtype == tf.float32
        and float(outcome.correct) == want
    )
    plain, counting = (
        value_and_gradients(tf, function, *given) for function in (total, with_accuracy)
    )
    assert cross_entropy.loss_sum(*given).correct is None and counted
    for without, with_count in zip(plain, counting, strict=True):
        np.testing.assert_array_equal(without, with_count)


def test_a_label_of_no_probability_has_a_finite_exact_loss(tf):

    hidden = tf.constant([[1.0]])
    projection = tf.constant([[0.0, 500.0, -400.0]])
    loss, d_hidden, _ = value_and_gradients(
        tf, total, hidden, projection, tf.constant([2], tf.int64), tf.constant([1.0])
    )
    assert float(loss) == 3 * 900.0
    np.testing.assert_allclose(d_hidden, [[3 * 900.0]])


@pytest.mark.parametrize("pieces", [False, True])
@pytest.mark.parametrize("dtype, rtol", [("bfloat16", 0.02), ("float16", 0.003)])
def test_reduced_precision_rounds_the_products_alone(
    tf, monkeypatch, dtype, rtol, pieces
):
    """Gradients within a few roundings (2**-8, 2**-11); the loss within the logits' rounding."""
    from rnn_scaling.models import cross_entropy

    monkeypatch.setattr(cross_entropy, "MAX_LOGITS", 5 * V if pieces else 2**27)
    hidden, projection, labels, weights = arguments(tf)
    want = value_and_gradients(
        tf, lambda *args: stock(tf, *args), hidden, projection, labels, weights
    )
    hidden = tf.cast(hidden, dtype)
    got = value_and_gradients(tf, total, hidden, projection, labels, weights)
    assert got[0].dtype == got[2].dtype == tf.float32 and got[1].dtype == hidden.dtype
    assert_close([tf.cast(g, tf.float32) for g in got], want, rtol)


SMOOTHING = 0.3


def smoothed(tf, hidden, projection, labels, weights):
    """By its definition: the target is a distribution."""
    target = (1 - SMOOTHING) * tf.one_hot(labels, V) + SMOOTHING / V
    return tf.reduce_sum(
        tf.nn.softmax_cross_entropy_with_logits(target, hidden @ projection) * weights
    )


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("max_logits", [2**27, 5 * V])
def test_a_smoothed_and_a_tied_loss_are_those_of_their_definition(
    tf, monkeypatch, max_logits, tied
):
    """At once and in pieces, of a projection [U, V] or [V, U]."""
    from rnn_scaling.models import cross_entropy

    monkeypatch.setattr(cross_entropy, "MAX_LOGITS", max_logits)
    options = cross_entropy.LossOptions(label_smoothing=SMOOTHING, tied=tied)

    def loss(hidden, projection, labels, weights):
        projection = tf.transpose(projection) if tied else projection
        return cross_entropy.loss_sum(
            hidden, projection, labels, weights, options=options
        ).loss_sum

    given = arguments(tf)
    want = value_and_gradients(tf, lambda *args: smoothed(tf, *args), *given)
    assert_close(value_and_gradients(tf, loss, *given), want, rtol=2e-6)


def test_the_smoothed_losses_of_logits_sum_to_the_same(tf):
    from rnn_scaling.models import cross_entropy

    hidden, projection, labels, weights = arguments(tf)
    each = cross_entropy.losses(hidden @ projection, labels, SMOOTHING)
    want = smoothed(tf, hidden, projection, labels, weights)
    np.testing.assert_allclose(tf.reduce_sum(each * weights), want, rtol=2e-6)
