"""How much a decoder's state attends to each source word: Luong's multiplicative scores, Bahdanau's additive ones.

S: source words, T: target words, B: sentences, D: width of the memory (the encoder's outputs), U: units.

    luong     score(h, m_s) = h' W m_s                        Luong et al., arXiv:1508.04025, section 3.1, "general"
    bahdanau  score(h, m_s) = v' tanh(Q h + W m_s)            Bahdanau et al., arXiv:1409.0473, appendix A.1.2
      normalised              g v' / |v| tanh(Q h + W m_s + b)  Salimans and Kingma, arXiv:1602.07868

What does not depend on the decoder, W m_s, is computed once for all steps: the keys.
"""

from collections.abc import Callable, Iterator

import tensorflow as tf

from rnn_scaling.models.attention.loop_products import DeferredProducts, Plain
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.workload import Tensors, VariableSpec

Contexts = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""(t, h [B, U]) -> float32 [B, D], the memory's average by shares that are 0 at padding"""

_Gradients = Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]

MEMORY, QUERY = "attention/memory", "attention/query"


def variable_specs(config: ModelConfig, memory_dim: int) -> Iterator[VariableSpec]:
    """What the scores are made with."""
    units = config.num_units
    yield VariableSpec(MEMORY, (memory_dim, units), "dense")
    if config.attention == "bahdanau":
        yield VariableSpec(QUERY, (units, units), "dense")
        yield VariableSpec("attention/v", (units,), "dense")
        if config.normalize_attention:
            yield VariableSpec("attention/g", (), "dense", str(units**-0.5))
            yield VariableSpec("attention/bias", (units,), "dense")


def mask(lengths: tf.Tensor, num_words: int | tf.Tensor) -> tf.Tensor:
    """float32 [B, S], 0 for a word of a sentence and as low as can be in its padding."""
    # GPUs compare int32 on the host.
    words, lengths = tf.cast(tf.range(num_words), tf.int64), tf.cast(lengths, tf.int64)
    return tf.where(words < lengths[:, None], 0.0, tf.float32.min)


def step_contexts(
    config: ModelConfig,
    weights: Tensors,
    memory: tf.Tensor,
    masked: tf.Tensor,
    products: Plain | DeferredProducts,
) -> Contexts:
    """What is attended to inside of a loop over the target words; arguments as of `contexts`."""
    keys = keys_of(weights, memory)
    query = products.product(weights[QUERY]) if config.attention == "bahdanau" else None
    weigh = products.product(memory)
    if query is None:
        score = products.product(tf.linalg.matrix_transpose(keys), masked)
        return lambda t, h: weigh(t, tf.nn.softmax(score(t, h)))
    v = v_of(config, weights)
    return lambda t, h: weigh(
        t, tf.nn.softmax(_additive(tf.cast(query(t, h), keys.dtype), keys, v) + masked)
    )


def contexts(
    config: ModelConfig,
    weights: Tensors,
    queries: tf.Tensor,
    memory: tf.Tensor,
    masked: tf.Tensor,
) -> tf.Tensor:
    """What every target word attends to, where no state depends on it: [B, T, D], in the dtype of products.

    Args:
      weights: in the dtype of products.
      queries: [B, T, U].
      memory: [B, S, D].
      masked: what `mask` gives.
    """
    keys = keys_of(weights, memory)
    if config.attention == "luong":
        scores = tf.cast(tf.matmul(queries, keys, transpose_b=True), tf.float32)
    else:
        scores = _all_additive(
            _rows(queries, weights[QUERY]), keys, v_of(config, weights)
        )
    return tf.matmul(
        tf.cast(tf.nn.softmax(scores + masked[:, None]), memory.dtype), memory
    )


