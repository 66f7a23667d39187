"""The clock of a run: one reading at the start and one at the end of every step.

`Recording` owns the timer of a run. The caller must wait for the devices before
`end_step`, because the timer only reads the clock.
"""

import time
from collections.abc import Callable, Sequence

from rnn_scaling.records.parts import SteadyState, Throughput


class StepTimer:
    """Seconds, items and loss of every step, with the warm-up.

    The seconds of a step run from the end of the step before it to its own end, so
    that the seconds of consecutive steps add up to the elapsed time.
    """

    def __init__(
        self, warmup_steps: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """Create a timer that has not started.

        Args:
          warmup_steps: Steps at the beginning that are not measured.
          clock: Returns seconds.
        """
        self._clock = clock
        self._last: float | None = None
        self.warmup_steps = warmup_steps
        self.step_s: list[float] = []
        self.step_items: list[int] = []
        self.step_loss: list[float] = []

    def start(self) -> None:
        """Read the clock before the first step."""
        self._last = self._clock()

    def resume(self) -> None:
        """Read the clock after a pause between two steps; it counts for neither."""
        if self._last is None:
            raise ValueError("expected start() before resume()")
        self._last = self._clock()

    def end_step(self, items: int, loss: float = 0.0) -> float:
        """Read the clock after the devices have finished a step.

        Returns:
          The seconds of the step.
        """
        if self._last is None:
            raise ValueError("expected start() before end_step()")
        now = self._clock()
        step_s = now - self._last
        self._last = now
        self.step_s.append(step_s)
        self.step_items.append(int(items))
        self.step_loss.append(float(loss))
        return step_s

    def remove_last(self) -> None:
        """Remove the last step; it must not be recorded.

        The next step still begins at its end.
        """
        for values in (self.step_s, self.step_items, self.step_loss):
            values.pop()

    def since_last(self) -> float:
        """Return the seconds since the last step or pause; 0 before the first step."""
        return 0.0 if self._last is None else self._clock() - self._last


def throughput(
    step_s: Sequence[float], step_items: Sequence[int], warmup_steps: int
) -> Throughput | None:
    """Return the throughput of the steps after the warm-up, or None without steps."""
    if len(step_s) <= warmup_steps:
        return None
    seconds = sum(step_s[warmup_steps:])
    items = sum(step_items[warmup_steps:])
    return Throughput(items=items, seconds=seconds, items_per_second=items / seconds)


def steady_state(
    step_s: Sequence[float], step_items: Sequence[int], warmup_steps: int
) -> SteadyState | None:
    """Return when a run became steady.

    Returns:
      The fields of the record, or None without numpy. Readers of the record have
      numpy.
    """
    try:
        from rnn_scaling.analysis.steady_state import analyse
    except ImportError:
        return None
    state = analyse(step_s, step_items, warmup_steps)
    return SteadyState(
        kind=state.kind,
        start=state.start,
        rate_steady=state.rate_steady,
        move=state.move,
        half_width=state.half_width,
        period=state.period,
        outliers=tuple(state.outliers),
    )
