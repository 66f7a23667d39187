"""cuDNN's fused LSTM, `CudnnRNNV3`: one call for all layers and directions, on NVIDIA GPUs only.

cuDNN keeps all weights in one opaque buffer. TensorFlow's `CudnnRNNCanonicalToParamsV2` fills it from separate
matrices and `CudnnRNNParamsToCanonicalV2` takes them out again; both ask cuDNN where each matrix lies, so nothing here
depends on its layout. What they want, for each cell: four input matrices [U, in] and four recurrent matrices
[U, U] with gates in the order i, f, c, o, and as many biases.

T: steps, B: sentences, D: width of the input, U: units.
Source: cuDNN API reference, cudnnRNNMode_t, CUDNN_LSTM; tensorflow/core/kernels/cudnn_rnn_ops.cc.
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
    attributes = {
        "rnn_mode": "lstm",
        "input_mode": "linear_input",
        "direction": "bidirectional" if stack.num_directions == 2 else "unidirectional",
        "dropout": stack.dropout,
        "seed": 1,
    }
    calls = itertools.count(1)

    def run(
        weights: lstm.Weights,
        inputs: tf.Tensor,
        lengths: tf.Tensor,
        initial_state: lstm.LstmState | None,
        seed: tf.Tensor,
    ) -> tuple[tf.Tensor, lstm.LstmState]:
        x = tf.cast(inputs, dtype)
        batch = tf.shape(x)[1 if stack.time_major else 0]
        state = lstm.zero_state(stack, batch) if initial_state is None else initial_state
        matrices, biases = [], []
        for kernel, bias in weights:
            cell_matrices, cell_biases = to_cudnn(kernel, bias, stack.num_units, stack.forget_bias)
            matrices += cell_matrices
            biases += cell_biases
        call = {**attributes, "seed2": next(calls)}
        params = _pack(stack, call, [tf.cast(w, dtype) for w in matrices], [tf.cast(b, dtype) for b in biases])
        result = tf.raw_ops.CudnnRNNV3(
            input=x,
            input_h=_cells_axis(stack, tf.cast(state.h, dtype)),
            input_c=_cells_axis(stack, tf.cast(state.c, dtype)),
            params=params,
            sequence_lengths=lengths,
            num_proj=0,
            is_training=True,
            time_major=stack.time_major,
            **call,
        )
        final = lstm.LstmState(_cells_axis(stack, result.output_c), _cells_axis(stack, result.output_h))
        return result.output, final

    return run


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


def _pack(stack: lstm.LstmStack, attributes: dict, matrices: list[tf.Tensor], biases: list[tf.Tensor]) -> tf.Tensor:
    """cuDNN's buffer of all weights; its gradient is taken apart by cuDNN's inverse, as neither op has one."""
    sizes = {
        "num_layers": stack.num_layers,
        "num_units": stack.num_units,
        "input_size": stack.input_dim,
        "num_proj": 0,
    }

    @tf.custom_gradient
    def pack(*weights: tf.Tensor):
        params = tf.raw_ops.CudnnRNNCanonicalToParamsV2(
            weights=list(weights[: len(matrices)]), biases=list(weights[len(matrices) :]), **sizes, **attributes
        )

        def gradient(d_params: tf.Tensor) -> list[tf.Tensor]:
            canonical = tf.raw_ops.CudnnRNNParamsToCanonicalV2(
                params=d_params,
                num_params_weights=len(matrices),
                num_params_biases=len(biases),
                **sizes,
                **attributes,
            )
            parts = list(canonical.weights) + list(canonical.biases)
            return [tf.reshape(part, w.shape) for part, w in zip(parts, weights, strict=True)]

        return params, gradient

    return pack(*matrices, *biases)


def _cells_axis(stack: lstm.LstmStack, state: tf.Tensor) -> tf.Tensor:
    """The states' layout [cells, B, U] is [B, cells, U] in the op when it is batch-major; and back."""
    return state if stack.time_major else tf.transpose(state, [1, 0, 2])
