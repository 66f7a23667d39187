"""Workload `transformer`: the encoder-decoder of Vaswani et al., arXiv:1706.03762.

Items are words. One table embeds the words of both sides, times sqrt(D), and is the
projection, so both sides have one vocabulary. A sublayer computes
LayerNorm(x + Dropout(Sublayer(x))) ("post-norm"), and no norm follows the last layer.
Attention has no biases. Batches are [B, T], so that the words of a sentence are
neighbours.

T, S: words of the longest target and source sentence, B: sentence pairs, N = B T or B
S: rows, H: heads, D: width (--num_units).

`workloads.py` names this module; the trainer calls `build`. Checkpoints contain the
names of the variables.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import stacks
from rnn_scaling.models.attention import multi_head, scores
from rnn_scaling.models.attention.multi_head import Weights, WordRows
from rnn_scaling.models.batch import Batch, Side
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.decoding import LookUp, Search, Start, State, Step
from rnn_scaling.models.layout import TextLayout
from rnn_scaling.models.next_words import PROJECTION, NextWords
from rnn_scaling.models.seq2seq import count_pairs
from rnn_scaling.models.workload import Counts, Outcome, Outputs, VariableSpec, Workload

_TABLE = "embedding"
Drop = Callable[[Tensor], Tensor]
Attention = Callable[[str, WordRows, Weights], Tensor]
"""(name of the layer, its words, weights) -> attention of the words, [N, D]"""


class _Transformer(NextWords):
    kernels: Mapping[str, str] = {}

    def __init__(self, config: ModelConfig) -> None:
        sides = (
            Side("src", config.tgt_vocab_size, False, vocabulary="tgt"),
            Side("tgt", config.tgt_vocab_size, True),
        )
        super().__init__(
            config, TextLayout(sides, Batch, time_major=False), is_tied=True
        )
        self._dtype = tf.as_dtype(config.compute_dtype)
        self.variables = tuple(make_variable_specs(config))

    def list_lookups(self, batch: Batch) -> dict[str, Tensor]:
        """Return {}: the projection reads the whole table, so its gradient is dense."""
        return {}

    def forward(
        self, weights: Weights, rows: Weights, batch: Batch, seed: Tensor
    ) -> Outcome:
        return super().forward(*_look_up_rows(weights, batch), batch, seed)

    def compute_outputs(
        self, weights: Weights, rows: Weights, batch: Batch, seed: Tensor
    ) -> Outputs:
        return super().compute_outputs(*_look_up_rows(weights, batch), batch, seed)

    def run_layers(
        self, weights: Weights, rows: Weights, batch: Batch, seed: Tensor
    ) -> Tensor:
        config = self._config
        streams = itertools.count()

        def drop(x: Tensor) -> Tensor:
            return stacks.drop(x, config.dropout, seed, next(streams))

        target_words = batch.target_input.shape[1] or tf.shape(batch.target_input)[1]
        rounded = self._cast_matrices(weights)
        with tf.name_scope("encoder"):
            memory = self._run_encoder(rounded, rows["source"], batch, drop)
        with tf.name_scope("decoder"):
            target_rows = drop(embed(rows["target"], target_words))
            x = WordRows(
                target_rows, target_words, multi_head.make_causal_mask(target_words)
            )
            x = self.run_side("decoder", rounded, x, drop, memory)
        outputs = tf.cast(x.rows, self._dtype)
        return tf.reshape(outputs, [-1, target_words, config.num_units])

    def _cast_matrices(self, weights: Weights) -> Weights:
        return {
            name: tf.cast(w, self._dtype) if w.shape.rank == 2 else w
            for name, w in weights.items()
        }

    def _run_encoder(
        self, weights: Weights, rows: Tensor, batch: Batch, drop: Drop
    ) -> WordRows:
        """Return the source's words after the encoder, from their rows of the table."""
        num_words = batch.source.shape[1] or tf.shape(batch.source)[1]
        padding = scores.make_padding_mask(batch.source_length, num_words)[
            :, None, None
        ]
        x = WordRows(drop(embed(rows, num_words)), num_words, padding)
        return self.run_side("encoder", weights, x, drop)

    def run_side(
        self,
        side: str,
        weights: Weights,
        x: WordRows,
        drop: Drop,
        memory: WordRows | None = None,
    ) -> WordRows:
        """Run the layers of a side; the "decoder" has a memory."""
        num_heads = self._config.num_heads
        attentions: dict[str, Attention] = {
            "attention": lambda _, x, w: multi_head.apply_attention(x, w, num_heads)
        }
        if memory is not None:
            attentions["memory"] = lambda _, x, w: multi_head.apply_attention(
                x, w, num_heads, memory
            )
        return self._run_layers(side, weights, x, drop, attentions)

    def _run_layers(
        self,
        side: str,
        weights: Weights,
        x: WordRows,
        drop: Drop,
        attentions: Mapping[str, Attention],
    ) -> WordRows:
        """Run the layers of a side: attentions and a feed-forward network each.

        Args:
          attentions: By the name of their sublayer.
        """

        def add(x: WordRows, result: Tensor, weights: Weights) -> WordRows:
            rows = x.rows + drop(tf.cast(result, tf.float32))
            return x._replace(rows=multi_head.normalize_layer(rows, weights))

        for name in _list_layer_names(self._config, side):
            for sublayer, attend in attentions.items():
                w = _strip_prefix(weights, f"{name}/{sublayer}/")
                x = add(x, attend(name, x, w), w)
            w = _strip_prefix(weights, f"{name}/feed_forward/")
            x = add(x, multi_head.apply_feed_forward(x, w), w)
        return x

    def start(
        self, weights: Weights, look_up: LookUp, batch: Batch, search: Search
    ) -> Start:
        """Return the state and step; see `decoding.Decoder`.

        The state of a layer are the keys and values of all words so far, [N, H, T,
        D/H].
        """
        num_heads = self._config.num_heads
        head_size = self._config.num_units // num_heads
        rounded = self._cast_matrices(weights)
        table = weights[_TABLE]
        rows = tf.gather(table, tf.reshape(batch.source, [-1]))
        memory = self._run_encoder(rounded, rows, batch, _keep)
        step = self._build_word_step(rounded, table, memory, search)
        shape = [tf.shape(batch.source)[0], num_heads, search.max_words, head_size]
        empty = tf.zeros(shape, self._dtype)
        names = _list_layer_names(self._config, "decoder")
        return Start(dict.fromkeys(names, (empty, empty)), step)

    def _build_word_step(
        self, rounded: Weights, table: Tensor, memory: WordRows, search: Search
    ) -> Step:
        """Return the function that decodes one word of each hypothesis.

        Args:
          rounded: The weights, matrices in the dtype of products.
          table: The embedding, in float32.
          memory: The source's words after the encoder.
          search: The limits of the search.
        """
        num_heads = self._config.num_heads
        width = self._config.num_units
        # Keys and values of the source do not depend on the step.
        memories = {
            n: multi_head.split_heads(memory, rounded[f"{n}/memory/input"], num_heads)
            for n in _list_layer_names(self._config, "decoder")
        }
        positions = multi_head.encode_positions(search.max_words, width)
        steps = tf.range(search.max_words, dtype=tf.int64)
        logits = self._build_projection({PROJECTION: table})

        def step(words: Tensor, state: State, position: Tensor) -> tuple[Tensor, State]:
            now = tf.cast(position, tf.int64)
            next_state = {}
            past = tf.where(steps <= now, 0.0, tf.float32.min)

            def attend_to_past(name: str, x: WordRows, w: Weights) -> Tensor:
                query, *new = multi_head.split_heads(
                    x._replace(num_words=1), w["input"], num_heads
                )
                is_now = (steps == now)[:, None]
                keys, values = (
                    tf.where(is_now, *pair)
                    for pair in zip(new, state[name], strict=True)
                )
                next_state[name] = keys, values
                contexts = multi_head.attend(query, keys, values, past)
                return multi_head.multiply(contexts, w["output"])

            def attend_to_memory(name: str, x: WordRows, w: Weights) -> Tensor:
                (query,) = multi_head.split_heads(x, w["query"], num_heads)
                keys, values = memories[name]
                contexts = multi_head.attend(query, keys, values, memory.mask)
                return multi_head.multiply(contexts, w["output"])

            attentions = {"attention": attend_to_past, "memory": attend_to_memory}
            # The hypotheses of a sentence are treated as its words, so that they share
            # one copy of the memory.
            rows = tf.gather(table, words) * width**0.5 + positions[position]
            x = WordRows(rows, search.num_beams, past)
            x = self._run_layers("decoder", rounded, x, _keep, attentions)
            return logits(tf.cast(x.rows, self._dtype)), next_state

        return step

    def count_batch(self, batch: Batch) -> Counts:
        return count_pairs(batch)


