"""Workload `transformer`: the encoder-decoder of Vaswani et al., arXiv:1706.03762. Items are words.

One table embeds the words of both sides, times sqrt(D), and is the projection: they share a vocabulary. Each sublayer
is LayerNorm(x + Dropout(Sublayer(x))), the norm after the sum ("post-norm"), and no norm follows the last layer.
Attention has no biases. Batches are [B, T], so that the words of a sentence are neighbours.

T, S: words of the longest target and source sentence, B: sentence pairs, N = B T: rows, D: width (--num_units), V:
vocabulary.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from rnn_scaling.models import stacks
from rnn_scaling.models.attention import multi_head, scores
from rnn_scaling.models.batch import Batch, Side
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.layout import TextLayout
from rnn_scaling.models.next_words import PROJECTION, NextWords
from rnn_scaling.models.seq2seq import counts_of_pairs
from rnn_scaling.models.workload import Counts, Outcome, Outputs, VariableSpec, Workload, gemm_flops

_TABLE = "embedding"
_MEMORY = "/memory/input"  # the end of the name of what the source's words pass in the decoder
Size = int | tf.Tensor
Drop = Callable[[tf.Tensor], tf.Tensor]
Weights = Mapping[str, tf.Tensor]


class _Transformer(NextWords):
    """See `Workload`."""

    kernels: Mapping[str, str] = {}

    def __init__(self, config: ModelConfig) -> None:
        sides = (Side("src", config.tgt_vocab_size, False, vocabulary="tgt"), Side("tgt", config.tgt_vocab_size, True))
        super().__init__(config, TextLayout(sides, Batch, time_major=False), tied=True)
        self._dtype = tf.as_dtype(config.compute_dtype)
        self.variables = tuple(variable_specs(config))

    def lookups(self, batch: Batch) -> dict[str, tf.Tensor]:
        """None: the projection reads the whole table, so its gradient is dense."""
        return {}

    def forward(self, weights: Weights, rows: Weights, batch: Batch, seed: tf.Tensor) -> Outcome:
        return super().forward(*_looked_up(weights, batch), batch, seed)

    def outputs(self, weights: Weights, rows: Weights, batch: Batch, seed: tf.Tensor) -> Outputs:
        return super().outputs(*_looked_up(weights, batch), batch, seed)

    def last_layer(self, weights: Weights, rows: Weights, batch: Batch, seed: tf.Tensor) -> tf.Tensor:
        config, streams = self._config, itertools.count()

        def drop(x: tf.Tensor) -> tf.Tensor:
            return stacks.drop(x, config.dropout, seed, next(streams))

        num_words = [ids.shape[1] or tf.shape(ids)[1] for ids in (batch.source, batch.target_input)]
        rounded = {name: tf.cast(w, self._dtype) if w.shape.rank == 2 else w for name, w in weights.items()}
        source, target = (_embedded(*side) for side in zip(rows.values(), num_words))
        padding = scores.mask(batch.source_length, num_words[0])[:, None, None]
        with tf.name_scope("encoder"):
            memory = self.encode(rounded, drop(source), num_words[0], padding, drop)
        with tf.name_scope("decoder"):
            x = self.decode(rounded, drop(target), num_words, memory, padding, drop)
        return tf.reshape(tf.cast(x, self._dtype), [-1, num_words[1], config.num_units])

    def encode(self, weights: Weights, x: tf.Tensor, num_words: Size, padding: tf.Tensor, drop: Drop) -> tf.Tensor:
        """What the decoder attends to, rows [B S, D].

        Args:
          x: the embedded words, [B S, D].
          padding: float32, added to the scores [B, H, S, S].
        """
        for layer in range(self._config.num_encoder_layers):
            part = functools.partial(_part, weights, f"encoder/layer_{layer}")
            x = self._attend_itself(x, part("attention"), num_words, padding, drop)
            x = _feed_forward(x, part("feed_forward"), drop)
        return x

    def decode(
        self,
        weights: Weights,
        x: tf.Tensor,
        num_words: Sequence[Size],
        memory: tf.Tensor,
        padding: tf.Tensor,
        drop: Drop,
    ) -> tf.Tensor:
        """The last layer's outputs, rows [B T, D].

        Args:
          x: the embedded words, [B T, D].
          num_words: S and T.
          memory: what `encode` gives.
          padding: float32, added to the scores [B, H, T, S].
        """
        masked = multi_head.causal_mask(num_words[1])
        for layer in range(self._config.num_decoder_layers):
            part = functools.partial(_part, weights, f"decoder/layer_{layer}")
            x = self._attend_itself(x, part("attention"), num_words[1], masked, drop)
            x = self._attend_memory(x, part("memory"), num_words, memory, padding, drop)
            x = _feed_forward(x, part("feed_forward"), drop)
        return x

    def _attend_itself(
        self, x: tf.Tensor, weights: Weights, num_words: Size, masked: tf.Tensor, drop: Drop
    ) -> tf.Tensor:
        parts = multi_head.heads(x, weights["input"], self._config.num_heads, num_words)
        attended = multi_head.attend(*parts, masked)
        return multi_head.add_and_norm(x, multi_head.product(attended, weights["output"]), weights, drop)

    def _attend_memory(
        self,
        x: tf.Tensor,
        weights: Weights,
        num_words: Sequence[Size],
        memory: tf.Tensor,
        masked: tf.Tensor,
        drop: Drop,
    ) -> tf.Tensor:
        query = multi_head.heads(x, weights["query"], self._config.num_heads, num_words[1])
        keys_and_values = multi_head.heads(memory, weights["input"], self._config.num_heads, num_words[0])
        attended = multi_head.attend(*query, *keys_and_values, masked)
        return multi_head.add_and_norm(x, multi_head.product(attended, weights["output"]), weights, drop)

    def counts(self, batch: Batch) -> Counts:
        return counts_of_pairs(batch)

    def flops_per_item(self, lengths: Sequence[int]) -> float:
        """Of S and T words each passes its side's matrices; a pair of words costs a score and a weighing a layer.

        Both are products of D numbers: 4 D FLOPs forward and twice as many back. Masked pairs are computed too.
        """
        source, target = lengths
        of_source = gemm_flops(s for s in self.variables if s.name.startswith("encoder/") or s.name.endswith(_MEMORY))
        of_target = gemm_flops(self.variables) - of_source
        pairs = self._config.num_encoder_layers * source**2 + self._config.num_decoder_layers * target * (
            source + target
        )
        of_pairs = 12.0 * self._config.num_units * pairs
        return (source * of_source + target * of_target + of_pairs) / (source + target)


def _feed_forward(x: tf.Tensor, weights: Weights, drop: Drop) -> tf.Tensor:
    return multi_head.add_and_norm(x, multi_head.feed_forward(x, weights), weights, drop)


def _part(weights: Weights, layer: str, name: str) -> Weights:
    """The weights of a sublayer, by their names within it."""
    prefix = f"{layer}/{name}/"
    return {name.removeprefix(prefix): w for name, w in weights.items() if name.startswith(prefix)}


def _embedded(rows: tf.Tensor, num_words: Size) -> tf.Tensor:
    """Rows [N, D] of the table, times sqrt(D), plus their positions."""
    width = rows.shape[1]
    words = tf.reshape(rows * width**0.5, [-1, num_words, width])
    return tf.reshape(words + multi_head.positions(num_words, width), tf.shape(rows))


def _looked_up(weights: Weights, batch: Batch) -> tuple[Weights, Weights]:
    """The weights with the projection, and the rows [N, D] of each side's words."""
    source, target = (tf.reshape(ids, [-1]) for ids in (batch.source, batch.target_input))
    rows, table = _look_up(weights[_TABLE], tf.concat([source, target], 0))
    sizes = [ids.shape[0] or tf.size(ids) for ids in (source, target)]
    return {**weights, PROJECTION: table}, dict(zip(("source", "target"), tf.split(rows, sizes)))


