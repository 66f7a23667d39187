"""The cuDNN kernel without a GPU: the buffer of its weights, and its graph.

The kernel itself runs in test_kernels.py if a GPU is visible: on a GPU, run those tests
before any measurement.
"""

import numpy as np
import pytest

from rnn_scaling.models import stacks
from rnn_scaling.models.encoder_table import ENCODERS, UNIT_TYPES
from rnn_scaling.models.encoders import cudnn
from tests.models import lstm_case


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def read_buffer(buffer, gates, input_dim, units, num_layers, num_directions):
    """Return (input matrices, recurrent matrices, biases) per pseudo-layer of a buffer.

    The matrices of all pseudo-layers come before all biases. This follows the description
    in jax/experimental/rnn.py, not the code under test. The gates (linLayerID of
    cudnnGetRNNWeightParams) are i, f, c, o of an LSTM, and reset, update, new memory of a
    GRU.
    """
    offset = 0

    def take(*shape):
        nonlocal offset
        start = offset
        offset += int(np.prod(shape))
        return buffer[start:offset].reshape(shape)

    matrices = []
    for pseudo_layer in range(num_layers * num_directions):
        width = input_dim if pseudo_layer < num_directions else num_directions * units
        matrices.append((take(gates, units, width), take(gates, units, units)))
    cells = [(*pair, take(2, gates, units)) for pair in matrices]
    assert offset == len(buffer)
    return cells


def compute_cudnn_gru(cell, words, h):
    """Compute one sentence in one pseudo-layer: words [T, D] -> outputs [T, U], h.

    Source: NVIDIA, cuDNN API reference, cudnnRNNMode_t, CUDNN_GRU.
    """
    (w_r, w_i, w_h), (r_r, r_i, r_h), ((b_wr, b_wi, b_wh), (b_rr, b_ri, b_rh)) = cell
    outputs = []
    for x in words:
        i = sigmoid(w_i @ x + r_i @ h + b_wi + b_ri)
        r = sigmoid(w_r @ x + r_r @ h + b_wr + b_rr)
        new = np.tanh(w_h @ x + r * (r_h @ h + b_rh) + b_wh)
        h = (1 - i) * new + i * h
        outputs.append(h)
    return np.array(outputs), h


def compute_cudnn_lstm(cell, words, c, h):
    """Compute one sentence in one pseudo-layer: words [T, D] -> outputs [T, U], c, h.

    Source: NVIDIA, cuDNN API reference, cudnnRNNMode_t, CUDNN_LSTM.
    """
    (
        (w_i, w_f, w_c, w_o),
        (r_i, r_f, r_c, r_o),
        ((b_wi, b_wf, b_wc, b_wo), (b_ri, b_rf, b_rc, b_ro)),
    ) = cell
    outputs = []
    for x in words:
        i = sigmoid(w_i @ x + r_i @ h + b_wi + b_ri)
        f = sigmoid(w_f @ x + r_f @ h + b_wf + b_rf)
        o = sigmoid(w_o @ x + r_o @ h + b_wo + b_ro)
        c = f * c + i * np.tanh(w_c @ x + r_c @ h + b_wc + b_rc)
        h = o * np.tanh(c)
        outputs.append(h)
    return np.array(outputs), c, h


EQUATIONS = {
    "lstm": (4, compute_cudnn_lstm),
    "gru": (3, compute_cudnn_gru),
}  # gates of a cell, and what they do
every_cell = pytest.mark.parametrize("cell", EQUATIONS)


def test_every_cell_that_cudnn_computes_is_tested_here():
    assert {
        cell
        for row in ENCODERS.values()
        if row.gpu.endswith("cudnn")
        for cell in row.cells
    } == set(EQUATIONS)


def num_params(stack):
    """Return the size of the buffer: per gate [U, D], [U, U] and two biases [U]."""
    inputs = sum(
        stack.find_input_dim(cell) + stack.num_units + 2
        for cell in range(stack.num_cells)
    )
    return UNIT_TYPES[stack.unit_type].matrices * stack.num_units * inputs


@every_cell
@pytest.mark.parametrize("num_layers, num_directions", [(1, 1), (2, 1), (1, 2), (3, 2)])
def test_the_buffer_in_cudnns_equations_gives_the_reference(
    tf, num_layers, num_directions, cell
):
    """Compare all layers and directions, with sentences of several lengths."""
    stack = lstm_case.make_stack(
        num_layers, num_directions, forget_bias=0.7, unit_type=cell
    )
    case = lstm_case.make_case(stack)
    buffer = np.asarray(
        cudnn.pack_params(
            stack, [tuple(map(tf.constant, of_cell)) for of_cell in case.weights]
        )
    )
    assert len(buffer) == num_params(stack)
    gates, run_cudnns_equations = EQUATIONS[cell]
    cells = read_buffer(
        buffer, gates, stack.input_dim, stack.num_units, num_layers, num_directions
    )
    outputs, final = stacks.build_reference(stack)(
        case.weights,
        *lstm_case.tensors(tf, case, lstm_case.UNEQUAL),
        case.state,
        tf.constant([1, 2]),
    )
    for sentence, length in enumerate(lstm_case.UNEQUAL):
        words = case.inputs[:length, sentence]
        for layer in range(num_layers):
            sides = []
            for direction in range(num_directions):
                number = layer * num_directions + direction
                start = [state[number, sentence] for state in case.state]
                side, *last = run_cudnns_equations(
                    cells[number], words[::-1] if direction else words, *start
                )
                sides.append(side[::-1] if direction else side)
                for got, want in zip(last, final, strict=True):
                    np.testing.assert_allclose(
                        got, want[number, sentence], rtol=0, atol=1e-6
                    )
            words = np.concatenate(sides, axis=1)
        np.testing.assert_allclose(words, outputs[:length, sentence], rtol=0, atol=1e-6)


