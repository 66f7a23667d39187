"""cuDNN's fused layers, `CudnnRNNV3`: one call for all layers and directions, on NVIDIA GPUs only.

cuDNN takes all weights in one flat buffer. It is made here by concatenation, which TensorFlow differentiates: first the
matrices of all cells, then the biases of all cells. A cell of G gates has G input matrices [U, in] and then G recurrent
ones [U, U], row by row, and as many biases [U]. An LSTM's gates are in the order i, f, c, o, a GRU's r, u, n. Sources
of the layout: google/jax, jax/experimental/rnn.py (module docstring, `_get_params_shapes_in_lstm`); tensorflow,
keras/layers/recurrent_v2.py, `_canonical_to_params` and `gpu_gru`; apache/mxnet, gluon/rnn/rnn_layer.py,
`_forward_kernel`; NVIDIA, cuDNN API reference, cudnnGetRNNWeightParams.

What TensorFlow's sources (tensorflow/core/kernels/cudnn_rnn_ops.cc) ask to step around:
- `CudnnRNNCanonicalToParams` and its inverse end the process with cuDNN 8.1 and later: CudnnRnnParamsDescriptor::Create
  (stream_executor/cuda/cuda_dnn.cc) takes offsets from the address of a local variable, and a bias to be as large as
  its matrix.
- The op keeps a descriptor for each (T, B), with or without padding as the first lengths it met needed: full sentences
  first make it ignore the lengths of later ones. Only a batch-major call always makes one with padding. So the
  call is time-major where the lengths are known to be full while tracing, and batch-major otherwise.
- bfloat16 is computed in float32, and its backward op leaves the forward's reserve space behind; so the casts are
  made here.

T: steps, B: sentences, D: width of the input, U: units.
Source of the equations: NVIDIA, cuDNN API reference, cudnnRNNMode_t, CUDNN_LSTM and CUDNN_GRU.
"""

import itertools

import tensorflow as tf
from tensorflow import Tensor

from rnn_scaling.models import stacks

Parts = tuple[list[Tensor], list[Tensor]]
"""Of one cell: input matrices [G*U, in] and recurrent ones [G*U, U]; biases that join to [2*G*U]."""


def kernel_name(stack: stacks.RecurrentStack) -> str:
    """What runs, for the record. Whether the call is time-major or padded is decided by the lengths, when traced."""
    return stack.named("CudnnRNNV3")


def build(stack: stacks.RecurrentStack) -> stacks.Run:
    """The function of `stack`.

    cuDNN draws its own dropout between the layers: its seed is an attribute of the op, not a tensor, and its generator
    moves on with each step. So `seed` has no effect here; each traced call (each tower) has a seed of its own.
    """
    dtype = tf.as_dtype(stack.dtype)
    op_dtype = tf.float32 if dtype == tf.bfloat16 else dtype
    has_c = "c" in stack.cell.STATE
    calls = itertools.count(1)

    def run(
        weights: stacks.Weights,
        inputs: Tensor,
        lengths: Tensor,
        initial_state: stacks.State | None,
        seed: Tensor,
    ) -> tuple[Tensor, stacks.State]:
        def rounded(x: Tensor) -> Tensor:
            return tf.cast(tf.cast(x, dtype), op_dtype)

        batch = tf.shape(inputs)[1 if stack.time_major else 0]
        state = (
            stacks.zero_state(stack, batch) if initial_state is None else initial_state
        )
        call_time_major = stack.time_major and _known_to_be_full(
            lengths, inputs.shape[0]
        )

        def to_call(x: Tensor, time_major: bool) -> Tensor:
            return x if time_major == call_time_major else stacks.swap_time_and_batch(x)

        result = tf.raw_ops.CudnnRNNV3(
            input=to_call(rounded(inputs), stack.time_major),
            input_h=to_call(rounded(state[-1]), True),
            input_c=to_call(rounded(state[0]), True)
            if has_c
            else tf.zeros([], op_dtype),
            params=params(stack, [tuple(map(rounded, of_cell)) for of_cell in weights]),
            sequence_lengths=lengths,
            dropout=stack.dropout,
            seed=1,
            seed2=next(calls),
            num_proj=0,
            is_training=True,
            time_major=call_time_major,
            rnn_mode=stack.unit_type,
            input_mode="linear_input",
            direction="bidirectional"
            if stack.num_directions == 2
            else "unidirectional",
        )
        outputs = tf.cast(to_call(result.output, stack.time_major), dtype)
        final = (result.output_c, result.output_h) if has_c else (result.output_h,)
        return outputs, tuple(tf.cast(to_call(s, True), dtype) for s in final)

    return run


def _known_to_be_full(lengths: Tensor, num_steps: int | None) -> bool:
    """Whether tracing already shows that every sentence has all the steps."""
    values = tf.get_static_value(lengths)
    return (
        values is not None
        and num_steps is not None
        and bool((values == num_steps).all())
    )


def params(stack: stacks.RecurrentStack, weights: stacks.Weights) -> Tensor:
    """cuDNN's flat buffer of all weights; the module's docstring has its layout."""
    matrices = []
    biases = []
    for of_cell in weights:
        cell_matrices, cell_biases = _TO_CUDNN[stack.unit_type](of_cell, stack)
        matrices += cell_matrices
        biases += cell_biases
    return tf.concat([tf.reshape(part, [-1]) for part in matrices + biases], axis=0)


def _lstm_to_cudnn(weights: stacks.CellWeights, stack: stacks.RecurrentStack) -> Parts:
    """Gates i, f, c, o of a cell with gates i, j, f, o; of cuDNN's two biases a gate one is zero."""
    kernel, bias = weights
    i, j, f, o = tf.split(tf.transpose(kernel), 4, axis=0)
    units = stack.num_units
    matrices = tf.split(
        tf.concat([i, f, j, o], axis=0), [kernel.shape[0] - units, units], axis=1
    )
    bias_i, bias_j, bias_f, bias_o = tf.split(bias, 4)
    return matrices, [
        bias_i,
        bias_f + stack.forget_bias,
        bias_j,
        bias_o,
        tf.zeros_like(bias),
    ]


def _gru_to_cudnn(weights: stacks.CellWeights, stack: stacks.RecurrentStack) -> Parts:
    """Gates r, u, n as they are; of the state's biases only that of n, which r is multiplied with, is not zero."""
    kernel, recurrent, bias = weights
    units = stack.num_units
    of_input, of_state = tf.split(bias, [3 * units, units])
    return [tf.transpose(kernel), tf.transpose(recurrent)], [
        of_input,
        tf.zeros_like(of_input[units:]),
        of_state,
    ]


_TO_CUDNN = {"lstm": _lstm_to_cudnn, "gru": _gru_to_cudnn}