def _keep(x: Tensor) -> Tensor:
    """Return x: decoding has no dropout."""
    return x


def _strip_prefix(weights: Weights, prefix: str) -> Weights:
    return {
        name.removeprefix(prefix): w
        for name, w in weights.items()
        if name.startswith(prefix)
    }


def embed(rows: Tensor, num_words: int | Tensor) -> Tensor:
    """Return rows [N, D] of the table times sqrt(D) plus their positions."""
    width = rows.shape[1]
    words = tf.reshape(rows * width**0.5, [-1, num_words, width])
    return tf.reshape(
        words + multi_head.encode_positions(num_words, width), [-1, width]
    )


def _look_up_rows(weights: Weights, batch: Batch) -> tuple[Weights, Weights]:
    """Return the weights with the projection, and the rows [N, D] of each side."""
    source, target = (
        tf.reshape(ids, [-1]) for ids in (batch.source, batch.target_input)
    )
    rows, table = _look_up(weights[_TABLE], tf.concat([source, target], 0))
    sizes = [ids.shape[0] or tf.size(ids) for ids in (source, target)]
    source_rows, target_rows = tf.split(rows, sizes)
    sides = {"source": source_rows, "target": target_rows}
    return {**weights, PROJECTION: table}, sides


@tf.custom_gradient
def _look_up(
    table: Tensor, ids: Tensor
) -> tuple[tuple[Tensor, Tensor], Callable[..., Any]]:
    """Return rows of the table, and the table for the projection.

    The rows' gradient is added in place to the gradient of the returned table.
    """

    def differentiate(d_rows: Tensor, d_table: Tensor) -> tuple[Tensor, None]:
        return tf.tensor_scatter_nd_add(d_table, ids[:, None], d_rows), None

    return (tf.gather(table, ids), tf.identity(table)), differentiate


