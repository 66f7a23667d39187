"""Time transfers between TensorFlow's logical CPU devices, and find out if it copies.

`worker` calls `measure` in a separate process; `reduce` uses `find_address` to find
shared buffers.
"""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from rnn_scaling.links import rounds
from rnn_scaling.links.series import COPY, FLOAT32_BYTES, Series

_BUDGET_S = 2.0  # time for one size


def find_address(tensor: tf.Tensor) -> int:
    """Return the memory address of a tensor on a CPU device, without copying it."""
    return np.frombuffer(memoryview(tensor), np.uint8).ctypes.data


def _make_copy_function(
    source: str, target: str, num_bytes: int
) -> tuple[Callable[[], tf.Tensor], tf.Variable]:
    """Return a function that moves a tensor to another device, and its variable."""
    with tf.device(source):
        variable = tf.Variable(np.ones(num_bytes // FLOAT32_BYTES, np.float32))

    @tf.function(autograph=False)
    def run() -> tf.Tensor:
        with tf.device(source):
            value = variable.read_value()
        with tf.device(target):
            return tf.identity(value)

    return run, variable


def measure(
    devices: Sequence[str], sizes: Sequence[int], repeats: int, report: rounds.Report
) -> list[Series]:
    """Measure the first CPU device to the second over `sizes` (bytes, increasing)."""
    name = "logical CPU 0 to logical CPU 1"
    copied_sizes = []
    jobs: list[tuple[int, rounds.Job]] = []
    for size in sizes:
        run, variable = _make_copy_function(devices[0], devices[1], size)
        if find_address(run()) != find_address(variable.read_value()):
            copied_sizes.append(size)
        jobs.append((size, rounds.prepare(run)))
    points = rounds.measure_points(
        {name: jobs}, repeats=repeats, budget_s=_BUDGET_S, report=report, title="copies"
    )
    return [
        Series(
            COPY,
            name,
            points[name],
            traffic=int(bool(copied_sizes)),
            notes=(_note(copied_sizes),),
        )
    ]


def _note(copied_sizes: Sequence[int]) -> str:
    if not copied_sizes:
        return (
            "TensorFlow copies nothing: at every size, the tensor has the "
            "same address on both devices, so the time is the time of the call"
        )
    sizes = ", ".join(f"{size} B" for size in copied_sizes)
    return (
        "at these sizes, the tensor has another address on the second device, so "
        f"TensorFlow copies it: {sizes}"
    )
