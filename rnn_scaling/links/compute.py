"""Measure the rate of TensorFlow's MatMul on all devices at once, a limit for runs.

`worker` calls `measure` in a separate process.
"""

import time
from collections.abc import Sequence

import tensorflow as tf

from rnn_scaling.links import gemm, rounds
from rnn_scaling.links.gemm import Gemm, Product, Shape
from rnn_scaling.links.rounds import Clock, Report

_TARGET_S = 0.05  # duration of a repeat; it makes the call small and lets GPUs warm up
_MAX_CALLS = 100  # calls in flight; the results of each need memory
MAX_PRODUCT_S = 2.0  # slower products are left out
_BUDGET_S = 3.0  # time for one shape


class ComputeWork:
    """Times one product, the same on every device at once."""

    def __init__(
        self,
        devices: Sequence[str],
        shape: Shape,
        dtype: str,
        clock: Clock = time.perf_counter,
    ) -> None:
        """Create the factors of a product [m, k] x [k, n] on each device."""
        m, k, n = shape
        self.shape = shape
        self.calls = 1
        self._clock = clock
        self.pairs: list[list[tf.Variable]] = []  # the factors on each device
        for device in devices:
            with tf.device(device):
                # Constants could be folded, so variables are used. Their values are
                # normal, because a GPU needs less power for zeros.
                a = tf.random.normal([m, k])
                b = tf.random.normal([k, n], stddev=k**-0.5)
                pair = [tf.cast(a, dtype), tf.cast(b, dtype)]
                self.pairs.append([tf.Variable(x, trainable=False) for x in pair])

        @tf.function(autograph=False)
        def multiply() -> tuple[list[tf.Tensor], list[tf.Tensor]]:
            results = []
            elements = []
            for device, (a, b) in zip(devices, self.pairs, strict=True):
                with tf.device(device):
                    results.append(tf.linalg.matmul(a.read_value(), b.read_value()))
                    elements.append(results[-1][0, 0])
            # Returning complete results keeps TensorFlow from leaving out work.
            return results, elements

        self.function = multiply

    def seconds(self) -> float:
        """Return the mean time of `calls` products in a row."""
        start = self._clock()
        for _ in range(self.calls):
            # On GPUs a call returns when the product is queued.
            _, elements = self.function()
        for element in elements:
            element.numpy()  # It is copied after all work that was queued before.
        return (self._clock() - start) / self.calls

    def warm_up(self) -> float:
        """Trace, choose the products per repeat, and return the seconds of one."""
        self.seconds()
        shortest = min(self.seconds() for _ in range(rounds.NUM_WARM_CALLS - 1))
        self.calls = rounds.choose_calls_per_repeat(shortest, _TARGET_S, _MAX_CALLS)
        return shortest


def measure(
    devices: Sequence[str],
    shapes: Sequence[Shape],
    dtypes: Sequence[str],
    repeats: int,
    cores_per_device: int,
    onednn: bool,
    report: Report,
) -> list[Gemm]:
    """Measure every product and type in rounds.

    Args:
      devices: The devices that compute at once.
      shapes: Shapes by increasing operations.
      dtypes: The types.
      repeats: Number of rounds.
      cores_per_device: The cores of a CPU device; 0 for GPUs.
      onednn: Whether TensorFlow uses oneDNN.
      report: Called with finished rounds, all rounds and a title.
    """
    work_by_dtype: dict[str, list[ComputeWork]] = {}
    notes: dict[str, tuple[str, ...]] = {}
    jobs: list[ComputeWork] = []
    for dtype in dtypes:
        rate = 0.0
        work_by_dtype[dtype] = []
        for shape in shapes:
            if rate and gemm.count_flops(shape) / rate > MAX_PRODUCT_S:
                notes[dtype] = (
                    "larger products would take more than 2 s each and were left out",
                )
                break
            report(0, repeats, f"products of {dtype}, first calls")
            work = ComputeWork(devices, shape, dtype)
            work_by_dtype[dtype].append(work)
            rate = gemm.count_flops(shape) / work.warm_up()
        jobs += work_by_dtype[dtype]

    def note_round(done: int, _: list[list[float]]) -> None:
        report(done, repeats, "matrix products")

    times = iter(rounds.measure_rounds(jobs, repeats, _BUDGET_S, note_round))
    gemms = []
    for dtype, works in work_by_dtype.items():
        products = [Product(job.shape, tuple(next(times)), job.calls) for job in works]
        gemms.append(
            Gemm(
                dtype,
                num_devices=len(devices),
                cores_per_device=cores_per_device,
                onednn=onednn,
                products=tuple(products),
                notes=notes.get(dtype, ()),
            )
        )
    return gemms
