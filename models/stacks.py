"""The stack of layers that every kernel computes, its weights, and the plain reference.

T: steps, B: sentences, D: width of the input, U: units of a cell.

A cell is one direction of one layer. Cells are ordered layer 0 forward, layer 0
backward, layer 1 forward, and so on, like cuDNN's pseudo-layers. The modules of
`models/cells/` define a step of a cell; see `rnn_scaling.models.encoder_table`.

Encoder implementations are built from `run_layers` or `run_fused_layers`.
`build_reference` defines the result of all of them, so a change of it changes what
every kernel must compute.
"""

import dataclasses
import importlib
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.encoder_table import UNIT_TYPES
from rnn_scaling.models.workload import Tensors, VariableSpec

CellWeights = tuple[Tensor, ...]
"""The weights of one cell, in the order of its module's `weights`."""
Weights = Sequence[CellWeights]
State = tuple[Tensor, ...]
"""The tensors of the module's `STATE`, the output last.

[B, U] each for a cell, [cells, B, U] each for a stack.
"""


@dataclasses.dataclass(frozen=True)
class RecurrentStack:
    """Layers of cells; each layer reads every direction of the layer below."""

    input_dim: int
    num_units: int
    num_layers: int
    num_directions: int
    forget_bias: float = 1.0
    dropout: float = 0.0
    time_major: bool = True
    dtype: str = "float32"
    unit_type: str = "lstm"

    @property
    def cell(self) -> ModuleType:
        """The module of the cells in `models/cells/`."""
        return importlib.import_module(f"rnn_scaling.models.cells.{self.unit_type}")

    @property
    def product_dtype(self) -> str:
        """The dtype of a fused kernel's products on CPUs; they only emulate float16."""
        return "bfloat16" if self.dtype == "bfloat16" else "float32"

    @property
    def num_cells(self) -> int:
        return self.num_layers * self.num_directions

    def find_input_dim(self, cell: int) -> int:
        """Return the width D of the rows that cell number `cell` reads."""
        if cell < self.num_directions:
            return self.input_dim
        return self.num_units * self.num_directions

    def list_cell_weights(self, cell: int) -> tuple[VariableSpec, ...]:
        """Return the variables of cell number `cell`, named within the cell."""
        specs: tuple[VariableSpec, ...] = self.cell.weights(
            self.find_input_dim(cell), self.num_units
        )
        return specs

    def list_variables(self, cells: Sequence[str]) -> Iterator[VariableSpec]:
        """Yield the variables of all cells; a name begins with the name of its cell."""
        for cell, name in enumerate(cells):
            for spec in self.list_cell_weights(cell):
                yield dataclasses.replace(spec, name=f"{name}/{spec.name}")

    def select_weights(
        self, cells: Sequence[str], weights: Tensors
    ) -> list[CellWeights]:
        """Return the weights of the cells, from all weights of the network by name."""
        names = [spec.name for spec in self.list_cell_weights(0)]
        selected = []
        for cell in cells:
            selected.append(tuple(weights[f"{cell}/{name}"] for name in names))
        return selected

    def step(self, x: Tensor, state: State, weights: CellWeights) -> State:
        """Return the next state of a cell for x [B, D] and its state, [B, U] each."""
        next_state: State = self.cell.step(x, state, weights, self.forget_bias)
        return next_state

    def run_masked_step(
        self, x: Tensor, state: State, weights: CellWeights, is_inside: Tensor
    ) -> tuple[Tensor, State]:
        """Run one step of a cell for sentences of which some have ended.

        Args:
          is_inside: [B, 1], whether a sentence has a word in this step.

        Returns:
          The output and the next state; zeros and `state` for sentences that have
          ended.
        """
        computed = self.step(x, state, weights)
        next_state = tuple(
            tf.where(is_inside, new, old) for new, old in zip(computed, state)
        )
        output = tf.where(is_inside, computed[-1], tf.zeros_like(computed[-1]))
        return output, next_state

    def split_states(self, state: State, dtype: str | tf.DType) -> tuple[State, ...]:
        """Return the state of each cell, from the state [cells, B, U] of the stack."""
        tensors = (tf.unstack(tf.cast(s, dtype), self.num_cells) for s in state)
        return tuple(zip(*tensors))

    def step_all(
        self, x: Tensor, states: Sequence[State], weights: Weights
    ) -> tuple[State, ...]:
        """Run one step of every cell; each one reads the output of the cell below."""
        next_states: list[State] = []
        for state, cell in zip(states, weights, strict=True):
            next_states.append(self.step(x, state, cell))
            x = next_states[-1][-1]
        return tuple(next_states)

    def format_kernel_title(self, kernel: str) -> str:
        """Return a kernel's name for records; it names any cell but the LSTM."""
        if self.unit_type == "lstm":
            return kernel
        return f"{kernel} ({UNIT_TYPES[self.unit_type].title})"


