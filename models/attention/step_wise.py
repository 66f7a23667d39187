"""Attention around a decoder that goes step by step; a step reads the one before it.

luong: the context c_t attends from the top state h_t. a_t = tanh([c_t, h_t] C) is read
by the projection and, by input feeding, by the next step: its input is [e_{t+1}, a_t].
Source: Luong et al., arXiv:1508.04025, sections 3.1 and 3.3.

bahdanau: c_t attends from the top state h_{t-1}, and step t reads [e_t, c_t]. The
projection reads tanh([c_t, h_t] C); the paper has a maxout layer instead.
Source: Bahdanau et al., arXiv:1409.0473, appendix A.

The encoder is the encoder of `nmt`, and the decoder's cells start from its final
states. Four products do not depend on a step's state and are computed once for all
steps: the keys, the embedded words times the first cell's kernel, bahdanau's tanh([c_t,
h_t] C) and the gradients of the weights (`loop_products`).

T: target words, S: source words, B: sentences, E: embedding, U: units, D: width of the
encoder's outputs.

`nmt_attention` builds this network for --attention_architecture=standard. Checkpoints
contain the names of its variables.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import encoder_table, seq2seq, stacks
from rnn_scaling.models.attention import layers, packed_decoder, scores
from rnn_scaling.models.attention.loop_products import (
    DeferredProducts,
    PlainProducts,
    repeat_bias,
)
from rnn_scaling.models.attention.scores import Attention
from rnn_scaling.models.batch import Batch
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.decoding import Start, State
from rnn_scaling.models.encoders.block_lstm import (
    differentiate_lstm_step,
    make_gate_biases,
    run_lstm_step,
)
from rnn_scaling.models.extension import operators
from rnn_scaling.models.loops import scan
from rnn_scaling.models.workload import Tensors, VariableSpec, cast_weights

_ENCODER_STREAM = 0
# Dropout of layer n's input is drawn from stream _FIRST_LAYER_STREAM + n.
_FIRST_LAYER_STREAM = 1
_OUTPUT = "attention/output"

_States = tuple[stacks.State, ...]
RunCell = Callable[[Tensor, Tensor, stacks.State], stacks.State]
"""(t, input [B, N] that the loop computes, state) -> next state of the cell"""


class _DecoderInputs(NamedTuple):
    """The weights and tensors of one forward pass of the decoder."""

    cells: list[stacks.CellWeights]
    output_matrix: Tensor  # C, in the dtype of products
    target: Tensor  # embedded words [T, B, E]
    attention: Attention
    first_states: _States
    dropout_masks: Sequence[Tensor]  # see `StepWise._draw_dropout_masks`


class _Encoder:
    """The encoder of `nmt`, whose outputs are the memory of the attention.

    Attributes:
      kernel_name: The name of its implementation.
      variables: Its variables.
      memory_dim: Width D of its outputs.
    """

    def __init__(self, config: ModelConfig, device_type: str) -> None:
        self._config = config
        self._stack = seq2seq.make_encoder_stack(config)
        self._cell_names = seq2seq.name_encoder_cells(config)
        kernel = encoder_table.load(config.encoder_type, device_type, config.unit_type)
        self._encode = kernel.build(self._stack)
        self.kernel_name = kernel.kernel_name(self._stack)
        self.variables = layers.variables(self._stack, self._cell_names, config)
        self.memory_dim = self._stack.num_units * self._stack.num_directions

    def run(
        self, weights: Tensors, source: Tensor, batch: Batch, seed: Tensor
    ) -> tuple[Tensor, stacks.State]:
        """Return the memory [B, S, D] and the encoder's last state."""
        if self._config.dropout:
            seed = stacks.fold_in(seed, _ENCODER_STREAM)
        cells = layers.select_weights(self._stack, self._cell_names, weights)
        memory, state = self._encode(cells, source, batch.source_length, None, seed)
        if self._config.time_major:
            memory = stacks.swap_time_and_batch(memory)
        return memory, state


