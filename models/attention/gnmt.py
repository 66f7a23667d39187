"""GNMT v2: attention from the decoder's first layer, whose contexts are read by all the layers above it.

No state of the first layer depends on a context, so with known target words nothing has to go step by step: every
layer is one call of a kernel, and the attention of all words is computed at once.

- Encoder: the first layer in both directions, the others forward; from the third layer on a layer's input is added to
  its output.
- Decoder: layer 0 reads the embedded words, its outputs are the queries; every later layer reads [x, context], and
  from the third on x is added to its output. It starts from zeros. The projection has a bias.

Sources: Wu et al., arXiv:1609.08144; NVIDIA DeepLearningExamples, PyTorch/Translation/GNMT (which differs from the
paper as said here), and MLPerf's rnn_translator, which is the same network.

T: target words, S: source words, B: sentences, E: embedding, U: units, D: width of the encoder's outputs.
"""

from collections.abc import Iterator, Mapping

import tensorflow as tf

from rnn_scaling.models import kernels, stacks
from rnn_scaling.models.attention import layers, scores
from rnn_scaling.models.batch import Batch
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.decoding import Start, State
from rnn_scaling.models.workload import Tensors, VariableSpec

_FIRST_RESIDUAL = 2  # the third layer
_ENCODER_STREAM, _DECODER_STREAM = range(2)


