"""The translation network: embedded source -> encoder -> its final states -> decoder -> projection -> loss.

T: words of the longest sentence, B: sentence pairs, E: embedding, U: units, V: target vocabulary. The decoder has
no attention and one direction; its cell k starts from the final state of the encoder's cell k.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Mapping

import numpy as np
import tensorflow as tf

from models import cross_entropy, kernels, lstm
from models.batch import Batch
from models.config import ModelConfig

INITIAL_RANGE = 0.1
_SOURCE_STREAM, _TARGET_STREAM, _ENCODER_STREAM, _DECODER_STREAM = range(4)


@dataclasses.dataclass(frozen=True)
class VariableSpec:
    """One trainable float32 variable; an "embedding" is looked up by rows, a "dense" one is read whole."""

    name: str
    shape: tuple[int, ...]
    kind: str


Loss = Callable[[Mapping[str, tf.Tensor], tf.Tensor, tf.Tensor, Batch, tf.Tensor], tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Seq2Seq:
    """The network's loss, and the names of the kernels that really run.

    `loss(weights, source_rows, target_rows, batch, seed)` is the float32 sum of the cross entropy over target words:
    `weights` maps the dense variables' names to tensors, the rows are the embedded words [T, B, E] (or [B, T, E]) and
    `seed` [2] int draws the dropout.
    """

    encoder_kernel: str
    decoder_kernel: str
    loss: Loss


def encoder_stack(config: ModelConfig) -> lstm.LstmStack:
    """The encoder's layers.

    Raises:
      ValueError: if bidirectional layers would need half a cell.
    """
    num_directions = 2 if config.direction == "bi" else 1
    if config.num_encoder_layers % num_directions:
        raise ValueError(f"expected an even number of encoder cells with bi, got {config.num_encoder_layers}")
    return _stack(config, config.num_encoder_layers // num_directions, num_directions)


def decoder_stack(config: ModelConfig) -> lstm.LstmStack:
    """The decoder's layers.

    Raises:
      ValueError: if the decoder has not as many cells as the encoder, whose states it starts from.
    """
    if config.num_decoder_layers != config.num_encoder_layers:
        raise ValueError(f"expected {config.num_encoder_layers} decoder cells, got {config.num_decoder_layers}")
    return _stack(config, config.num_decoder_layers, 1)


def _stack(config: ModelConfig, num_layers: int, num_directions: int) -> lstm.LstmStack:
    return lstm.LstmStack(
        input_dim=config.embedding_dim,
        num_units=config.num_units,
        num_layers=num_layers,
        num_directions=num_directions,
        forget_bias=config.forget_bias,
        dropout=config.dropout,
        time_major=config.time_major,
        dtype=config.compute_dtype,
    )


def variable_specs(config: ModelConfig) -> tuple[VariableSpec, ...]:
    """Every trainable variable, in a fixed order."""
    specs = [
        VariableSpec("src_embedding", (config.src_vocab_size, config.embedding_dim), "embedding"),
        VariableSpec("tgt_embedding", (config.tgt_vocab_size, config.embedding_dim), "embedding"),
    ]
    for names, stack in (
        (_encoder_cells(config), encoder_stack(config)),
        (_decoder_cells(config), decoder_stack(config)),
    ):
        for cell, name in enumerate(names):
            specs.append(VariableSpec(f"{name}/kernel", stack.kernel_shape(cell), "dense"))
            specs.append(VariableSpec(f"{name}/bias", (4 * stack.num_units,), "dense"))
    specs.append(VariableSpec("projection", (config.num_units, config.tgt_vocab_size), "dense"))
    return tuple(specs)


def _encoder_cells(config: ModelConfig) -> list[str]:
    directions = ("forward", "backward") if config.direction == "bi" else ("forward",)
    return [f"encoder/layer_{n}/{d}" for n in range(config.num_encoder_layers // len(directions)) for d in directions]


def _decoder_cells(config: ModelConfig) -> list[str]:
    return [f"decoder/layer_{n}" for n in range(config.num_decoder_layers)]


def initial_value(spec: VariableSpec, seed: int) -> np.ndarray:
    """float32 weights, uniform in +-INITIAL_RANGE, and zeros for a bias; equal for equal (spec, seed)."""
    if spec.name.endswith("/bias"):
        return np.zeros(spec.shape, np.float32)
    generator = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
    unit = generator.random(spec.shape, np.float32)
    return (unit * 2.0 - 1.0) * np.float32(INITIAL_RANGE)


def build(config: ModelConfig, device_type: str) -> Seq2Seq:
    """The network with the kernels for "GPU" or "CPU".

    Raises:
      ValueError: for an unknown kernel or cells that do not fit.
    """
    encoder_kernel = kernels.load(config.encoder_type, device_type)
    decoder_kernel = kernels.load(config.decoder_type or config.encoder_type, device_type)
    encoder, decoder = encoder_stack(config), decoder_stack(config)
    encode, decode = encoder_kernel.build(encoder), decoder_kernel.build(decoder)
    encoder_cells, decoder_cells = _encoder_cells(config), _decoder_cells(config)

    def loss(
        weights: Mapping[str, tf.Tensor],
        source_rows: tf.Tensor,
        target_rows: tf.Tensor,
        batch: Batch,
        seed: tf.Tensor,
    ) -> tf.Tensor:
        def of(cells: list[str]) -> list[tuple[tf.Tensor, tf.Tensor]]:
            return [(weights[f"{name}/kernel"], weights[f"{name}/bias"]) for name in cells]

        def dropped(rows: tf.Tensor, stream: int) -> tf.Tensor:
            return lstm.drop(rows, config.dropout, seed, stream)

        def seed_of(stream: int) -> tf.Tensor:
            with tf.device("CPU:0"):
                return tf.random.experimental.stateless_fold_in(seed, stream) if config.dropout else seed

        with tf.name_scope("encoder"):
            rows = dropped(source_rows, _SOURCE_STREAM)
            _, state = encode(of(encoder_cells), rows, batch.source_length, None, seed_of(_ENCODER_STREAM))
        with tf.name_scope("decoder"):
            rows = dropped(target_rows, _TARGET_STREAM)
            outputs, _ = decode(of(decoder_cells), rows, batch.target_length, state, seed_of(_DECODER_STREAM))
        with tf.name_scope("loss"):
            return cross_entropy.loss_sum(
                tf.reshape(outputs, [-1, config.num_units]),
                weights["projection"],
                tf.reshape(batch.target_output, [-1]),
                tf.reshape(_words_that_count(batch, config.time_major), [-1]),
            )

    return Seq2Seq(encoder_kernel.kernel_name(encoder), decoder_kernel.kernel_name(decoder), loss)


def _words_that_count(batch: Batch, time_major: bool) -> tf.Tensor:
    """float32, 1 before each target's length and 0 in its padding; the shape of `target_output`."""
    # GPUs compare int32 on the host, and slice int64 shapes on the device.
    steps = tf.cast(tf.range(tf.shape(batch.target_output)[0 if time_major else 1]), tf.int64)
    lengths = tf.cast(batch.target_length, tf.int64)
    inside = steps[:, None] < lengths if time_major else steps < lengths[:, None]
    return tf.cast(inside, tf.float32)