def build_stack(
    config: ModelConfig, num_layers: int, num_directions: int
) -> RecurrentStack:
    """Return a stack with the sizes, dropout and dtype of a network's options."""
    return RecurrentStack(
        input_dim=config.embedding_dim,
        num_units=config.num_units,
        num_layers=num_layers,
        num_directions=num_directions,
        forget_bias=config.forget_bias,
        dropout=config.dropout,
        time_major=config.time_major,
        dtype=config.compute_dtype,
        unit_type=config.unit_type,
    )


CellResult = tuple[Tensor, State]
"""Outputs [T, B, U] of a cell, zero in padding, and the states at the lengths."""
RunCell = Callable[[Tensor, Tensor, State, CellWeights], CellResult]
"""(inputs [T, B, D], lengths [B], state, weights) -> CellResult"""
Run = Callable[..., tuple[Tensor, State]]
"""(weights, inputs, lengths, initial_state, seed) -> outputs and final state

Outputs are [T, B, U * directions].
"""


def drop(x: Tensor, rate: float, seed: Tensor, stream: int) -> Tensor:
    """Set the share `rate` of `x` to zero and divide the other values by 1 - rate.

    Equal (seed, stream) draw equal zeros.
    """
    if rate == 0.0:
        return x
    return tf.nn.experimental.stateless_dropout(x, rate, fold_in(seed, stream))


def fold_in(seed: Tensor, stream: int) -> Tensor:
    """Return another seed [2] for each stream."""
    # Generators read their seed from host memory, even on GPUs.
    with tf.device("CPU:0"):
        return tf.random.experimental.stateless_fold_in(seed, stream)


def swap_time_and_batch(x: Tensor) -> Tensor:
    """Return [B, T, D] for [T, B, D], and the reverse."""
    return tf.transpose(x, [1, 0, 2])