class Gnmt:
    """The network up to the projection; see `rnn_scaling.models.nmt_attention`."""

    def __init__(self, config: ModelConfig, device_type: str) -> None:
        self._config = config
        self._encoder = _encoder_stacks(config)
        read = config.num_units + _width(self._encoder[-1])
        self._decoder = [layers.one_layer(config, config.embedding_dim)]
        self._decoder += [
            layers.one_layer(config, read) for _ in range(config.num_decoder_layers - 1)
        ]
        encoder = kernels.load(config.encoder_type, device_type, config.unit_type)
        decoder = kernels.load(
            config.decoder_type or config.encoder_type, device_type, config.unit_type
        )
        self._encode = [encoder.build(stack) for stack in self._encoder]
        self._decode = [decoder.build(stack) for stack in self._decoder]
        self.kernels: Mapping[str, str] = {
            "encoder_kernel": encoder.kernel_name(self._encoder[0]),
            "decoder_kernel": decoder.kernel_name(self._decoder[0]),
        }
        self.variables = tuple(self._variables())

    def _variables(self) -> Iterator[VariableSpec]:
        config = self._config
        for layer, stack in enumerate(self._encoder):
            yield from layers.variables(stack, _encoder_cells(layer, stack), config)
        yield from scores.variable_specs(config, _width(self._encoder[-1]))
        for layer, stack in enumerate(self._decoder):
            yield from layers.variables(stack, [_decoder_cell(layer)], config)

    def last_layer(
        self,
        weights: Tensors,
        source: tf.Tensor,
        target: tf.Tensor,
        batch: Batch,
        seed: tf.Tensor,
    ) -> tf.Tensor:
        """What the projection reads; arguments as in `step_wise.StepWise.last_layer`."""
        config = self._config
        dtype, rate = tf.as_dtype(config.compute_dtype), config.dropout
        if rate:
            encoder_seed, decoder_seed = (
                stacks.fold_in(seed, stream)
                for stream in (_ENCODER_STREAM, _DECODER_STREAM)
            )
        else:
            encoder_seed = decoder_seed = seed

        with tf.name_scope("encoder"):
            memory = self._read(weights, source, batch, encoder_seed)
        with tf.name_scope("decoder"):
            x, context = tf.cast(target, dtype), None
            for layer, (stack, run) in enumerate(
                zip(self._decoder, self._decode, strict=True)
            ):
                cells = layers.weights_of(stack, [_decoder_cell(layer)], weights)
                y = x if context is None else tf.concat([x, context], axis=2)
                y = stacks.drop(y, rate, decoder_seed, layer) if layer else y
                y, _ = run(cells, y, batch.target_length, None, seed)
                x = x + y if layer >= _FIRST_RESIDUAL else y
                context = (
                    self._contexts(weights, x, memory, batch)
                    if context is None
                    else context
                )
        return x

    def _read(
        self, weights: Tensors, source: tf.Tensor, batch: Batch, seed: tf.Tensor
    ) -> tf.Tensor:
        """The outputs of the encoder, laid out as the source is."""
        x = tf.cast(source, self._config.compute_dtype)
        for layer, (stack, run) in enumerate(
            zip(self._encoder, self._encode, strict=True)
        ):
            cells = layers.weights_of(stack, _encoder_cells(layer, stack), weights)
            y = stacks.drop(x, self._config.dropout, seed, layer) if layer else x
            y, _ = run(cells, y, batch.source_length, None, seed)
            x = x + y if layer >= _FIRST_RESIDUAL else y
        return x

    def start(self, weights: Tensors, source: tf.Tensor, batch: Batch) -> Start:
        """As `step_wise.StepWise.start`."""
        memory = self._read(weights, source, batch, tf.constant([0, 0]))
        rounded = {name: tf.cast(w, memory.dtype) for name, w in weights.items()}
        cells = [
            layers.weights_of(s, [_decoder_cell(n)], rounded)[0]
            for n, s in enumerate(self._decoder)
        ]
        memory = (
            stacks.swap_time_and_batch(memory) if self._config.time_major else memory
        )
        masked = scores.mask(
            batch.source_length, memory.shape[1] or tf.shape(memory)[1]
        )
        attend = scores.attention_of(self._config, rounded, memory, masked)

        def step(
            words: tf.Tensor, states: State, position: tf.Tensor
        ) -> tuple[tf.Tensor, State]:
            x, context, following = words, None, []
            for layer, (stack, state) in enumerate(
                zip(self._decoder, states, strict=True)
            ):
                read = x if context is None else tf.concat([x, context], axis=1)
                following.append(stack.step(read, state, cells[layer]))
                y = following[-1][-1]
                x = x + y if layer >= _FIRST_RESIDUAL else y
                context = attend(x) if context is None else context
            return x, tuple(following)

        batch_size = tf.shape(memory)[0]
        return Start(
            tuple(
                s.states_of(stacks.zero_state(s, batch_size), s.dtype)[0]
                for s in self._decoder
            ),
            step,
        )

    def _contexts(
        self, weights: Tensors, queries: tf.Tensor, memory: tf.Tensor, batch: Batch
    ) -> tf.Tensor:
        """What each target word attends to, laid out as the queries are."""
        rounded = {
            n: tf.cast(w, queries.dtype)
            for n, w in weights.items()
            if n.startswith("attention/")
        }
        if self._config.time_major:
            queries, memory = (stacks.swap_time_and_batch(x) for x in (queries, memory))
        masked = scores.mask(
            batch.source_length, memory.shape[1] or tf.shape(memory)[1]
        )
        contexts = scores.contexts(self._config, rounded, queries, memory, masked)
        return (
            stacks.swap_time_and_batch(contexts)
            if self._config.time_major
            else contexts
        )


def _encoder_stacks(config: ModelConfig) -> list[stacks.RecurrentStack]:
    """Each layer of the encoder by itself; the first has the directions that --direction says."""
    encoder = [
        layers.one_layer(
            config, config.embedding_dim, 2 if config.direction == "bi" else 1
        )
    ]
    while len(encoder) < config.num_encoder_layers:
        encoder.append(layers.one_layer(config, _width(encoder[-1])))
    return encoder


def _width(stack: stacks.RecurrentStack) -> int:
    return stack.num_units * stack.num_directions


def _encoder_cells(layer: int, stack: stacks.RecurrentStack) -> list[str]:
    return [
        f"encoder/layer_{layer}/{d}"
        for d in ("forward", "backward")[: stack.num_directions]
    ]


def _decoder_cell(layer: int) -> str:
    return f"decoder/layer_{layer}"