class StepWise:
    """The network below the projection, except the embeddings.

    `rnn_scaling.models.nmt_attention` makes one and calls it while a step is traced.
    """

    def __init__(self, config: ModelConfig, device_type: str) -> None:
        self._config = config
        self._dtype = tf.as_dtype(config.compute_dtype)
        self._encoder = _Encoder(config, device_type)
        self._memory_dim = self._encoder.memory_dim
        self._feeds_output = config.attention == "luong"
        self._fed_dim = config.num_units if self._feeds_output else self._memory_dim
        self._decoder = dataclasses.replace(
            seq2seq.make_decoder_stack(config),
            input_dim=config.embedding_dim + self._fed_dim,
        )
        decoder_type = config.decoder_type or config.encoder_type
        self._is_fused = decoder_type != "dynamic_rnn" and config.unit_type == "lstm"
        self._is_packed = self._is_fused and operators.is_usable(self._dtype)
        decoder_kernel = self._decoder.format_kernel_title("tf.while_loop")
        if self._is_packed:
            decoder_kernel = "packed LSTM decoder"
        elif self._is_fused:
            decoder_kernel = "MatMul loop + LSTMBlockCellGrad"
        self.kernels: Mapping[str, str] = {
            "encoder_kernel": self._encoder.kernel_name,
            "decoder_kernel": decoder_kernel,
        }
        self.variables = (
            *self._encoder.variables,
            *scores.make_variable_specs(config, self._memory_dim),
            *layers.variables(
                self._decoder, seq2seq.name_decoder_cells(config), config
            ),
            VariableSpec(
                _OUTPUT, (self._memory_dim + config.num_units, config.num_units)
            ),
        )

    def run_layers(
        self,
        weights: Tensors,
        source: Tensor,
        target: Tensor,
        batch: Batch,
        seed: Tensor,
    ) -> Tensor:
        """Return the outputs that the projection reads.

        Args:
          weights: The dense variables by name.
          source: Embedded words [S, B, E], or [B, S, E].
          target: [T, B, E], or [B, T, E].
          batch: Has the lengths.
          seed: [2] int; draws the dropout.

        Returns:
          [T, B, U] or [B, T, U], in the dtype of products.
        """
        with tf.name_scope("encoder"):
            memory, state = self._encoder.run(weights, source, batch, seed)
        with tf.name_scope("decoder"):
            if not self._config.time_major:
                target = stacks.swap_time_and_batch(target)
            rounded = cast_weights(weights, self._dtype, "attention/")
            inputs = _DecoderInputs(
                self._select_decoder_cells(weights),
                rounded[_OUTPUT],
                tf.cast(target, self._dtype),
                Attention(self._config, rounded, memory, batch.source_length),
                self._decoder.split_states(
                    state, tf.float32 if self._is_fused else self._dtype
                ),
                self._draw_dropout_masks(seed, *_read_sizes(target)),
            )
            outputs = self._decode(inputs)
        if self._config.time_major:
            return outputs
        return stacks.swap_time_and_batch(outputs)

    def _select_decoder_cells(self, weights: Tensors) -> list[stacks.CellWeights]:
        names = seq2seq.name_decoder_cells(self._config)
        return layers.select_weights(self._decoder, names, weights)

    def start(self, weights: Tensors, source: Tensor, batch: Batch) -> Start:
        """Return the state and step of a `decoding.Decoder`, up to the projection.

        The step reads embedded words; the arguments are described in `run_layers`.
        """
        no_seed = tf.constant([0, 0])
        memory, state = self._encoder.run(weights, source, batch, no_seed)
        rounded = cast_weights(weights, self._dtype)
        cells = self._select_decoder_cells(rounded)
        attend = Attention(
            self._config, rounded, memory, batch.source_length
        ).compute_beam_contexts

        def step(
            words: Tensor, previous: State, position: Tensor
        ) -> tuple[Tensor, State]:
            states, fed = previous
            context = fed if self._feeds_output else attend(states[-1][-1])
            x = tf.concat([words, context], axis=1)
            states = self._decoder.step_all(x, states, cells)
            h = states[-1][-1]
            if self._feeds_output:
                context = attend(h)
            output = tf.tanh(tf.concat([context, h], axis=1) @ rounded[_OUTPUT])
            return output, (states, output if self._feeds_output else fed)

        first = tf.zeros([tf.shape(memory)[0], self._fed_dim], self._dtype)
        return Start((self._decoder.split_states(state, self._dtype), first), step)

    def _decode(self, inputs: _DecoderInputs) -> Tensor:
        """Return the outputs [T, B, U] of all target words, one after the other."""
        decode = self._decode_by_operators if self._is_packed else self._decode_in_loop
        results = decode(inputs)
        if self._feeds_output:
            return tf.cast(results[0], self._dtype)
        joined = tf.cast(tf.concat(results, axis=2), self._dtype)
        rows = tf.reshape(joined, [-1, inputs.output_matrix.shape[0]])
        outputs = tf.tanh(tf.matmul(rows, inputs.output_matrix))
        return tf.reshape(
            outputs, [*_read_sizes(inputs.target), self._config.num_units]
        )

    def _decode_by_operators(self, inputs: _DecoderInputs) -> Sequence[Tensor]:
        """Decode by this project's own operators.

        Returns:
          luong: outputs [T, B, U]. bahdanau: contexts [T, B, D] and states [T, B, U].
        """
        cell_kernels = [tf.cast(kernel, self._dtype) for kernel, _ in inputs.cells]
        from_words, cell_kernels[0] = _multiply_words(cell_kernels[0], inputs.target)
        attention = inputs.attention
        forget_bias = self._config.forget_bias
        results = packed_decoder.decode(
            from_words=from_words,
            biases=tf.stack(
                [make_gate_biases(bias, forget_bias) for _, bias in inputs.cells]
            ),
            kernels=cell_kernels,
            state=inputs.first_states,
            keys=attention.keys,
            memory=attention.memory,
            mask=attention.mask,
            v=tf.zeros([0], self._dtype) if self._feeds_output else attention.v,
            matrix=inputs.output_matrix if self._feeds_output else attention.query,
            dropout_masks=inputs.dropout_masks,
        )
        if self._feeds_output:
            return [results.fed]
        return [results.contexts, results.top_states]

    def _decode_in_loop(self, inputs: _DecoderInputs) -> Sequence[Tensor]:
        """Decode like `_decode_by_operators`, with TensorFlow's operators."""
        num_steps, batch = _read_sizes(inputs.target)
        products = (
            DeferredProducts(num_steps, batch) if self._is_fused else PlainProducts()
        )
        attend = inputs.attention.step_attention(products)
        combine = (
            products.make_product(inputs.output_matrix) if self._feeds_output else None
        )
        run_cells = self._make_cell_steps(inputs, products)

        def step(
            t: Tensor, states: _States, fed: Tensor
        ) -> tuple[tuple[Any, ...], Sequence[Tensor]]:
            context = fed if self._feeds_output else attend(t, states[-1][-1])
            x = context
            following = []
            for layer, run_cell in enumerate(run_cells):
                if inputs.dropout_masks:
                    x = x * tf.cast(inputs.dropout_masks[layer][t], x.dtype)
                following.append(run_cell(t, x, states[layer]))
                x = following[-1][-1]
            if combine is None:
                results = [context, tf.cast(x, tf.float32)]
            else:
                joined = tf.concat([attend(t, x), tf.cast(x, tf.float32)], axis=1)
                fed = tf.tanh(combine(t, joined))
                results = [fed]
            return (tuple(following), fed), [*results, *products.list_factors()]

        widths = [self._memory_dim, self._config.num_units]
        if self._feeds_output:
            widths = [self._fed_dim]
        specs = [tf.TensorSpec([None, width]) for width in widths]
        fed = tf.zeros([batch, self._fed_dim])
        start = (inputs.first_states, fed)
        _, sequences = scan(step, start, num_steps, [*specs, *products.specs])
        products.end(sequences[len(widths) :])
        return sequences[: len(widths)]

    def _make_cell_steps(
        self, inputs: _DecoderInputs, products: PlainProducts | DeferredProducts
    ) -> list[RunCell]:
        """Return each cell's step; the first one also reads the embedded words."""
        cells: list[RunCell] = []
        for number, weights in enumerate(inputs.cells):
            words = None if number else inputs.target
            if isinstance(products, DeferredProducts):
                cells.append(self._make_fused_cell(weights, words, inputs, products))
            else:
                rounded = tuple(tf.cast(w, self._dtype) for w in weights)
                cells.append(_make_plain_cell(self._decoder, rounded, words))
        return cells

    def _make_fused_cell(
        self,
        weights: stacks.CellWeights,
        words: Tensor | None,
        inputs: _DecoderInputs,
        products: DeferredProducts,
    ) -> RunCell:
        """Return the step of an LSTM cell whose gates are one product.

        The gradient of the gates is one operator.

        Args:
          words: [T, B, E], the first columns of the cell's input, whose product is
            computed here for all steps. None if the cell reads only `x`.
        """
        kernel = tf.cast(weights[0], self._dtype)
        shape = tf.shape(inputs.target)
        biases = make_gate_biases(weights[1], self._config.forget_bias)
        addends = repeat_bias(biases, shape[0], shape[1])
        if words is not None:
            from_words, kernel = _multiply_words(kernel, words)
            addends += tf.cast(from_words, tf.float32)
        gates = products.make_product_of_steps(kernel, addends)
        advance_state = _make_next_state(self._config.num_units)
        return lambda t, x, state: advance_state(
            gates(t, tf.concat([x, state[1]], axis=1)), state[0]
        )

    def _draw_dropout_masks(
        self, seed: Tensor, num_steps: int | Tensor, batch: int | Tensor
    ) -> list[Tensor]:
        """Return the factors of each layer's input that the loop computes.

        Returns:
          Float32 [T, B, width] per layer; empty without dropout.
        """
        rate = self._config.dropout
        if not rate:
            return []
        masks = []
        for layer in range(self._decoder.num_layers):
            width = self._config.num_units if layer else self._fed_dim
            mask = tf.ones([num_steps, batch, width])
            mask = stacks.drop(mask, rate, seed, _FIRST_LAYER_STREAM + layer)
            masks.append(tf.stop_gradient(mask))
        return masks


