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
        self.shape = shape
        self.calls = 1
        self._clock = clock
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
            results = []
            elements = []
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
        self.calls = rounds.calls_of(shortest, TARGET_S, MOST_CALLS)
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
    work: dict[str, list[ComputeWork]] = {dtype: [] for dtype in dtypes}
    notes: dict[str, tuple[str, ...]] = {}
    for dtype, of_type in work.items():
        rate = 0.0
        for shape in shapes:
            if rate and gemm.flops(shape) / rate > LONGEST_S:
                notes[dtype] = (
                    "larger products would take more than 2 s each and were left out",
                )
                break
            tell(0, repeats, f"products of {dtype}, first calls")
            of_type.append(ComputeWork(devices, shape, dtype))
            rate = gemm.flops(shape) / of_type[-1].warm_up()
    jobs = [job for of_type in work.values() for job in of_type]
    times = iter(
        rounds.in_rounds(
            jobs,
            repeats,
            BUDGET_S,
            lambda done, _: tell(done, repeats, "matrix products"),
        )
    )
    made = []
    for dtype, of_type in work.items():
        products = tuple(
            Product(job.shape, tuple(next(times)), job.calls) for job in of_type
        )
        made.append(
            Gemm(
                dtype,
                len(devices),
                cores_per_device,
                onednn,
                products,
                notes.get(dtype, ()),
            )
        )
    return made
