"""cuDNN's fused LSTM, `CudnnRNNV3`: one call for all layers and directions, on NVIDIA GPUs only.

cuDNN keeps all weights in one opaque buffer. TensorFlow's `CudnnRNNCanonicalToParams` fills it from separate
matrices and `CudnnRNNParamsToCanonical` takes them out again; both ask cuDNN where each matrix lies, so nothing here
depends on its layout. What they want, for each cell: four input matrices [U, in] and four recurrent matrices
[U, U] with gates in the order i, f, c, o, and as many biases.

What TensorFlow's sources (tensorflow/core/kernels/cudnn_rnn_ops.cc) ask to step around:
- `CudnnRNNParamsToCanonicalV2` takes its number of weights from an attribute it has not, unless there is a projection.
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

import tensorflow as tf

from models import lstm

_GATES = 4
_MATRICES = 2 * _GATES  # a cell's matrices, and as many biases


def kernel_name(stack: lstm.LstmStack) -> str:
    """What runs, for the record."""
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
            params=_params(stack, [(rounded(kernel), rounded(bias)) for kernel, bias in weights]),
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


def to_cudnn(
    kernel: tf.Tensor, bias: tf.Tensor, num_units: int, forget_bias: float
) -> tuple[list[tf.Tensor], list[tf.Tensor]]:
    """One cell's weights as cuDNN's equations want them.

    Args:
      kernel: [in+U, 4U], gates i, j, f, o.
      bias: [4U].
      num_units: U.
      forget_bias: added to the bias of f.

    Returns:
      Eight matrices, W_i, W_f, W_c, W_o [U, in] and R_i, R_f, R_c, R_o [U, U], and eight biases [U] in the same order;
      cuDNN adds two biases a gate, and the second four are zero so that all kernels share weights.
    """
    i, j, f, o = tf.split(tf.transpose(kernel), _GATES, axis=0)
    gates = (i, f, j, o)
    input_dim = kernel.shape[0] - num_units
    bias_i, bias_j, bias_f, bias_o = tf.split(bias, _GATES)
    matrices = [gate[:, :input_dim] for gate in gates] + [gate[:, input_dim:] for gate in gates]
    zero = tf.zeros_like(bias_i)
    return matrices, [bias_i, bias_f + forget_bias, bias_j, bias_o] + [zero] * _GATES


def _params(stack: lstm.LstmStack, weights: lstm.Weights) -> tf.Tensor:
    """cuDNN's buffer of all weights; its gradient is taken apart by the inverse op, as neither has a gradient."""
    matrices, biases = [], []
    for kernel, bias in weights:
        cell_matrices, cell_biases = to_cudnn(kernel, bias, stack.num_units, stack.forget_bias)
        matrices += cell_matrices
        biases += cell_biases
    # Dropout stays out: where the weights lie does not depend on it, and its generator needs memory.
    layout = {"num_layers": stack.num_layers, "num_units": stack.num_units, "input_size": stack.input_dim}
    layout |= _mode(stack)

    @tf.custom_gradient
    def pack(*parts: tf.Tensor):
        params = tf.raw_ops.CudnnRNNCanonicalToParams(
            weights=list(parts[: len(matrices)]), biases=list(parts[len(matrices) :]), **layout
        )

        def gradient(d_params: tf.Tensor) -> list[tf.Tensor]:
            canonical = tf.raw_ops.CudnnRNNParamsToCanonical(params=d_params, num_params=len(matrices), **layout)
            d_parts = [*canonical.weights, *canonical.biases]
            return [tf.reshape(d_part, part.shape) for d_part, part in zip(d_parts, parts, strict=True)]

        return params, gradient

    return pack(*matrices, *biases)
