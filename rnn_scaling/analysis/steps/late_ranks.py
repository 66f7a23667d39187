"""Which ranks of a cluster the others wait for, by when each was ready in every measured batch. Pure."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from rnn_scaling.analysis.confidence import MIN_BATCHES, cosines, long_run_variance, scatter
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.steps.straggler import LEAST_SHARE, in_ms
from rnn_scaling.analysis.student import t_quantile
from rnn_scaling.records.workers import Rank, Workers

LEVEL = 0.975  # one-sided: of two ranks it is the later one that is looked at, so 5 % have a false alarm
MOST_LATE = 8  # ranks that can be named together, and never more than half of all


@dataclasses.dataclass(frozen=True)
class RankTimes:
    """One rank's measured batches.

    Attributes:
      rank: whose they are.
      seconds: of each, by its own clock.
      ready: of each, seconds until its gradients were there; empty where that is not told.
      last: batches in which it was the last of all, by `ready` or without exchange by `seconds`.
    """

    rank: Rank
    seconds: tuple[float, ...]
    ready: tuple[float, ...]
    last: int = 0

    @property
    def items_per_second(self) -> float:
        """Its own rate."""
        return math.fsum(self.rank.items[-len(self.seconds) :]) / math.fsum(self.seconds)


@dataclasses.dataclass(frozen=True)
class Lateness:
    """ranks: those that timed their batches, in their order; late: the numbers of those that are named.

    by_ready: whether they are judged by when their gradients were there; else by how long their batches take.
    """

    ranks: tuple[RankTimes, ...]
    late: tuple[int, ...]
    why: Statement
    by_ready: bool


def judge(workers: Workers, warmup: int, exchanges: bool) -> Lateness | None:
    """The ranks that others wait for, where their batches give the evidence; None where fewer than two have any.

    Ranks that exchange gradients end every batch together, so what tells is when each had its own gradients. Ranks
    that exchange nothing are compared by how long their batches take.

    The latest ranks are named, as few as possible, where the first of them comes after the last of all others by a time
    whose mean over the batches is above 0 (Student's t, 95 %, neighbouring batches being alike), is 1 % of a batch or
    more, and is more than it differs from batch to batch by. By chance another rank is the last one every time.
    """
    timed = [
        RankTimes(rank, rank.seconds[warmup:], rank.ready[warmup:])
        for rank in workers.ranks
        if len(rank.seconds) > warmup
    ]
    if len(timed) < 2:
        return None
    has_ready = all(len(times.ready) == len(timed[0].ready) > 0 for times in timed)
    if exchanges and not has_ready:
        return Lateness(tuple(timed), (), Statement("ranks-not-timed"), by_ready=False)
    count = min(len(times.seconds) for times in timed)
    if count < MIN_BATCHES:
        why = Statement("ranks-few-batches", values={"least": MIN_BATCHES})
        return Lateness(tuple(timed), (), why, exchanges)
    at = np.asarray([(times.ready if exchanges else times.seconds)[:count] for times in timed])
    lasts = np.bincount(at.argmax(axis=0), minlength=len(timed))
    ranks = tuple(dataclasses.replace(times, last=int(last)) for times, last in zip(timed, lasts))
    whole = float(np.mean([times.seconds[:count] for times in timed]))
    late, why = _named(ranks, at, whole, exchanges)
    return Lateness(ranks, late, why, exchanges)


def _named(
    ranks: Sequence[RankTimes], at: np.ndarray, whole: float, exchanges: bool
) -> tuple[tuple[int, ...], Statement]:
    """(numbers of the ranks that are late, and why they or none are named).

    Args:
      ranks: of which each row of `at` is one.
      at: seconds of each batch `[ranks, batches]` by which they are judged.
      whole: seconds of a batch.
    """
    order = np.argsort(-at.mean(axis=1), kind="stable")
    count = at.shape[1]
    for size in range(1, min(MOST_LATE, len(ranks) // 2) + 1):
        late, others = order[:size], order[size:]
        behind = at[late].min(axis=0) - at[others].max(axis=0)
        if not _is_late(behind.tolist(), whole):
            continue
        named = sorted(ranks[i].rank.rank for i in late)
        values = {
            "ranks": [str(number) for number in named],
            "behind": in_ms(behind.tolist()),
            "behind_share": float(behind.mean()) / whole,
            "batches": int((behind > 0).sum()),
            "measured": count,
        }
        return tuple(named), Statement("ranks-late" if exchanges else "ranks-slower", values=values)
    often = max(ranks, key=lambda each: each.last)
    values = {"rank": often.rank.rank, "batches": often.last, "measured": count}
    return (), Statement("ranks-not-late", values=values)


def _is_late(behind: list[float], whole: float) -> bool:
    mean, count = math.fsum(behind) / len(behind), len(behind)
    low = mean - t_quantile(LEVEL, cosines(count)) * math.sqrt(long_run_variance(np.asarray(behind)) / count)
    return low > 0 and mean >= LEAST_SHARE * whole and mean > scatter(behind)
