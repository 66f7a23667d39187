"""The scores of a decoder's state for each source word, and the attention by them.

S: source words, T: target words, B: sentences, D: width of the memory (the encoder's
outputs), U: units.

    luong       h' W m_s
    bahdanau    v' tanh(Q h + W m_s)
    normalized  g v' / |v| tanh(Q h + W m_s + b)

W m_s does not depend on the decoder and is computed once for all steps: the keys.

Sources: Luong et al., arXiv:1508.04025, section 3.1, "general"; Bahdanau et al.,
arXiv:1409.0473, appendix A.1.2; Salimans and Kingma, arXiv:1602.07868.

`step_wise` and `gnmt` use `Attention`. Checkpoints contain the names of the variables.
"""

from collections.abc import Callable, Iterator

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models.attention.loop_products import DeferredProducts, PlainProducts
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.loops import scan
from rnn_scaling.models.workload import Tensors, VariableSpec

_Gradients = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]

MEMORY = "attention/memory"
_QUERY = "attention/query"


def make_variable_specs(config: ModelConfig, memory_dim: int) -> Iterator[VariableSpec]:
    """Yield the variables that the scores are computed with."""
    units = config.num_units
    yield VariableSpec(MEMORY, (memory_dim, units))
    if config.attention == "bahdanau":
        yield VariableSpec(_QUERY, (units, units))
        yield VariableSpec("attention/v", (units,))
        if config.normalize_attention:
            yield VariableSpec("attention/g", (), initial=str(units**-0.5))
            yield VariableSpec("attention/bias", (units,))


def make_padding_mask(lengths: Tensor, num_words: int | Tensor) -> Tensor:
    """Return float32 [B, S]: 0 for a word, the lowest float32 for padding."""
    # GPUs compare int32 on the host.
    positions = tf.cast(tf.range(num_words), tf.int64)
    lengths = tf.cast(lengths, tf.int64)
    return tf.where(positions < lengths[:, None], 0.0, tf.float32.min)


class Attention:
    """Attention to one memory with the scores of --attention."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Tensors,
        memory: Tensor,
        lengths: Tensor,
    ) -> None:
        """Compute the keys.

        Args:
          weights: In the dtype of products.
          memory: [B, S, D].
          lengths: [B], words of each source sentence.
        """
        self.memory = memory
        self.mask = make_padding_mask(lengths, memory.shape[1] or tf.shape(memory)[1])
        self.query = weights[_QUERY] if config.attention == "bahdanau" else None
        # [B, S, U], including the bias of the queries.
        self.keys = _multiply_rows(memory, weights[MEMORY])
        if "attention/bias" in weights:
            self.keys += weights["attention/bias"]
        if self.query is not None:
            self.v = _normalize_v(config, weights)

    def step_attention(
        self, products: PlainProducts | DeferredProducts
    ) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the attention for use inside of a loop over the target words.

        Returns:
          (t, h [B, U]) -> float32 [B, D], the weighted mean of the memory. Padding has
          weight 0.
        """
        if self.query is None:
            weigh = products.make_product(self.memory)
            keys = tf.linalg.matrix_transpose(self.keys)
            score = products.make_product(keys, self.mask)
            return lambda t, h: weigh(t, tf.nn.softmax(score(t, h)))
        query = products.make_product(self.query)
        weigh = products.make_product(self.memory)

        def attend(t: Tensor, h: Tensor) -> Tensor:
            queries = tf.cast(query(t, h), self.keys.dtype)
            scores = _score_additively(queries, self.keys, self.v) + self.mask
            return weigh(t, tf.nn.softmax(scores))

        return attend

    def compute_contexts(self, queries: Tensor) -> Tensor:
        """Return the contexts of all target words.

        No state may depend on a context.

        Args:
          queries: [B, T, U].

        Returns:
          [B, T, D] in the dtype of products.
        """
        if self.query is None:
            return self._weigh_memory(self._score_by_products(queries))
        queries = _multiply_rows(queries, self.query)
        return self._weigh_memory(_score_all_additively(queries, self.keys, self.v))

    def compute_beam_contexts(self, queries: Tensor) -> Tensor:
        """Return the contexts [B K, D] of K queries per sentence, [B K, U]."""
        queries = tf.reshape(queries, [tf.shape(self.keys)[0], -1, queries.shape[1]])
        if self.query is None:
            scores = self._score_by_products(queries)
        else:
            from_queries = _multiply_rows(queries, self.query)[:, :, None]
            hidden = tf.tanh(from_queries + self.keys[:, None])  # [B, K, S, U]
            scores = _multiply_by_v(hidden, self.v, tf.shape(hidden)[:3])
        return tf.reshape(self._weigh_memory(scores), [-1, self.memory.shape[2]])

    def _score_by_products(self, queries: Tensor) -> Tensor:
        return tf.matmul(queries, self.keys, transpose_b=True)

    def _weigh_memory(self, scores: Tensor) -> Tensor:
        """Return the memory's weighted means [B, T, D] for scores [B, T, S]."""
        scores = tf.cast(scores, tf.float32) + self.mask[:, None]
        shares = tf.cast(tf.nn.softmax(scores), self.memory.dtype)
        return tf.matmul(shares, self.memory)


