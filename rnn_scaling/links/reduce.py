"""One all-reduce algorithm over sizes: ONE tf.function a size, its time until every rank has its sum, and the proof.

n: ranks, a device each.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from rnn_scaling.links import rounds
from rnn_scaling.links.cpu_copies import address
from rnn_scaling.links.series import ALL_REDUCE, FLOAT32_BYTES, Point, Series, size_text

BUDGET_S = 4.0  # of one size in one pass
CHUNK = 2**22  # elements that are compared at once
MODULUS = 1021  # of the inputs: a prime, so that shifted or exchanged pieces of any size differ

Reduce = Callable[
    [Sequence[tf.Tensor]], Sequence[tf.Tensor]
]  # one tensor a rank -> their sum on each rank's device
Case = Callable[
    [], tuple[list[tf.Tensor], list[tf.Tensor]]
]  # one size -> each rank's result, and an element of each


def run(case: Case) -> list[tf.Tensor]:
    """Reduces once; returns each rank's result when all devices have finished."""
    results, last = case()
    for element in last:
        element.numpy()  # leaves its device after everything that was queued before it
    return results


def values(rank: int, start: int, stop: int) -> np.ndarray:
    """Elements `start` to `stop` of a rank's input: whole numbers from 1 to MODULUS, other ones on each rank.

    Their sums are exact in float32 for up to 2**24 / MODULUS ranks.
    """
    return (
        (np.arange(start, stop, dtype=np.int64) * (2 * rank + 3) + rank) % MODULUS + 1
    ).astype(np.float32)


def build(reduce: Reduce, devices: Sequence[str], num_bytes: int) -> Case:
    """The case of one size, `num_bytes` of each rank's tensor.

    The inputs are variables: no constant that could be folded, and no buffer that a sum could be written into. The
    function returns every rank's result, so none of the work can be left out, and one element of each, by which the
    caller can wait.
    """
    count = num_bytes // FLOAT32_BYTES
    inputs = []
    for rank, device in enumerate(devices):
        with tf.device(device):
            inputs.append(tf.Variable(values(rank, 0, count), trainable=False))

    @tf.function(autograph=False)
    def function() -> tuple[list[tf.Tensor], list[tf.Tensor]]:
        tensors = []
        last = []
        for variable, device in zip(inputs, devices, strict=True):
            with tf.device(device):
                tensors.append(variable.read_value())
        results = list(reduce(tensors))
        for result, device in zip(results, devices, strict=True):
            with tf.device(device):
                last.append(result[-1])
        return results, last

    case: Case = function
    return case


def count_wrong(results: Sequence[tf.Tensor]) -> int:
    """Elements, over all ranks, that are not the exact sum of the inputs; each missing or surplus element is one."""
    num_ranks = len(results)
    wrong = 0
    got = [result.numpy().reshape(-1) for result in results]
    size = max(len(array) for array in got)
    for start in range(0, size, CHUNK):
        stop = min(start + CHUNK, size)
        expected = functools.reduce(
            np.add, (values(rank, start, stop) for rank in range(num_ranks))
        )
        for array in got:
            piece = array[start : start + CHUNK]
            wrong += (
                int(np.count_nonzero(piece != expected[: len(piece)]))
                + len(expected)
                - len(piece)
            )
    return wrong


def share_a_buffer(results: Sequence[tf.Tensor]) -> bool:
    """True if several ranks were handed the same memory, as logical CPU devices are."""
    if any("CPU" not in result.device for result in results):
        return False
    return len({address(result) for result in results}) < len(results)


def measure(
    reduce: Reduce,
    name: str,
    devices: Sequence[str],
    sizes: Sequence[int],
    repeats: int,
    tell: rounds.Tell,
    keep: Callable[[Series], None] = lambda series: None,
    compare: bool = True,
) -> Series:
    """Times of an algorithm over the sizes, in rounds, then the number of wrong elements of each.

    sizes: bytes of each rank's tensor, increasing.
    """

    def series(
        times: Sequence[Sequence[float]],
        wrong: Sequence[int | None],
        notes: tuple[str, ...] = (),
    ) -> Series:
        measured = zip(sizes, jobs, times, wrong)
        points = [
            Point(size, tuple(took), job.calls, bad)
            for size, job, took, bad in measured
            if took
        ]
        return Series(ALL_REDUCE, name, tuple(points), ranks=len(devices), notes=notes)

    unknown = [None] * len(sizes)
    cases = []
    jobs = []
    for size in sizes:
        tell(0, repeats, f"{name}, first calls of {size_text(size)}")
        cases.append(build(reduce, devices, size))
        jobs.append(rounds.prepared(functools.partial(run, cases[-1])))

    def after_round(done: int, times: list[list[float]]) -> None:
        tell(done, repeats, name)
        keep(series(times, unknown))

    times = rounds.in_rounds(jobs, repeats, BUDGET_S, after_round)
    if not compare:
        return series(times, unknown)
    tell(repeats, repeats, f"{name}, comparing the sums")
    wrong = []
    shared = False
    for case in cases:
        results = run(case)
        wrong.append(count_wrong(results))
        shared = shared or share_a_buffer(results)
    notes = (
        ("ranks are handed one and the same result: its bytes went over no link",)
        if shared
        else ()
    )
    return series(times, wrong, notes)


def nothing(tensors: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """What every call costs that is timed here: nothing is exchanged."""
    return [tf.identity(tensor) for tensor in tensors]
