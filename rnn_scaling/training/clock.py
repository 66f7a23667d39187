"""The clock of a run: one reading at the start and one at the end of every step.

`Recording` owns the timer of a run. The caller must wait for the devices before
`end_step`, because the timer only reads the clock.
"""

import time
from collections.abc import Callable


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
        """Read the clock after a pause between two steps; neither step contains it."""
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
        """Remove the last step, which must not be recorded.

        The next step still begins when the removed step ended.
        """
        for values in (self.step_s, self.step_items, self.step_loss):
            values.pop()

    def since_last(self) -> float:
        """Return the seconds since the last step or pause; 0 before the first step."""
        return 0.0 if self._last is None else self._clock() - self._last
