"""Repeats that take turns: every link and size once a round, so that other load on the machine meets all of them."""

import dataclasses
import random
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TypeVar

from rnn_scaling.links.series import Point

Key = TypeVar("Key", bound=Hashable)
Clock = Callable[[], float]
Call = Callable[[], object]  # transfers once and returns when everything has arrived
Tell = Callable[[int, int, str], None]  # rounds made, rounds in all, what is measured

TARGET_S = 0.002  # how long a repeat of short transfers lasts: the clock and one interruption are then a small share
MOST_CALLS = 1000
WARM_CALLS = 3
LONG_S = 0.01  # a transfer this long needs no other before it to find its code and buffers in the caches


@dataclasses.dataclass(frozen=True)
class RoundJob:
    """One size of one link: a call that returns when everything has arrived, so many times in a row."""

    call: Call
    calls: int = 1

    def seconds(self, clock: Clock = time.perf_counter) -> float:
        """Mean time of one transfer over one repeat."""
        if self.calls > 1:
            self.call()
        start = clock()
        for _ in range(self.calls):
            self.call()
        return (clock() - start) / self.calls


def prepared(call: Call, clock: Clock = time.perf_counter) -> RoundJob:
    """Warms the call up and finds how many in a row make a repeat of TARGET_S; 1 for one that takes long itself."""
    times: list[float] = []
    while len(times) < WARM_CALLS and not (len(times) > 1 and times[-1] > LONG_S):
        start = clock()
        call()
        times.append(clock() - start)
    return RoundJob(
        call, max(1, min(MOST_CALLS, int(TARGET_S / max(min(times), 1e-9))))
    )


def measured_points(
    calls: Mapping[Key, Sequence[tuple[int, Callable[[], object]]]],
    repeats: int,
    budget_s: float,
    tell: Tell,
    what: str,
) -> dict[Key, tuple[Point, ...]]:
    """Times of the calls (bytes, transfer) of each series, in rounds; `what` names the measurement for `tell`."""
    jobs = {
        key: [(size, prepared(call)) for size, call in sized]
        for key, sized in calls.items()
    }
    every_job = [job for sized in jobs.values() for _, job in sized]
    work = [job.seconds for job in every_job]
    times = iter(
        in_rounds(
            work,
            repeats,
            budget_s,
            after_round=lambda done, _: tell(done, repeats, what),
        )
    )
    return {
        key: tuple(Point(size, tuple(next(times)), job.calls) for size, job in sized)
        for key, sized in jobs.items()
    }


def in_rounds(
    measure: Sequence[Callable[[], float]],
    rounds: int,
    budget_s: float,
    fewest: int = 3,
    after_round: Callable[[int, list[list[float]]], None] = lambda done, times: None,
) -> list[list[float]]:
    """Measures every job once a round, in another order each round.

    budget_s: a job whose repeats have taken this long in all has no more, once it has `fewest`.
    """
    times: list[list[float]] = [[] for _ in measure]
    order = list(range(len(measure)))
    for turn in range(rounds):
        # In one fixed order the same neighbour would always have emptied the caches. Seeded: every run does the same.
        random.Random(turn).shuffle(order)
        for index in order:
            if len(times[index]) < fewest or sum(times[index]) < budget_s:
                times[index].append(measure[index]())
        after_round(turn + 1, times)
    return times