@tf.custom_gradient
def reverse_time(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverse each sentence of x [T, B, D] within its length; keep the padding.

    It gathers rows, because `tf.reverse_sequence` copies element by element on CPUs.
    The reversal is its own inverse, so its gradient is the same gather and not a
    scatter.
    """
    num_steps = tf.shape(x)[0]
    batch = tf.shape(x)[1]
    # GPUs compute with int32 on the host, and slice int64 shapes on the device.
    lengths = tf.cast(lengths, tf.int64)
    step = tf.cast(tf.range(num_steps)[:, None], tf.int64)
    step = tf.where(step < lengths, lengths - 1 - step, step)
    sentence = tf.cast(tf.range(batch), tf.int64)
    rows = step * tf.cast(batch, tf.int64) + sentence

    def reverse(y: Tensor) -> Tensor:
        return tf.reshape(tf.gather(tf.reshape(y, [-1, x.shape[2]]), rows), tf.shape(x))

    result = reverse(x)
    result.set_shape(x.shape)
    return result, lambda d_result: (reverse(d_result), None)


class SentenceEnds:
    """The ends of sentences in sequences [T, B, U] that continue after these ends."""

    def __init__(self, lengths: Tensor, num_steps: Tensor, batch: Tensor) -> None:
        """Find the ends.

        Args:
          lengths: [B], 1 to T.
          num_steps: T.
          batch: B.
        """
        is_inside = tf.range(num_steps)[:, None] < lengths
        self.mask = tf.cast(is_inside, tf.float32)[:, :, None]  # [T, B, 1]
        self._last_rows = (lengths - 1) * batch + tf.range(batch)

    def take_last(self, sequence: Tensor) -> Tensor:
        """Return the rows [B, U] of the last words."""
        return tf.gather(tf.reshape(sequence, [-1, sequence.shape[2]]), self._last_rows)

    def spread_gradient(self, d_outputs: Tensor, d_last: Tensor) -> Tensor:
        """Return the gradient [T, B, U] of the sequence.

        Args:
          d_outputs: [T, B, U], ignored after the ends.
          d_last: [B, U], gradient of the last rows.
        """
        d_rows = tf.reshape(d_outputs * self.mask, [-1, d_last.shape[1]])
        d_rows = tf.tensor_scatter_nd_add(d_rows, self._last_rows[:, None], d_last)
        return tf.reshape(d_rows, tf.shape(d_outputs))


def run_layers(stack: RecurrentStack, run_cell: RunCell) -> Run:
    """Return the function of the whole stack, from the function of one cell."""
    dtype = tf.as_dtype(stack.dtype)

    def run(
        weights: Weights,
        inputs: Tensor,
        lengths: Tensor,
        initial_state: State | None,
        seed: Tensor,
    ) -> tuple[Tensor, State]:
        x = tf.cast(inputs, dtype)
        x = x if stack.time_major else swap_time_and_batch(x)
        state = initial_state
        if state is None:
            state = zero_state(stack, tf.shape(x)[1])
        first_states = stack.split_states(state, dtype)
        last_states = []
        for layer in range(stack.num_layers):
            if layer > 0:
                x = drop(x, stack.dropout, seed, layer)
            outputs = []
            for direction in range(stack.num_directions):
                cell = layer * stack.num_directions + direction
                cell_weights = tuple(tf.cast(w, dtype) for w in weights[cell])
                ordered = reverse_time(x, lengths) if direction else x
                y, last_state = run_cell(
                    ordered, lengths, first_states[cell], cell_weights
                )
                outputs.append(reverse_time(y, lengths) if direction else y)
                last_states.append(last_state)
            x = tf.concat(outputs, axis=2) if len(outputs) > 1 else outputs[0]
        x = x if stack.time_major else swap_time_and_batch(x)
        return x, tuple(tf.stack(states) for states in zip(*last_states))

    return run


def run_fused_layers(
    stack: RecurrentStack, run_steps: Callable[..., tuple[Tensor, ...]]
) -> Run:
    """Return the function of a whole stack of cells whose last weight is a bias.

    Args:
      run_steps: The function of one cell, (x, lengths, *state, *kernels, bias) ->
        outputs, *last state. It gets x and the kernels in the stack's `product_dtype`,
        and the other floating tensors in float32.
    """

    def run_cell(
        inputs: Tensor, lengths: Tensor, state: State, weights: CellWeights
    ) -> CellResult:
        x = tf.cast(inputs, stack.product_dtype)
        first_state = [tf.cast(s, tf.float32) for s in state]
        kernels = [tf.cast(kernel, stack.product_dtype) for kernel in weights[:-1]]
        bias = tf.cast(weights[-1], tf.float32)
        results = run_steps(x, lengths, *first_state, *kernels, bias)
        outputs, *last_state = [tf.cast(y, inputs.dtype) for y in results]
        return outputs, tuple(last_state)

    return run_layers(stack, run_cell)


def zero_state(stack: RecurrentStack, batch: int | Tensor) -> State:
    """Return the state before the first word, without an initial state."""
    zeros = tf.zeros(
        [stack.num_cells, batch, stack.num_units], tf.as_dtype(stack.dtype)
    )
    return (zeros,) * len(stack.cell.STATE)


def build_reference(stack: RecurrentStack) -> Run:
    """Return the plain unrolled layers, which TensorFlow differentiates.

    T must be known while tracing. Every kernel must agree with this function.
    """

    def run_cell(
        inputs: Tensor, lengths: Tensor, state: State, weights: CellWeights
    ) -> CellResult:
        outputs = []
        for t in range(inputs.shape[0]):
            is_inside = (t < lengths)[:, None]
            output, state = stack.run_masked_step(inputs[t], state, weights, is_inside)
            outputs.append(output)
        return tf.stack(outputs), state

    return run_layers(stack, run_cell)