def _read_sizes(target: Tensor) -> list[int | Tensor]:
    """Return T and B of words [T, B, E], as numbers if they are known."""
    return [target.shape[axis] or tf.shape(target)[axis] for axis in (0, 1)]


def _make_plain_cell(
    stack: stacks.RecurrentStack, weights: stacks.CellWeights, words: Tensor | None
) -> RunCell:
    """Return the step of a cell of `models/cells/`.

    Args:
      stack: The decoder.
      weights: In the dtype of products.
      words: [T, B, E], the first columns of the cell's input. None if the cell reads
        only `x`.
    """
    step_words = None
    if words is not None:
        step_words = tf.TensorArray(
            words.dtype, tf.shape(words)[0], element_shape=words.shape[1:]
        ).unstack(words)

    def run(t: Tensor, x: Tensor, state: stacks.State) -> stacks.State:
        x = tf.cast(x, weights[0].dtype)
        if step_words is not None:
            x = tf.concat([step_words.read(t), x], axis=1)
        return stack.step(x, state, weights)

    return run


def _multiply_words(kernel: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """Return words [T, B, E] times the kernel's first E rows, and the other rows."""
    width = words.shape[2]
    word_rows, other_rows = tf.split(kernel, [width, kernel.shape[0] - width])
    products = tf.matmul(tf.reshape(words, [-1, width]), word_rows)
    shape = [*tf.unstack(tf.shape(words)[:2]), kernel.shape[1]]
    return tf.reshape(products, shape), other_rows


_NextState = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


def _make_next_state(units: int) -> _NextState:
    """Return the function of gates [B, 4U] and c [B, U] -> the next c and h.

    The gates are before their nonlinearity. All tensors are float32.
    """
    differentiate = differentiate_lstm_step(units)

    @tf.custom_gradient
    def advance_state(
        gates: Tensor, c: Tensor
    ) -> tuple[tuple[Tensor, Tensor], _NextState]:
        step = run_lstm_step(gates, c)
        return (step.cs, step.h), lambda d_cs, d_h: differentiate(step, c, d_cs, d_h)

    return advance_state
