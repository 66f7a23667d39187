"""The stack of layers that every kernel computes, its weights, and the plain reference that kernels are tested against.

T: steps, B: sentences, D: width of the input, U: units of a cell. A cell is one direction of one layer; cells
are ordered layer 0 forward, layer 0 backward, layer 1 forward, ..., as cuDNN orders its pseudo-layers. What a
cell computes in one step is its module's, `models/cells/`: see `rnn_scaling.models.kernels`.
"""

import dataclasses
import importlib
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models.config import ModelConfig
from rnn_scaling.models.kernels import UNIT_TYPES
from rnn_scaling.models.workload import Tensors, VariableSpec

CellWeights = tuple[Tensor, ...]
"""Of one cell, in the order of its module's `weights`."""
Weights = Sequence[CellWeights]
State = tuple[Tensor, ...]
"""What cells keep, in the order of their module's `STATE`, the output last: each [B, U] of a cell, [cells, B, U] of a
stack."""


@dataclasses.dataclass(frozen=True)
class RecurrentStack:
    """What a kernel computes; `num_layers` layers, each seeing every direction of the layer below."""

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
        """What one cell is, its module in `models/cells/`."""
        return importlib.import_module(f"rnn_scaling.models.cells.{self.unit_type}")

    @property
    def product_dtype(self) -> str:
        """That of a fused kernel's products on CPUs, which only emulate float16."""
        return "bfloat16" if self.dtype == "bfloat16" else "float32"

    @property
    def num_cells(self) -> int:
        return self.num_layers * self.num_directions

    def cell_input_dim(self, cell: int) -> int:
        return (
            self.input_dim
            if cell < self.num_directions
            else self.num_units * self.num_directions
        )

    def cell_weights(self, cell: int) -> tuple[VariableSpec, ...]:
        """The variables of cell number `cell`, by their names within it."""
        specs: tuple[VariableSpec, ...] = self.cell.weights(
            self.cell_input_dim(cell), self.num_units
        )
        return specs

    def variables(self, cells: Sequence[str]) -> Iterator[VariableSpec]:
        for cell, name in enumerate(cells):
            for spec in self.cell_weights(cell):
                yield dataclasses.replace(spec, name=f"{name}/{spec.name}")

    def weights_of(self, cells: Sequence[str], weights: Tensors) -> list[CellWeights]:
        """The weights of the cells, out of all `weights` of the network by name."""
        names = [spec.name for spec in self.cell_weights(0)]
        return [tuple(weights[f"{cell}/{name}"] for name in names) for cell in cells]

    def step(self, x: Tensor, state: State, weights: CellWeights) -> State:
        """One step of one cell: x [B, D] and the state, each [B, U] -> its next state."""
        following: State = self.cell.step(x, state, weights, self.forget_bias)
        return following

    def states_of(self, state: State, dtype: str | tf.DType) -> tuple[State, ...]:
        """That of each cell, [B, U], of the stack's [cells, B, U]."""
        return tuple(
            zip(*(tf.unstack(tf.cast(s, dtype), self.num_cells) for s in state))
        )

    def step_all(
        self, x: Tensor, states: Sequence[State], weights: Weights
    ) -> tuple[State, ...]:
        """One step of one cell after the other, each of which reads what the one before it gave."""
        following: list[State] = []
        for state, of_cell in zip(states, weights, strict=True):
            following.append(self.step(x, state, of_cell))
            x = following[-1][-1]
        return tuple(following)

    def named(self, kernel: str) -> str:
        """A kernel that computes several cells, for the record: with the cell's name where it is not the LSTM."""
        return (
            kernel
            if self.unit_type == "lstm"
            else f"{kernel} ({UNIT_TYPES[self.unit_type].title})"
        )


def stack_of(
    config: ModelConfig, num_layers: int, num_directions: int
) -> RecurrentStack:
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
"""Of one direction of one layer: outputs [T, B, U], zero at and past each length, and the state at each length."""
RunCell = Callable[[Tensor, Tensor, State, CellWeights], CellResult]
"""(inputs [T, B, D], lengths [B], state, weights) -> CellResult"""
Run = Callable[..., tuple[Tensor, State]]
"""(weights, inputs, lengths, initial_state, seed) -> (outputs [T, B, U*directions], final State)"""


def drop(x: Tensor, rate: float, seed: Tensor, stream: int) -> Tensor:
    """Sets a share of `x` to zero and divides the rest by 1-rate; equal (seed, stream) draw equal zeros."""
    return (
        x
        if rate == 0.0
        else tf.nn.experimental.stateless_dropout(x, rate, fold_in(seed, stream))
    )


def fold_in(seed: Tensor, stream: int) -> Tensor:
    """Another seed [2] for each stream."""
    with tf.device(
        "CPU:0"
    ):  # generators take their seed from host memory, also on GPUs
        return tf.random.experimental.stateless_fold_in(seed, stream)


def swap_time_and_batch(x: Tensor) -> Tensor:
    """[T, B, D] -> [B, T, D], and back."""
    return tf.transpose(x, [1, 0, 2])


