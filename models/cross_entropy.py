"""Projection to the vocabulary and cross entropy in one function with its own gradient; right predictions on the way.

With p the softmax, dlogits = p - onehot(label): the probabilities become the gradient in place, and padding and
the loss's own gradient scale the [N, U] side of each product, not the [N, V] one.

With label smoothing e the target is (1 - e) onehot(label) + e / V: Szegedy et al., arXiv:1512.00567, section 7.

N: words, U: units, V: vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models.extension import operators
from rnn_scaling.models.workload import Outcome

MAX_LOGITS = 2**27
"""Logits held at a time, 512 MiB in float32; more words than these allow are taken piece by piece."""

Gradient = Callable[..., tuple[Tensor | None, ...]]  # of the loss -> of each argument


class LossOptions(NamedTuple):
    accuracy: bool = False  # right predictions are counted
    label_smoothing: float = 0.0  # share of each target that is spread over all words
    tied: bool = (
        False  # the projection is [V, U], a table of embeddings, and not [U, V]
    )
    differentiated: bool = True  # whether anybody asks for gradients


PLAIN = LossOptions()


def loss_sum(
    outputs: Tensor,
    projection: Tensor,
    labels: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    options: LossOptions = PLAIN,
) -> Outcome:
    """Sum of the cross entropy over the words that count.

    Args:
      outputs: [N, U] of the last layer, or [T, B, U] or [B, T, U] of sentences, float32, bfloat16 or float16; the
        products are made in its dtype.
      projection: [U, V] float32, [V, U] if tied.
      labels: [N] int64, or [T, B] or [B, T], each in [0, V).
      weights: float32 of the labels' shape, 1 for a word that counts and 0 for padding.
      bias: [V] float32, added to the logits; None: there is none.

    Returns:
      The sum, and `correct` if asked; float32: exponentials and sums are float32 whatever the dtype of `outputs`.
    """
    units, vocabulary = projection.shape[::-1] if options.tied else projection.shape
    hidden = tf.reshape(outputs, [-1, units])
    words = _Words(hidden, tf.reshape(labels, [-1]), tf.reshape(weights, [-1]))
    num_words = hidden.shape[0]
    compute = (
        _in_pieces
        if num_words is None or num_words * vocabulary > MAX_LOGITS
        else _at_once
    )
    result = compute(words, projection, [] if bias is None else [bias], options)
    return (
        Outcome(result[0], correct=tf.stop_gradient(result[1]))
        if options.accuracy
        else Outcome(result)
    )


def logits_of(
    outputs: Tensor,
    projection: Tensor,
    bias: Tensor | None = None,
    tied: bool = False,
) -> Tensor:
    """[T, B, V] logits of the last layer's outputs [T, B, U], in their type."""
    units, vocabulary = projection.shape[::-1] if tied else projection.shape
    flat = tf.matmul(
        tf.reshape(outputs, [-1, units]),
        tf.cast(projection, outputs.dtype),
        transpose_b=tied,
    )
    flat = flat if bias is None else flat + tf.cast(bias, outputs.dtype)
    return tf.reshape(flat, tf.concat([tf.shape(outputs)[:-1], [vocabulary]], 0))


def losses(logits: Tensor, labels: Tensor, label_smoothing: float = 0.0) -> Tensor:
    """float32 cross entropy of each label, the shape of `labels`, from logits [..., V]."""
    logits = tf.cast(logits, tf.float32)
    unsmoothed = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    if not label_smoothing:
        return unsmoothed
    at_label = tf.gather(logits, labels, batch_dims=labels.shape.rank)
    return unsmoothed + label_smoothing * (at_label - tf.reduce_mean(logits, axis=-1))


def is_right(logits: Tensor, labels: Tensor) -> Tensor:
    """float32, 1 where the label has the largest logit, of equal ones the first; the shape of `labels`."""
    return tf.cast(tf.equal(tf.argmax(logits, axis=-1), labels), tf.float32)


