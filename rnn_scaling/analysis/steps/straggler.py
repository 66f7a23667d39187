"""Name the tower, or the ranks of a cluster, that the others wait for.

Nothing is named unless the times give the evidence.

`parts` asks for towers of one process, reports and `inspect` for ranks.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rnn_scaling.analysis.confidence import (
    MIN_BATCHES,
    choose_num_cosines,
    compute_standard_deviation,
    estimate_long_run_variance,
)
from rnn_scaling.analysis.statements import Statement, state
from rnn_scaling.analysis.student import t_quantile
from rnn_scaling.records.step_parts import BACKWARD, FORWARD, IDLE, TimedStep, TowerStep
from rnn_scaling.records.workers import Rank, Workers

MIN_STEPS = 3  # traced steps
LEVEL = 0.95  # one-sided, of each test for a straggler
# One-sided. Of two ranks only the later one is tested, so 5 % have a false alarm.
_RANK_LEVEL = 0.975
MAX_LATE_RANKS = 8  # named together, and at most half of all ranks
# Share of a step without a timed kernel. If it is larger, arrival times mean too
# little.
_MAX_IDLE = 0.5
# Share of a step. If a tower is later by less, there is nothing to gain.
MIN_SHARE = 0.01
# Towers that compute at once beyond the first, per further tower. If there are fewer,
# the towers run one after the other.
_SERIAL = 0.1


def name_straggler(
    steps: Sequence[TimedStep], is_synchronous: bool, is_clustered: bool = False
) -> tuple[int | None, Statement]:
    """Return the tower that the others wait for, or None, and the reason.

    The tower must be the last to end its backward pass in every step. It must also
    exceed the next latest tower in three times, each tested by Student's t over the
    steps (one-sided, 95 %): in the end itself; in the time from its first kernel to the
    end, or else it only started later; and in its compute, or else it only waited. The
    end must be later by MIN_SHARE of a step, and by more than its standard deviation
    between steps.
    """
    missing_evidence = _state_missing_evidence(steps, is_synchronous, is_clustered)
    if missing_evidence:
        return None, missing_evidence
    last_towers = [max(step.towers, key=_find_arrival) for step in steps]
    tower = last_towers[0].tower
    if any(last.tower != tower for last in last_towers):
        towers = [str(last.tower) for last in last_towers]
        return None, state("straggler-changes", towers=towers)
    lateness = [_measure_lateness(step, last) for step, last in zip(steps, last_towers)]
    ends_s = [late.end_s for late in lateness]
    durations_s = [late.duration_s for late in lateness]
    computes_s = [late.compute_s for late in lateness]
    mean_end_s = _compute_mean(ends_s)
    late_share = mean_end_s / _compute_mean([step.seconds for step in steps])
    values = {
        "tower": tower,
        "late": _convert_to_ms(ends_s),
        "late_share": late_share,
        "took": _convert_to_ms(durations_s),
        "compute": _convert_to_ms(computes_s),
    }
    # The first objection that holds is the reason.
    objections = {
        "straggler-within-scatter": _lower_end(ends_s) <= 0,
        "straggler-starts-late": _lower_end(durations_s) <= 0,
        "straggler-held-up": _lower_end(computes_s) <= 0,
        "straggler-negligible": late_share < MIN_SHARE,
        # With many steps a mean can be certain and yet far below the variation between
        # steps, which matters more.
        "straggler-scatters": mean_end_s <= compute_standard_deviation(ends_s),
    }
    for kind, holds in objections.items():
        if holds:
            return None, state(kind, **values)
    return tower, state("straggler", **values)


def _state_missing_evidence(
    steps: Sequence[TimedStep], is_synchronous: bool, is_clustered: bool
) -> Statement | None:
    """State why arrival times do not show a straggler, or None if they may.

    The most basic reason comes first. Later tests rely on earlier ones: for example, a
    share of idle time needs at least one tower.
    """
    if not steps or not steps[0].towers:
        return state("straggler-no-steps")
    num_towers = len(steps[0].towers)
    if num_towers == 1:
        return state("straggler-one-tower")
    if not is_synchronous:
        return state("straggler-no-exchange")
    if is_clustered:
        return state("straggler-clusters")
    if len(steps) < MIN_STEPS:
        return state("straggler-few-steps", steps=len(steps), least=MIN_STEPS)
    towers = itertools.chain.from_iterable(step.towers for step in steps)
    unseen = {each.tower for each in towers if None in (each.first_s, each.arrival_s)}
    if unseen:
        names = [f"tower {tower}" for tower in sorted(unseen)]
        return state("straggler-unseen", towers=names)
    idle = _compute_mean([step.towers[0].parts[IDLE] / step.seconds for step in steps])
    if idle > _MAX_IDLE:
        return state("straggler-idle", idle=idle)
    concurrency = _compute_mean([step.concurrency or 0.0 for step in steps])
    if concurrency <= 1 + _SERIAL * (num_towers - 1):
        return state("straggler-serial", concurrency=concurrency)
    return None


class _Lateness(NamedTuple):
    """The last tower of a step minus the next latest one."""

    end_s: float
    duration_s: float
    compute_s: float


def _measure_lateness(step: TimedStep, last: TowerStep) -> _Lateness:
    """Compare the last tower of a step with the next latest one."""
    earlier_towers = [tower for tower in step.towers if tower.tower != last.tower]
    second = max(earlier_towers, key=_find_arrival)
    end_s = _find_arrival(last) - _find_arrival(second)
    duration_s = end_s - ((last.first_s or 0.0) - (second.first_s or 0.0))
    compute_s = _compute(last) - _compute(second)
    # Without rounding to nanoseconds, the error of floating point would be above 0 in
    # every step and have no scatter.
    return _Lateness(round(end_s, 9), round(duration_s, 9), round(compute_s, 9))


def _compute(tower: TowerStep) -> float:
    return math.fsum(tower.busy[phase] for phase in (FORWARD, BACKWARD))


def _find_arrival(tower: TowerStep) -> float:
    return tower.arrival_s or 0.0  # no step without it gets here


def _compute_mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _lower_end(values: Sequence[float]) -> float:
    """Return the lower end of the one-sided 95 % interval of the mean."""
    quantile = t_quantile(LEVEL, len(values) - 1)
    error = compute_standard_deviation(values) / math.sqrt(len(values))
    return _compute_mean(values) - quantile * error


def _convert_to_ms(seconds: Sequence[float]) -> str:
    """Return "12.34 (sd 0.12)": mean and standard deviation, in milliseconds."""
    deviation = compute_standard_deviation(seconds)
    return f"{1000 * _compute_mean(seconds):.2f} (sd {1000 * deviation:.2f})"


@dataclasses.dataclass(frozen=True)
class RankTimes:
    """The measured batches of one rank."""

    rank: Rank
    seconds: tuple[float, ...]  # duration of each batch by the rank's clock
    ready: tuple[float, ...]  # seconds until its gradients; empty if not recorded
    num_last: int = 0  # batches in which it was the last rank

    @property
    def items_per_second(self) -> float:
        """Items per second of the measured batches."""
        items = self.rank.items[-len(self.seconds) :]
        return math.fsum(items) / math.fsum(self.seconds)


@dataclasses.dataclass(frozen=True)
class Lateness:
    """The ranks that timed their batches, and which of them are late."""

    ranks: tuple[RankTimes, ...]
    late_ranks: tuple[int, ...]  # numbers of the late ranks
    reason: Statement
    by_ready: bool  # whether times until the gradients were ready are compared


def judge_ranks(workers: Workers, warmup: int, exchanges: bool) -> Lateness | None:
    """Return which ranks the others wait for, if the times give the evidence.

    The fewest latest ranks are named for which the first of them comes after the last
    of all others. The mean difference must be above 0 (Student's t, 95 %, neighbouring
    batches being similar), 1 % of a batch or more, and larger than its standard
    deviation.

    Args:
      workers: The ranks.
      warmup: The number of batches that are not compared.
      exchanges: Whether the ranks exchange gradients. Then they are compared by when
        each had its gradients, and else by how long their batches take.

    Returns:
      The judgement; None if fewer than two ranks have times.
    """
    timed_ranks = [
        RankTimes(rank, rank.seconds[warmup:], rank.ready[warmup:])
        for rank in workers.ranks
        if len(rank.seconds) > warmup
    ]
    if len(timed_ranks) < 2:
        return None
    has_ready = all(
        len(times.ready) == len(timed_ranks[0].ready) > 0 for times in timed_ranks
    )
    if exchanges and not has_ready:
        return Lateness(
            tuple(timed_ranks), (), state("ranks-not-timed"), by_ready=False
        )
    num_batches = min(len(times.seconds) for times in timed_ranks)
    if num_batches < MIN_BATCHES:
        reason = state("ranks-few-batches", least=MIN_BATCHES)
        return Lateness(tuple(timed_ranks), (), reason, exchanges)
    seconds = np.asarray([times.seconds[:num_batches] for times in timed_ranks])
    ends = seconds
    if exchanges:
        ends = np.asarray([times.ready[:num_batches] for times in timed_ranks])
    num_last = np.bincount(ends.argmax(axis=0), minlength=len(timed_ranks))
    ranks = [
        dataclasses.replace(times, num_last=count)
        for times, count in zip(timed_ranks, num_last.tolist())
    ]
    late_numbers, reason = _find_late_ranks(
        ranks, ends, float(seconds.mean()), exchanges
    )
    return Lateness(tuple(ranks), late_numbers, reason, exchanges)


def _find_late_ranks(
    ranks: Sequence[RankTimes], ends: np.ndarray, batch_s: float, exchanges: bool
) -> tuple[tuple[int, ...], Statement]:
    """Return the numbers of the late ranks, and the reason.

    Args:
      ranks: The ranks.
      ends: The compared seconds, [ranks, batches].
      batch_s: The mean seconds of a batch.
      exchanges: Whether the ranks exchange gradients.
    """
    order = np.argsort(-ends.mean(axis=1), kind="stable")
    num_batches = ends.shape[1]
    for size in range(1, min(MAX_LATE_RANKS, len(ranks) // 2) + 1):
        late_indices = order[:size]
        delay_s = ends[late_indices].min(axis=0) - ends[order[size:]].max(axis=0)
        if not _is_late(delay_s, batch_s):
            continue
        numbers = sorted(ranks[i].rank.rank for i in late_indices)
        kind = "ranks-late" if exchanges else "ranks-slower"
        return tuple(numbers), state(
            kind,
            ranks=[str(number) for number in numbers],
            behind=_convert_to_ms(delay_s.tolist()),
            behind_share=float(delay_s.mean()) / batch_s,
            batches=int((delay_s > 0).sum()),
            measured=num_batches,
        )
    last = max(ranks, key=lambda times: times.num_last)
    return (), state(
        "ranks-not-late",
        rank=last.rank.rank,
        batches=last.num_last,
        measured=num_batches,
    )


def _is_late(delay_s: np.ndarray, batch_s: float) -> bool:
    """Return whether a delay is certain, matters, and exceeds its own variation.

    Args:
      delay_s: Seconds of the delay in each batch.
      batch_s: The mean seconds of a batch.
    """
    mean = _compute_mean(delay_s.tolist())
    quantile = t_quantile(_RANK_LEVEL, choose_num_cosines(len(delay_s)))
    error = math.sqrt(estimate_long_run_variance(delay_s) / len(delay_s))
    is_significant = mean - quantile * error > 0
    is_material = mean >= MIN_SHARE * batch_s
    return (
        is_significant
        and is_material
        and mean > compute_standard_deviation(delay_s.tolist())
    )
