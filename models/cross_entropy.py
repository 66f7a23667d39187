"""Projection to the vocabulary and cross entropy in one function with its own gradient.

With p the softmax, dlogits = p - onehot(label): the probabilities become the gradient
in place. Padding and the gradient of the loss scale the [N, U] side of each product,
not the [N, V] side. Correct predictions are counted on the way.

With label smoothing e the target is (1 - e) onehot(label) + e / V: Szegedy et al.,
arXiv:1512.00567, section 7.

N: words, U: units, V: vocabulary, T: steps, B: sentences.

Workloads call `sum_losses` in training. `compute_losses` and `is_correct` are the same
in plain TensorFlow, for steps that need the loss of each word.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models.extension import operators
from rnn_scaling.models.workload import Outcome

MAX_LOGITS = 2**27
"""Most logits in memory, 512 MiB in float32; more words are computed in pieces."""

Gradient = Callable[..., tuple[Tensor | None, ...]]
"""Gradient of the loss -> gradient of each argument"""


class LossOptions(NamedTuple):
    accuracy: bool = False  # whether correct predictions are counted
    label_smoothing: float = 0.0  # share of each target that is spread over all words
    is_tied: bool = False  # whether the projection is a table of embeddings [V, U]
    is_differentiated: bool = True  # whether gradients are needed


PLAIN = LossOptions()


def sum_losses(
    outputs: Tensor,
    projection: Tensor,
    labels: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    options: LossOptions = PLAIN,
) -> Outcome:
    """Return the sum of the cross entropy over the words that count.

    Args:
      outputs: The last layer's [N, U], or [T, B, U] or [B, T, U] of sentences, float32,
        bfloat16 or float16; the dtype of the products.
      projection: Float32 [U, V], or [V, U] if tied.
      labels: Int64 [N], [T, B] or [B, T], each in [0, V).
      weights: Float32 in the shape of the labels, 1 for a word that counts and 0 for
        padding.
      bias: [V] float32, added to the logits. None if the projection has no bias.

    Returns:
      The sum, and `correct` if `options.accuracy`, both float32. Exponentials and sums
      are float32 for every dtype of `outputs`.
    """
    units, vocabulary = projection.shape[::-1] if options.is_tied else projection.shape
    hidden = tf.reshape(outputs, [-1, units])
    positions = _Positions(hidden, tf.reshape(labels, [-1]), tf.reshape(weights, [-1]))
    num_words = hidden.shape[0]
    is_large = num_words is None or num_words * vocabulary > MAX_LOGITS
    compute = _build_piecewise_loss if is_large else _build_single_pass_loss
    result = compute(positions, projection, [] if bias is None else [bias], options)
    if options.accuracy:
        return Outcome(result[0], correct=tf.stop_gradient(result[1]))
    return Outcome(result)


def compute_logits(
    outputs: Tensor,
    projection: Tensor,
    bias: Tensor | None = None,
    is_tied: bool = False,
) -> Tensor:
    """Return the logits [T, B, V] of outputs [T, B, U], in their dtype."""
    units, vocabulary = projection.shape[::-1] if is_tied else projection.shape
    flat = tf.matmul(
        tf.reshape(outputs, [-1, units]),
        tf.cast(projection, outputs.dtype),
        transpose_b=is_tied,
    )
    if bias is not None:
        flat += tf.cast(bias, outputs.dtype)
    return tf.reshape(flat, tf.concat([tf.shape(outputs)[:-1], [vocabulary]], 0))


def compute_losses(
    logits: Tensor, labels: Tensor, label_smoothing: float = 0.0
) -> Tensor:
    """Return the float32 cross entropy of each label for logits [..., V]."""
    logits = tf.cast(logits, tf.float32)
    unsmoothed = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    if not label_smoothing:
        return unsmoothed
    label_logits = tf.gather(logits, labels, batch_dims=labels.shape.rank)
    return unsmoothed + label_smoothing * (
        label_logits - tf.reduce_mean(logits, axis=-1)
    )


def is_correct(logits: Tensor, labels: Tensor) -> Tensor:
    """Return float32 1 for each label that has the largest logit, else 0.

    If several logits are equal, the first one is the largest.
    """
    return tf.cast(tf.equal(tf.argmax(logits, axis=-1), labels), tf.float32)


def compute_word_weights(labels: Tensor, lengths: Tensor, time_axis: int) -> Tensor:
    """Return float32 1 before each sentence's length [B] and 0 in its padding."""
    # GPUs compare int32 on the host, and slice int64 shapes on the device.
    steps = tf.cast(tf.range(tf.shape(labels)[time_axis]), tf.int64)
    lengths = tf.cast(lengths, tf.int64)
    if time_axis == 0:
        steps = steps[:, None]
    else:
        lengths = lengths[:, None]
    return tf.cast(steps < lengths, tf.float32)


