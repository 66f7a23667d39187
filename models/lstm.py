"""The LSTM stack that every kernel computes, its weights, and the plain reference that kernels are tested against.

T: steps, B: sentences, D: width of the input, U: units of a cell. A cell is one direction of one layer; cells
are ordered layer 0 forward, layer 0 backward, layer 1 forward, ..., as cuDNN orders its pseudo-layers.

    gates  = [x_t, h_{t-1}] @ kernel + bias            kernel [in+U, 4U], bias [4U], gate order i, j, f, o
    c_t    = sigmoid(f + forget_bias) * c_{t-1} + sigmoid(i) * tanh(j)
    h_t    = sigmoid(o) * tanh(c_t)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import tensorflow as tf

from models.config import ModelConfig

Weights = Sequence[tuple[tf.Tensor, tf.Tensor]]


@dataclasses.dataclass(frozen=True)
class LstmStack:
    """What a kernel computes; `num_layers` layers, each seeing every direction of the layer below."""

    input_dim: int
    num_units: int
    num_layers: int
    num_directions: int
    forget_bias: float = 1.0
    dropout: float = 0.0
    time_major: bool = True
    dtype: str = "float32"

    @property
    def num_cells(self) -> int:
        return self.num_layers * self.num_directions

    def cell_input_dim(self, cell: int) -> int:
        """Width of the input of cell number `cell`."""
        return self.input_dim if cell < self.num_directions else self.num_units * self.num_directions

    def kernel_shape(self, cell: int) -> tuple[int, int]:
        """Shape of the kernel of cell number `cell`; its bias is `(4 * num_units,)`."""
        return self.cell_input_dim(cell) + self.num_units, 4 * self.num_units

    def weight_shapes(self, cells: Sequence[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """(name, shape) of every cell's kernel and bias.

        Args:
          cells: their names, in the order of the cells.
        """
        for cell, name in enumerate(cells):
            yield f"{name}/kernel", self.kernel_shape(cell)
            yield f"{name}/bias", (4 * self.num_units,)


def stack_of(config: ModelConfig, num_layers: int, num_directions: int) -> LstmStack:
    """So many layers, with what the options say of every cell.

    Args:
      config: the network's options.
      num_layers: layers.
      num_directions: 1, or 2 for bidirectional layers.
    """
    return LstmStack(
        input_dim=config.embedding_dim,
        num_units=config.num_units,
        num_layers=num_layers,
        num_directions=num_directions,
        forget_bias=config.forget_bias,
        dropout=config.dropout,
        time_major=config.time_major,
        dtype=config.compute_dtype,
    )


def weights_of(cells: Sequence[str], weights: Mapping[str, tf.Tensor]) -> list[tuple[tf.Tensor, tf.Tensor]]:
    """(kernel, bias) of the cells of these names."""
    return [(weights[f"{name}/kernel"], weights[f"{name}/bias"]) for name in cells]


class LstmState(NamedTuple):
    """Cell state and hidden state of every cell."""

    c: tf.Tensor  # [cells, B, U]
    h: tf.Tensor  # [cells, B, U]


class CellResult(NamedTuple):
    """What one direction of one layer computes."""

    outputs: tf.Tensor  # [T, B, U], zero at and past each length
    c: tf.Tensor  # [B, U], at each length
    h: tf.Tensor  # [B, U], at each length


RunCell = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor], CellResult]
"""(inputs [T, B, D], lengths [B], c [B, U], h [B, U], kernel, bias) -> CellResult"""
Run = Callable[..., tuple[tf.Tensor, LstmState]]
"""(weights, inputs, lengths, initial_state, seed) -> (outputs [T, B, U*directions], final LstmState)"""


def drop(x: tf.Tensor, rate: float, seed: tf.Tensor, stream: int) -> tf.Tensor:
    """Sets a share of `x` to zero and divides the rest by 1-rate; equal (seed, stream) draw equal zeros.

    Args:
      x: of any shape.
      rate: the share, 0 to below 1.
      seed: [2] int.
      stream: tells apart what draws from the same seed.
    """
    return x if rate == 0.0 else tf.nn.experimental.stateless_dropout(x, rate, fold_in(seed, stream))


def fold_in(seed: tf.Tensor, stream: int) -> tf.Tensor:
    """Another seed [2] for each stream."""
    with tf.device("CPU:0"):  # generators take their seed from host memory, also on GPUs
        return tf.random.experimental.stateless_fold_in(seed, stream)


def swap_time_and_batch(x: tf.Tensor) -> tf.Tensor:
    """[T, B, D] -> [B, T, D], and back."""
    return tf.transpose(x, [1, 0, 2])


@tf.custom_gradient
def reverse_time(x: tf.Tensor, lengths: tf.Tensor) -> tf.Tensor:
    """Reverses the first `lengths` steps of each sentence of x [T, B, D] and leaves the padding where it is.

    A gather of rows, as `tf.reverse_sequence` goes element by element on the CPU; it is its own inverse, so
    its gradient is the same gather and not a scatter.
    """
    num_steps, batch = tf.shape(x)[0], tf.shape(x)[1]
    # GPUs compute with int32 on the host, and slice int64 shapes on the device.
    step, sentence, batch, lengths = (
        tf.cast(n, tf.int64) for n in (tf.range(num_steps)[:, None], tf.range(batch), batch, lengths)
    )
    step = tf.where(step < lengths, lengths - 1 - step, step)
    rows = step * batch + sentence

    def reverse(y: tf.Tensor) -> tf.Tensor:
        return tf.reshape(tf.gather(tf.reshape(y, [-1, x.shape[2]]), rows), tf.shape(x))

    result = reverse(x)
    result.set_shape(x.shape)
    return result, lambda d_result: (reverse(d_result), None)


def run_layers(stack: LstmStack, run_cell: RunCell) -> Run:
    """The function of a whole stack, made of the function of one direction of one layer."""
    dtype = tf.as_dtype(stack.dtype)

    def run(
        weights: Weights,
        inputs: tf.Tensor,
        lengths: tf.Tensor,
        initial_state: LstmState | None,
        seed: tf.Tensor,
    ) -> tuple[tf.Tensor, LstmState]:
        x = tf.cast(inputs, dtype)
        x = x if stack.time_major else swap_time_and_batch(x)
        state = zero_state(stack, tf.shape(x)[1]) if initial_state is None else initial_state
        first_c, first_h = (tf.unstack(tf.cast(s, dtype), stack.num_cells) for s in state)
        last_c, last_h = [], []
        for layer in range(stack.num_layers):
            if layer > 0:
                x = drop(x, stack.dropout, seed, layer)
            outputs = []
            for direction in range(stack.num_directions):
                cell = layer * stack.num_directions + direction
                kernel, bias = (tf.cast(w, dtype) for w in weights[cell])
                ordered = reverse_time(x, lengths) if direction else x
                result = run_cell(ordered, lengths, first_c[cell], first_h[cell], kernel, bias)
                outputs.append(reverse_time(result.outputs, lengths) if direction else result.outputs)
                last_c.append(result.c)
                last_h.append(result.h)
            x = tf.concat(outputs, axis=2) if len(outputs) > 1 else outputs[0]
        x = x if stack.time_major else swap_time_and_batch(x)
        return x, LstmState(tf.stack(last_c), tf.stack(last_h))

    return run


def zero_state(stack: LstmStack, batch: int | tf.Tensor) -> LstmState:
    """The state before the first word when none is given."""
    zeros = tf.zeros([stack.num_cells, batch, stack.num_units], tf.as_dtype(stack.dtype))
    return LstmState(zeros, zeros)


def step(
    x: tf.Tensor, c: tf.Tensor, h: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor, forget_bias: float
) -> tuple[tf.Tensor, tf.Tensor]:
    """One step of one cell -> the next c and h, [B, U].

    Args:
      x: [B, D], the input.
      c, h: [B, U], the cell's state and its output, of the step before.
      kernel: [D+U, 4U], the rows of the input first; columns i, j, f, o.
      bias: [4U].
      forget_bias: is added to f.

    Source: Zaremba et al., "Recurrent Neural Network Regularization", arXiv:1409.2329, section 3.1.
    """
    i, j, f, o = tf.split(tf.concat([x, h], axis=1) @ kernel + bias, 4, axis=1)
    c = tf.sigmoid(f + forget_bias) * c + tf.sigmoid(i) * tf.tanh(j)
    return c, tf.sigmoid(o) * tf.tanh(c)


def reference(stack: LstmStack) -> Run:
    """The plain unrolled LSTM, differentiated by TensorFlow; T must be known. The kernels must agree with it."""

    def run_cell(
        inputs: tf.Tensor, lengths: tf.Tensor, c: tf.Tensor, h: tf.Tensor, kernel: tf.Tensor, bias: tf.Tensor
    ) -> CellResult:
        outputs = []
        for t in range(inputs.shape[0]):
            inside = (t < lengths)[:, None]
            next_c, next_h = step(inputs[t], c, h, kernel, bias, stack.forget_bias)
            outputs.append(tf.where(inside, next_h, tf.zeros_like(next_h)))
            c, h = tf.where(inside, next_c, c), tf.where(inside, next_h, h)
        return CellResult(tf.stack(outputs), c, h)

    return run_layers(stack, run_cell)
