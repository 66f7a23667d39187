"""Every kernel with every cell against `models.stacks.build_reference`.

Outputs, final states and all gradients are compared. Tolerances are differences relative to
the largest entry of an array: float32 2e-5; bfloat16 0.04 and float16 0.005, about ten
units of their last place (2**-8, 2**-11) after five steps through two layers and back.
Normalized layers have three times the tolerance, because they divide rounding errors by
the deviation of six units.
"""

import functools
import importlib

import pytest

from rnn_scaling.models import encoder_table, stacks
from rnn_scaling.models.encoder_table import UNIT_TYPES
from rnn_scaling.models.encoders import dynamic_rnn
from tests.models import lstm_case

TOLERANCES = {"float32": 2e-5, "bfloat16": 0.04, "float16": 0.005}
_ENCODERS = "rnn_scaling.models.encoders"
# (module, cell) -> device type
PARITY_TESTED = {
    (f"{_ENCODERS}.block_lstm", "lstm"): "CPU",
    (f"{_ENCODERS}.dynamic_rnn", "lstm"): "CPU",
    (f"{_ENCODERS}.cudnn", "lstm"): "GPU",
    (f"{_ENCODERS}.gru_steps", "gru"): "CPU",
    (f"{_ENCODERS}.dynamic_rnn", "gru"): "CPU",
    (f"{_ENCODERS}.cudnn", "gru"): "GPU",
    (f"{_ENCODERS}.dynamic_rnn", "layer_norm_lstm"): "CPU",
    (f"{_ENCODERS}.dynamic_rnn", "nas"): "CPU",
}
# The test of dropout has two layers of one direction.
SHAPES = [(1, 1, True), (1, 2, False), (2, 2, True)]
# Layers and directions are the same code for all cells, and tracing large cells is slow, so
# other cells than the LSTM have one or two shapes.
PARITY = [
    (*key, *shape)
    for key in PARITY_TESTED
    for shape in (SHAPES if key[1] == "lstm" else SHAPES[:1])
]
PARITY.append((f"{_ENCODERS}.gru_steps", "gru", 1, 2, False))
PARITY.append((f"{_ENCODERS}.cudnn", "gru", 2, 2, True))
every_kernel_and_cell = pytest.mark.parametrize("module, cell", PARITY_TESTED)


@pytest.fixture(autouse=True)
def full_float32(tf):
    """Switch TF32 off, in which GPUs multiply float32 to three digits by default."""
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    yield
    tf.config.experimental.enable_tensor_float_32_execution(before)


@functools.cache
def reference(tf, cell, num_layers, num_directions, time_major, lengths):
    stack = lstm_case.make_stack(
        num_layers, num_directions, time_major=time_major, unit_type=cell
    )
    case = lstm_case.make_case(stack)
    return case, lstm_case.reference_results(tf, stack, case, lengths)


def load_where_it_runs(tf, module, cell):
    device_type = PARITY_TESTED[module, cell]
    if not tf.config.list_physical_devices(device_type):
        pytest.skip(f"{module} needs a {device_type}")
    return importlib.import_module(module)


@functools.cache
def trace_kernel(tf, module, cell, num_layers, num_directions, time_major):
    """Return the kernel in one tf.function for sentences of any lengths."""
    stack = lstm_case.make_stack(
        num_layers, num_directions, time_major=time_major, unit_type=cell
    )
    return lstm_case.trace_results(
        tf,
        load_where_it_runs(tf, module, cell).build(stack),
        stack,
        lstm_case.make_case(stack),
    )


def test_every_kernel_of_the_table_is_tested_here():
    named = {
        (f"{_ENCODERS}.{module}", cell)
        for kernel in encoder_table.ENCODERS.values()
        for module in (kernel.gpu, kernel.cpu)
        for cell in kernel.cells
    }
    assert named == set(PARITY_TESTED)


def test_the_default_kernel_of_a_cell_is_a_fused_one_if_it_exists():
    fused = {"lstm": "cudnn_lstm", "gru": "cudnn_gru"}
    for cell in UNIT_TYPES:
        assert encoder_table.list_encoders(cell)[0] == fused.get(cell, "dynamic_rnn")
        assert encoder_table.load(None, "GPU", cell) is encoder_table.load(
            encoder_table.list_encoders(cell)[0], "GPU", cell
        )


@pytest.mark.parametrize(
    "lengths", [lstm_case.EQUAL, lstm_case.UNEQUAL], ids=["equal", "unequal"]
)
@pytest.mark.parametrize("module, cell, num_layers, num_directions, time_major", PARITY)
def test_parity(
    tf, module, cell, num_layers, num_directions, time_major, lengths, request
):
    """Large time-major graphs run after TensorFlow's rewrites, other graphs as built."""
    if not (num_layers == num_directions == 2 and time_major):
        request.getfixturevalue("as_built")
    got = trace_kernel(tf, module, cell, num_layers, num_directions, time_major)(
        lengths
    )
    _, want = reference(tf, cell, num_layers, num_directions, time_major, lengths)
    lstm_case.assert_near(got, want, TOLERANCES["float32"])


