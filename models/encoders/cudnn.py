"""cuDNN's fused layers, `CudnnRNNV3`: one call for all layers, on NVIDIA GPUs only.

cuDNN reads all weights from one flat buffer. It is concatenated here, which TensorFlow
differentiates: first the matrices of all cells, then their biases. A cell of G gates
has G input matrices [U, D] and G recurrent ones [U, U], row by row, and 2 G biases [U].
The gates are in the order i, f, c, o (LSTM) or r, u, n (GRU). Sources of the layout:
google/jax, jax/experimental/rnn.py (module docstring, `_get_params_shapes_in_lstm`);
tensorflow, keras/layers/recurrent_v2.py, `_canonical_to_params` and `gpu_gru`;
apache/mxnet, gluon/rnn/rnn_layer.py, `_forward_kernel`; NVIDIA, cuDNN API reference,
cudnnGetRNNWeightParams.

Faults of TensorFlow's operators (tensorflow/core/kernels/cudnn_rnn_ops.cc) that are
avoided here:
- `CudnnRNNCanonicalToParams` and its inverse end the process with cuDNN 8.1 and later:
  CudnnRnnParamsDescriptor::Create (stream_executor/cuda/cuda_dnn.cc) computes offsets
  from the address of a local variable and expects a bias to be as large as its matrix.
- The op caches a descriptor per (T, B), with or without padding depending on the first
  lengths it read: after full sentences it ignores the lengths of later ones. Only a
  batch-major call always has padding. So the call is time-major if tracing shows that
  all sentences are full, and batch-major otherwise.
- bfloat16 is computed in float32, and the backward op does not return the forward op's
  reserve space. So the casts are done here.

T: steps, B: sentences, D: width of the input, U: units.
Source of the equations: NVIDIA, cuDNN API reference, cudnnRNNMode_t, CUDNN_LSTM and
CUDNN_GRU.

`models/encoder_table.py` lists this implementation; nothing else depends on it.
"""

import itertools

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import stacks

Canonical = tuple[list[Tensor], list[Tensor]]
"""Matrices [G*U, D] and [G*U, U] of a cell, and biases that join to [2*G*U]."""


def kernel_name(stack: stacks.RecurrentStack) -> str:
    """Return the name for the record.

    It does not contain whether the call is time-major, which is decided while tracing.
    """
    return stack.format_kernel_title("CudnnRNNV3")


def build(stack: stacks.RecurrentStack) -> stacks.Run:
    """Return the function that runs `stack`.

    cuDNN draws the dropout between the layers itself. Its seed is an attribute of the
    op, not a tensor, and its generator advances in each step. So the function ignores
    `seed`, and each traced call (one per tower) has a different attribute.
    """
    dtype = tf.as_dtype(stack.dtype)
    op_dtype = tf.float32 if dtype == tf.bfloat16 else dtype
    seeds = itertools.count(1)

    def run(
        weights: stacks.Weights,
        inputs: Tensor,
        lengths: Tensor,
        initial_state: stacks.State | None,
        seed: Tensor,
    ) -> tuple[Tensor, stacks.State]:
        def round_values(x: Tensor) -> Tensor:
            return tf.cast(tf.cast(x, dtype), op_dtype)

        batch = tf.shape(inputs)[1 if stack.time_major else 0]
        state = (
            stacks.zero_state(stack, batch) if initial_state is None else initial_state
        )
        is_call_time_major = stack.time_major and _has_only_full_sentences(
            lengths, inputs.shape[0]
        )

        def swap_axes(x: Tensor, time_major: bool) -> Tensor:
            if time_major == is_call_time_major:
                return x
            return stacks.swap_time_and_batch(x)

        outputs, final = _call_operator(
            stack,
            swap_axes(round_values(inputs), stack.time_major),
            tuple(swap_axes(round_values(s), True) for s in state),
            [tuple(map(round_values, cell)) for cell in weights],
            lengths,
            is_call_time_major,
            next(seeds),
        )
        final = tuple(tf.cast(swap_axes(s, True), dtype) for s in final)
        return tf.cast(swap_axes(outputs, stack.time_major), dtype), final

    return run


def _call_operator(
    stack: stacks.RecurrentStack,
    inputs: Tensor,
    state: stacks.State,
    weights: stacks.Weights,
    lengths: Tensor,
    is_time_major: bool,
    seed: int,
) -> tuple[Tensor, stacks.State]:
    """Run all layers; tensors are in the axes and the dtype of the call."""
    has_c = "c" in stack.cell.STATE
    result = tf.raw_ops.CudnnRNNV3(
        input=inputs,
        input_h=state[-1],
        input_c=state[0] if has_c else tf.zeros([], inputs.dtype),
        params=pack_params(stack, weights),
        sequence_lengths=lengths,
        dropout=stack.dropout,
        seed=1,
        seed2=seed,
        num_proj=0,
        is_training=True,
        time_major=is_time_major,
        rnn_mode=stack.unit_type,
        input_mode="linear_input",
        direction="bidirectional" if stack.num_directions == 2 else "unidirectional",
    )
    final = (result.output_c, result.output_h) if has_c else (result.output_h,)
    return result.output, final


def _has_only_full_sentences(lengths: Tensor, num_steps: int | None) -> bool:
    """Return whether tracing shows that every sentence has `num_steps` words."""
    values = tf.get_static_value(lengths)
    return (
        values is not None
        and num_steps is not None
        and bool((values == num_steps).all())
    )


def pack_params(stack: stacks.RecurrentStack, weights: stacks.Weights) -> Tensor:
    """Return cuDNN's flat buffer of all weights; see the module's docstring."""
    matrices = []
    biases = []
    for cell in weights:
        cell_matrices, cell_biases = _TO_CUDNN[stack.unit_type](cell, stack)
        matrices += cell_matrices
        biases += cell_biases
    return tf.concat([tf.reshape(w, [-1]) for w in matrices + biases], axis=0)


def _convert_lstm(
    weights: stacks.CellWeights, stack: stacks.RecurrentStack
) -> Canonical:
    """Return the gates i, f, c, o of a cell with gates i, j, f, o.

    The second of cuDNN's two biases per gate is zero.
    """
    kernel, bias = weights
    i, j, f, o = tf.split(tf.transpose(kernel), 4, axis=0)
    units = stack.num_units
    ordered = tf.concat([i, f, j, o], axis=0)
    matrices = tf.split(ordered, [kernel.shape[0] - units, units], axis=1)
    i, j, f, o = tf.split(bias, 4)
    return matrices, [i, f + stack.forget_bias, j, o, tf.zeros_like(bias)]


def _convert_gru(
    weights: stacks.CellWeights, stack: stacks.RecurrentStack
) -> Canonical:
    """Return the gates r, u, n; only n has a bias of the state that is not zero."""
    kernel, recurrent, bias = weights
    units = stack.num_units
    input_biases, n_bias = tf.split(bias, [3 * units, units])
    biases = [input_biases, tf.zeros_like(input_biases[units:]), n_bias]
    return [tf.transpose(kernel), tf.transpose(recurrent)], biases


_TO_CUDNN = {"lstm": _convert_lstm, "gru": _convert_gru}
