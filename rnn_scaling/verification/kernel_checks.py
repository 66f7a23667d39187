"""Each kernel of the recurrent layers against the plain reference step, and each all-reduce's sums, on the devices."""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np
import tensorflow as tf

from rnn_scaling.config import all_reduce_spec, registry
from rnn_scaling.config.all_reduce_spec import SpecSegment
from rnn_scaling.models import kernels, operators_check, parity, stacks
from rnn_scaling.models.extension import operators
from rnn_scaling.records.certificate import Check
from rnn_scaling.training import gradients
from rnn_scaling.training.engines.local import Engine
from rnn_scaling.verification.certificates import finite

LENGTHS = (6, 1, 4)  # [B]; the longest is T
WIDTH = 16  # D and U
TOLERANCE = 2e-5  # of float32, relative to the largest entry of an array
SIZES = (1, 7, 257, 100_000)  # elements that are summed
# Whole numbers, because every dtype contains their sums exactly.
SMALLEST = -8
LARGEST = 9


def kernels_on(device: str, device_type: str) -> Iterator[Check]:
    """Outputs, final states and gradients of each kernel on a device, and those of the reference on the host."""
    tf.get_logger().setLevel(
        "ERROR"
    )  # it takes functions of several kernels for one that is traced again and again
    for name, kernel in kernels.KERNELS.items():
        check = f"kernel {name}"
        cell = kernel.cells[0]
        stack = stacks.RecurrentStack(
            WIDTH, WIDTH, num_layers=2, num_directions=2, unit_type=cell
        )
        module = kernels.load(name, device_type, cell)
        try:
            with all_digits():
                with tf.device("CPU:0"):
                    expected = parity.results(stacks.reference(stack), stack, LENGTHS)
                with tf.device(device):
                    error, where = parity.largest_error(
                        parity.results(module.build(stack), stack, LENGTHS), expected
                    )
        except (tf.errors.OpError, ValueError) as e:
            yield Check(
                name=check,
                holds=False,
                text=f"{module.kernel_name(stack)}: {str(e)[:200]}",
            )
            continue
        text = f"{module.kernel_name(stack)} and the reference {cell} step, most in {where}"
        is_near = error <= TOLERANCE
        difference = finite(error)
        yield Check(
            name=check,
            holds=is_near,
            text=text,
            difference=difference,
            tolerance=TOLERANCE,
        )
    if operators.usable("float32"):
        failure = operators_check.failure()
        text = (
            failure
            or "layers, attention and losses agree with the reference in float32 and bfloat16"
        )
        yield Check(
            name=f"operators {operators.instruction_set()}",
            holds=not failure,
            text=text,
        )


@contextlib.contextmanager
def all_digits() -> Iterator[None]:
    """Without TensorFloat-32, whose products have three digits."""
    is_enabled = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    try:
        yield
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(is_enabled)


def all_reduces_on(engine: Engine) -> Iterator[Check]:
    """The sums of each all-reduce over the towers' devices, and NumPy's; exact."""
    devices = engine.devices
    device_type = engine.device_type.lower()
    for name in registry.ALL_REDUCES:
        check = f"all-reduce {name}"
        if impossible := all_reduce_spec.problems(
            [SpecSegment(name)], device_type, len(devices), engine.num_physical
        ):
            yield Check(name=check, holds=None, text=impossible[0].partition(": ")[2])
            continue
        random = np.random.default_rng(0)
        values = [
            random.integers(SMALLEST, LARGEST, (len(devices), size)).astype(np.float32)
            for size in SIZES
        ]
        try:
            found = zip(SIZES, values, _sums(name, devices, values))
            wrong = [
                size
                for size, numbers, sums in found
                if (np.array(sums) != numbers.sum(axis=0)).any()
            ]
        except (tf.errors.OpError, ValueError) as e:
            yield Check(name=check, holds=False, text=str(e)[:200])
            continue
        text = f"{len(SIZES)} sizes on {len(devices)} devices are numpy's sums"
        if wrong:
            text = f"wrong sums of {wrong} elements"
        yield Check(name=check, holds=not wrong, text=text)


def _sums(
    name: str, devices: Sequence[str], values: Sequence[np.ndarray]
) -> list[list[np.ndarray]]:
    """[size][tower]."""
    reduce = registry.load(registry.ALL_REDUCES, name).build(devices, 1)

    @tf.function(autograph=False)
    def step() -> list[list[tf.Tensor]]:
        return [
            reduce(gradients.map_devices(devices, tf.constant, numbers))
            for numbers in values
        ]

    return [[tower.numpy() for tower in towers] for towers in step()]