class _Positions(NamedTuple):
    """The arguments of `sum_losses` for all positions of the batch."""

    hidden: Tensor  # [N, U]
    labels: Tensor  # [N]
    weights: Tensor  # [N]


class _LossForward(NamedTuple):
    losses: Tensor  # [N]
    is_correct: Callable[[], Tensor]  # [N], see the function `is_correct`
    d_logits: Callable[[], Tensor]  # p - target, [N, V] in hidden's dtype


def _run_forward(
    hidden: Tensor,
    projection: Tensor,
    labels: Tensor,
    biases: Sequence[Tensor],
    options: LossOptions,
) -> _LossForward:
    """Compute losses; correct words and gradients of logits follow when called."""
    smoothing = options.label_smoothing
    if operators.is_usable(hidden.dtype):
        library = operators.load()
        tied_loss = library.rnn_scaling_tied_loss
        compute = tied_loss if options.is_tied else library.rnn_scaling_loss
        bias = biases[0] if biases else tf.zeros([0])
        result = compute(hidden, projection, bias, labels, smoothing)
        return _LossForward(
            result.losses, lambda: result.is_right, lambda: result.d_logits
        )
    products = tf.matmul(hidden, projection, transpose_b=options.is_tied)
    logits = sum(biases, tf.cast(products, tf.float32))
    probabilities = tf.raw_ops.Softmax(logits=logits)  # tf.nn loads Keras
    label_indices = tf.stack([tf.range(tf.size(labels, tf.int64)), labels], axis=1)
    # The likeliest word's p is 1 / sum(exp(logits - largest)) >= 1/V, so the logarithm
    # is finite.
    log_sum = tf.reduce_max(logits, axis=1) - tf.math.log(
        tf.reduce_max(probabilities, axis=1)
    )
    losses = log_sum - tf.gather_nd(logits, label_indices)
    if smoothing:
        label_logits = tf.gather_nd(logits, label_indices)
        losses += smoothing * (label_logits - tf.reduce_mean(logits, axis=1))

    def differentiate_logits() -> Tensor:
        p = probabilities
        if smoothing:
            p -= smoothing / logits.shape[1]
        p = tf.cast(p, hidden.dtype)
        ones = tf.fill(tf.shape(labels), tf.cast(1.0 - smoothing, p.dtype))
        return tf.tensor_scatter_nd_sub(p, label_indices, ones)

    return _LossForward(
        losses, lambda: is_correct(logits, labels), differentiate_logits
    )


def _compute_gradients(
    forward: _LossForward,
    hidden: Tensor,
    projection: Tensor,
    scale: Tensor,
    biases: Sequence[Tensor],
    is_tied: bool,
) -> tuple[Tensor, ...]:
    """Return the gradients of hidden, projection and biases, in hidden's dtype.

    Args:
      scale: [N], weights of the losses in their sum.
    """
    d_logits = forward.d_logits()
    scale = tf.cast(scale, hidden.dtype)[:, None]
    d_hidden = tf.matmul(d_logits, projection, transpose_b=not is_tied) * scale
    d_biases = [tf.matmul(scale, d_logits, transpose_a=True)[0] for _ in biases]
    if is_tied:
        d_projection = tf.matmul(d_logits, hidden * scale, transpose_a=True)
    else:
        d_projection = tf.matmul(hidden * scale, d_logits, transpose_a=True)
    return d_hidden, d_projection, *d_biases


def _count_correct(forward: _LossForward, weights: Tensor) -> Tensor:
    return tf.reduce_sum(forward.is_correct() * weights)


