"""Attention as its papers have it, around a decoder that goes step by step: each step reads what the one before gave.

    luong     c_t attends from the top state h_t; a_t = tanh([c_t, h_t] C) is what the projection reads and, by input
              feeding, a part of the next step's input: [e_{t+1}, a_t].           arXiv:1508.04025, sections 3.1 and 3.3
    bahdanau  c_t attends from the top state of the step before and is a part of this one's input: [e_t, c_t]. The
              projection reads tanh([c_t, h_t] C), where the paper has a layer of maxout.  arXiv:1409.0473, appendix A

The encoder is that of `nmt`, and the decoder's cells start from its final states. What does not depend on a step's
state is made for all steps at once: the memory's keys, the embedded words' product with the first cell's kernel,
bahdanau's tanh([c_t, h_t] C), and the gradients of the weights (`loop_products`).

T: target words, S: source words, B: sentences, E: embedding, U: units, D: width of the encoder's outputs.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from rnn_scaling.models import kernels, seq2seq, stacks
from rnn_scaling.models.attention import layers, packed_decoder, scores
from rnn_scaling.models.attention.loop_products import DeferredProducts, Plain, repeated
from rnn_scaling.models.batch import Batch
from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.decoding import Start, State
from rnn_scaling.models.encoders.block_lstm import lstm_step, lstm_step_gradient
from rnn_scaling.models.extension import operators
from rnn_scaling.models.workload import Tensors, VariableSpec

_ENCODER_STREAM, _FED_STREAM = (
    0,
    1,
)  # a layer's own input is drawn from the streams after these
_OUTPUT = "attention/output"

_States = tuple[stacks.State, ...]
RunCell = Callable[[tf.Tensor, tf.Tensor, stacks.State], stacks.State]
"""(t, the part [B, N] of a cell's input that the loop makes, state) -> its next state"""


class _Inputs(NamedTuple):
    """What a decoder computes with."""

    weights: Tensors
    rounded: Tensors  # those of attention, in the dtype of products
    target: tf.Tensor  # embedded words [T, B, E]
    memory: tf.Tensor  # [B, S, D]
    masked: tf.Tensor  # float32 [B, S], added to the scores
    first: _States
    masks: Sequence[tf.Tensor]  # of dropout, as of `StepWise._masks`


class StepWise:
    """The network up to the projection; see `rnn_scaling.models.nmt_attention`."""

    def __init__(self, config: ModelConfig, device_type: str) -> None:
        self._config = config
        self._encoder = seq2seq.encoder_stack(config)
        self._memory_dim = self._encoder.num_units * self._encoder.num_directions
        self._feeds_output = config.attention == "luong"
        fed_dim = config.num_units if self._feeds_output else self._memory_dim
        self._decoder = dataclasses.replace(
            seq2seq.decoder_stack(config), input_dim=config.embedding_dim + fed_dim
        )
        self._fed_dim, self._dtype = fed_dim, tf.as_dtype(config.compute_dtype)
        kernel = kernels.load(config.encoder_type, device_type, config.unit_type)
        self._encode = kernel.build(self._encoder)
        self._is_fused = (
            config.decoder_type or config.encoder_type
        ) != "dynamic_rnn" and config.unit_type == "lstm"
        self._is_packed = self._is_fused and operators.usable(self._dtype)
        self._state_dtype = tf.float32 if self._is_fused else self._dtype
        decoder_kernel = self._decoder.named("tf.while_loop")
        if self._is_fused:
            decoder_kernel = (
                "packed LSTM decoder"
                if self._is_packed
                else "MatMul loop + LSTMBlockCellGrad"
            )
        self.kernels: Mapping[str, str] = {
            "encoder_kernel": kernel.kernel_name(self._encoder),
            "decoder_kernel": decoder_kernel,
        }
        self.variables = tuple(self._variables())

    def _variables(self) -> Iterator[VariableSpec]:
        config = self._config
        yield from layers.variables(
            self._encoder, seq2seq.encoder_cells(config), config
        )
        yield from scores.variable_specs(config, self._memory_dim)
        yield from layers.variables(
            self._decoder, seq2seq.decoder_cells(config), config
        )
        yield VariableSpec(
            _OUTPUT, (self._memory_dim + config.num_units, config.num_units), "dense"
        )

    def last_layer(
        self,
        weights: Tensors,
        source: tf.Tensor,
        target: tf.Tensor,
        batch: Batch,
        seed: tf.Tensor,
    ) -> tf.Tensor:
        """What the projection reads, [T, B, U] or [B, T, U], in the dtype of products.

        Args:
          source: embedded words [S, B, E], or [B, S, E].
          target: [T, B, E], or [B, T, E].
        """
        config = self._config
        with tf.name_scope("encoder"):
            memory, masked, state = self._read(weights, source, batch, seed)
        with tf.name_scope("decoder"):
            target = target if config.time_major else stacks.swap_time_and_batch(target)
            outputs = self._decode(
                weights, tf.cast(target, self._dtype), memory, masked, state, seed
            )
        return outputs if config.time_major else stacks.swap_time_and_batch(outputs)

    def _read(
        self, weights: Tensors, source: tf.Tensor, batch: Batch, seed: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, stacks.State]:
        """The memory [B, S, D], what masks its padding, and the encoder's last state; arguments as of `last_layer`."""
        seed = stacks.fold_in(seed, _ENCODER_STREAM) if self._config.dropout else seed
        cells = layers.weights_of(
            self._encoder, seq2seq.encoder_cells(self._config), weights
        )
        memory, state = self._encode(cells, source, batch.source_length, None, seed)
        memory = (
            stacks.swap_time_and_batch(memory) if self._config.time_major else memory
        )
        return (
            memory,
            scores.mask(batch.source_length, memory.shape[1] or tf.shape(memory)[1]),
            state,
        )

    def start(self, weights: Tensors, source: tf.Tensor, batch: Batch) -> Start:
        """As of a `decoding.Decoder`, of embedded words, up to the projection; other arguments as of `last_layer`."""
        memory, masked, state = self._read(weights, source, batch, tf.constant([0, 0]))
        rounded = {name: tf.cast(w, self._dtype) for name, w in weights.items()}
        cells = layers.weights_of(
            self._decoder, seq2seq.decoder_cells(self._config), rounded
        )
        attend = scores.attention_of(self._config, rounded, memory, masked)

        def step(
            words: tf.Tensor, before: State, position: tf.Tensor
        ) -> tuple[tf.Tensor, State]:
            states, fed = before
            context = fed if self._feeds_output else attend(states[-1][-1])
            states = self._decoder.step_all(
                tf.concat([words, context], axis=1), states, cells
            )
            h = states[-1][-1]
            output = tf.tanh(
                tf.concat([attend(h) if self._feeds_output else context, h], axis=1)
                @ rounded[_OUTPUT]
            )
            return output, (states, output if self._feeds_output else fed)

        first = tf.zeros([tf.shape(memory)[0], self._fed_dim], self._dtype)
        return Start((self._decoder.states_of(state, self._dtype), first), step)

    def _decode(
        self,
        weights: Tensors,
        target: tf.Tensor,
        memory: tf.Tensor,
        masked: tf.Tensor,
        state: stacks.State,
        seed: tf.Tensor,
    ) -> tf.Tensor:
        """All target words [T, B, E], which attend to memory [B, S, D], one after the other."""
        num_steps, batch = (
            target.shape[axis] or tf.shape(target)[axis] for axis in (0, 1)
        )
        rounded = {
            name: tf.cast(w, self._dtype)
            for name, w in weights.items()
            if name.startswith("attention/")
        }
        masks = self._masks(seed, num_steps, batch)
        first = self._decoder.states_of(state, self._state_dtype)
        given = _Inputs(weights, rounded, target, memory, masked, first, masks)
        results = (
            self._decode_at_once(given)
            if self._is_packed
            else self._decode_in_loop(given)
        )
        if self._feeds_output:
            return tf.cast(results[0], self._dtype)
        rows = tf.reshape(
            tf.cast(tf.concat(results, axis=2), self._dtype),
            [-1, rounded[_OUTPUT].shape[0]],
        )
        return tf.reshape(
            tf.tanh(tf.matmul(rows, rounded[_OUTPUT])),
            [num_steps, batch, self._config.num_units],
        )

    def _decode_at_once(self, given: _Inputs) -> Sequence[tf.Tensor]:
        """Outputs [T, B, U] with luong, contexts [T, B, D] and states [T, B, U] with bahdanau; by our own operators."""
        cells = layers.weights_of(
            self._decoder, seq2seq.decoder_cells(self._config), given.weights
        )
        of_words, *kernels = (tf.cast(kernel, self._dtype) for kernel, _ in cells)
        from_words, kernel = _words_product(of_words, given.target)
        results = packed_decoder.decode(
            from_words=from_words,
            biases=tf.stack([_gate_biases(self._decoder, bias) for _, bias in cells]),
            kernels=[kernel, *kernels],
            state=given.first,
            keys=scores.keys_of(given.rounded, given.memory),
            memory=given.memory,
            masked=given.masked,
            v=tf.zeros([0], self._dtype)
            if self._feeds_output
            else scores.v_of(self._config, given.rounded),
            matrix=given.rounded[_OUTPUT if self._feeds_output else scores.QUERY],
            dropped=given.masks,
        )
        return (
            [results.made] if self._feeds_output else [results.contexts, results.tops]
        )

    def _decode_in_loop(self, given: _Inputs) -> Sequence[tf.Tensor]:
        """As `_decode_at_once`."""
        weights, rounded, target, memory, masked, first, masks = given
        num_steps, batch = (
            target.shape[axis] or tf.shape(target)[axis] for axis in (0, 1)
        )
        products = DeferredProducts(num_steps, batch) if self._is_fused else Plain()
        attend = scores.step_contexts(self._config, rounded, memory, masked, products)
        combine = products.product(rounded[_OUTPUT]) if self._feeds_output else None
        run_cells = self._cells(weights, target, products)

        def drop(layer: int, t: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
            return x * tf.cast(masks[layer][t], x.dtype) if masks else x

        def step(
            t: tf.Tensor, states: _States, fed: tf.Tensor
        ) -> tuple[_States, tf.Tensor, tuple[tf.Tensor, ...]]:
            x = context = fed if self._feeds_output else attend(t, states[-1][-1])
            following = []
            for layer, (run_cell, state) in enumerate(
                zip(run_cells, states, strict=True)
            ):
                following.append(run_cell(t, drop(layer, t, x), state))
                x = following[-1][-1]
            if combine is None:
                return tuple(following), fed, (context, tf.cast(x, tf.float32))
            fed = tf.tanh(
                combine(t, tf.concat([attend(t, x), tf.cast(x, tf.float32)], axis=1))
            )
            return tuple(following), fed, (fed,)

        widths = (
            (self._fed_dim,)
            if self._feeds_output
            else (self._memory_dim, self._config.num_units)
        )
        return _run_loop(
            step, first, tf.zeros([batch, self._fed_dim]), num_steps, widths, products
        )

    def _cells(
        self, weights: Tensors, target: tf.Tensor, products: Plain | DeferredProducts
    ) -> list[RunCell]:
        """Each cell's step; the first one's has the embedded words as a part of its input."""
        all_weights = layers.weights_of(
            self._decoder, seq2seq.decoder_cells(self._config), weights
        )
        first: list[tf.Tensor | None] = [target]
        words_of_cells = first + [None] * (self._decoder.num_cells - 1)
        if isinstance(products, DeferredProducts):
            shape = tf.shape(target)
            return [
                _fused_cell(
                    self._decoder,
                    tf.cast(kernel, self._dtype),
                    bias,
                    words,
                    shape,
                    products,
                )
                for (kernel, bias), words in zip(
                    all_weights, words_of_cells, strict=True
                )
            ]
        return [
            _plain_cell(
                self._decoder, tuple(tf.cast(w, self._dtype) for w in of_cell), words
            )
            for of_cell, words in zip(all_weights, words_of_cells, strict=True)
        ]

    def _masks(
        self, seed: tf.Tensor, num_steps: int | tf.Tensor, batch: int | tf.Tensor
    ) -> list[tf.Tensor]:
        """Float32 [T, B, width] of each layer, to multiply what the loop makes of its input; none without dropout."""
        rate = self._config.dropout
        if not rate:
            return []
        widths = [self._fed_dim] + [self._config.num_units] * (
            self._decoder.num_layers - 1
        )
        return [
            tf.stop_gradient(
                stacks.drop(
                    tf.ones([num_steps, batch, width]), rate, seed, _FED_STREAM + layer
                )
            )
            for layer, width in enumerate(widths)
        ]


_Step = Callable[
    [tf.Tensor, _States, tf.Tensor], tuple[_States, tf.Tensor, tuple[tf.Tensor, ...]]
]


def _run_loop(
    step: _Step,
    states: _States,
    fed: tf.Tensor,
    num_steps: int | tf.Tensor,
    widths: Sequence[int],
    products: Plain | DeferredProducts,
) -> list[tf.Tensor]:
    """Every step after the other -> what it gives, [T, B, width] each.

    Args:
      step: (t, states, fed) -> the next states and fed, and what is kept of the step.
      fed: [B, N] for the first step.
    """
    results = tuple(
        tf.TensorArray(tf.float32, num_steps, element_shape=[None, width])
        for width in widths
    )

    def body(
        t: tf.Tensor,
        states: _States,
        fed: tf.Tensor,
        results: tuple[tf.TensorArray, ...],
        taken: tuple[tf.TensorArray, ...],
    ) -> tuple[
        tf.Tensor,
        _States,
        tf.Tensor,
        tuple[tf.TensorArray, ...],
        tuple[tf.TensorArray, ...],
    ]:
        states, fed, given = step(t, states, fed)
        results = tuple(
            array.write(t, x) for array, x in zip(results, given, strict=True)
        )
        taken = tuple(
            array.write(t, x) for array, x in zip(taken, products.taken(), strict=True)
        )
        return t + 1, states, fed, results, taken

    *_, results, taken = tf.while_loop(
        lambda t, *_: t < num_steps,
        body,
        (0, states, fed, results, products.empty()),
        parallel_iterations=1,
    )
    products.end(taken)
    return [array.stack() for array in results]


def _plain_cell(
    stack: stacks.RecurrentStack, weights: stacks.CellWeights, words: tf.Tensor | None
) -> RunCell:
    """The cell as `models/cells/` has it; `words` [T, B, E] come before the rest of its input."""
    by_step = None
    if words is not None:
        by_step = tf.TensorArray(
            words.dtype, tf.shape(words)[0], element_shape=words.shape[1:]
        ).unstack(words)

    def run(t: tf.Tensor, x: tf.Tensor, state: stacks.State) -> stacks.State:
        x = tf.cast(x, weights[0].dtype)
        return stack.step(
            x if by_step is None else tf.concat([by_step.read(t), x], axis=1),
            state,
            weights,
        )

    return run


def _fused_cell(
    stack: stacks.RecurrentStack,
    kernel: tf.Tensor,
    bias: tf.Tensor,
    words: tf.Tensor | None,
    shape: tf.Tensor,
    products: DeferredProducts,
) -> RunCell:
    """An LSTM's cell whose gates are one product, and one operator on the way back.

    The product of `words` [T, B, E], which come before the rest of its input, is made here.
    """
    addends = repeated(_gate_biases(stack, bias), shape[0], shape[1])
    if words is not None:
        from_words, kernel = _words_product(kernel, words)
        addends += tf.cast(from_words, tf.float32)
    gates = products.product_of_steps(kernel, addends)
    next_state = _next_state(stack.num_units)
    return lambda t, x, state: next_state(
        gates(t, tf.concat([x, state[1]], axis=1)), state[0]
    )


def _gate_biases(stack: stacks.RecurrentStack, bias: tf.Tensor) -> tf.Tensor:
    """[4U], with the forget gate's."""
    return bias + tf.repeat(
        tf.constant([0.0, 0.0, stack.forget_bias, 0.0]), stack.num_units
    )


def _words_product(kernel: tf.Tensor, words: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """[T, B, 4U], words [T, B, E] times the first E rows of the kernel; and the other rows."""
    of_words, others = tf.split(
        kernel, [words.shape[2], kernel.shape[0] - words.shape[2]]
    )
    rows = tf.matmul(tf.reshape(words, [-1, words.shape[2]]), of_words)
    return tf.reshape(rows, [*tf.unstack(tf.shape(words)[:2]), kernel.shape[1]]), others


_NextState = Callable[[tf.Tensor, tf.Tensor], tuple[tf.Tensor, tf.Tensor]]


def _next_state(units: int) -> _NextState:
    """The function of gates [B, 4U] before their nonlinearity and of c [B, U] -> the next c and h; all float32."""
    differentiate = lstm_step_gradient(units)

    @tf.custom_gradient
    def next_state(
        gates: tf.Tensor, c: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, tf.Tensor], _NextState]:
        step = lstm_step(gates, c)
        return (step.cs, step.h), lambda d_cs, d_h: differentiate(step, c, d_cs, d_h)

    return next_state
