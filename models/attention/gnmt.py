"""GNMT v2: the decoder's first layer attends, and all layers above it read its contexts.

No state of the first layer depends on a context. If the target words are known, no
layer has to go step by step: every layer is one call of a kernel, and the attention of
all words is computed together.

- Encoder: the first layer has both directions, the others run forward. From the third
  layer on, a layer's input is added to its output.
- Decoder: the outputs of layer 0, which reads the embedded words, are the queries. Every
  later layer reads [x, context]; from the third layer on, x is added to its output. The
  decoder starts from zeros. The projection has a bias.

Sources: Wu et al., arXiv:1609.08144; NVIDIA DeepLearningExamples,
PyTorch/Translation/GNMT (which differs from the paper as described here), and MLPerf's
rnn_translator, which is the same network.

T: target words, S: source words, B: sentences, E: embedding, U: units, D: width of the
encoder's outputs.

`nmt_attention` builds this network for --attention_architecture=gnmt_v2. Checkpoints
contain the names of its variables.
"""

import dataclasses
from collections.abc import Iterator, Mapping

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import encoder_table, stacks
from rnn_scaling.models.attention import layers, scores
from rnn_scaling.models.attention.scores import Attention
from rnn_scaling.models.batch import Batch
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.decoding import Start, State
from rnn_scaling.models.workload import Tensors, VariableSpec, cast_weights

_FIRST_RESIDUAL = 2  # the third layer
_ENCODER_STREAM = 0
_DECODER_STREAM = 1


