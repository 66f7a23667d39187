"""Workload `nmt`: embedded source -> encoder -> its final states -> decoder -> projection -> loss. Items are words.

T: words of the longest sentence, B: sentence pairs, E: embedding, U: units, V: target vocabulary. The decoder has
one cell for each of the encoder's: its cell k starts from the final state of the encoder's cell k.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tensorflow as tf

from rnn_scaling.models import kernels, stacks
from rnn_scaling.models.batch import Batch
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.translation import Translation, embedding_specs
from rnn_scaling.models.workload import VariableSpec, Workload, gemm_flops

_SOURCE_STREAM, _TARGET_STREAM, _ENCODER_STREAM, _DECODER_STREAM = range(4)


class _Translation(Translation):
    """See `Workload`."""

    def __init__(self, config: ModelConfig, device_type: str) -> None:
        super().__init__(config)
        encoder_kernel = kernels.load(config.encoder_type, device_type, config.unit_type)
        decoder_kernel = kernels.load(config.decoder_type or config.encoder_type, device_type, config.unit_type)
        encoder, decoder = encoder_stack(config), decoder_stack(config)
        self._encode, self._decode = encoder_kernel.build(encoder), decoder_kernel.build(decoder)
        self._encoder, self._decoder = encoder, decoder
        self.kernels: Mapping[str, str] = {
            "encoder_kernel": encoder_kernel.kernel_name(encoder),
            "decoder_kernel": decoder_kernel.kernel_name(decoder),
        }
        self.variables = variable_specs(config)

    def last_layer(
        self, weights: Mapping[str, tf.Tensor], rows: Mapping[str, tf.Tensor], batch: Batch, seed: tf.Tensor
    ) -> tf.Tensor:
        config = self._config

        def seed_of(stream: int) -> tf.Tensor:
            return stacks.fold_in(seed, stream) if config.dropout else seed

        source, target = self.embedded(rows, batch)
        with tf.name_scope("encoder"):
            source = stacks.drop(source, config.dropout, seed, _SOURCE_STREAM)
            cells = self._encoder.weights_of(encoder_cells(config), weights)
            _, state = self._encode(cells, source, batch.source_length, None, seed_of(_ENCODER_STREAM))
        with tf.name_scope("decoder"):
            target = stacks.drop(target, config.dropout, seed, _TARGET_STREAM)
            cells = self._decoder.weights_of(decoder_cells(config), weights)
            outputs, _ = self._decode(cells, target, batch.target_length, state, seed_of(_DECODER_STREAM))
        return outputs

    def flops_per_item(self, lengths: Sequence[int]) -> float:
        """A source word passes the encoder's matrices, a target word the decoder's and the projection."""
        encoder = gemm_flops(spec for spec in self.variables if spec.name.startswith("encoder/"))
        decoder = gemm_flops(self.variables) - encoder
        source, target = lengths
        return (source * encoder + target * decoder) / (source + target)


def build(config: ModelConfig, device_type: str) -> Workload:
    """The network with the kernels for "GPU" or "CPU".

    Raises:
      ValueError: for an unknown kernel or cells that do not fit.
    """
    return _Translation(config, device_type)


def encoder_stack(config: ModelConfig) -> stacks.RecurrentStack:
    """The encoder's layers.

    Raises:
      ValueError: if bidirectional layers would need half a cell.
    """
    num_directions = 2 if config.direction == "bi" else 1
    if config.num_encoder_layers % num_directions:
        raise ValueError(f"expected an even number of encoder cells with bi, got {config.num_encoder_layers}")
    return stacks.stack_of(config, config.num_encoder_layers // num_directions, num_directions)


def decoder_stack(config: ModelConfig) -> stacks.RecurrentStack:
    """The decoder's layers.

    Raises:
      ValueError: if the decoder has not as many cells as the encoder, whose states it starts from.
    """
    if config.num_decoder_layers != config.num_encoder_layers:
        raise ValueError(f"expected {config.num_encoder_layers} decoder cells, got {config.num_decoder_layers}")
    return stacks.stack_of(config, config.num_decoder_layers, 1)


def variable_specs(config: ModelConfig) -> tuple[VariableSpec, ...]:
    """Every trainable variable, in a fixed order."""
    specs = embedding_specs(config)
    for names, stack in (
        (encoder_cells(config), encoder_stack(config)),
        (decoder_cells(config), decoder_stack(config)),
    ):
        specs += stack.variables(names)
    specs.append(VariableSpec("projection", (config.num_units, config.tgt_vocab_size), "dense"))
    return tuple(specs)


def encoder_cells(config: ModelConfig) -> list[str]:
    """The names of the encoder's cells."""
    directions = ("forward", "backward") if config.direction == "bi" else ("forward",)
    return [f"encoder/layer_{n}/{d}" for n in range(config.num_encoder_layers // len(directions)) for d in directions]


def decoder_cells(config: ModelConfig) -> list[str]:
    """The names of the decoder's cells."""
    return [f"decoder/layer_{n}" for n in range(config.num_decoder_layers)]
