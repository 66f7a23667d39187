"""Every kernel against `models.lstm.reference`: outputs, final states and all gradients.

Tolerances are differences relative to the largest entry of an array: float32 2e-5; bfloat16 0.04 and float16 0.005,
some ten units of their last place (2**-8, 2**-11) after five steps through two layers and back.
"""

import functools
import importlib

import pytest

from models import kernels
from tests.models import lstm_case

TOLERANCES = {"float32": 2e-5, "bfloat16": 0.04, "float16": 0.005}
PARITY_TESTED = {
    "models.encoders.block_lstm": "CPU",
    "models.encoders.dynamic_rnn": "CPU",
    "models.encoders.cudnn": "GPU",
}
SHAPES = [(1, 1, True), (2, 2, False), (2, 1, False), (2, 2, True)]
MODULES = sorted(PARITY_TESTED)


@pytest.fixture(autouse=True)
def full_float32(tf):
    """GPUs multiply float32 in TF32 unless told otherwise, to three digits."""
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    yield
    tf.config.experimental.enable_tensor_float_32_execution(before)


@functools.cache
def reference(tf, num_layers, num_directions, time_major, lengths):
    from models import lstm

    stack = lstm_case.make_stack(num_layers, num_directions, time_major=time_major)
    case = lstm_case.make_case(stack)
    return case, lstm_case.results_of_constants(tf, lstm.reference(stack), case, lengths)


def load_where_it_runs(tf, module):
    device_type = PARITY_TESTED[module]
    if not tf.config.list_physical_devices(device_type):
        pytest.skip(f"{module} needs a {device_type}")
    return importlib.import_module(module)


@functools.cache
def traced(tf, module, num_layers, num_directions, time_major):
    """The kernel in one tf.function for sentences of any lengths."""
    stack = lstm_case.make_stack(num_layers, num_directions, time_major=time_major)
    return lstm_case.traced(tf, load_where_it_runs(tf, module).build(stack), stack, lstm_case.make_case(stack))


def test_every_kernel_of_the_table_is_tested_here():
    assert {path for each in kernels.KERNELS.values() for path in (each.gpu, each.cpu)} == set(PARITY_TESTED)


def test_an_unknown_kernel_is_an_error():
    with pytest.raises(ValueError, match="expected one of .*cudnn_lstm.*, got warp"):
        kernels.load("warp", "CPU")


@pytest.mark.parametrize("lengths", [lstm_case.EQUAL, lstm_case.UNEQUAL], ids=["equal", "unequal"])
@pytest.mark.parametrize("num_layers, num_directions, time_major", SHAPES)
@pytest.mark.parametrize("module", MODULES)
def test_parity(tf, module, num_layers, num_directions, time_major, lengths):
    got = traced(tf, module, num_layers, num_directions, time_major)(lengths)
    _, want = reference(tf, num_layers, num_directions, time_major, lengths)
    error, name = lstm_case.largest_error(got, want)
    assert error <= TOLERANCES["float32"], name


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("module", MODULES)
def test_reduced_precision_is_close_to_float32(tf, module, dtype):
    kernel = load_where_it_runs(tf, module)
    case, want = reference(tf, 2, 2, True, lstm_case.UNEQUAL)
    stack = lstm_case.make_stack(2, 2, dtype=dtype)
    got = lstm_case.traced(tf, kernel.build(stack), stack, case)(lstm_case.UNEQUAL)
    error, name = lstm_case.largest_error(got, want)
    assert 0 < error <= TOLERANCES[dtype], name


@pytest.mark.parametrize("module", [m for m in MODULES if PARITY_TESTED[m] == "CPU"])
def test_dropout_is_the_references(tf, module):
    from models import lstm

    stack = lstm_case.make_stack(2, 2, dropout=0.5)
    case = lstm_case.make_case(stack)
    kernel = load_where_it_runs(tf, module)
    want = lstm_case.results_of_constants(tf, lstm.reference(stack), case, lstm_case.UNEQUAL)
    got = lstm_case.traced(tf, kernel.build(stack), stack, case)(lstm_case.UNEQUAL)
    error, name = lstm_case.largest_error(got, want)
    assert error <= TOLERANCES["float32"], name


@pytest.mark.parametrize("module", MODULES)
def test_the_kernel_says_what_runs(tf, module):
    for dtype in TOLERANCES:
        stack = lstm_case.make_stack(1, 1, dtype=dtype)
        with tf.Graph().as_default() as graph:
            case = lstm_case.make_case(stack)
            arguments = [tf.constant(case.inputs), tf.constant(lstm_case.EQUAL)]
            kernel = importlib.import_module(module)
            kernel.build(stack)([(tf.constant(k), tf.constant(b)) for k, b in case.weights], *arguments, None, None)
        ran = {op.type for op in graph.get_operations()}
        name = kernel.kernel_name(stack)
        assert (("BlockLSTM" in name) == ("BlockLSTM" in ran)) and (("CudnnRNNV3" in name) == ("CudnnRNNV3" in ran))


def test_block_lstm_inside_mirrored_strategy_and_on_a_given_device(tf, devices):
    from models.encoders import block_lstm

    case, want = reference(tf, 2, 2, True, lstm_case.UNEQUAL)
    stack = lstm_case.make_stack(2, 2)
    strategy = tf.distribute.MirroredStrategy(devices[:2])

    @tf.function
    def everywhere():
        return strategy.run(
            lambda: lstm_case.results_of_constants(tf, block_lstm.build(stack), case, lstm_case.UNEQUAL)
        )

    replicas = strategy.experimental_local_results(everywhere())
    with tf.device(devices[3]):
        placed = tf.function(
            lambda: lstm_case.results_of_constants(tf, block_lstm.build(stack), case, lstm_case.UNEQUAL)
        )()
    for results in (*replicas, placed):
        error, name = lstm_case.largest_error(results, want)
        assert error <= TOLERANCES["float32"], name
    assert placed["outputs"].device.endswith(devices[3])
