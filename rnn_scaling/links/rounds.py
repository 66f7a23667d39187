"""Repeats that take turns: every link and size once a round, so that other load on the machine meets all of them."""

import dataclasses
import random
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol, TypeVar

from rnn_scaling.links.series import Point

Key = TypeVar("Key", bound=Hashable)
Clock = Callable[[], float]
Call = Callable[[], object]  # transfers once and returns when everything has arrived
Tell = Callable[[int, int, str], None]  # rounds made, rounds in all, what is measured

TARGET_S = 0.002  # how long a repeat of short transfers lasts: the clock and one interruption are then a small share
MOST_CALLS = 1000
WARM_CALLS = 3
LONG_S = 0.01  # a transfer this long needs no other before it to find its code and buffers in the caches
FEWEST_REPEATS = 3


class Job(Protocol):
    """One size of one link, ready to be timed."""

    @property
    def calls(self) -> int:
        """Transfers in a row that make one repeat."""

    def seconds(self) -> float:
        """Return the mean time of one transfer over one repeat."""


@dataclasses.dataclass(frozen=True)
class RoundJob:
    """A call that returns when everything has arrived, so many times in a row."""

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


def calls_of(
    seconds: float, target_s: float = TARGET_S, most_calls: int = MOST_CALLS
) -> int:
    """Return how many calls of this length make a repeat; 1 if one takes long."""
    return max(1, min(most_calls, int(target_s / max(seconds, 1e-9))))


def prepared(call: Call, clock: Clock = time.perf_counter) -> RoundJob:
    """Warm a call up, and find how many in a row make a repeat."""
    times: list[float] = []
    while len(times) < WARM_CALLS and not (len(times) > 1 and times[-1] > LONG_S):
        start = clock()
        call()
        times.append(clock() - start)
    return RoundJob(call, calls_of(min(times)), clock)


def measured_points(
    jobs: Mapping[Key, Sequence[tuple[int, Job]]],
    repeats: int,
    budget_s: float,
    tell: Tell,
    what: str,
) -> dict[Key, tuple[Point, ...]]:
    """Measure the sizes of each series in rounds.

    Args:
      jobs: Bytes and job of each size, by series.
      repeats: Rounds.
      budget_s: See `in_rounds`.
      tell: Gets the progress.
      what: Names the measurement for `tell`.
    """
    all_jobs = [job for sized in jobs.values() for _, job in sized]
    times = iter(
        in_rounds(
            all_jobs, repeats, budget_s, lambda done, _: tell(done, repeats, what)
        )
    )
    return {
        key: tuple(Point(size, tuple(next(times)), job.calls) for size, job in sized)
        for key, sized in jobs.items()
    }


def in_rounds(
    jobs: Sequence[Job],
    rounds: int,
    budget_s: float,
    after_round: Callable[[int, list[list[float]]], None] = lambda done, times: None,
) -> list[list[float]]:
    """Measure every job once a round, in another order each round.

    Args:
      jobs: What to measure.
      rounds: Repeats of each job at most.
      budget_s: A job whose repeats have taken this long in all has no more, once it
        has FEWEST_REPEATS.
      after_round: Gets the rounds made and all times so far.
    """
    times: list[list[float]] = [[] for _ in jobs]
    order = list(range(len(jobs)))
    for turn in range(rounds):
        # In one fixed order the same neighbour would always have emptied the caches. Seeded: every run does the same.
        random.Random(turn).shuffle(order)
        for index in order:
            repeats = times[index]
            if len(repeats) < FEWEST_REPEATS or sum(repeats) < budget_s:
                repeats.append(jobs[index].seconds())
        after_round(turn + 1, times)
    return times
