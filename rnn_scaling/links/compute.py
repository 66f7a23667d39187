"""The rate of TensorFlow's MatMul on devices as a run has them, all at once: what arithmetic can reach at most."""

import time
from collections.abc import Sequence

import tensorflow as tf

from rnn_scaling.links import gemm, rounds
from rnn_scaling.links.gemm import Gemm, Product, Shape
from rnn_scaling.links.rounds import Clock, Tell

TARGET_S = 0.05  # how long a repeat lasts at least: longer than a call takes, and GPUs warm up in it
MOST_CALLS = 100  # in flight; each has results of its own
LONGEST_S = 2.0  # of one product; larger ones are left out
BUDGET_S = 3.0  # of one shape


class ComputeWork:
    """One product, the same on every device at once, ready to be timed."""

    def __init__(
        self,
        devices: Sequence[str],
        shape: Shape,
        dtype: str,
        clock: Clock = time.perf_counter,
    ) -> None:
        """shape: m, k, n of [m, k] x [k, n]."""
        m, k, n = shape
        self.shape, self.calls, self._clock = shape, 1, clock
        self.pairs: list[list[tf.Variable]] = []  # the factors on each device
        for device in devices:
            with tf.device(device):
                # Variables: constants could be folded. Normal values, since a GPU draws less power on zeros.
                values = (
                    tf.random.normal([m, k]),
                    tf.random.normal([k, n], stddev=k**-0.5),
                )
                self.pairs.append(
                    [
                        tf.Variable(tf.cast(value, dtype), trainable=False)
                        for value in values
                    ]
                )

        @tf.function(autograph=False)
        def multiply() -> tuple[list[tf.Tensor], list[tf.Tensor]]:
            results, elements = [], []
            for device, (a, b) in zip(devices, self.pairs, strict=True):
                with tf.device(device):
                    results.append(tf.linalg.matmul(a.read_value(), b.read_value()))
                    elements.append(results[-1][0, 0])
            return (
                results,
                elements,
            )  # the whole results: no part of the product can be left out

        self.function = multiply

    def seconds(self) -> float:
        """Mean time of one product over `calls` in a row."""
        start = self._clock()
        for _ in range(self.calls):
            elements = self.function()[
                1
            ]  # on GPUs it returns once the product is queued
        for element in elements:
            element.numpy()  # leaves its device after everything that was queued before it
        return (self._clock() - start) / self.calls

    def warm_up(self) -> float:
        """Traces and finds how many products make a repeat of TARGET_S; returns the seconds of one."""
        self.seconds()
        shortest = min(self.seconds() for _ in range(rounds.WARM_CALLS - 1))
        self.calls = max(1, min(MOST_CALLS, int(TARGET_S / max(shortest, 1e-9))))
        return shortest


def measure(
    devices: Sequence[str],
    shapes: Sequence[Shape],
    dtypes: Sequence[str],
    repeats: int,
    cores_per_device: int,
    onednn: bool,
    tell: Tell,
) -> list[Gemm]:
    """Times of every product and type, in rounds.

    shapes: by increasing operations. cores_per_device: of a CPU device; 0 of GPUs.
    """
    work: dict[str, list[ComputeWork]] = {}
    notes: dict[str, tuple[str, ...]] = {}
    for dtype in dtypes:
        work[dtype], rate = [], 0.0
        for shape in shapes:
            if rate and gemm.flops(shape) / rate > LONGEST_S:
                notes[dtype] = (
                    "larger products would take more than 2 s each and were left out",
                )
                break
            tell(0, repeats, f"products of {dtype}, first calls")
            work[dtype].append(ComputeWork(devices, shape, dtype))
            rate = gemm.flops(shape) / work[dtype][-1].warm_up()
    everything = [task for of_type in work.values() for task in of_type]
    calls = [task.seconds for task in everything]
    what = "matrix products"
    times = rounds.in_rounds(
        calls, repeats, BUDGET_S, after_round=lambda done, _: tell(done, repeats, what)
    )
    products = iter(
        Product(task.shape, tuple(seconds), task.calls)
        for task, seconds in zip(everything, times)
    )
    by_type = {
        dtype: tuple(next(products) for _ in of_type) for dtype, of_type in work.items()
    }
    common = len(devices), cores_per_device, onednn
    return [
        Gemm(dtype, *common, made, notes.get(dtype, ()))
        for dtype, made in by_type.items()
    ]