def _multiply_rows(x: Tensor, matrix: Tensor) -> Tensor:
    """Return [B, S, K] @ [K, N], computed as one product of all rows."""
    shape = tf.shape(x)
    result = tf.reshape(
        tf.matmul(tf.reshape(x, [-1, x.shape[2]]), matrix),
        [shape[0], shape[1], matrix.shape[1]],
    )
    result.set_shape([*x.shape[:2], matrix.shape[1]])
    return result


def _normalize_v(config: ModelConfig, weights: Tensors) -> Tensor:
    v = weights["attention/v"]
    if not config.normalize_attention:
        return v
    v_float32 = tf.cast(v, tf.float32)
    g = tf.cast(weights["attention/g"], tf.float32)
    return tf.cast(g * v_float32 / tf.norm(v_float32), v.dtype)


def _multiply_by_v(x: Tensor, v: Tensor, shape: Tensor) -> Tensor:
    """Return x [..., U] times v [U], reshaped to `shape`."""
    rows = tf.reshape(x, [-1, v.shape[0]])
    return tf.reshape(tf.matmul(rows, v[:, None]), shape)


@tf.custom_gradient
def _score_additively(
    query: Tensor, keys: Tensor, v: Tensor
) -> tuple[Tensor, _Gradients]:
    """Return the scores [B, S] float32 of query [B, U], keys [B, S, U] and v [U].

    The gradient computes tanh a second time, because storing it would take S times the
    memory of a step's states.
    """

    def compute_hidden() -> Tensor:
        return tf.tanh(query[:, None] + keys)

    def differentiate(d: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = compute_hidden()
        d_column = tf.reshape(tf.cast(d, v.dtype), [-1, 1])
        d_hidden = tf.reshape(tf.matmul(d_column, v[None]), tf.shape(keys))
        d_sum = tf.raw_ops.TanhGrad(y=y, dy=d_hidden)
        rows = tf.reshape(y, [-1, v.shape[0]])
        d_v = tf.matmul(rows, d_column, transpose_a=True)[:, 0]
        return tf.reduce_sum(d_sum, axis=1), d_sum, d_v

    scores = _multiply_by_v(compute_hidden(), v, tf.shape(keys)[:2])
    return tf.cast(scores, tf.float32), differentiate


def _score_all_additively(queries: Tensor, keys: Tensor, v: Tensor) -> Tensor:
    """Return the scores of all target words, [B, T, S].

    They are computed word by word; all together would need tensors [B, T, S, U].
    """
    num_words = queries.shape[1] or tf.shape(queries)[1]
    word_queries = tf.TensorArray(
        queries.dtype, num_words, element_shape=[queries.shape[0], queries.shape[2]]
    )
    word_queries = word_queries.unstack(tf.transpose(queries, [1, 0, 2]))

    def step(t: Tensor) -> tuple[tuple[()], list[Tensor]]:
        return (), [_score_additively(word_queries.read(t), keys, v)]

    _, [scores] = scan(step, (), num_words, [tf.TensorSpec(keys.shape[:2])])
    return tf.transpose(scores, [1, 0, 2])