@tf.custom_gradient
def reverse_time(x: Tensor, lengths: Tensor) -> Tensor:
    """Reverses the first `lengths` steps of each sentence of x [T, B, D] and leaves the padding where it is.

    A gather of rows, as `tf.reverse_sequence` goes element by element on the CPU; it is its own inverse, so
    its gradient is the same gather and not a scatter.
    """
    num_steps = tf.shape(x)[0]
    batch = tf.shape(x)[1]
    # GPUs compute with int32 on the host, and slice int64 shapes on the device.
    step, sentence, batch, lengths = (
        tf.cast(n, tf.int64)
        for n in (tf.range(num_steps)[:, None], tf.range(batch), batch, lengths)
    )
    step = tf.where(step < lengths, lengths - 1 - step, step)
    rows = step * batch + sentence

    def reverse(y: Tensor) -> Tensor:
        return tf.reshape(tf.gather(tf.reshape(y, [-1, x.shape[2]]), rows), tf.shape(x))

    result = reverse(x)
    result.set_shape(x.shape)
    return result, lambda d_result: (reverse(d_result), None)


class Ends:
    """Where sentences end in sequences [T, B, U] of states that were computed past their ends too."""

    def __init__(self, lengths: Tensor, num_steps: Tensor, batch: Tensor) -> None:
        """lengths: [B], 1 to T."""
        self.inside = tf.cast(tf.range(num_steps)[:, None] < lengths, tf.float32)[
            :, :, None
        ]  # [T, B, 1]
        self._last_rows = (lengths - 1) * batch + tf.range(batch)

    def of(self, sequence: Tensor) -> Tensor:
        """[T, B, U] -> [B, U] of each sentence's last word."""
        return tf.gather(tf.reshape(sequence, [-1, sequence.shape[2]]), self._last_rows)

    def gradient(self, d_outputs: Tensor, d_last: Tensor) -> Tensor:
        """Of the sequence itself, [T, B, U]: d_outputs [T, B, U] up to a sentence's end, and d_last [B, U] there."""
        d_rows = tf.reshape(d_outputs * self.inside, [-1, d_last.shape[1]])
        d_rows = tf.tensor_scatter_nd_add(d_rows, self._last_rows[:, None], d_last)
        return tf.reshape(d_rows, tf.shape(d_outputs))


def run_layers(stack: RecurrentStack, run_cell: RunCell) -> Run:
    """The function of a whole stack, made of the function of one direction of one layer."""
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
        state = (
            zero_state(stack, tf.shape(x)[1])
            if initial_state is None
            else initial_state
        )
        first = stack.states_of(state, dtype)
        last = []
        for layer in range(stack.num_layers):
            if layer > 0:
                x = drop(x, stack.dropout, seed, layer)
            outputs = []
            for direction in range(stack.num_directions):
                cell = layer * stack.num_directions + direction
                cell_weights = tuple(tf.cast(w, dtype) for w in weights[cell])
                ordered = reverse_time(x, lengths) if direction else x
                y, state_of_cell = run_cell(ordered, lengths, first[cell], cell_weights)
                outputs.append(reverse_time(y, lengths) if direction else y)
                last.append(state_of_cell)
            x = tf.concat(outputs, axis=2) if len(outputs) > 1 else outputs[0]
        x = x if stack.time_major else swap_time_and_batch(x)
        return x, tuple(tf.stack(of_cells) for of_cells in zip(*last))

    return run


def run_fused_layers(
    stack: RecurrentStack, run_steps: Callable[..., tuple[Tensor, ...]]
) -> Run:
    """The function of a whole stack of cells whose last weight is a bias.

    Args:
      run_steps: one direction of one layer, (x, lengths, *state, *kernels, bias) -> outputs, *last state. It gets x
        and the kernels in the stack's `product_dtype`, and all else in float32.
    """

    def run_cell(
        inputs: Tensor, lengths: Tensor, state: State, weights: CellWeights
    ) -> CellResult:
        x, *kernels = (
            tf.cast(factor, stack.product_dtype) for factor in (inputs, *weights[:-1])
        )
        *first, bias = (tf.cast(w, tf.float32) for w in (*state, weights[-1]))
        outputs, *last = (
            tf.cast(y, inputs.dtype)
            for y in run_steps(x, lengths, *first, *kernels, bias)
        )
        return outputs, tuple(last)

    return run_layers(stack, run_cell)


def zero_state(stack: RecurrentStack, batch: int | Tensor) -> State:
    """The state before the first word when none is given."""
    zeros = tf.zeros(
        [stack.num_cells, batch, stack.num_units], tf.as_dtype(stack.dtype)
    )
    return (zeros,) * len(stack.cell.STATE)


def reference(stack: RecurrentStack) -> Run:
    """The plain unrolled layers, differentiated by TensorFlow; T must be known. The kernels must agree with it."""

    def run_cell(
        inputs: Tensor, lengths: Tensor, state: State, weights: CellWeights
    ) -> CellResult:
        outputs = []
        for t in range(inputs.shape[0]):
            inside = (t < lengths)[:, None]
            following = stack.step(inputs[t], state, weights)
            outputs.append(
                tf.where(inside, following[-1], tf.zeros_like(following[-1]))
            )
            state = tuple(
                tf.where(inside, after, before)
                for after, before in zip(following, state)
            )
        return tf.stack(outputs), state

    return run_layers(stack, run_cell)