@tf.custom_gradient
def _look_up(table: tf.Tensor, ids: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], Callable[..., Any]]:
    """Rows of the table, and the table for its other readers, to whose gradient that of the rows is added in place."""

    def gradient(d_rows: tf.Tensor, d_table: tf.Tensor) -> tuple[tf.Tensor, None]:
        return tf.tensor_scatter_nd_add(d_table, ids[:, None], d_rows), None

    return (tf.gather(table, ids), tf.identity(table)), gradient


def variable_specs(config: ModelConfig) -> Iterator[VariableSpec]:
    """Every trainable variable, in a fixed order."""
    yield VariableSpec(_TABLE, (config.tgt_vocab_size, config.num_units), "dense", "unit_rows")
    width, filters = config.num_units, config.filter_size
    attention = {"input": (width, 3 * width), "output": (width, width)}
    memory = {"query": (width, width), "input": (width, 2 * width), "output": (width, width)}
    feed_forward = {
        "inner": (width, filters),
        "inner/bias": (filters,),
        "outer": (filters, width),
        "outer/bias": (width,),
    }
    norm = {"norm/gain": (width,), "norm/bias": (width,)}
    encoder: dict[str, dict[str, tuple[int, ...]]] = {"attention": attention, "feed_forward": feed_forward}
    decoder = {"attention": attention, "memory": memory, "feed_forward": feed_forward}
    for side, num_layers, parts in (
        ("encoder", config.num_encoder_layers, encoder),
        ("decoder", config.num_decoder_layers, decoder),
    ):
        for layer, (part, shapes) in itertools.product(range(num_layers), parts.items()):
            for name, shape in {**shapes, **norm}.items():
                initial = "ones" if name == "norm/gain" else "glorot_uniform"
                yield VariableSpec(f"{side}/layer_{layer}/{part}/{name}", shape, "dense", initial)


def build(config: ModelConfig, device_type: str) -> Workload:
    """The network, of the same operators on every device; ValueError if the heads do not divide the width."""
    if config.num_units % config.num_heads:
        raise ValueError(f"expected heads that divide {config.num_units} units, got {config.num_heads}")
    return _Transformer(config)
