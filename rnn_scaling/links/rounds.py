"""Measure every link and size once per round, so that other load affects all of them.

A kind of link provides a `Job`; this module decides how often it is called and when the
clock is read.
"""

import dataclasses
import random
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol, TypeVar

from rnn_scaling.links.series import Point

Key = TypeVar("Key", bound=Hashable)
Clock = Callable[[], float]
Call = Callable[[], object]  # makes one transfer and returns when it has arrived
Report = Callable[[int, int, str], None]  # finished rounds, all rounds, title

# Duration of a repeat of short transfers. It makes the clock and an interruption small.
_TARGET_S = 0.002
_MAX_CALLS = 1000
NUM_WARM_CALLS = 3
_LONG_S = 0.01  # transfers this long need only one warm-up call to fill the caches
_MIN_REPEATS = 3


class Job(Protocol):
    """One size of one link, ready to be timed."""

    @property
    def calls(self) -> int:
        """Transfers in a row per repeat."""

    def seconds(self) -> float:
        """Return the mean time of one transfer over one repeat."""


@dataclasses.dataclass(frozen=True)
class RoundJob:
    """A call that is made `calls` times in a row."""

    call: Call
    calls: int = 1
    clock: Clock = time.perf_counter

    def seconds(self) -> float:
        """See `Job`."""
        if self.calls > 1:
            self.call()
        start = self.clock()
        for _ in range(self.calls):
            self.call()
        return (self.clock() - start) / self.calls


def choose_calls_per_repeat(
    seconds: float, target_s: float = _TARGET_S, max_calls: int = _MAX_CALLS
) -> int:
    """Return the number of calls of this duration per repeat; 1 for long calls."""
    return max(1, min(max_calls, int(target_s / max(seconds, 1e-9))))


def prepare(call: Call, clock: Clock = time.perf_counter) -> RoundJob:
    """Warm up a call, and choose the number of calls per repeat."""
    times: list[float] = []
    while len(times) < NUM_WARM_CALLS and not (len(times) > 1 and times[-1] > _LONG_S):
        start = clock()
        call()
        times.append(clock() - start)
    return RoundJob(call, choose_calls_per_repeat(min(times)), clock)


def measure_points(
    jobs: Mapping[Key, Sequence[tuple[int, Job]]],
    repeats: int,
    budget_s: float,
    report: Report,
    title: str,
) -> dict[Key, tuple[Point, ...]]:
    """Measure the sizes of each series in rounds.

    Args:
      jobs: Bytes and job of each size, by series.
      repeats: Number of rounds.
      budget_s: See `measure_rounds`.
      report: Called with finished rounds, all rounds and a title.
      title: The title of the measurement for `report`.
    """
    all_jobs: list[Job] = []
    for sized_jobs in jobs.values():
        all_jobs += [job for _, job in sized_jobs]

    def note_round(done: int, _: list[list[float]]) -> None:
        report(done, repeats, title)

    times = iter(measure_rounds(all_jobs, repeats, budget_s, note_round))
    points = {}
    for key, sized_jobs in jobs.items():
        points[key] = tuple(
            Point(size, tuple(next(times)), job.calls) for size, job in sized_jobs
        )
    return points


def measure_rounds(
    jobs: Sequence[Job],
    rounds: int,
    budget_s: float,
    after_round: Callable[[int, list[list[float]]], None] = lambda done, times: None,
) -> list[list[float]]:
    """Measure every job once per round, in another order in each round.

    Args:
      jobs: The jobs.
      rounds: The maximum number of repeats per job.
      budget_s: A job with _MIN_REPEATS is not repeated after this total time.
      after_round: Called with the number of finished rounds and all times so far.
    """
    times: list[list[float]] = [[] for _ in jobs]
    order = list(range(len(jobs)))
    for turn in range(rounds):
        # In a fixed order the same job would always find caches of the same neighbour.
        # The seed makes all runs equal.
        random.Random(turn).shuffle(order)
        for index in order:
            repeats = times[index]
            if len(repeats) < _MIN_REPEATS or sum(repeats) < budget_s:
                repeats.append(jobs[index].seconds())
        after_round(turn + 1, times)
    return times
