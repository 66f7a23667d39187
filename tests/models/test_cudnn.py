"""What can be known of the cuDNN kernel without a GPU: its equations' weights, and the graph it makes.

The kernel itself runs in test_kernels.py where a GPU is visible.
"""

import numpy as np
import pytest

from tests.models import lstm_case


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_weights_in_cudnns_equations_give_the_reference(tf):
    """The equations of CUDNN_LSTM in NVIDIA's API reference, with both of its biases."""
    from models import lstm
    from models.encoders import cudnn

    stack = lstm_case.make_stack(1, 1, forget_bias=0.7)
    case = lstm_case.make_case(stack)
    (kernel, bias) = case.weights[0]
    matrices, biases = cudnn.to_cudnn(tf.constant(kernel), tf.constant(bias), stack.num_units, stack.forget_bias)
    w_i, w_f, w_c, w_o, r_i, r_f, r_c, r_o = (np.asarray(m) for m in matrices)
    b_wi, b_wf, b_wc, b_wo, b_ri, b_rf, b_rc, b_ro = (np.asarray(b) for b in biases)
    c, h = case.c[0].T, case.h[0].T
    for x in case.inputs:
        x = x.T
        i = sigmoid(w_i @ x + r_i @ h + (b_wi + b_ri)[:, None])
        f = sigmoid(w_f @ x + r_f @ h + (b_wf + b_rf)[:, None])
        o = sigmoid(w_o @ x + r_o @ h + (b_wo + b_ro)[:, None])
        c = f * c + i * np.tanh(w_c @ x + r_c @ h + (b_wc + b_rc)[:, None])
        h = o * np.tanh(c)
    _, want = lstm.reference(stack)(
        case.weights, *lstm_case.tensors(tf, case, lstm_case.EQUAL), lstm.LstmState(case.c, case.h), tf.constant([1, 2])
    )
    np.testing.assert_allclose(c.T, want.c[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(h.T, want.h[0], rtol=0, atol=1e-6)


def trace(tf, stack, case, lengths, run=None):
    """The kernel's graph, and `lstm_case.results` in it; nothing runs."""
    from models.encoders import cudnn

    with tf.Graph().as_default() as graph, tf.device("/device:GPU:0"):
        return graph, lstm_case.results_of_constants(tf, run or cudnn.build(stack), case, lengths)


def the_only(graph, op_type):
    (op,) = (op for op in graph.get_operations() if op.type == op_type)
    return op


@pytest.mark.parametrize("dtype, op_dtype", [("float32", "float32"), ("bfloat16", "float32"), ("float16", "float16")])
@pytest.mark.parametrize("time_major", [True, False])
def test_one_call_for_all_layers_with_the_right_shapes_and_gradients(tf, time_major, dtype, op_dtype):
    stack = lstm_case.make_stack(2, 2, time_major=time_major, dropout=0.5, dtype=dtype)
    case = lstm_case.make_case(stack)
    graph, named = trace(tf, stack, case, lstm_case.UNEQUAL)
    call, backward = the_only(graph, "CudnnRNNV3"), the_only(graph, "CudnnRNNBackpropV3")
    for op in (call, backward):
        assert op.get_attr("direction") == b"bidirectional" and op.get_attr("rnn_mode") == b"lstm"
        assert op.get_attr("input_mode") == b"linear_input" and op.get_attr("num_proj") == 0
        assert op.get_attr("dropout") == 0.5 and op.inputs[0].dtype == op_dtype
    assert call.get_attr("is_training")
    for name, array in (("d_inputs", case.inputs), ("d_c", case.c), ("d_h", case.h), ("c", case.c), ("h", case.h)):
        assert named[name].shape.is_compatible_with(array.shape), name
    assert named["outputs"].shape.is_compatible_with((*case.inputs.shape[:2], 2 * stack.num_units))
    for cell, (kernel, bias) in enumerate(case.weights):
        assert named[f"d_kernel_{cell}"].shape == kernel.shape
        assert named[f"d_bias_{cell}"].shape == bias.shape


@pytest.mark.parametrize(
    "time_major, lengths, call_time_major",
    [
        (True, lstm_case.EQUAL, True),
        (True, lstm_case.UNEQUAL, False),
        (False, lstm_case.EQUAL, False),
        (False, lstm_case.UNEQUAL, False),
    ],
)
def test_the_call_is_batch_major_unless_all_sentences_are_known_to_be_full(tf, time_major, lengths, call_time_major):
    stack = lstm_case.make_stack(2, 2, time_major=time_major)
    graph, _ = trace(tf, stack, lstm_case.make_case(stack), lengths)
    call = the_only(graph, "CudnnRNNV3")
    steps, batch, cells, units = lstm_case.NUM_STEPS, lstm_case.BATCH, stack.num_cells, stack.num_units
    assert call.get_attr("time_major") == call_time_major
    assert tuple(call.inputs[0].shape[:2]) == ((steps, batch) if call_time_major else (batch, steps))
    for states in call.inputs[1:3]:
        assert tuple(states.shape) == ((cells, batch, units) if call_time_major else (batch, cells, units))


def test_lengths_that_tracing_does_not_know_make_the_call_batch_major(tf):
    from models.encoders import cudnn

    stack = lstm_case.make_stack(1, 1)
    case = lstm_case.make_case(stack)
    with tf.Graph().as_default() as graph, tf.device("/device:GPU:0"):
        lengths = tf.compat.v1.placeholder(tf.int32, [lstm_case.BATCH])
        cudnn.build(stack)(case.weights, tf.constant(case.inputs), lengths, None, None)
    assert not the_only(graph, "CudnnRNNV3").get_attr("time_major")


def test_weights_go_to_cudnn_in_its_order_and_shapes(tf):
    stack = lstm_case.make_stack(2, 2)
    graph, _ = trace(tf, stack, lstm_case.make_case(stack), lstm_case.UNEQUAL)
    pack, unpack = the_only(graph, "CudnnRNNCanonicalToParams"), the_only(graph, "CudnnRNNParamsToCanonical")
    want = []
    for cell in range(stack.num_cells):
        want += [(stack.num_units, stack.cell_input_dim(cell))] * 4 + [(stack.num_units, stack.num_units)] * 4
    assert [tuple(tensor.shape) for tensor in pack.inputs[3:]] == want + [(stack.num_units,)] * len(want)
    assert len(unpack.outputs) == 2 * len(want)
    for name in ("direction", "dropout", "rnn_mode", "input_mode"):
        assert pack.get_attr(name) == unpack.get_attr(name)
    for op in (pack, unpack):
        sizes = [int(tf.get_static_value(size)) for size in op.inputs[:3]]
        assert sizes == [stack.num_layers, stack.num_units, stack.input_dim]


def test_each_tower_draws_its_own_dropout(tf):
    from models.encoders import cudnn

    stack = lstm_case.make_stack(2, 1, dropout=0.5)
    case = lstm_case.make_case(stack)
    run = cudnn.build(stack)
    seeds = {
        the_only(trace(tf, stack, case, lstm_case.EQUAL, run)[0], "CudnnRNNV3").get_attr("seed2") for _ in range(2)
    }
    assert len(seeds) == 2