def word_weights(labels: Tensor, lengths: Tensor, time_axis: int) -> Tensor:
    """float32, 1 before each sentence's length [B] and 0 in its padding; the shape of `labels`."""
    # GPUs compare int32 on the host, and slice int64 shapes on the device.
    steps = tf.cast(tf.range(tf.shape(labels)[time_axis]), tf.int64)
    lengths = tf.cast(lengths, tf.int64)
    inside = steps[:, None] < lengths if time_axis == 0 else steps < lengths[:, None]
    return tf.cast(inside, tf.float32)


class _Words(NamedTuple):
    """As of `loss_sum`, in one row."""

    hidden: Tensor  # [N, U]
    labels: Tensor  # [N]
    weights: Tensor  # [N]


class _LossForward(NamedTuple):
    losses: Tensor  # [N]
    is_right: Callable[[], Tensor]  # [N] as `is_right` below returns
    d_logits: Callable[[], Tensor]  # p - target, [N, V] in hidden's dtype
    tied: bool  # as of the options


def _forward(
    hidden: Tensor,
    projection: Tensor,
    labels: Tensor,
    biases: Sequence[Tensor],
    options: LossOptions,
) -> _LossForward:
    smoothing = options.label_smoothing
    if operators.usable(hidden.dtype):
        ours = operators.load()
        compute = ours.rnn_scaling_tied_loss if options.tied else ours.rnn_scaling_loss
        made = compute(
            hidden,
            projection,
            biases[0] if biases else tf.zeros([0]),
            labels,
            smoothing,
        )
        return _LossForward(
            made.losses, lambda: made.is_right, lambda: made.d_logits, options.tied
        )
    logits = sum(
        biases,
        tf.cast(tf.matmul(hidden, projection, transpose_b=options.tied), tf.float32),
    )
    probabilities = tf.raw_ops.Softmax(logits=logits)  # tf.nn loads Keras
    at_label = tf.stack([tf.range(tf.size(labels, tf.int64)), labels], axis=1)
    # The likeliest word's p is 1 / sum(exp(logits - largest)) >= 1/V: this logarithm is never that of 0.
    log_sum = tf.reduce_max(logits, axis=1) - tf.math.log(
        tf.reduce_max(probabilities, axis=1)
    )
    losses = log_sum - tf.gather_nd(logits, at_label)
    if smoothing:
        losses += smoothing * (
            tf.gather_nd(logits, at_label) - tf.reduce_mean(logits, axis=1)
        )

    def d_logits() -> Tensor:
        spread = (
            probabilities - smoothing / logits.shape[1] if smoothing else probabilities
        )
        p = tf.cast(spread, hidden.dtype)
        return tf.tensor_scatter_nd_sub(
            p, at_label, tf.fill(tf.shape(labels), tf.cast(1.0 - smoothing, p.dtype))
        )

    return _LossForward(
        losses, lambda: is_right(logits, labels), d_logits, options.tied
    )


def _gradients(
    forward: _LossForward,
    hidden: Tensor,
    projection: Tensor,
    scale: Tensor,
    biases: Sequence[Tensor],
) -> tuple[Tensor, ...]:
    """Gradients of hidden, projection and biases, in hidden's dtype, of the losses' sum weighted by `scale` [N]."""
    d_logits = forward.d_logits()
    scale = tf.cast(scale, hidden.dtype)[:, None]
    d_hidden = tf.matmul(d_logits, projection, transpose_b=not forward.tied) * scale
    d_biases = [tf.matmul(scale, d_logits, transpose_a=True)[0] for _ in biases]
    if forward.tied:
        return (
            d_hidden,
            tf.matmul(d_logits, hidden * scale, transpose_a=True),
            *d_biases,
        )
    return d_hidden, tf.matmul(hidden * scale, d_logits, transpose_a=True), *d_biases