def make_variable_specs(config: ModelConfig) -> Iterator[VariableSpec]:
    """Yield every trainable variable, in a fixed order."""
    yield VariableSpec(
        _TABLE, (config.tgt_vocab_size, config.num_units), initial="unit_rows"
    )
    width = config.num_units
    filters = config.filter_size
    square = (width, width)
    norm = {"norm/gain": (width,), "norm/bias": (width,)}
    sublayers: dict[str, dict[str, tuple[int, ...]]] = {
        "attention": {"input": (width, 3 * width), "output": square, **norm},
        "memory": {
            "query": square,
            "input": (width, 2 * width),
            "output": square,
            **norm,
        },
        "feed_forward": {"inner": (width, filters), "inner/bias": (filters,)}
        | {"outer": (filters, width), "outer/bias": (width,), **norm},
    }
    for side, (sublayer, shapes) in itertools.product(
        ("encoder", "decoder"), sublayers.items()
    ):
        if (side, sublayer) == ("encoder", "memory"):
            continue
        for layer in _list_layer_names(config, side):
            for name, shape in shapes.items():
                initial = "ones" if name == "norm/gain" else "glorot_uniform"
                yield VariableSpec(f"{layer}/{sublayer}/{name}", shape, initial=initial)


def _list_layer_names(config: ModelConfig, side: str) -> list[str]:
    num_layers = (
        config.num_encoder_layers if side == "encoder" else config.num_decoder_layers
    )
    return [f"{side}/layer_{layer}" for layer in range(num_layers)]


def build(config: ModelConfig, device_type: str) -> Workload:
    """Return the network, which has the same operators on every device."""
    return _Transformer(config)
