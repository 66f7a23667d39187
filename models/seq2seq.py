"""Workload `nmt`: source -> encoder -> final states -> decoder -> projection.

Items are words. The decoder has one cell per cell of the encoder: its cell k starts
from the final state of the encoder's cell k.

T: words of the longest sentence, B: sentence pairs, E: embedding, U: units, V: target
vocabulary.

Checkpoints contain the names of the variables, and `frameworks.handoff` passes weights
by these names.
"""

from collections.abc import Mapping

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import encoder_table, stacks
from rnn_scaling.models.batch import Batch, Side
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.decoding import LookUp, Search, Start, State
from rnn_scaling.models.layout import TextLayout
from rnn_scaling.models.next_words import NextWords, make_projection_spec
from rnn_scaling.models.workload import (
    Counts,
    Tensors,
    VariableSpec,
    Workload,
    cast_weights,
    sum_lengths,
)

_SOURCE_STREAM, _TARGET_STREAM, _ENCODER_STREAM, _DECODER_STREAM = range(4)


class TranslationWorkload(NextWords):
    """Base class for translation; the words of both sides are items."""

    def __init__(self, config: ModelConfig) -> None:
        sides = (
            Side("src", config.src_vocab_size, False),
            Side("tgt", config.tgt_vocab_size, True),
        )
        super().__init__(config, TextLayout(sides, Batch, config.time_major))

    def list_lookups(self, batch: Batch) -> dict[str, Tensor]:
        """Return the ids of both sides, joined to one look-up for a shared table."""
        if not self._config.share_embedding:
            return {"src_embedding": batch.source, "tgt_embedding": batch.target_input}
        ids = [batch.source, batch.target_input]
        return {"embedding": tf.concat(ids, axis=self._time_axis)}

    def embed_words(self, rows: Tensors, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the embedded words of the source and of the target."""
        if not self._config.share_embedding:
            return rows["src_embedding"], rows["tgt_embedding"]
        axis = self._time_axis
        sizes = [
            ids.shape[axis] or tf.shape(ids)[axis]
            for ids in (batch.source, batch.target_input)
        ]
        source, target = tf.split(rows["embedding"], sizes, axis=axis)
        return source, target

    def name_table(self, side: str) -> str:
        """Return the name of the embedding of "src" or "tgt"."""
        return "embedding" if self._config.share_embedding else f"{side}_embedding"

    def count_batch(self, batch: Batch) -> Counts:
        return count_pairs(batch)


def count_pairs(batch: Batch) -> Counts:
    """Return the items and positions of both sides; only target words have a loss."""
    source = sum_lengths(batch.source_length, tf.float64)
    target = sum_lengths(batch.target_length, tf.float64)
    positions = tf.size(batch.source, tf.int64) + tf.size(batch.target_output, tf.int64)
    return Counts(target, source + target, positions)


def make_embedding_specs(config: ModelConfig) -> list[VariableSpec]:
    """Return the specs of the two tables or the shared one (--share_embedding)."""
    sizes = {
        "src_embedding": config.src_vocab_size,
        "tgt_embedding": config.tgt_vocab_size,
    }
    if config.share_embedding:
        sizes = {"embedding": config.tgt_vocab_size}
    return [
        VariableSpec(name, (size, config.embedding_dim), "embedding")
        for name, size in sizes.items()
    ]


class _EncoderDecoder(TranslationWorkload):
    def __init__(self, config: ModelConfig, device_type: str) -> None:
        super().__init__(config)
        encoder_kernel = encoder_table.load(
            config.encoder_type, device_type, config.unit_type
        )
        decoder_kernel = encoder_table.load(
            config.decoder_type or config.encoder_type, device_type, config.unit_type
        )
        encoder = make_encoder_stack(config)
        decoder = make_decoder_stack(config)
        self._encode = encoder_kernel.build(encoder)
        self._decode = decoder_kernel.build(decoder)
        self._encoder = encoder
        self._decoder = decoder
        self.kernels: Mapping[str, str] = {
            "encoder_kernel": encoder_kernel.kernel_name(encoder),
            "decoder_kernel": decoder_kernel.kernel_name(decoder),
        }
        self.variables = (
            *make_embedding_specs(config),
            *encoder.list_variables(name_encoder_cells(config)),
            *decoder.list_variables(name_decoder_cells(config)),
            make_projection_spec(config),
        )

    def run_layers(
        self, weights: Tensors, rows: Tensors, batch: Batch, seed: Tensor
    ) -> Tensor:
        config = self._config

        def make_stream_seed(stream: int) -> Tensor:
            return stacks.fold_in(seed, stream) if config.dropout else seed

        source, target = self.embed_words(rows, batch)
        with tf.name_scope("encoder"):
            source = stacks.drop(source, config.dropout, seed, _SOURCE_STREAM)
            cells = self._encoder.select_weights(name_encoder_cells(config), weights)
            _, state = self._encode(
                cells,
                source,
                batch.source_length,
                None,
                make_stream_seed(_ENCODER_STREAM),
            )
        with tf.name_scope("decoder"):
            target = stacks.drop(target, config.dropout, seed, _TARGET_STREAM)
            cells = self._decoder.select_weights(name_decoder_cells(config), weights)
            outputs, _ = self._decode(
                cells,
                target,
                batch.target_length,
                state,
                make_stream_seed(_DECODER_STREAM),
            )
        return outputs

    def start(
        self, weights: Tensors, look_up: LookUp, batch: Batch, search: Search
    ) -> Start:
        config = self._config
        dtype = self._config.compute_dtype
        source = look_up(self.name_table("src"), batch.source)
        cells = self._encoder.select_weights(name_encoder_cells(config), weights)
        _, state = self._encode(
            cells, source, batch.source_length, None, tf.constant([0, 0])
        )
        rounded = cast_weights(weights, dtype)
        cells = self._decoder.select_weights(name_decoder_cells(config), rounded)
        logits = self._build_projection(weights)

        def step(
            words: Tensor, states: State, position: Tensor
        ) -> tuple[Tensor, State]:
            x = tf.cast(look_up(self.name_table("tgt"), words), dtype)
            states = self._decoder.step_all(x, states, cells)
            return logits(states[-1][-1]), states

        return Start(self._decoder.split_states(state, dtype), step)


def build(config: ModelConfig, device_type: str) -> Workload:
    """Return the network with the kernels for "GPU" or "CPU"."""
    return _EncoderDecoder(config, device_type)


def make_encoder_stack(config: ModelConfig) -> stacks.RecurrentStack:
    """Return the encoder's layers, with --num_encoder_layers cells in all."""
    num_directions = 2 if config.direction == "bi" else 1
    return stacks.build_stack(
        config, config.num_encoder_layers // num_directions, num_directions
    )


def make_decoder_stack(config: ModelConfig) -> stacks.RecurrentStack:
    """Return the decoder's layers, one cell each."""
    return stacks.build_stack(config, config.num_decoder_layers, 1)


def name_encoder_cells(config: ModelConfig) -> list[str]:
    """Return the names of the encoder's cells, by layer and then by direction."""
    directions = ("forward", "backward") if config.direction == "bi" else ("forward",)
    cells = []
    for layer in range(config.num_encoder_layers // len(directions)):
        cells += [f"encoder/layer_{layer}/{direction}" for direction in directions]
    return cells


def name_decoder_cells(config: ModelConfig) -> list[str]:
    """Return the names of the decoder's cells, one per layer."""
    return [f"decoder/layer_{n}" for n in range(config.num_decoder_layers)]
