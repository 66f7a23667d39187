"""The tower that the others wait for, named where traced steps give the evidence. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rnn_scaling.analysis.confidence import scatter
from rnn_scaling.analysis.student import t_quantile
from rnn_scaling.records.step_names import BACKWARD, FORWARD, IDLE
from rnn_scaling.records.step_parts import TimedStep, TowerStep

LEAST_STEPS = 3  # traced steps below which no straggler is named
LEVEL = 0.95  # one-sided, of each test behind a straggler
MOST_IDLE = 0.5  # share of a step without a timed kernel, above which arrival times say too little
LEAST_SHARE = 0.01  # of a step, below which a tower that is later is no straggler: nobody could gain from it
SERIAL = 0.1  # concurrency above 1, a further tower, up to which towers count as run one after another


def name_straggler(steps: Sequence[TimedStep], synchronous: bool, clustered: bool = False) -> tuple[int | None, str]:
    """The tower that the others wait for, if the arrival times give the evidence, and a sentence that says why.

    It is named where the same tower ends its backward pass last in every step, and three differences from the next
    latest tower are each above 0 by Student's t over the steps (one-sided, 95 %): the end itself, the time from its own
    first kernel to that end, and its own forward and backward compute. The second excludes a tower that only started
    later, the third one that only stood still: in a barrier, or because nobody launched its kernels. A difference below
    LEAST_SHARE of a step, or no larger than its own standard deviation between steps, is none.
    """
    reason = _no_evidence(steps, synchronous, clustered)
    if reason:
        return None, f"the straggler cannot be named: {reason}"
    last = [max(step.towers, key=_arrival) for step in steps]
    tower = last[0].tower
    if any(each.tower != tower for each in last):
        order = ", ".join(str(each.tower) for each in last)
        return None, f"the straggler cannot be named: another tower is last from step to step ({order})"
    differences = [_lateness(step, each) for step, each in zip(steps, last)]
    late, took, computed = (_lower([values[i] for values in differences]) for i in range(3))
    ends = f"tower {tower} is last in every step, by {in_ms([values[0] for values in differences])} ms"
    if late[1] <= 0:
        return None, f"the straggler cannot be named: {ends}, which is within the scatter of the steps"
    if took[1] <= 0:
        longer = in_ms([values[1] for values in differences])
        return None, (
            f"the straggler cannot be named: {ends}, but from its own first kernel on it does not take longer by more "
            f"than the scatter ({longer} ms)"
        )
    if computed[1] <= 0:
        excess = in_ms([values[2] for values in differences])
        return None, (
            f"the straggler cannot be named: {ends}, but its own compute is not longer by more than the scatter "
            f"({excess} ms): a barrier, or the launching of its kernels, may hold it up"
        )
    share = late[0] / (math.fsum(step.seconds for step in steps) / len(steps))
    if share < LEAST_SHARE:
        rule = f"below {100 * LEAST_SHARE:.0f} % it does not matter"
        return None, f"no straggler: {ends}, which is {100 * share:.2f} % of a step; {rule}"
    # Many steps make a mean sure that is far below what one step differs from the next by: nobody waits for that.
    if late[0] <= scatter([values[0] for values in differences]):
        return None, f"no straggler: {ends}, which differs from step to step by as much"
    longer = in_ms([values[2] for values in differences])
    return (
        tower,
        f"straggler: {ends} ({100 * share:.1f} % of a step); it computes forward and backward {longer} ms longer",
    )


def _no_evidence(steps: Sequence[TimedStep], synchronous: bool, clustered: bool) -> str | None:
    count = len(steps[0].towers) if steps else 0
    if count < 2:
        return "there is one tower" if count else "no step was traced"
    if not synchronous:
        return "no gradients of a step are exchanged within it, so no tower waits for another"
    if clustered:
        return "XLA's clusters (--xla) do not say whose operators they hold"
    if len(steps) < LEAST_STEPS:
        return f"{LEAST_STEPS} traced steps or more show scatter, got {len(steps)}; use --trace_batches={LEAST_STEPS}"
    unseen = sorted({t.tower for s in steps for t in s.towers if None in (t.first_s, t.arrival_s)})
    if unseen:
        return f"the trace holds no forward or no backward kernel of tower {', '.join(map(str, unseen))}"
    idle = math.fsum(step.towers[0].parts[IDLE] / step.seconds for step in steps) / len(steps)
    if idle > MOST_IDLE:
        return f"in {100 * idle:.0f} % of a step no kernel runs that the trace has times of"
    concurrency = math.fsum(step.concurrency or 0.0 for step in steps) / len(steps)
    if concurrency <= 1 + SERIAL * (count - 1):
        return f"the trace has the towers one after another (concurrency {concurrency:.2f}): arrival order says nothing"
    return None


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
    return tower.arrival_s or 0.0  # towers without one are no evidence, and are told before


def _lower(values: Sequence[float]) -> tuple[float, float]:
    """(mean, lower end of its one-sided 95 % interval)."""
    mean = math.fsum(values) / len(values)
    return mean, mean - t_quantile(LEVEL, len(values) - 1) * scatter(values) / math.sqrt(len(values))


def in_ms(values: Sequence[float]) -> str:
    """ "12.34 (sd 0.12)": mean and standard deviation of seconds, in milliseconds."""
    return f"{1000 * math.fsum(values) / len(values):.2f} (sd {1000 * scatter(values):.2f})"