@pytest.mark.usefixtures("as_built")
@pytest.mark.parametrize("cell, num_directions", [("lstm", 2), ("gru", 1)])
def test_the_loop_takes_all_steps_of_padded_sentences(
    tf, cell, num_directions, monkeypatch
):
    """Tracing reads only the steps; without them, the loop ends with the longest."""
    stack = lstm_case.make_stack(1, num_directions, unit_type=cell)
    lengths = (3, 1, 2)
    taken = []
    case = lstm_case.make_case(stack)
    want = lstm_case.reference_results(tf, stack, case, lengths)
    step = stacks.RecurrentStack.step

    def counted(self, x, state, weights):
        x = tf.ensure_shape(
            tf.numpy_function(lambda value: taken.append(1) or value, [x], x.dtype),
            x.shape,
        )
        return step(self, x, state, weights)

    for steps in (lstm_case.NUM_STEPS, None):
        got = lstm_case.trace_results(tf, dynamic_rnn.build(stack), stack, case, steps)(
            lengths
        )
        lstm_case.assert_near(got, want, TOLERANCES["float32"])
        inputs, _ = lstm_case.tensors(tf, case, lengths)
        with monkeypatch.context() as patch:
            patch.setattr(stacks.RecurrentStack, "step", counted)
            signature = [
                tf.TensorSpec([steps, None, lstm_case.INPUT_DIM]),
                tf.TensorSpec([None], tf.int32),
            ]
            forward = tf.function(
                lambda x, ends: dynamic_rnn.build(stack)(
                    case.weights, x, ends, None, None
                ),
                signature,
                autograph=False,
            )
            taken.clear()
            forward(inputs, tf.constant(lengths))
        assert len(taken) == num_directions * (steps or max(lengths))


# Loops over the steps of other cells differ only by their step: bfloat16 is enough.
REDUCED = [(*key, "bfloat16") for key in PARITY_TESTED]
REDUCED += [
    (*key, "float16")
    for key in PARITY_TESTED
    if key[1] == "lstm" or "dynamic_rnn" not in key[0]
]


@pytest.mark.usefixtures("as_built")
@pytest.mark.parametrize("module, cell, dtype", REDUCED)
def test_reduced_precision_is_close_to_float32(tf, module, cell, dtype):
    kernel = load_where_it_runs(tf, module, cell)
    sizes = (2, 1) if cell == "lstm" else (1, 1)
    case, want = reference(tf, cell, *sizes, True, lstm_case.UNEQUAL)
    stack = lstm_case.make_stack(*sizes, dtype=dtype, unit_type=cell)
    got = lstm_case.trace_results(tf, kernel.build(stack), stack, case)(
        lstm_case.UNEQUAL
    )
    factor = 3 if cell == "layer_norm_lstm" else 1
    assert lstm_case.assert_near(got, want, TOLERANCES[dtype] * factor) > 0


@pytest.mark.usefixtures("as_built")
@pytest.mark.parametrize(
    "module, cell",
    [
        (f"{_ENCODERS}.block_lstm", "lstm"),
        (f"{_ENCODERS}.gru_steps", "gru"),
        (f"{_ENCODERS}.dynamic_rnn", "lstm"),
    ],
)
def test_dropout_agrees_with_the_reference(tf, module, cell):
    stack = lstm_case.make_stack(2, 1, dropout=0.5, unit_type=cell)
    case = lstm_case.make_case(stack)
    kernel = load_where_it_runs(tf, module, cell)
    want = lstm_case.reference_results(tf, stack, case, lstm_case.UNEQUAL)
    got = lstm_case.trace_results(tf, kernel.build(stack), stack, case)(
        lstm_case.UNEQUAL
    )
    lstm_case.assert_near(got, want, TOLERANCES["float32"])


@every_kernel_and_cell
def test_the_name_of_a_kernel_is_what_runs(tf, module, cell):
    for dtype in TOLERANCES:
        stack = lstm_case.make_stack(1, 1, dtype=dtype, unit_type=cell)
        with tf.Graph().as_default() as graph:
            case = lstm_case.make_case(stack)
            arguments = [tf.constant(case.inputs), tf.constant(lstm_case.EQUAL)]
            kernel = importlib.import_module(module)
            weights = [tuple(map(tf.constant, of_cell)) for of_cell in case.weights]
            kernel.build(stack)(weights, *arguments, None, None)
        ran = {op.type for op in graph.get_operations()}
        name = kernel.kernel_name(stack)
        for operator in ("BlockLSTM", "CudnnRNNV3"):
            assert (operator in name) == (operator in ran)
        assert cell == "lstm" or UNIT_TYPES[cell].title in name