def attention_of(
    config: ModelConfig, weights: Tensors, memory: tf.Tensor, masked: tf.Tensor
) -> Callable[[tf.Tensor], tf.Tensor]:
    """The function of K queries a sentence [B K, U] -> their contexts [B K, D]; arguments as of `contexts`."""
    keys, luong = keys_of(weights, memory), config.attention == "luong"
    v = None if luong else v_of(config, weights)[:, None]

    def attend(queries: tf.Tensor) -> tf.Tensor:
        queries = tf.reshape(queries, [tf.shape(keys)[0], -1, queries.shape[1]])
        if v is None:
            scores = tf.matmul(queries, keys, transpose_b=True)
        else:
            hidden = tf.tanh(
                _rows(queries, weights[QUERY])[:, :, None] + keys[:, None]
            )  # [B, K, S, U]
            scores = tf.reshape(
                tf.matmul(tf.reshape(hidden, [-1, v.shape[0]]), v), tf.shape(hidden)[:3]
            )
        shares = tf.nn.softmax(tf.cast(scores, tf.float32) + masked[:, None])
        return tf.reshape(
            tf.matmul(tf.cast(shares, memory.dtype), memory), [-1, memory.shape[2]]
        )

    return attend


def keys_of(weights: Tensors, memory: tf.Tensor) -> tf.Tensor:
    """[B, S, U]; what is added to every query is added to them."""
    keys = _rows(memory, weights[MEMORY])
    return keys + weights["attention/bias"] if "attention/bias" in weights else keys


def _rows(x: tf.Tensor, matrix: tf.Tensor) -> tf.Tensor:
    """[B, S, K] @ [K, N] as one product of all rows."""
    shape = tf.shape(x)
    result = tf.reshape(
        tf.matmul(tf.reshape(x, [-1, x.shape[2]]), matrix),
        [shape[0], shape[1], matrix.shape[1]],
    )
    result.set_shape([*x.shape[:2], matrix.shape[1]])
    return result


def v_of(config: ModelConfig, weights: Tensors) -> tf.Tensor:
    v = weights["attention/v"]
    if not config.normalize_attention:
        return v
    long = tf.cast(v, tf.float32)
    return tf.cast(
        tf.cast(weights["attention/g"], tf.float32) * long / tf.norm(long), v.dtype
    )


@tf.custom_gradient
def _additive(
    query: tf.Tensor, keys: tf.Tensor, v: tf.Tensor
) -> tuple[tf.Tensor, _Gradients]:
    """query [B, U], keys [B, S, U], v [U] -> float32 [B, S].

    The gradient computes tanh again: keeping it would take S times the memory of the step's states.
    """

    def hidden() -> tf.Tensor:
        return tf.tanh(query[:, None] + keys)

    def times_v(x: tf.Tensor) -> tf.Tensor:
        return tf.reshape(
            tf.matmul(tf.reshape(x, [-1, v.shape[0]]), v[:, None]), tf.shape(keys)[:2]
        )

    def gradient(d: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        y, d_column = hidden(), tf.reshape(tf.cast(d, v.dtype), [-1, 1])
        d_hidden = tf.reshape(tf.matmul(d_column, v[None]), tf.shape(keys))
        d_sum = tf.raw_ops.TanhGrad(y=y, dy=d_hidden)
        d_v = tf.matmul(tf.reshape(y, [-1, v.shape[0]]), d_column, transpose_a=True)[
            :, 0
        ]
        return tf.reduce_sum(d_sum, axis=1), d_sum, d_v

    return tf.cast(times_v(hidden()), tf.float32), gradient


def _all_additive(queries: tf.Tensor, keys: tf.Tensor, v: tf.Tensor) -> tf.Tensor:
    """The scores of all target words, [B, T, S]; word by word, as all at once would take S times T times B times U."""
    num_words = queries.shape[1] or tf.shape(queries)[1]
    by_word = tf.TensorArray(
        queries.dtype, num_words, element_shape=[queries.shape[0], queries.shape[2]]
    )
    by_word = by_word.unstack(tf.transpose(queries, [1, 0, 2]))

    def body(t: tf.Tensor, scores: tf.TensorArray) -> tuple[tf.Tensor, tf.TensorArray]:
        return t + 1, scores.write(t, _additive(by_word.read(t), keys, v))

    scores = tf.TensorArray(tf.float32, num_words, element_shape=keys.shape[:2])
    _, scores = tf.while_loop(
        lambda t, _: t < num_words, body, (0, scores), parallel_iterations=1
    )
    return tf.transpose(scores.stack(), [1, 0, 2])