class Gnmt:
    """The network below the projection; see `rnn_scaling.models.nmt_attention`."""

    def __init__(self, config: ModelConfig, device_type: str) -> None:
        self._config = config
        self._encoder = _make_encoder_layers(config)
        self._decoder = []
        input_dim = config.embedding_dim
        for number in range(config.num_decoder_layers):
            stack = layers.make_one_layer(config, input_dim)
            self._decoder.append(_Layer(stack, [f"decoder/layer_{number}"]))
            input_dim = config.num_units + self._encoder[-1].width
        encoder = encoder_table.load(config.encoder_type, device_type, config.unit_type)
        decoder_type = config.decoder_type or config.encoder_type
        decoder = encoder_table.load(decoder_type, device_type, config.unit_type)
        self._encode = [encoder.build(layer.stack) for layer in self._encoder]
        self._decode = [decoder.build(layer.stack) for layer in self._decoder]
        self.kernels: Mapping[str, str] = {
            "encoder_kernel": encoder.kernel_name(self._encoder[0].stack),
            "decoder_kernel": decoder.kernel_name(self._decoder[0].stack),
        }
        self.variables = tuple(self._list_variables())

    def _list_variables(self) -> Iterator[VariableSpec]:
        for layer in self._encoder:
            yield from layers.variables(layer.stack, layer.cells, self._config)
        yield from scores.make_variable_specs(self._config, self._encoder[-1].width)
        for layer in self._decoder:
            yield from layers.variables(layer.stack, layer.cells, self._config)

    def run_layers(
        self,
        weights: Tensors,
        source: Tensor,
        target: Tensor,
        batch: Batch,
        seed: Tensor,
    ) -> Tensor:
        """Return the outputs that the projection reads; see `step_wise.StepWise`."""
        rate = self._config.dropout
        encoder_seed = decoder_seed = seed
        if rate:
            encoder_seed = stacks.fold_in(seed, _ENCODER_STREAM)
            decoder_seed = stacks.fold_in(seed, _DECODER_STREAM)
        with tf.name_scope("encoder"):
            memory = self._run_encoder(weights, source, batch, encoder_seed)
        with tf.name_scope("decoder"):
            x = tf.cast(target, self._config.compute_dtype)
            context = None
            for number, layer in enumerate(self._decoder):
                y = x if context is None else tf.concat([x, context], axis=2)
                if number:
                    y = stacks.drop(y, rate, decoder_seed, number)
                cells = layer.list_cell_weights(weights)
                y, _ = self._decode[number](cells, y, batch.target_length, None, seed)
                x = x + y if number >= _FIRST_RESIDUAL else y
                if context is None:
                    context = self._compute_contexts(weights, x, memory, batch)
        return x

    def _run_encoder(
        self, weights: Tensors, source: Tensor, batch: Batch, seed: Tensor
    ) -> Tensor:
        """Return the encoder's outputs in the order of the source's axes."""
        x = tf.cast(source, self._config.compute_dtype)
        for number, layer in enumerate(self._encoder):
            y = stacks.drop(x, self._config.dropout, seed, number) if number else x
            cells = layer.list_cell_weights(weights)
            y, _ = self._encode[number](cells, y, batch.source_length, None, seed)
            x = x + y if number >= _FIRST_RESIDUAL else y
        return x

    def start(self, weights: Tensors, source: Tensor, batch: Batch) -> Start:
        """Return the state and step; see `step_wise.StepWise.start`."""
        memory = self._run_encoder(weights, source, batch, tf.constant([0, 0]))
        rounded = cast_weights(weights, memory.dtype)
        cells = [layer.list_cell_weights(rounded)[0] for layer in self._decoder]
        if self._config.time_major:
            memory = stacks.swap_time_and_batch(memory)
        attend = Attention(
            self._config, rounded, memory, batch.source_length
        ).compute_beam_contexts

        def step(
            words: Tensor, states: State, position: Tensor
        ) -> tuple[Tensor, State]:
            x = words
            context = None
            next_states = []
            for number, layer in enumerate(self._decoder):
                y = x if context is None else tf.concat([x, context], axis=1)
                state = layer.stack.step(y, states[number], cells[number])
                next_states.append(state)
                x = x + state[-1] if number >= _FIRST_RESIDUAL else state[-1]
                if context is None:
                    context = attend(x)
            return x, tuple(next_states)

        first: list[stacks.State] = []
        for layer in self._decoder:
            zeros = stacks.zero_state(layer.stack, tf.shape(memory)[0])
            first += layer.stack.split_states(zeros, layer.stack.dtype)
        return Start(tuple(first), step)

    def _compute_contexts(
        self, weights: Tensors, queries: Tensor, memory: Tensor, batch: Batch
    ) -> Tensor:
        """Return each target word's context, in the order of the queries' axes."""
        rounded = cast_weights(weights, queries.dtype, "attention/")
        if self._config.time_major:
            queries = stacks.swap_time_and_batch(queries)
            memory = stacks.swap_time_and_batch(memory)
        attention = Attention(self._config, rounded, memory, batch.source_length)
        contexts = attention.compute_contexts(queries)
        if self._config.time_major:
            return stacks.swap_time_and_batch(contexts)
        return contexts


@dataclasses.dataclass(frozen=True)
class _Layer:
    """One layer and the names of its cells."""

    stack: stacks.RecurrentStack
    cells: list[str]

    @property
    def width(self) -> int:
        """The width of the layer's output: the units of all directions."""
        return self.stack.num_units * self.stack.num_directions

    def list_cell_weights(self, weights: Tensors) -> list[stacks.CellWeights]:
        return layers.select_weights(self.stack, self.cells, weights)


def _make_encoder_layers(config: ModelConfig) -> list[_Layer]:
    """Return the encoder's layers; only the first one has the directions of --direction."""
    directions = ("forward", "backward")[: 2 if config.direction == "bi" else 1]
    width = config.embedding_dim
    encoder: list[_Layer] = []
    for number in range(config.num_encoder_layers):
        stack = layers.make_one_layer(config, width, len(directions))
        cells = [f"encoder/layer_{number}/{direction}" for direction in directions]
        encoder.append(_Layer(stack, cells))
        width = encoder[-1].width
        directions = ("forward",)
    return encoder
