"""Workload `transformer`: the encoder-decoder of Vaswani et al., arXiv:1706.03762. Items are words.

One table embeds the words of both sides, times sqrt(D), and is the projection: both sides have one vocabulary. Each
sublayer is LayerNorm(x + Dropout(Sublayer(x))), the norm after the sum ("post-norm"), and no norm follows the last
layer. Attention has no biases. Batches are [B, T], so that the words of a sentence are neighbours.

T, S: words of the longest target and source sentence, B: sentence pairs, N = B T or B S: rows, D: width (--num_units).
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import stacks
from rnn_scaling.models.attention import multi_head, scores
from rnn_scaling.models.attention.multi_head import Weights, Words
from rnn_scaling.models.batch import Batch, Side
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.decoding import LookUp, Search, Start, State
from rnn_scaling.models.layout import TextLayout
from rnn_scaling.models.next_words import PROJECTION, NextWords
from rnn_scaling.models.seq2seq import counts_of_pairs
from rnn_scaling.models.workload import Counts, Outcome, Outputs, VariableSpec, Workload

_TABLE = "embedding"
Drop = Callable[[Tensor], Tensor]
Attention = Callable[[str, Words, Weights], Tensor]
"""(a layer's name, its words, the attention's weights) -> what the words attend to, [N, D]"""


class _Transformer(NextWords):
    kernels: Mapping[str, str] = {}

    def __init__(self, config: ModelConfig) -> None:
        sides = (
            Side("src", config.tgt_vocab_size, False, vocabulary="tgt"),
            Side("tgt", config.tgt_vocab_size, True),
        )
        super().__init__(config, TextLayout(sides, Batch, time_major=False), tied=True)
        self._dtype = tf.as_dtype(config.compute_dtype)
        self.variables = tuple(variable_specs(config))

    def lookups(self, batch: Batch) -> dict[str, Tensor]:
        """None: the projection reads the whole table, so its gradient is dense."""
        return {}

    def forward(
        self, weights: Weights, rows: Weights, batch: Batch, seed: Tensor
    ) -> Outcome:
        return super().forward(*_looked_up(weights, batch), batch, seed)

    def outputs(
        self, weights: Weights, rows: Weights, batch: Batch, seed: Tensor
    ) -> Outputs:
        return super().outputs(*_looked_up(weights, batch), batch, seed)

    def last_layer(
        self, weights: Weights, rows: Weights, batch: Batch, seed: Tensor
    ) -> Tensor:
        config = self._config
        streams = itertools.count()

        def drop(x: Tensor) -> Tensor:
            return stacks.drop(x, config.dropout, seed, next(streams))

        target_words = batch.target_input.shape[1] or tf.shape(batch.target_input)[1]
        rounded = self._rounded(weights)
        with tf.name_scope("encoder"):
            memory = self._encoded(rounded, rows["source"], batch, drop)
        with tf.name_scope("decoder"):
            x = Words(
                drop(embedded(rows["target"], target_words)),
                target_words,
                multi_head.causal_mask(target_words),
            )
            x = self.layers("decoder", rounded, x, drop, memory)
        return tf.reshape(
            tf.cast(x.rows, self._dtype), [-1, target_words, config.num_units]
        )

    def _rounded(self, weights: Weights) -> Weights:
        return {
            name: tf.cast(w, self._dtype) if w.shape.rank == 2 else w
            for name, w in weights.items()
        }

    def _encoded(
        self, weights: Weights, rows: Tensor, batch: Batch, drop: Drop
    ) -> Words:
        """The source's words after the encoder, from their rows of the table."""
        num_words = batch.source.shape[1] or tf.shape(batch.source)[1]
        padding = scores.mask(batch.source_length, num_words)[:, None, None]
        return self.layers(
            "encoder",
            weights,
            Words(drop(embedded(rows, num_words)), num_words, padding),
            drop,
        )

    def layers(
        self,
        side: str,
        weights: Weights,
        x: Words,
        drop: Drop,
        memory: Words | None = None,
    ) -> Words:
        """What the layers of the "encoder", or of the "decoder" with the encoder's words as memory, make of words."""
        num_heads = self._config.num_heads
        attentions: dict[str, Attention] = {
            "attention": lambda name, x, w: multi_head.attention(x, w, num_heads)
        }
        if memory is not None:
            attentions["memory"] = lambda name, x, w: multi_head.attention(
                x, w, num_heads, memory
            )
        return self._layers(side, weights, x, drop, attentions)

    def _layers(
        self,
        side: str,
        weights: Weights,
        x: Words,
        drop: Drop,
        attentions: Mapping[str, Attention],
    ) -> Words:
        """The layers of a side: attentions, by what their weights are called, and a feed-forward network each."""

        def add(x: Words, added: Tensor, weights: Weights) -> Words:
            return x._replace(
                rows=multi_head.layer_norm(
                    x.rows + drop(tf.cast(added, tf.float32)), weights
                )
            )

        for name in _layer_names(self._config, side):
            for part, attend in attentions.items():
                w = _part(weights, f"{name}/{part}/")
                x = add(x, attend(name, x, w), w)
            w = _part(weights, f"{name}/feed_forward/")
            x = add(x, multi_head.feed_forward(x, w), w)
        return x

    def start(
        self, weights: Weights, look_up: LookUp, batch: Batch, search: Search
    ) -> Start:
        """See `decoding.Decoder`. Each layer keeps the keys and values of the words before, [N, H, T, D/H]."""
        num_heads = self._config.num_heads
        width = self._config.num_units
        max_words = search.max_words
        rounded = self._rounded(weights)
        table = weights[_TABLE]

        def keep(x: Tensor) -> Tensor:  # drops nothing
            return x

        encoded = self._encoded(
            rounded, tf.gather(table, tf.reshape(batch.source, [-1])), batch, keep
        )
        names = _layer_names(self._config, "decoder")
        memories = {
            n: multi_head.heads(encoded, rounded[f"{n}/memory/input"], num_heads)
            for n in names
        }
        places = multi_head.positions(max_words, width)
        steps = tf.range(max_words, dtype=tf.int64)
        logits = self._projected({PROJECTION: table})

        def step(words: Tensor, kept: State, position: Tensor) -> tuple[Tensor, State]:
            now = tf.cast(position, tf.int64)
            following = {}
            past = tf.where(steps <= now, 0.0, tf.float32.min)

            def attend_to_past(name: str, x: Words, w: Weights) -> Tensor:
                query, *new = multi_head.heads(
                    x._replace(num_words=1), w["input"], num_heads
                )
                keys, values = (
                    tf.where((steps == now)[:, None], *pair)
                    for pair in zip(new, kept[name], strict=True)
                )
                following[name] = keys, values
                return multi_head.product(
                    multi_head.attend(query, keys, values, past), w["output"]
                )

            def attend_to_memory(name: str, x: Words, w: Weights) -> Tensor:
                (query,) = multi_head.heads(x, w["query"], num_heads)
                keys, values = memories[name]
                return multi_head.product(
                    multi_head.attend(query, keys, values, encoded.masked), w["output"]
                )

            attentions = {"attention": attend_to_past, "memory": attend_to_memory}
            # The hypotheses of a sentence are as its words: one copy of the memory serves them all.
            x = Words(
                tf.gather(table, words) * width**0.5 + places[position],
                search.num_beams,
                past,
            )
            x = self._layers("decoder", rounded, x, keep, attentions)
            return logits(tf.cast(x.rows, self._dtype)), following

        empty = tf.zeros(
            [tf.shape(batch.source)[0], num_heads, max_words, width // num_heads],
            self._dtype,
        )
        return Start(dict.fromkeys(names, (empty, empty)), step)

    def counts(self, batch: Batch) -> Counts:
        return counts_of_pairs(batch)


def _part(weights: Weights, prefix: str) -> Weights:
    return {
        name.removeprefix(prefix): w
        for name, w in weights.items()
        if name.startswith(prefix)
    }


def embedded(rows: Tensor, num_words: int | Tensor) -> Tensor:
    """Rows [N, D] of the table, times sqrt(D), plus their positions."""
    width = rows.shape[1]
    words = tf.reshape(rows * width**0.5, [-1, num_words, width])
    return tf.reshape(words + multi_head.positions(num_words, width), [-1, width])


def _looked_up(weights: Weights, batch: Batch) -> tuple[Weights, Weights]:
    """The weights with the projection, and the rows [N, D] of each side's words."""
    source, target = (
        tf.reshape(ids, [-1]) for ids in (batch.source, batch.target_input)
    )
    rows, table = _look_up(weights[_TABLE], tf.concat([source, target], 0))
    sizes = [ids.shape[0] or tf.size(ids) for ids in (source, target)]
    return {**weights, PROJECTION: table}, dict(
        zip(("source", "target"), tf.split(rows, sizes))
    )


@tf.custom_gradient
def _look_up(
    table: Tensor, ids: Tensor
) -> tuple[tuple[Tensor, Tensor], Callable[..., Any]]:
    """Rows of the table, and the table for its other readers, to whose gradient that of the rows is added in place."""

    def gradient(d_rows: Tensor, d_table: Tensor) -> tuple[Tensor, None]:
        return tf.tensor_scatter_nd_add(d_table, ids[:, None], d_rows), None

    return (tf.gather(table, ids), tf.identity(table)), gradient


def variable_specs(config: ModelConfig) -> Iterator[VariableSpec]:
    """Every trainable variable, in a fixed order."""
    yield VariableSpec(
        _TABLE, (config.tgt_vocab_size, config.num_units), "dense", "unit_rows"
    )
    width = config.num_units
    filters = config.filter_size
    square = (width, width)
    norm = {"norm/gain": (width,), "norm/bias": (width,)}
    parts: dict[str, dict[str, tuple[int, ...]]] = {
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
    for side, (part, shapes) in itertools.product(
        ("encoder", "decoder"), parts.items()
    ):
        for layer, (name, shape) in itertools.product(
            _layer_names(config, side), shapes.items()
        ):
            if (side, part) != ("encoder", "memory"):
                initial = "ones" if name == "norm/gain" else "glorot_uniform"
                yield VariableSpec(f"{layer}/{part}/{name}", shape, "dense", initial)


def _layer_names(config: ModelConfig, side: str) -> list[str]:
    num_layers = (
        config.num_encoder_layers if side == "encoder" else config.num_decoder_layers
    )
    return [f"{side}/layer_{layer}" for layer in range(num_layers)]


def build(config: ModelConfig, device_type: str) -> Workload:
    """The network, of the same operators on every device."""
    return _Transformer(config)
