"""Every kernel, of each of its cells, against `models.stacks.reference`: outputs, final states and all gradients.

Tolerances are differences relative to the largest entry of an array: float32 2e-5; bfloat16 0.04 and float16 0.005,
some ten units of their last place (2**-8, 2**-11) after five steps through two layers and back. Three times that where
layers are normalized: what a product was rounded by is divided by the deviation of six units.
"""

import functools
import importlib

import pytest

from rnn_scaling.models import kernels
from rnn_scaling.models.kernels import UNIT_TYPES
from tests.models import lstm_case

TOLERANCES = {"float32": 2e-5, "bfloat16": 0.04, "float16": 0.005}
PARITY_TESTED = {  # (module, cell) -> where it runs
    ("rnn_scaling.models.encoders.block_lstm", "lstm"): "CPU",
    ("rnn_scaling.models.encoders.dynamic_rnn", "lstm"): "CPU",
    ("rnn_scaling.models.encoders.cudnn", "lstm"): "GPU",
    ("rnn_scaling.models.encoders.gru_steps", "gru"): "CPU",
    ("rnn_scaling.models.encoders.dynamic_rnn", "gru"): "CPU",
    ("rnn_scaling.models.encoders.cudnn", "gru"): "GPU",
    ("rnn_scaling.models.encoders.dynamic_rnn", "layer_norm_lstm"): "CPU",
    ("rnn_scaling.models.encoders.dynamic_rnn", "nas"): "CPU",
}
FUSED = [
    ("rnn_scaling.models.encoders.block_lstm", "lstm"),
    ("rnn_scaling.models.encoders.gru_steps", "gru"),
]
# Two layers of one direction are those of the test of dropout.
SHAPES = [(1, 1, True), (1, 2, False), (2, 2, True)]
# Layers and directions are the same code for every cell, and graphs of large cells take seconds: one or two shapes do.
PARITY = [
    (*key, *shape)
    for key in PARITY_TESTED
    for shape in (SHAPES if key[1] == "lstm" else SHAPES[:1])
]
PARITY.append(("rnn_scaling.models.encoders.gru_steps", "gru", 1, 2, False))
PARITY.append(("rnn_scaling.models.encoders.cudnn", "gru", 2, 2, True))
every_kernel_and_cell = pytest.mark.parametrize("module, cell", PARITY_TESTED)


@pytest.fixture(autouse=True)
def full_float32(tf):
    """GPUs multiply float32 in TF32 unless told otherwise, to three digits."""
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    yield
    tf.config.experimental.enable_tensor_float_32_execution(before)


@functools.cache
def reference(tf, cell, num_layers, num_directions, time_major, lengths):
    from rnn_scaling.models import stacks

    stack = lstm_case.make_stack(
        num_layers, num_directions, time_major=time_major, unit_type=cell
    )
    case = lstm_case.make_case(stack)
    return case, lstm_case.results_of_constants(
        tf, stacks.reference(stack), stack, case, lengths
    )


def load_where_it_runs(tf, module, cell):
    device_type = PARITY_TESTED[module, cell]
    if not tf.config.list_physical_devices(device_type):
        pytest.skip(f"{module} needs a {device_type}")
    return importlib.import_module(module)


@functools.cache
def traced(tf, module, cell, num_layers, num_directions, time_major):
    """The kernel in one tf.function for sentences of any lengths."""
    stack = lstm_case.make_stack(
        num_layers, num_directions, time_major=time_major, unit_type=cell
    )
    return lstm_case.traced(
        tf,
        load_where_it_runs(tf, module, cell).build(stack),
        stack,
        lstm_case.make_case(stack),
    )


def test_every_kernel_of_the_table_is_tested_here():
    named = {
        (f"rnn_scaling.models.encoders.{module}", cell)
        for kernel in kernels.KERNELS.values()
        for module in (kernel.gpu, kernel.cpu)
        for cell in kernel.cells
    }
    assert named == set(PARITY_TESTED)


def test_the_first_kernel_of_a_cell_is_the_fused_one_where_there_is_one():
    fused = {"lstm": "cudnn_lstm", "gru": "cudnn_gru"}
    for cell in UNIT_TYPES:
        assert kernels.of_cell(cell)[0] == fused.get(cell, "dynamic_rnn")
        assert kernels.load(None, "GPU", cell) is kernels.load(
            kernels.of_cell(cell)[0], "GPU", cell
        )