def _build_single_pass_loss(
    positions: _Positions,
    projection: Tensor,
    biases: Sequence[Tensor],
    options: LossOptions,
) -> Any:
    """Return the loss, or (loss, number of correct predictions) with `accuracy`."""

    @tf.custom_gradient
    def compute_loss(
        hidden: Tensor,
        projection: Tensor,
        labels: Tensor,
        weights: Tensor,
        *biases: Tensor,
    ) -> tuple[Any, Gradient]:
        cast_projection = tf.cast(projection, hidden.dtype)
        forward = _run_forward(hidden, cast_projection, labels, biases, options)

        def differentiate(
            d_loss: Tensor, *d_correct: Tensor
        ) -> tuple[Tensor | None, ...]:
            d_hidden, *d_weights = _compute_gradients(
                forward,
                hidden,
                cast_projection,
                weights * d_loss,
                biases,
                options.is_tied,
            )
            d_projection, *d_biases = (tf.cast(d, tf.float32) for d in d_weights)
            return d_hidden, d_projection, None, None, *d_biases

        total = tf.reduce_sum(forward.losses * weights)
        if options.accuracy:
            return (total, _count_correct(forward, weights)), differentiate
        return total, differentiate

    return compute_loss(
        positions.hidden, projection, positions.labels, positions.weights, *biases
    )


def _build_piecewise_loss(
    positions: _Positions,
    projection: Tensor,
    biases: Sequence[Tensor],
    options: LossOptions,
) -> Any:
    """Compute `_build_single_pass_loss` for some words at a time.

    The gradients are computed on the way, because no logits are kept.
    """

    @tf.custom_gradient
    def compute_loss(
        hidden: Tensor, projection: Tensor, *biases: Tensor
    ) -> tuple[Any, Gradient]:
        total, d_weights, d_hidden, *correct = _sum_pieces(
            positions._replace(hidden=hidden), projection, biases, options
        )

        def differentiate(d_loss: Tensor, *d_correct: Tensor) -> tuple[Tensor, ...]:
            d_scaled = [d * d_loss for d in d_weights]
            return d_hidden * tf.cast(d_loss, hidden.dtype), *d_scaled

        if options.accuracy:
            return (total, *correct), differentiate
        return total, differentiate

    return compute_loss(positions.hidden, projection, *biases)


def _sum_pieces(
    positions: _Positions,
    projection: Tensor,
    biases: Sequence[Tensor],
    options: LossOptions,
) -> tuple[Any, ...]:
    """Compute loss and gradients of at most MAX_LOGITS logits at a time.

    Returns:
      The sum of the losses; the gradients of the projection and the biases (empty if
      `is_differentiated` is off); the gradient of `hidden`; with `accuracy` also the
      number of correct predictions.
    """
    hidden = positions.hidden
    num_words = tf.shape(hidden)[0]
    rows = max(1, MAX_LOGITS // projection.shape[0 if options.is_tied else 1])
    num_pieces = (num_words + rows - 1) // rows
    cast_projection = tf.cast(projection, hidden.dtype)

    def add_piece(
        piece: Tensor,
        total: Tensor,
        d_weights: tuple[Tensor, ...],
        d_hidden: tf.TensorArray,
        *correct: Tensor,
    ) -> tuple[Any, ...]:
        piece_rows = slice(piece * rows, tf.minimum((piece + 1) * rows, num_words))
        words = _Positions(*(tensor[piece_rows] for tensor in positions))
        forward = _run_forward(
            words.hidden, cast_projection, words.labels, biases, options
        )
        total += tf.reduce_sum(forward.losses * words.weights)
        correct = tuple(n + _count_correct(forward, words.weights) for n in correct)
        if not options.is_differentiated:
            return piece + 1, total, d_weights, d_hidden, *correct
        d_piece, *d_piece_weights = _compute_gradients(
            forward,
            words.hidden,
            cast_projection,
            words.weights,
            biases,
            options.is_tied,
        )
        d_weights = tuple(
            d_sum + tf.cast(d, tf.float32)
            for d_sum, d in zip(d_weights, d_piece_weights, strict=True)
        )
        return piece + 1, total, d_weights, d_hidden.write(piece, d_piece), *correct

    d_pieces = tf.TensorArray(
        hidden.dtype,
        num_pieces,
        infer_shape=False,
        element_shape=[None, hidden.shape[1]],
    )
    d_weights: tuple[Tensor, ...] = ()
    if options.is_differentiated:
        d_weights = tuple(map(tf.zeros_like, (projection, *biases)))
    counters = [0.0] if options.accuracy else []
    start = (0, 0.0, d_weights, d_pieces, *counters)
    _, total, d_weights, d_pieces, *correct = tf.while_loop(
        lambda piece, *_: piece < num_pieces, add_piece, start, parallel_iterations=1
    )
    d_hidden = tf.reshape(d_pieces.concat(), tf.shape(hidden))
    return total, d_weights, d_hidden, *correct