def trace(tf, stack, case, lengths, run=None):
    """Return the kernel's graph and `lstm_case.results` in it; nothing runs."""
    with tf.Graph().as_default() as graph, tf.device("/device:GPU:0"):
        return graph, lstm_case.compute_results_of_constants(
            tf, run or cudnn.build(stack), stack, case, lengths
        )


def find_only(graph, op_type):
    [op] = (op for op in graph.get_operations() if op.type == op_type)
    return op


@pytest.mark.parametrize(
    "dtype, op_dtype",
    [("float32", "float32"), ("bfloat16", "float32"), ("float16", "float16")],
)
@pytest.mark.parametrize("time_major", [True, False])
@every_cell
def test_one_call_for_all_layers_with_the_right_shapes_and_gradients(
    tf, cell, time_major, dtype, op_dtype
):
    stack = lstm_case.make_stack(
        2, 2, time_major=time_major, dropout=0.5, dtype=dtype, unit_type=cell
    )
    case = lstm_case.make_case(stack)
    graph, named = trace(tf, stack, case, lstm_case.UNEQUAL)
    call, backward = (
        find_only(graph, "CudnnRNNV3"),
        find_only(graph, "CudnnRNNBackpropV3"),
    )
    for op in (call, backward):
        assert op.get_attr("direction") == b"bidirectional"
        assert op.get_attr("rnn_mode") == cell.encode()
        assert op.get_attr("input_mode") == b"linear_input"
        assert op.get_attr("num_proj") == 0
        assert op.get_attr("dropout") == 0.5 and op.inputs[0].dtype == op_dtype
    assert call.get_attr("is_training")
    states = {
        prefix + name: array
        for name, array in zip(stack.cell.STATE, case.state)
        for prefix in ("", "d_")
    }
    for name, array in {"d_inputs": case.inputs, **states}.items():
        assert named[name].shape.is_compatible_with(array.shape), name
    assert named["outputs"].shape.is_compatible_with(
        (*case.inputs.shape[:2], 2 * stack.num_units)
    )
    for number, of_cell in enumerate(case.weights):
        for spec, weight in zip(stack.list_cell_weights(number), of_cell, strict=True):
            assert named[f"d_{spec.name}_{number}"].shape == weight.shape


@pytest.mark.parametrize("time_major", [True, False])
@pytest.mark.parametrize("lengths", [lstm_case.EQUAL, lstm_case.UNEQUAL, None])
def test_the_call_is_batch_major_unless_tracing_shows_full_sentences(
    tf, time_major, lengths
):
    """Pass None as `lengths` to make them unknown while tracing."""
    stack = lstm_case.make_stack(2, 2, time_major=time_major)
    case = lstm_case.make_case(stack)
    with tf.Graph().as_default() as graph, tf.device("/device:GPU:0"):
        tensor = tf.compat.v1.placeholder(tf.int32, [lstm_case.BATCH])
        if lengths is not None:
            tensor = tf.constant(lengths)
        cudnn.build(stack)(case.weights, tf.constant(case.inputs), tensor, None, None)
    call = find_only(graph, "CudnnRNNV3")
    is_full = lengths == lstm_case.EQUAL
    assert call.get_attr("time_major") == (time_major and is_full)
    sizes = (lstm_case.NUM_STEPS, lstm_case.BATCH)
    state_sizes = (stack.num_cells, lstm_case.BATCH)
    if not (time_major and is_full):
        sizes = sizes[::-1]
        state_sizes = state_sizes[::-1]
    assert tuple(call.inputs[0].shape[:2]) == sizes
    for states in call.inputs[1:3]:
        assert tuple(states.shape) == (*state_sizes, stack.num_units)


def test_the_call_takes_the_buffer_of_all_weights(tf):
    stack = lstm_case.make_stack(2, 2)
    graph, _ = trace(tf, stack, lstm_case.make_case(stack), lstm_case.UNEQUAL)
    assert find_only(graph, "CudnnRNNV3").inputs[3].shape == [num_params(stack)]
    # They end the process with cuDNN 8.1 and later.
    assert not [op for op in graph.get_operations() if "Canonical" in op.type]


def test_each_tower_draws_another_dropout(tf):
    stack = lstm_case.make_stack(2, 1, dropout=0.5)
    case = lstm_case.make_case(stack)
    run = cudnn.build(stack)
    seeds = set()
    for _ in range(2):
        graph, _ = trace(tf, stack, case, lstm_case.EQUAL, run)
        seeds.add(find_only(graph, "CudnnRNNV3").get_attr("seed2"))
    assert len(seeds) == 2