@pytest.mark.parametrize(
    "lengths", [lstm_case.EQUAL, lstm_case.UNEQUAL], ids=["equal", "unequal"]
)
@pytest.mark.parametrize("module, cell, num_layers, num_directions, time_major", PARITY)
def test_parity(
    tf, module, cell, num_layers, num_directions, time_major, lengths, request
):
    """As TensorFlow rewrites the graph where there are layers and directions, time first; as it is built elsewhere."""
    if not (num_layers == num_directions == 2 and time_major):
        request.getfixturevalue("as_built")
    got = traced(tf, module, cell, num_layers, num_directions, time_major)(lengths)
    _, want = reference(tf, cell, num_layers, num_directions, time_major, lengths)
    error, name = lstm_case.largest_error(got, want)
    assert error <= TOLERANCES["float32"], name


@pytest.mark.usefixtures("as_built")
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_the_loop_takes_all_steps_of_padded_sentences(tf, cell, monkeypatch):
    """Where the steps are known when tracing and the lengths are not; else it ends with the longest sentence."""
    from rnn_scaling.models import stacks
    from rnn_scaling.models.encoders import dynamic_rnn

    stack, lengths, taken = lstm_case.make_stack(1, 2, unit_type=cell), (3, 1, 2), []
    case = lstm_case.make_case(stack)
    want = lstm_case.results_of_constants(
        tf, stacks.reference(stack), stack, case, lengths
    )
    step = stacks.RecurrentStack.step

    def counted(self, x, state, weights):
        x = tf.ensure_shape(
            tf.numpy_function(lambda value: taken.append(1) or value, [x], x.dtype),
            x.shape,
        )
        return step(self, x, state, weights)

    for steps, num_taken in (
        (lstm_case.NUM_STEPS, lstm_case.NUM_STEPS),
        (None, max(lengths)),
    ):
        got = lstm_case.traced(tf, dynamic_rnn.build(stack), stack, case, steps)(
            lengths
        )
        error, name = lstm_case.largest_error(got, want)
        assert error <= TOLERANCES["float32"], name
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
        assert len(taken) == 2 * num_taken  # two directions


# Of loops over other cells' steps bfloat16 alone: they differ by their step.
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
    sizes = (2, 2) if cell == "lstm" else (1, 1)
    case, want = reference(tf, cell, *sizes, True, lstm_case.UNEQUAL)
    stack = lstm_case.make_stack(*sizes, dtype=dtype, unit_type=cell)
    got = lstm_case.traced(tf, kernel.build(stack), stack, case)(lstm_case.UNEQUAL)
    error, name = lstm_case.largest_error(got, want)
    assert 0 < error <= TOLERANCES[dtype] * (3 if cell == "layer_norm_lstm" else 1), (
        name
    )


@pytest.mark.usefixtures("as_built")
@pytest.mark.parametrize(
    "module, cell", [*FUSED, ("rnn_scaling.models.encoders.dynamic_rnn", "lstm")]
)
def test_dropout_is_the_references(tf, module, cell):
    from rnn_scaling.models import stacks

    stack = lstm_case.make_stack(2, 1, dropout=0.5, unit_type=cell)
    case = lstm_case.make_case(stack)
    kernel = load_where_it_runs(tf, module, cell)
    want = lstm_case.results_of_constants(
        tf, stacks.reference(stack), stack, case, lstm_case.UNEQUAL
    )
    got = lstm_case.traced(tf, kernel.build(stack), stack, case)(lstm_case.UNEQUAL)
    error, name = lstm_case.largest_error(got, want)
    assert error <= TOLERANCES["float32"], name


@every_kernel_and_cell
def test_the_kernel_says_what_runs(tf, module, cell):
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
        assert (("BlockLSTM" in name) == ("BlockLSTM" in ran)) and (
            ("CudnnRNNV3" in name) == ("CudnnRNNV3" in ran)
        )
        assert cell == "lstm" or UNIT_TYPES[cell].title in name
