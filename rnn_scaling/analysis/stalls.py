"""Whether a program reported steps before the devices had finished them, judged by the steps' times. Pure.

A program that goes on while its devices still work fills their queue in no time, and waits later: at every step, where
it reads a number, or at the end. So some steps are many times shorter than others.
"""

import math
import statistics
from collections.abc import Sequence

LEAST = 5  # steps, fewer show nothing
FAR = 8.0  # times as long: no step of a kind is that much longer than most of them
REGULAR = 0.8  # of the gaps between such steps
MOST = 0.5  # of the time that stands in few steps
REMEDY = "Give step() the loss, which it waits for, or synchronise before it; resume() leaves a pause out."


def sentence(
    step_s: Sequence[float], step_items: Sequence[int], end_s: float = 0.0
) -> str:
    """What the times of a run's measured steps show; empty where nothing. `end_s`: from the last step to the end."""
    if len(step_s) < LEAST:
        return ""
    item_s = [seconds / items for seconds, items in zip(step_s, step_items)]
    usual, whole = statistics.median(item_s), math.fsum(step_s)
    later = statistics.median(item_s[len(item_s) // 2 :])
    begin = next(
        (number for number, time_s in enumerate(item_s) if time_s * FAR > later), 0
    )
    if begin >= LEAST:
        return _caution(
            f"the first {begin} measured steps are more than {FAR:g} times as fast as the later ones"
        )
    long = max(
        FAR * usual, statistics.fmean(item_s)
    )  # reporting alone takes microseconds, at times a few more
    few = [number for number, time_s in enumerate(item_s) if time_s > long]
    in_few = math.fsum(step_s[number] for number in few)
    if in_few > MOST * whole and (few == [len(step_s) - 1] or _is_regular(few)):
        which = (
            "the last step has"
            if len(few) == 1
            else f"{len(few)} of {len(step_s)} steps have"
        )
        return _caution(
            f"{which} {in_few / whole:.0%} of the time, and the others are {FAR:g} times as fast or more"
        )
    if end_s > MOST * whole and end_s > FAR * max(step_s):
        return _caution(
            f"{end_s:.3g} s passed after the last step, and all {len(step_s)} steps took {whole:.3g} s"
        )
    return ""


def _is_regular(few: Sequence[int]) -> bool:
    """Whether steps follow each other as the lines of a log do, and not as the pauses of a busy machine."""
    gaps = [after - before for before, after in zip(few, few[1:])]
    return len(few) >= LEAST and gaps.count(statistics.mode(gaps)) >= REGULAR * len(
        gaps
    )


def _caution(seen: str) -> str:
    return f"{seen}: was step() called before the devices had finished? {REMEDY}"
