"""The clocks of a run: the seconds of every step, and of the phases around the steps.

`Recording` owns both clocks of a run. The caller must wait for the devices before
`end_step`, because the timer only reads the clock.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence

from rnn_scaling.records.parts import Phases


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

    def measure_since_last(self) -> float:
        """Return the seconds since the last step or pause; 0 before the first step."""
        return 0.0 if self._last is None else self._clock() - self._last


class PhaseClock:
    """Measures the phases of a run, which are entered one after the other.

    `Recording` creates it, in the phase "start". Every run must enter "batches".

    Attributes:
      carried_s: Seconds of the batches that earlier processes did.
    """

    def __init__(self, clock: Callable[[], float], started: float | None) -> None:
        """Enter the phase "start".

        Args:
          clock: Returns seconds.
          started: The clock's reading when the program started; None for now.
        """
        self.carried_s = 0.0
        self._clock = clock
        if started is None:
            started = clock()
        self._starts: list[tuple[str, float]] = [("start", started)]

    def enter(self, phase: str) -> None:
        """End the current phase and begin another one."""
        self._starts.append((phase, self._clock()))

    def wait_outside(self, wait: Callable[[], None]) -> None:
        """Call a function without adding its seconds to a phase."""
        start = self._clock()
        wait()
        waited_s = self._clock() - start
        self._starts = [(phase, entered + waited_s) for phase, entered in self._starts]

    def elapsed_s(self) -> float:
        """Return the seconds since the start of this process."""
        return self._clock() - self._starts[0][1]

    def measure(self, step_s: Sequence[float], warmup_steps: int) -> Phases:
        """Return the seconds of each phase so far, which add up to the total.

        Args:
          step_s: Seconds of every step. The phases of the batches are sums of them.
          warmup_steps: Steps at the beginning that are not measured.
        """
        now = self._clock()
        elapsed_s = now - self._starts[0][1]
        ends = [start for _, start in self._starts[1:]] + [now]
        spent = {name: end - start for (name, start), end in zip(self._starts, ends)}
        phases = Phases(
            start=spent["start"],
            cluster=spent.get("cluster", 0.0),
            build=spent.get("build", 0.0),
            resume=spent.get("resume"),
            first_batch=sum(step_s[: min(1, warmup_steps)]),
            warmup=sum(step_s[1:warmup_steps]),
            measured=sum(step_s[warmup_steps:]),
        )
        known_s = sum(phases.parts.values())
        # The batches may have been timed by another rank's clock.
        total = max(known_s, elapsed_s + self.carried_s)
        return dataclasses.replace(phases, teardown=total - known_s, total=total)
