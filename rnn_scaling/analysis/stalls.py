"""Detect steps that were reported before the devices had finished them.

A program that does not wait for its devices fills their queue in no time and waits
later: at every step, when it reads a number, or at the end. Some of its
steps are therefore many times shorter than others.

The Recorder warns about them at the end of a run.
"""

import math
import statistics
from collections.abc import Sequence

from rnn_scaling.records.early_steps import LONG_RATIO
from rnn_scaling.records.parts import EarlySteps, EarlyStepsKind

_MIN_STEPS = 5  # fewer steps show nothing
_REGULAR_SHARE = 0.8  # share of the gaps between long steps
_LONG_SHARE = 0.5  # share of the time that few steps took


def find_early_steps(
    step_s: Sequence[float], step_items: Sequence[int], end_s: float = 0.0
) -> EarlySteps | None:
    """Judge the times of a run's measured steps.

    Args:
      step_s: Seconds of each step.
      step_items: Items of each step.
      end_s: Seconds from the last step to the end of the program's loop.

    Returns:
      The pattern that was found, or None.
    """
    if len(step_s) < _MIN_STEPS:
        return None
    total_s = math.fsum(step_s)

    def make_early_steps(
        kind: EarlyStepsKind, steps: int, seconds: float
    ) -> EarlySteps:
        return EarlySteps(
            kind=kind.value,
            steps=steps,
            seconds=seconds,
            total_steps=len(step_s),
            total_seconds=total_s,
        )

    item_s = [seconds / items for seconds, items in zip(step_s, step_items)]
    num_fast = _count_fast_steps_at_start(item_s)
    if num_fast >= _MIN_STEPS:
        fast_s = math.fsum(step_s[:num_fast])
        return make_early_steps(EarlyStepsKind.FAST_START, num_fast, fast_s)

    # A report takes microseconds, and sometimes a few more.
    long_s = max(LONG_RATIO * statistics.median(item_s), statistics.fmean(item_s))
    long_steps = [number for number, time_s in enumerate(item_s) if time_s > long_s]
    in_long_s = math.fsum(step_s[number] for number in long_steps)
    if in_long_s > _LONG_SHARE * total_s:
        if long_steps == [len(step_s) - 1]:
            return make_early_steps(EarlyStepsKind.LONG_LAST, 1, in_long_s)
        if _is_regular(long_steps):
            return make_early_steps(EarlyStepsKind.FEW_LONG, len(long_steps), in_long_s)

    if end_s > _LONG_SHARE * total_s and end_s > LONG_RATIO * max(step_s):
        return make_early_steps(EarlyStepsKind.LONG_END, 0, end_s)
    return None


def _count_fast_steps_at_start(item_s: Sequence[float]) -> int:
    """Return the number of steps before the first one that is about as slow as most."""
    later_s = statistics.median(item_s[len(item_s) // 2 :])
    for number, time_s in enumerate(item_s):
        if time_s * LONG_RATIO > later_s:
            return number
    return 0


def _is_regular(long_steps: Sequence[int]) -> bool:
    """Return whether steps follow each other like the lines of a log.

    The pauses of a busy machine do not.
    """
    gaps = [after - before for before, after in zip(long_steps, long_steps[1:])]
    if len(long_steps) < _MIN_STEPS:
        return False
    return gaps.count(statistics.mode(gaps)) >= _REGULAR_SHARE * len(gaps)
