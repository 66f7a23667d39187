"""Check the kernels of the recurrent layers and the all-reduces on the devices.

Kernels are compared with a plain reference step, all-reduces with sums of NumPy.

`machine` and `network_check` call the checks. A new kernel or all-reduce is checked
as soon as its table has a row for it.
"""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from rnn_scaling.config import all_reduce_spec, registry
from rnn_scaling.config.all_reduce_spec import SpecSegment
from rnn_scaling.models import encoder_table, operators_check, parity, stacks
from rnn_scaling.models.extension import operators
from rnn_scaling.records.certificate import Check
from rnn_scaling.training import gradients
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.verification.certificates import finite_or_none

LENGTHS = (6, 1, 4)  # lengths [B] of the sentences; the longest is T
_WIDTH = 16  # width of the input and number of units
_MAX_ERROR_LETTERS = 200  # of an error of TensorFlow, in a check
TOLERANCE = 2e-5  # float32, relative to the largest element of an array
SIZES = (1, 7, 257, 100_000)  # elements per sum
# Range of the summands: integers, because every dtype contains their sums exactly.
_LOWEST_SUMMAND = -8
_SUMMAND_END = 9


def check_kernels(device: str, device_type: str) -> Iterator[Check]:
    """Compare each kernel on a device with the reference on the host.

    Compares outputs, final states and gradients.

    Args:
      device: TensorFlow's name of the device.
      device_type: "CPU" or "GPU".
    """
    # TensorFlow would warn that one function is traced again for every kernel.
    tf.get_logger().setLevel("ERROR")
    for name in encoder_table.ENCODERS:
        yield _check_kernel(name, device, device_type)
    if operators.is_usable("float32"):
        yield _check_operators()


def _check_kernel(name: str, device: str, device_type: str) -> Check:
    """Compare one kernel with the reference; an error of TensorFlow is a failed check."""
    cell = encoder_table.ENCODERS[name].cells[0]
    stack = stacks.RecurrentStack(
        _WIDTH, _WIDTH, num_layers=2, num_directions=2, unit_type=cell
    )
    module = encoder_table.load(name, device_type, cell)
    title = module.kernel_name(stack)
    try:
        with full_precision():
            with tf.device("CPU:0"):
                expected = parity.compute_results(
                    stacks.build_reference(stack), stack, LENGTHS
                )
            with tf.device(device):
                actual = parity.compute_results(module.build(stack), stack, LENGTHS)
            error, array_name = parity.find_largest_error(actual, expected)
    except (tf.errors.OpError, ValueError) as e:
        text = f"{title}: {str(e)[:_MAX_ERROR_LETTERS]}"
        return Check(name=f"kernel {name}", holds=False, text=text)
    return Check(
        name=f"kernel {name}",
        holds=error <= TOLERANCE,
        text=f"{title} and the reference {cell} step, most in {array_name}",
        difference=finite_or_none(error),
        tolerance=TOLERANCE,
    )


def _check_operators() -> Check:
    """Compare the operators of this project with the reference."""
    failure = operators_check.find_failure()
    text = failure or (
        "layers, attention and losses agree with the reference in float32 and bfloat16"
    )
    name = f"operators {operators.find_instruction_set()}"
    return Check(name=name, holds=not failure, text=text)


@contextlib.contextmanager
def full_precision() -> Iterator[None]:
    """Disable TensorFloat-32, whose products have three digits, in a `with`."""
    is_enabled = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(is_enabled)


def check_all_reduces(engine: Engine) -> Iterator[Check]:
    """Compare the sums of each all-reduce over the devices with NumPy, exactly."""
    devices = engine.devices
    device_type = engine.device_type.lower()
    for name in registry.ALL_REDUCES:
        check_name = f"all-reduce {name}"
        problems = all_reduce_spec.find_conflicts(
            [SpecSegment(name)], device_type, len(devices), engine.num_physical
        )
        if problems:
            yield Check(
                name=check_name, holds=None, text=problems[0].partition(": ")[2]
            )
            continue
        random = np.random.default_rng(0)
        summands_by_size = [
            random.integers(_LOWEST_SUMMAND, _SUMMAND_END, (len(devices), size)).astype(
                np.float32
            )
            for size in SIZES
        ]
        try:
            sums = _compute_sums(name, devices, summands_by_size)
        except (tf.errors.OpError, ValueError) as e:
            yield Check(name=check_name, holds=False, text=str(e)[:_MAX_ERROR_LETTERS])
            continue
        wrong_sizes = []
        for summands, tower_sums in zip(summands_by_size, sums):
            if (np.array(tower_sums) != summands.sum(axis=0)).any():
                wrong_sizes.append(summands.shape[1])
        text = (
            f"the sums of {len(SIZES)} sizes on {len(devices)} devices equal "
            "numpy's sums"
        )
        if wrong_sizes:
            text = f"wrong sums of {wrong_sizes} elements"
        yield Check(name=check_name, holds=not wrong_sizes, text=text)


def _compute_sums(
    name: str, devices: Sequence[str], values: Sequence[np.ndarray]
) -> list[list[np.ndarray]]:
    """Return the sum of each size on each tower, as [size][tower]."""
    reduce = registry.load(registry.ALL_REDUCES, name).build(devices, 1)

    @tf.function(autograph=False)
    def step() -> list[list[tf.Tensor]]:
        return [
            reduce(gradients.map_devices(devices, tf.constant, numbers))
            for numbers in values
        ]

    sums: list[list[np.ndarray]] = tf.nest.map_structure(
        lambda tensor: tensor.numpy(), step()
    )
    return sums
