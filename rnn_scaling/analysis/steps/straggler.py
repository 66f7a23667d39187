"""The tower, or the ranks of a cluster, that the others wait for, named where their times give the evidence. Pure."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from rnn_scaling.analysis.confidence import (
    MIN_BATCHES,
    long_run_variance,
    num_cosines,
    standard_deviation,
)
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.student import t_quantile
from rnn_scaling.records.step_parts import BACKWARD, FORWARD, IDLE, TimedStep, TowerStep
from rnn_scaling.records.workers import Rank, Workers

LEAST_STEPS = 3  # traced steps below which no straggler is named
LEVEL = 0.95  # one-sided, of each test behind a straggler
RANK_LEVEL = 0.975  # one-sided: of two ranks the later one is looked at, so 5 % have a false alarm
MOST_LATE = 8  # ranks that can be named together, and never more than half of all
MOST_IDLE = 0.5  # share of a step without a timed kernel, above which arrival times say too little
LEAST_SHARE = 0.01  # of a step; a tower that is later by less is no straggler, because there is nothing to gain
SERIAL = 0.1  # concurrency above 1, a further tower, up to which towers count as run one after another


def name_straggler(
    steps: Sequence[TimedStep], synchronous: bool, clustered: bool = False
) -> tuple[int | None, Statement]:
    """The tower that the others wait for, if the arrival times give the evidence, and a statement that says why.

    It is named where the same tower ends its backward pass last in every step, and three differences from the next
    latest tower are each above 0 by Student's t over the steps (one-sided, 95 %): the end itself, the time from its own
    first kernel to that end (else it only started later), and its own compute (else it only stood still). The end must
    be later by LEAST_SHARE of a step, and by more than its standard deviation between steps.
    """
    if missing := _missing_evidence(steps, synchronous, clustered):
        return None, missing
    last = [max(step.towers, key=_arrival) for step in steps]
    tower = last[0].tower
    if any(latest.tower != tower for latest in last):
        return None, Statement(
            "straggler-changes",
            values={"towers": [str(latest.tower) for latest in last]},
        )
    late, took, compute = zip(
        *(_lateness(step, latest) for step, latest in zip(steps, last))
    )
    mean_late = math.fsum(late) / len(late)
    late_share = mean_late / (math.fsum(step.seconds for step in steps) / len(steps))
    values = {"tower": tower, "late": in_ms(late), "late_share": late_share}
    values |= {"took": in_ms(took), "compute": in_ms(compute)}
    objections = {
        "straggler-within-scatter": _lower_end(late) <= 0,
        "straggler-starts-late": _lower_end(took) <= 0,
        "straggler-held-up": _lower_end(compute) <= 0,
        "straggler-negligible": late_share < LEAST_SHARE,
        # With many steps a mean can be certain and still far below the variation between steps, which matters more.
        "straggler-scatters": mean_late <= standard_deviation(late),
    }
    for kind, holds in objections.items():
        if holds:
            return None, Statement(kind, values=values)
    return tower, Statement("straggler", values=values)


def _missing_evidence(
    steps: Sequence[TimedStep], synchronous: bool, clustered: bool
) -> Statement | None:
    """Why arrival times of these steps cannot name a tower; None if they can."""
    count = len(steps[0].towers) if steps else 0
    if not count:
        return Statement("straggler-no-steps")
    unseen = sorted(
        {t.tower for s in steps for t in s.towers if None in (t.first_s, t.arrival_s)}
    )
    idle = math.fsum(step.towers[0].parts[IDLE] / step.seconds for step in steps) / len(
        steps
    )
    concurrency = math.fsum(step.concurrency or 0.0 for step in steps) / len(steps)
    reasons = [
        (count == 1, Statement("straggler-one-tower")),
        (not synchronous, Statement("straggler-no-exchange")),
        (clustered, Statement("straggler-clusters")),
        (
            len(steps) < LEAST_STEPS,
            Statement(
                "straggler-few-steps",
                values={"steps": len(steps), "least": LEAST_STEPS},
            ),
        ),
        (
            bool(unseen),
            Statement(
                "straggler-unseen",
                values={"towers": [f"tower {tower}" for tower in unseen]},
            ),
        ),
        (idle > MOST_IDLE, Statement("straggler-idle", values={"idle": idle})),
        (
            concurrency <= 1 + SERIAL * (count - 1),
            Statement("straggler-serial", values={"concurrency": concurrency}),
        ),
    ]
    return next((statement for holds, statement in reasons if holds), None)


def _lateness(step: TimedStep, last: TowerStep) -> tuple[float, float, float]:
    """Seconds by which the last tower ended later, took longer and computed longer than the next latest one."""
    others = [tower for tower in step.towers if tower.tower != last.tower]
    second = max(others, key=_arrival)
    late = _arrival(last) - _arrival(second)
    took = late - ((last.first_s or 0.0) - (second.first_s or 0.0))
    compute = [
        math.fsum(tower.busy[phase] for phase in (FORWARD, BACKWARD))
        for tower in (last, second)
    ]
    # To the nanosecond: the error of floating point has no scatter, and would be above 0 in every step.
    return round(late, 9), round(took, 9), round(compute[0] - compute[1], 9)


def _arrival(tower: TowerStep) -> float:
    return tower.arrival_s or 0.0  # steps with a tower that has none are no evidence


def _lower_end(values: Sequence[float]) -> float:
    """Lower end of the one-sided 95 % interval of their mean."""
    mean = math.fsum(values) / len(values)
    return mean - t_quantile(LEVEL, len(values) - 1) * standard_deviation(
        values
    ) / math.sqrt(len(values))


def in_ms(values: Sequence[float]) -> str:
    """ "12.34 (sd 0.12)": mean and standard deviation of seconds, in milliseconds."""
    return f"{1000 * math.fsum(values) / len(values):.2f} (sd {1000 * standard_deviation(values):.2f})"


@dataclasses.dataclass(frozen=True)
class RankTimes:
    rank: Rank
    seconds: tuple[float, ...]  # of each, by its own clock
    ready: tuple[
        float, ...
    ]  # until its gradients were there, empty where that is not recorded
    num_last: int = 0  # batches in which it was the last of all, by `ready` or without exchange by `seconds`

    @property
    def items_per_second(self) -> float:
        return math.fsum(self.rank.items[-len(self.seconds) :]) / math.fsum(
            self.seconds
        )


@dataclasses.dataclass(frozen=True)
class Lateness:
    """ranks: those that timed their batches, in their order; late: the numbers of those that are named."""

    ranks: tuple[RankTimes, ...]
    late_ranks: tuple[int, ...]
    reason: Statement
    by_ready: bool  # whether they are judged by when their gradients were there; else by how long their batches take


def judge_ranks(workers: Workers, warmup: int, exchanges: bool) -> Lateness | None:
    """The ranks that others wait for, where their batches give the evidence; None where fewer than two have any.

    Ranks that exchange gradients are compared by when each had its own, others by how long their batches take. The
    latest ranks are named, as few as possible, where the first of them comes after the last of all others by a time
    whose mean over the batches is above 0 (Student's t, 95 %, neighbouring batches being alike), is 1 % of a batch or
    more, and exceeds its standard deviation.
    """
    beyond = [rank for rank in workers.ranks if len(rank.seconds) > warmup]
    timed = [
        RankTimes(rank, rank.seconds[warmup:], rank.ready[warmup:]) for rank in beyond
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
    at = np.asarray(
        [(times.ready if exchanges else times.seconds)[:count] for times in timed]
    )
    lasts = np.bincount(at.argmax(axis=0), minlength=len(timed))
    ranks = tuple(
        dataclasses.replace(times, num_last=int(last))
        for times, last in zip(timed, lasts)
    )
    whole = float(np.mean([times.seconds[:count] for times in timed]))
    late, why = _named(ranks, at, whole, exchanges)
    return Lateness(ranks, late, why, exchanges)


def _named(
    ranks: Sequence[RankTimes], at: np.ndarray, whole: float, exchanges: bool
) -> tuple[tuple[int, ...], Statement]:
    """(numbers of the ranks that are late, and why), by `at`, seconds `[ranks, batches]`; `whole`: of a batch."""
    order = np.argsort(-at.mean(axis=1), kind="stable")
    count = at.shape[1]
    for size in range(1, min(MOST_LATE, len(ranks) // 2) + 1):
        late = order[:size]
        others = order[size:]
        behind = at[late].min(axis=0) - at[others].max(axis=0)
        if not _is_late(behind.tolist(), whole):
            continue
        named = sorted(ranks[i].rank.rank for i in late)
        values: dict[str, object] = {
            "ranks": [str(number) for number in named],
            "behind": in_ms(behind.tolist()),
        }
        values |= {
            "behind_share": float(behind.mean()) / whole,
            "batches": int((behind > 0).sum()),
            "measured": count,
        }
        return tuple(named), Statement(
            "ranks-late" if exchanges else "ranks-slower", values=values
        )
    often = max(ranks, key=lambda times: times.num_last)
    values = {"rank": often.rank.rank, "batches": often.num_last, "measured": count}
    return (), Statement("ranks-not-late", values=values)


def _is_late(behind: list[float], whole: float) -> bool:
    mean = math.fsum(behind) / len(behind)
    count = len(behind)
    low = mean - t_quantile(RANK_LEVEL, num_cosines(count)) * math.sqrt(
        long_run_variance(np.asarray(behind)) / count
    )
    return low > 0 and mean >= LEAST_SHARE * whole and mean > standard_deviation(behind)
