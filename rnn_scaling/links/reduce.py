"""Measure and prove one all-reduce algorithm over sizes.

Each size is one tf.function. Its time ends when every rank has its sum. Each rank has
one device.

`worker` calls `measure` in a separate process. The algorithms are those of training
(`training.all_reduce`).
"""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from rnn_scaling.links import rounds
from rnn_scaling.links.cpu_copies import find_address
from rnn_scaling.links.series import (
    ALL_REDUCE,
    FLOAT32_BYTES,
    Point,
    Series,
)
from rnn_scaling.system.files.terminal import format_bytes

_BUDGET_S = 4.0  # time for one size in one pass
_CHUNK = 2**22  # elements that are compared at once
# Inputs are numbers up to this prime, so that shifted or exchanged pieces differ.
_MODULUS = 1021

# Returns the sum of one tensor per rank on each rank's device.
Reduce = Callable[[Sequence[tf.Tensor]], Sequence[tf.Tensor]]
# Returns each rank's result of one size, and one element of each.
Case = Callable[[], tuple[list[tf.Tensor], list[tf.Tensor]]]


def run(case: Case) -> list[tf.Tensor]:
    """Reduce once; return each rank's result when all devices have finished."""
    results, last = case()
    for element in last:
        element.numpy()  # It is copied after all work that was queued before.
    return results


def make_values(rank: int, start: int, stop: int) -> np.ndarray:
    """Return elements `start` to `stop` of a rank's input: numbers from 1 to MODULUS.

    Ranks have different numbers. Sums are exact in float32 for up to 2**24 / MODULUS
    ranks.
    """
    numbers = np.arange(start, stop, dtype=np.int64) * (2 * rank + 3) + rank
    return (numbers % _MODULUS + 1).astype(np.float32)


def build(reduce: Reduce, devices: Sequence[str], num_bytes: int) -> Case:
    """Return the case of one size: `num_bytes` of each rank's tensor.

    The inputs are variables: constants could be folded, and other buffers could be
    reused for sums. The function returns every rank's result, so that no work can be
    left out, and one element of each, for which the caller can wait.
    """
    count = num_bytes // FLOAT32_BYTES
    inputs = []
    for rank, device in enumerate(devices):
        with tf.device(device):
            inputs.append(tf.Variable(make_values(rank, 0, count), trainable=False))

    @tf.function(autograph=False)
    def run_case() -> tuple[list[tf.Tensor], list[tf.Tensor]]:
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

    case: Case = run_case
    return case


def count_wrong(results: Sequence[tf.Tensor]) -> int:
    """Count the elements of all ranks that differ from the exact sum.

    Missing and surplus elements count as well.
    """
    num_ranks = len(results)
    num_wrong = 0
    arrays = [result.numpy().reshape(-1) for result in results]
    size = max(map(len, arrays))
    for start in range(0, size, _CHUNK):
        stop = min(start + _CHUNK, size)
        expected = functools.reduce(
            np.add, (make_values(rank, start, stop) for rank in range(num_ranks))
        )
        for array in arrays:
            chunk = array[start : start + _CHUNK]
            num_wrong += int(np.count_nonzero(chunk != expected[: len(chunk)]))
            num_wrong += len(expected) - len(chunk)
    return num_wrong


def share_a_buffer(results: Sequence[tf.Tensor]) -> bool:
    """Return whether several ranks got the same memory, like logical CPU devices do."""
    if any("CPU" not in result.device for result in results):
        return False
    return len({find_address(result) for result in results}) < len(results)


def measure(
    reduce: Reduce,
    name: str,
    devices: Sequence[str],
    sizes: Sequence[int],
    repeats: int,
    report: rounds.Report,
    keep: Callable[[Series], None] = lambda series: None,
    compare: bool = True,
) -> Series:
    """Measure an algorithm over sizes in rounds, then count wrong elements.

    Args:
      reduce: The algorithm.
      name: The name of the series.
      devices: The device of each rank.
      sizes: Bytes of each rank's tensor, increasing.
      repeats: Number of rounds.
      report: Called with finished rounds, all rounds and a title.
      keep: Called with the series after each round.
      compare: Whether to count wrong elements.
    """
    unknown_counts = [None] * len(sizes)
    cases = []
    jobs = []
    for size in sizes:
        report(0, repeats, f"{name}, first calls of {format_bytes(size)}")
        cases.append(build(reduce, devices, size))
        jobs.append(rounds.prepare(functools.partial(run, cases[-1])))

    def make_series(
        times: Sequence[Sequence[float]],
        wrong_counts: Sequence[int | None],
        notes: tuple[str, ...] = (),
    ) -> Series:
        points = [
            Point(size, tuple(seconds), job.calls, num_wrong)
            for size, job, seconds, num_wrong in zip(sizes, jobs, times, wrong_counts)
            if seconds
        ]
        return Series(ALL_REDUCE, name, tuple(points), ranks=len(devices), notes=notes)

    def note_round(done: int, times: list[list[float]]) -> None:
        report(done, repeats, name)
        keep(make_series(times, unknown_counts))

    times = rounds.measure_rounds(jobs, repeats, _BUDGET_S, note_round)
    if not compare:
        return make_series(times, unknown_counts)
    report(repeats, repeats, f"{name}, comparing the sums")
    comparison = _compare_sums(cases)
    return make_series(times, comparison.wrong_counts, comparison.notes)


class _SumComparison(NamedTuple):
    """The results of an all-reduce compared with the right sums."""

    wrong_counts: list[int]  # wrong elements of each size
    notes: tuple[str, ...]


def _compare_sums(cases: Sequence[Case]) -> _SumComparison:
    """Run each case once more and count its wrong elements."""
    wrong_counts = []
    notes: tuple[str, ...] = ()
    for case in cases:
        results = run(case)
        wrong_counts.append(count_wrong(results))
        if share_a_buffer(results):
            notes = (
                ("all ranks get the same tensor, so its bytes did not cross a link"),
            )
    return _SumComparison(wrong_counts, notes)


def exchange_nothing(tensors: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """Exchange nothing; its time is the overhead of every timed call."""
    return [tf.identity(tensor) for tensor in tensors]
