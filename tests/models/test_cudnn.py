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
        case.weights, case.inputs, tf.constant(lstm_case.EQUAL), lstm.LstmState(case.c, case.h), tf.constant([1, 2])
    )
    np.testing.assert_allclose(c.T, want.c[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(h.T, want.h[0], rtol=0, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("time_major", [True, False])
def test_one_call_for_all_layers_with_the_right_shapes_and_gradients(tf, time_major, dtype):
    from models.encoders import cudnn

    stack = lstm_case.make_stack(2, 2, time_major=time_major, dropout=0.5, dtype=dtype)
    case = lstm_case.make_case(stack)
    with tf.Graph().as_default() as graph, tf.device("/device:GPU:0"):
        named = lstm_case.results_of_constants(tf, cudnn.build(stack), case, lstm_case.UNEQUAL)
    calls = [op for op in graph.get_operations() if op.type == "CudnnRNNV3"]
    assert len(calls) == 1
    assert [op.type for op in graph.get_operations()].count("CudnnRNNBackpropV3") == 1
    (call,) = calls
    attributes = {name: call.get_attr(name) for name in ("direction", "input_mode", "rnn_mode", "time_major", "num_proj")}
    assert attributes == {
        "direction": b"bidirectional",
        "input_mode": b"linear_input",
        "rnn_mode": b"lstm",
        "time_major": time_major,
        "num_proj": 0,
    }
    assert call.get_attr("is_training") and call.get_attr("dropout") == 0.5 and call.inputs[0].dtype == dtype
    # The op wants its states with the sentences first when it is batch-major.
    cells, batch, units = case.h.shape
    assert call.inputs[1].shape == ((cells, batch, units) if time_major else (batch, cells, units))
    sizes = (*case.inputs.shape[:2], units * 2)
    assert named["outputs"].shape.is_compatible_with(sizes)
    for name, array in (("d_inputs", case.inputs), ("d_c", case.c), ("d_h", case.h), ("c", case.c), ("h", case.h)):
        assert named[name].shape.is_compatible_with(array.shape), name
    for cell, (kernel, bias) in enumerate(case.weights):
        assert named[f"d_kernel_{cell}"].shape == kernel.shape
        assert named[f"d_bias_{cell}"].shape == bias.shape


def test_weights_go_to_cudnn_in_its_order_and_shapes(tf):
    from models.encoders import cudnn

    stack = lstm_case.make_stack(2, 2)
    case = lstm_case.make_case(stack)
    with tf.Graph().as_default() as graph, tf.device("/device:GPU:0"):
        lstm_case.results_of_constants(tf, cudnn.build(stack), case, lstm_case.UNEQUAL)
    (pack,) = (op for op in graph.get_operations() if op.type == "CudnnRNNCanonicalToParamsV2")
    shapes = [tuple(tensor.shape) for tensor in pack.inputs[3:]]
    want = []
    for cell in range(stack.num_cells):
        want += [(stack.num_units, stack.cell_input_dim(cell))] * 4 + [(stack.num_units, stack.num_units)] * 4
    assert shapes == want + [(stack.num_units,)] * 8 * stack.num_cells
    (unpack,) = (op for op in graph.get_operations() if op.type == "CudnnRNNParamsToCanonicalV2")
    assert len(unpack.outputs) == 2 * 8 * stack.num_cells
    for name in ("direction", "dropout", "seed", "seed2", "rnn_mode", "input_mode"):
        assert pack.get_attr(name) == unpack.get_attr(name)


def test_each_tower_draws_its_own_dropout(tf):
    from models.encoders import cudnn

    stack = lstm_case.make_stack(2, 1, dropout=0.5)
    case = lstm_case.make_case(stack)
    run = cudnn.build(stack)
    with tf.Graph().as_default() as graph, tf.device("/device:GPU:0"):
        for _ in range(2):
            lstm_case.results_of_constants(tf, run, case, lstm_case.EQUAL)
    seeds = {op.get_attr("seed2") for op in graph.get_operations() if op.type == "CudnnRNNV3"}
    assert len(seeds) == 2
