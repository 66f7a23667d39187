"""The clock of a run: one reading at the start and one at the end of every step."""

import time
from collections.abc import Callable, Sequence

from rnn_scaling.records.parts import SteadyState, Throughput


class StepTimer:
    """Seconds, items and loss of every step, warm-up included.

    A step's seconds run from the end of the step before it to its own end: those of consecutive steps add up to the
    time that passed.
    """

    def __init__(
        self, warmup_steps: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """clock: returns seconds; tests give a fake one."""
        self._clock = clock
        self._last: float | None = None
        self.warmup_steps = warmup_steps
        self.step_s: list[float] = []
        self.step_items: list[int] = []
        self.step_loss: list[float] = []

    def start(self) -> None:
        self._last = self._clock()

    def resume(self) -> None:
        """Reads the clock again after a pause between two steps; the pause belongs to no step."""
        if self._last is None:
            raise ValueError("expected start() before resume()")
        self._last = self._clock()

    def end_step(self, items: int, loss: float = 0.0) -> float:
        """Reads the clock after the devices have finished a step; returns the step's seconds."""
        if self._last is None:
            raise ValueError("expected start() before end_step()")
        now = self._clock()
        step_s = now - self._last
        self._last = now
        self.step_s.append(step_s)
        self.step_items.append(int(items))
        self.step_loss.append(float(loss))
        return step_s

    def forget_last(self) -> None:
        """Takes the last step back, which no record may have; the clock goes on from its end."""
        for values in (self.step_s, self.step_items, self.step_loss):
            values.pop()

    def since_last(self) -> float:
        """Seconds since the last step ended, or the last pause; 0 before the first one."""
        return 0.0 if self._last is None else self._clock() - self._last


def throughput(
    step_s: Sequence[float], step_items: Sequence[int], warmup_steps: int
) -> Throughput | None:
    """Seconds and items of the same steps, those after the warm-up; None if there are none."""
    if len(step_s) <= warmup_steps:
        return None
    seconds, items = sum(step_s[warmup_steps:]), sum(step_items[warmup_steps:])
    return Throughput(items=items, seconds=seconds, items_per_second=items / seconds)


def steady_state(
    step_s: Sequence[float], step_items: Sequence[int], warmup_steps: int
) -> SteadyState | None:
    """Where a run became steady, as its record keeps it; None without numpy, which readers of the record have."""
    try:
        from rnn_scaling.analysis.steady_state import analyse
    except ImportError:
        return None
    state = analyse(step_s, step_items, warmup_steps)
    names = ("kind", "start", "rate_steady", "move", "half_width", "period")
    return SteadyState(
        outliers=tuple(state.outliers), **{name: getattr(state, name) for name in names}
    )
