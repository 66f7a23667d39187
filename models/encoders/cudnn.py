"""cuDNN's fused LSTM, `CudnnRNNV3`: one call for all layers and directions, on NVIDIA GPUs only.

cuDNN takes all weights in one flat buffer. It is made here by concatenation, which TensorFlow differentiates: first the
matrices of all cells, then the biases of all cells. A cell has four input matrices [U, in] and then four recurrent ones
[U, U], row by row, with gates in the order i, f, c, o, and as many biases [U]. Sources of the layout: google/jax,
jax/experimental/rnn.py (module docstring, `_get_params_shapes_in_lstm`); tensorflow, keras/layers/recurrent_v2.py,
`_canonical_to_params`; apache/mxnet, gluon/rnn/rnn_layer.py, `_forward_kernel`.

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
Source of the equations: NVIDIA, cuDNN API reference, cudnnRNNMode_t, CUDNN_LSTM.
"""

from __future__ import annotations

import itertools
import math

import tensorflow as tf

from models import lstm

_GATES = 4
_BIASES = 2 * _GATES  # a cell's; cuDNN adds two a gate


def kernel_name(stack: lstm.LstmStack) -> str:
    """What runs, for the record. Whether the call is time-major or padded is decided by the lengths, when traced."""
    return "CudnnRNNV3"


def build(stack: lstm.LstmStack) -> lstm.Run:
    """The function of `stack`.

    cuDNN draws its own dropout between the layers: its seed is an attribute of the op, not a tensor, and its generator
    moves on with each step. So `seed` has no effect here; each traced call (each tower) has a seed of its own.
    """
    dtype = tf.as_dtype(stack.dtype)
    op_dtype = tf.float32 if dtype == tf.bfloat16 else dtype
    calls = itertools.count(1)

    def run(
        weights: lstm.Weights,
        inputs: tf.Tensor,
        lengths: tf.Tensor,
        initial_state: lstm.LstmState | None,
        seed: tf.Tensor,
    ) -> tuple[tf.Tensor, lstm.LstmState]:
        def rounded(x: tf.Tensor) -> tf.Tensor:
            return tf.cast(tf.cast(x, dtype), op_dtype)

        batch = tf.shape(inputs)[1 if stack.time_major else 0]
        state = lstm.zero_state(stack, batch) if initial_state is None else initial_state
        call_time_major = stack.time_major and _known_to_be_full(lengths, inputs.shape[0])

        def to_call(x: tf.Tensor, time_major: bool) -> tf.Tensor:
            return x if time_major == call_time_major else lstm.swap_time_and_batch(x)

        result = tf.raw_ops.CudnnRNNV3(
            input=to_call(rounded(inputs), stack.time_major),
            input_h=to_call(rounded(state.h), True),
            input_c=to_call(rounded(state.c), True),
            params=params(stack, [(rounded(kernel), rounded(bias)) for kernel, bias in weights]),
            sequence_lengths=lengths,
            dropout=stack.dropout,
            seed=1,
            seed2=next(calls),
            num_proj=0,
            is_training=True,
            time_major=call_time_major,
            **_mode(stack),
        )
        outputs = tf.cast(to_call(result.output, stack.time_major), dtype)
        final_c, final_h = (tf.cast(to_call(s, True), dtype) for s in (result.output_c, result.output_h))
        return outputs, lstm.LstmState(final_c, final_h)

    return run


def _mode(stack: lstm.LstmStack) -> dict[str, str]:
    direction = "bidirectional" if stack.num_directions == 2 else "unidirectional"
    return {"rnn_mode": "lstm", "input_mode": "linear_input", "direction": direction}


def _known_to_be_full(lengths: tf.Tensor, num_steps: int | None) -> bool:
    """Whether tracing already shows that every sentence has all the steps."""
    values = tf.get_static_value(lengths)
    return values is not None and num_steps is not None and bool((values == num_steps).all())


def num_params(stack: lstm.LstmStack) -> int:
    """Numbers in cuDNN's buffer of all weights."""
    matrices = sum(math.prod(stack.kernel_shape(cell)) for cell in range(stack.num_cells))
    return matrices + stack.num_cells * _BIASES * stack.num_units


def params(stack: lstm.LstmStack, weights: lstm.Weights) -> tf.Tensor:
    """cuDNN's buffer of all weights, `[num_params(stack)]`; the module's docstring has its layout.

    Raises:
      ValueError: if the weights are not those of `stack`.
    """
    matrices, biases = [], []
    for kernel, bias in weights:
        cell_matrices, cell_biases = _to_cudnn(kernel, bias, stack.num_units, stack.forget_bias)
        matrices += cell_matrices
        biases += cell_biases
    buffer = tf.concat([tf.reshape(part, [-1]) for part in matrices + biases], axis=0)
    if buffer.shape[0] != num_params(stack):
        raise ValueError(f"expected weights of {num_params(stack)} numbers in all, got {buffer.shape[0]}")
    return buffer


def _to_cudnn(
    kernel: tf.Tensor, bias: tf.Tensor, num_units: int, forget_bias: float
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """One cell's weights in cuDNN's order of gates, i, f, c, o, for gates in the order i, j, f, o.

    Args:
      kernel: [in+U, 4U].
      bias: [4U].
      num_units: U.
      forget_bias: added to the bias of f.

    Returns:
      Input matrices [4U, in] and recurrent ones [4U, U]; biases [4U] and as many zeros, since cuDNN adds two biases a
      gate and all kernels share weights.
    """
    i, j, f, o = tf.split(tf.transpose(kernel), _GATES, axis=0)
    matrices = tf.split(tf.concat([i, f, j, o], axis=0), [kernel.shape[0] - num_units, num_units], axis=1)
    bias_i, bias_j, bias_f, bias_o = tf.split(bias, _GATES)
    return matrices, [bias_i, bias_f + forget_bias, bias_j, bias_o, tf.zeros_like(bias)]
