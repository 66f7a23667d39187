"""The steps that a coordinator assigned to workers, for the record of a run.

Only runs with a coordinator have such steps. `ScheduledStep` makes them, and `Cluster`
puts them into the reports of the workers.
"""

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from rnn_scaling.training.clock import StepTimer


@dataclasses.dataclass(frozen=True)
class WorkerStep:
    """A step that a coordinator assigned to one worker.

    Attributes:
      number: Number of the step.
      worker: Number of the worker among the workers.
      staleness: Updates by other steps since the step began to read the variables.
      loss_sum: Sum of the loss over `loss_items`.
      loss_items: Predictions that the loss is a mean over.
      items: Items without padding.
      positions: Computed positions, with padding.
      correct: Correct predictions, or None if not counted.
    """

    number: int
    worker: int
    staleness: int
    loss_sum: float
    loss_items: float
    items: int
    positions: int
    correct: int | None = None


class WorkerSteps:
    """All steps of a run that a coordinator assigned; every batch has one per worker.

    Steps that ended after the last batch belong to no batch, and are left out.

    Attributes:
      steps: The steps in the order of their ends. Without a coordinator it is empty.
        `benchmark` sets it to the growing list of the step that runs.
    """

    def __init__(self, num_workers: int, timer: StepTimer) -> None:
        """Create an empty collection.

        Args:
          num_workers: Number of workers.
          timer: The clock of the batches, which knows how many have ended.
        """
        self._num_workers = num_workers
        self._timer = timer
        self.steps: Sequence[WorkerStep] = ()

    def collect_batches(self, worker: int) -> dict[str, Any]:
        """Return the steps of one worker as fields of a `records.workers.Rank`."""
        all_steps = self._list_from_batch(0)
        steps = [step for step in all_steps if step.worker == worker]
        losses = [step.loss_sum / step.loss_items for step in steps]
        batches: dict[str, Any] = {
            "items": [step.items for step in steps],
            "loss": [loss if math.isfinite(loss) else None for loss in losses],
            "loss_items": [int(step.loss_items) for step in steps],
        }
        if any(step.correct is not None for step in all_steps):
            batches["correct"] = [step.correct for step in steps]
        return batches

    def count_staleness(self) -> dict[str, int] | None:
        """Return the number of measured steps with each staleness, in ascending order.

        Returns:
          None if no coordinator assigned steps.
        """
        steps = self._list_from_batch(self._timer.warmup_steps)
        counts = collections.Counter(step.staleness for step in steps)
        ordered = {str(staleness): counts[staleness] for staleness in sorted(counts)}
        return ordered or None

    def _list_from_batch(self, first: int) -> Sequence[WorkerStep]:
        """Return the steps of the batches from number `first`."""
        start = self._num_workers * first
        return self.steps[start : self._num_workers * len(self._timer.step_s)]