def _num_correct(forward: _LossForward, weights: Tensor) -> Tensor:
    return tf.reduce_sum(forward.is_right() * weights)


def _at_once(
    words: _Words,
    projection: Tensor,
    biases: Sequence[Tensor],
    options: LossOptions,
) -> Any:
    """The loss, or with `accuracy` (loss, words predicted right)."""

    @tf.custom_gradient
    def loss(
        hidden: Tensor,
        projection: Tensor,
        labels: Tensor,
        weights: Tensor,
        *biases: Tensor,
    ) -> tuple[Any, Gradient]:
        cast_projection = tf.cast(projection, hidden.dtype)
        forward = _forward(hidden, cast_projection, labels, biases, options)

        def gradient(d_loss: Tensor, *d_correct: Tensor) -> tuple[Tensor | None, ...]:
            d_hidden, *d_others = _gradients(
                forward, hidden, cast_projection, weights * d_loss, biases
            )
            d_projection, *d_biases = (tf.cast(d, tf.float32) for d in d_others)
            return d_hidden, d_projection, None, None, *d_biases

        total = tf.reduce_sum(forward.losses * weights)
        return (
            (total, _num_correct(forward, weights)) if options.accuracy else total
        ), gradient

    return loss(words.hidden, projection, words.labels, words.weights, *biases)


def _in_pieces(
    words: _Words,
    projection: Tensor,
    biases: Sequence[Tensor],
    options: LossOptions,
) -> Any:
    """As `_at_once`, some words at a time; the gradients are made on the way, as no piece's logits are kept."""
    rows = max(1, MAX_LOGITS // projection.shape[0 if options.tied else 1])

    @tf.custom_gradient
    def loss(
        hidden: Tensor, projection: Tensor, *biases: Tensor
    ) -> tuple[Any, Gradient]:
        num_words = tf.shape(hidden)[0]
        cast_projection = tf.cast(projection, hidden.dtype)

        def body(
            piece: Tensor,
            total: Tensor,
            d_weights: tuple[Tensor, ...],
            d_hidden: tf.TensorArray,
            *correct: Tensor,
        ) -> tuple[Any, ...]:
            part = slice(piece * rows, tf.minimum((piece + 1) * rows, num_words))
            forward = _forward(
                hidden[part], cast_projection, words.labels[part], biases, options
            )
            total += tf.reduce_sum(forward.losses * words.weights[part])
            correct = tuple(
                before + _num_correct(forward, words.weights[part])
                for before in correct
            )
            if not options.differentiated:
                return piece + 1, total, d_weights, d_hidden, *correct
            d_piece, *d_more = _gradients(
                forward, hidden[part], cast_projection, words.weights[part], biases
            )
            d_weights = tuple(
                d + tf.cast(more, tf.float32)
                for d, more in zip(d_weights, d_more, strict=True)
            )
            return piece + 1, total, d_weights, d_hidden.write(piece, d_piece), *correct

        num_pieces = (num_words + rows - 1) // rows
        pieces = tf.TensorArray(
            hidden.dtype,
            num_pieces,
            infer_shape=False,
            element_shape=[None, hidden.shape[1]],
        )
        d_weights = (
            tuple(map(tf.zeros_like, (projection, *biases)))
            if options.differentiated
            else ()
        )
        start = (0, 0.0, d_weights, pieces, *([0.0] if options.accuracy else []))
        _, total, d_weights, pieces, *correct = tf.while_loop(
            lambda piece, *_: piece < num_pieces, body, start, parallel_iterations=1
        )
        d_hidden = tf.reshape(pieces.concat(), tf.shape(hidden))

        def gradient(d_loss: Tensor, *d_correct: Tensor) -> tuple[Tensor, ...]:
            return d_hidden * tf.cast(d_loss, hidden.dtype), *(
                d * d_loss for d in d_weights
            )

        return ((total, *correct) if options.accuracy else total), gradient

    return loss(words.hidden, projection, *biases)
