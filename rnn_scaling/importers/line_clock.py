"""A clock for programs that print steps and no seconds: when their lines arrived at the sweep.

A program that keeps its output back writes many lines at once. When such a burst arrives, its last line was the last
that was printed and the next was not printed yet, so the step is known to one line, and the time exactly.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable
from typing import NamedTuple

from rnn_scaling.importers import start_up
from rnn_scaling.importers.log_formats import ARRIVAL, LogReading, Terms

DELAY_S = 0.02  # that a line may take from the program to the sweep on a busy machine
TOGETHER_S = 0.01  # lines that arrive within it came at once
BURST = 1.5  # lines that came at once, on the mean, from which on the program keeps its output back
MOST_ERROR = 0.5  # share of a rate
REMEDY = "let it print at once: flush=True, python -u, PYTHONUNBUFFERED=1, or stdbuf -oL before another program"


class Event(NamedTuple):
    """A line that shows a step."""

    arrived_s: float
    step: float
    half: float = 0.0  # half of what the last digit means; 0 for a whole number
    loss: float | None = None
    epoch: int | None = None  # None if the log does not name it


@dataclasses.dataclass
class _Point:
    """Lines that came at once: when the first and the last of them did, and what the last tells."""

    opened_s: float
    last: Event


def read(events: Iterable[Event], format: str, terms: Terms) -> LogReading:
    """Return the rate of the steps by the arrival of their lines.

    Stretches from line to line count in which the step grows; a line that repeats a
    step is not one. If the step falls, a new epoch has begun: the time since the line
    before is left out, since its steps are unknown.

    Raises:
      ValueError: If there are too few stretches, or if they are too short.
    """
    epochs, lines = _epochs(events)
    stretches = sum(len(points) - 1 for points in epochs)
    is_buffered = lines > BURST * stretches
    if is_buffered:  # the last burst of an epoch came when something else was printed, or at the program's end
        epochs = [points[:-1] for points in epochs]
    pairs = [pair for points in epochs for pair in itertools.pairwise(points)]
    if not pairs:
        come = (
            f"arrived in {stretches + len(epochs)} bursts; {REMEDY}"
            if lines
            else "tell fewer than two steps"
        )
        raise ValueError(f"its {lines + len(epochs)} lines that tell a new step {come}")
    seconds = tuple(end.last.arrived_s - begin.last.arrived_s for begin, end in pairs)
    steps = [end.last.step - begin.last.step for begin, end in pairs]
    costs = [taken_s / count for taken_s, count in zip(seconds, steps)]
    first = start_up.find(costs, terms.warmup).lines
    counted_s, counted_steps = math.fsum(seconds[first:]), math.fsum(steps[first:])
    error_s = DELAY_S + (math.fsum(seconds) / lines if is_buffered else 0.0)
    half = max(event.half for pair in pairs for event in (pair[0].last, pair[1].last))
    error = sum(len(points) > 1 for points in epochs) * (
        error_s / counted_s + 2 * half / counted_steps
    )
    if error > MOST_ERROR:
        why = f"{REMEDY}, or make more steps"
        raise ValueError(
            f"its steps were printed within {counted_s:.2g} s, which is too short to time; {why}"
        )
    items = tuple(step * (terms.items_per_step or 1.0) for step in steps)
    loss = tuple(end.last.loss for _, end in pairs)
    return LogReading(
        format,
        math.fsum(items[first:]) / counted_s,
        seconds=seconds,
        items=items,
        loss=loss if any(value is not None for value in loss) else (),
        warmup=first,
        rounding=error,
        clock=ARRIVAL,
        notes=(
            f"{format.partition(':')[0]}: the arrival of the lines timed the steps; intervals hold the error of it",
        ),
    )


def is_new_epoch(step: float, last: float) -> bool:
    """Whether steps have begun anew; a step that is a little lower is that of a rank that lags."""
    return step <= last / 2


def _epochs(events: Iterable[Event]) -> tuple[list[list[_Point]], int]:
    """(the points of each stretch of growing steps, the number of lines with a larger step than the line before)."""
    epochs: list[list[_Point]] = []
    lines = 0
    for event in events:
        last = epochs[-1][-1] if epochs else None
        if (
            last is None
            or event.epoch != last.last.epoch
            or is_new_epoch(event.step, last.last.step)
        ):
            epochs.append([_Point(event.arrived_s, event)])
        elif event.step > last.last.step:
            lines += 1
            if event.arrived_s - last.opened_s < TOGETHER_S:
                last.last = event
            else:
                epochs[-1].append(_Point(event.arrived_s, event))
    return epochs, lines
