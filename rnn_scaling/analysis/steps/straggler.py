"""The tower that the others wait for, named where traced steps give the evidence. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rnn_scaling.analysis.confidence import scatter
from rnn_scaling.analysis.statements import Statement
from rnn_scaling.analysis.student import t_quantile
from rnn_scaling.records.step_names import BACKWARD, FORWARD, IDLE
from rnn_scaling.records.step_parts import TimedStep, TowerStep

LEAST_STEPS = 3  # traced steps below which no straggler is named
LEVEL = 0.95  # one-sided, of each test behind a straggler
MOST_IDLE = 0.5  # share of a step without a timed kernel, above which arrival times say too little
LEAST_SHARE = 0.01  # of a step, below which a tower that is later is no straggler: nobody could gain from it
SERIAL = 0.1  # concurrency above 1, a further tower, up to which towers count as run one after another


def name_straggler(
    steps: Sequence[TimedStep], synchronous: bool, clustered: bool = False
) -> tuple[int | None, Statement]:
    """The tower that the others wait for, if the arrival times give the evidence, and a statement that says why.

    It is named where the same tower ends its backward pass last in every step, and three differences from the next
    latest tower are each above 0 by Student's t over the steps (one-sided, 95 %): the end itself, the time from its own
    first kernel to that end, and its own forward and backward compute. The second excludes a tower that only started
    later, the third one that only stood still: in a barrier, or because nobody launched its kernels. A difference below
    LEAST_SHARE of a step, or no larger than its own standard deviation between steps, is none.
    """
    if missing := _missing_evidence(steps, synchronous, clustered):
        return None, missing
    last = [max(step.towers, key=_arrival) for step in steps]
    tower = last[0].tower
    if any(latest.tower != tower for latest in last):
        return None, Statement("straggler-changes", values={"towers": [str(latest.tower) for latest in last]})
    late, took, compute = zip(*(_lateness(step, latest) for step, latest in zip(steps, last)))
    mean_late = math.fsum(late) / len(late)
    late_share = mean_late / (math.fsum(step.seconds for step in steps) / len(steps))
    values = {
        "tower": tower,
        "late": in_ms(late),
        "late_share": late_share,
        "took": in_ms(took),
        "compute": in_ms(compute),
    }
    objections = {
        "straggler-within-scatter": _lower_end(late) <= 0,
        "straggler-starts-late": _lower_end(took) <= 0,
        "straggler-held-up": _lower_end(compute) <= 0,
        "straggler-negligible": late_share < LEAST_SHARE,
        # Many steps make a mean sure that is far below what one step differs from the next by: nobody waits for that.
        "straggler-scatters": mean_late <= scatter(late),
    }
    for kind, holds in objections.items():
        if holds:
            return None, Statement(kind, values=values)
    return tower, Statement("straggler", values=values)


def _missing_evidence(steps: Sequence[TimedStep], synchronous: bool, clustered: bool) -> Statement | None:
    """Why arrival times of these steps cannot name a tower; None if they can."""
    count = len(steps[0].towers) if steps else 0
    if not count:
        return Statement("straggler-no-steps")
    unseen = sorted({t.tower for s in steps for t in s.towers if None in (t.first_s, t.arrival_s)})
    idle = math.fsum(step.towers[0].parts[IDLE] / step.seconds for step in steps) / len(steps)
    concurrency = math.fsum(step.concurrency or 0.0 for step in steps) / len(steps)
    reasons = [
        (count == 1, Statement("straggler-one-tower")),
        (not synchronous, Statement("straggler-no-exchange")),
        (clustered, Statement("straggler-clusters")),
        (
            len(steps) < LEAST_STEPS,
            Statement("straggler-few-steps", values={"steps": len(steps), "least": LEAST_STEPS}),
        ),
        (bool(unseen), Statement("straggler-unseen", values={"towers": [f"tower {tower}" for tower in unseen]})),
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
    compute = [math.fsum(tower.busy[phase] for phase in (FORWARD, BACKWARD)) for tower in (last, second)]
    # To the nanosecond: the error of floating point has no scatter, and would be above 0 in every step.
    return round(late, 9), round(took, 9), round(compute[0] - compute[1], 9)


def _arrival(tower: TowerStep) -> float:
    return tower.arrival_s or 0.0  # steps with a tower that has none are no evidence


def _lower_end(values: Sequence[float]) -> float:
    """Lower end of the one-sided 95 % interval of their mean."""
    mean = math.fsum(values) / len(values)
    return mean - t_quantile(LEVEL, len(values) - 1) * scatter(values) / math.sqrt(len(values))


def in_ms(values: Sequence[float]) -> str:
    """ "12.34 (sd 0.12)": mean and standard deviation of seconds, in milliseconds."""
    return f"{1000 * math.fsum(values) / len(values):.2f} (sd {1000 * scatter(values):.2f})"
