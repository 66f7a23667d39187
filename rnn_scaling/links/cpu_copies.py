"""Between TensorFlow's logical CPU devices: whether a tensor is copied at all, and what handing it over takes."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from rnn_scaling.links import rounds
from rnn_scaling.links.series import COPY, FLOAT32_BYTES, Series

BUDGET_S = 2.0  # of one size


def address(tensor: tf.Tensor) -> int:
    """Where the elements of a tensor on a CPU device lie, without copying them."""
    return np.frombuffer(memoryview(tensor), np.uint8).ctypes.data


def _hand_over(
    source: str, target: str, num_bytes: int
) -> tuple[Callable[[], tf.Tensor], tf.Variable]:
    """A function that brings a tensor of one device to another, and the variable that holds it there."""
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
    devices: Sequence[str], sizes: Sequence[int], repeats: int, tell: rounds.Tell
) -> list[Series]:
    """Times from the first CPU device to the second over `sizes` (bytes, increasing), and whether bytes were copied."""
    made = [_hand_over(devices[0], devices[1], size) for size in sizes]
    copied = [
        address(run()) != address(variable.read_value()) for run, variable in made
    ]
    name = "logical CPU 0 to logical CPU 1"
    jobs = {name: [(size, rounds.prepared(run)) for size, (run, _) in zip(sizes, made)]}
    points = rounds.measured_points(jobs, repeats, BUDGET_S, tell, "copies")
    return [
        Series(
            COPY,
            name,
            points[name],
            traffic=int(any(copied)),
            notes=(_note(sizes, copied),),
        )
    ]


def _note(sizes: Sequence[int], copied: Sequence[bool]) -> str:
    if not any(copied):
        return (
            "TensorFlow copies nothing: at every size the tensor has the same address on both devices, and the time is "
            "that of the call"
        )
    which = ", ".join(
        f"{size} B" for size, was_copied in zip(sizes, copied) if was_copied
    )
    return f"TensorFlow copies tensors of these sizes, the address differs: {which}"
