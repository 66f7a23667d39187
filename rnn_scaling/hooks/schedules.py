"""Count the steps of the learning rate schedules of a watched script.

`observer` creates `Schedules`. Needs only torch.
"""

from typing import Any

import torch

from rnn_scaling.hooks.replacing import replace


class Schedules:
    """Counts how often schedules change the learning rate in an optimizer step.

    Attributes:
      newest: The schedule that was created last; None if the script has none.
    """

    def __init__(self) -> None:
        self._watched_classes: set[type] = set()
        self.newest: Any = None
        self.start_step()

    def install(self) -> None:
        """Watch each schedule that the script creates from now on."""
        scheduler = torch.optim.lr_scheduler.LRScheduler
        replace(scheduler, "__init__", self._create)

    def start_step(self) -> None:
        """Forget the calls of the optimizer step that has ended."""
        self._num_calls = 0
        self._by_samples = False

    def describe_step(self) -> dict[str, Any]:
        """Return fields of the line of a step."""
        return {
            "scheduler_calls": self._num_calls,
            "steps_by_samples": self._by_samples,
        }

    def step_by_samples(
        self, original: Any, scheduler: Any, *args: Any, **options: Any
    ) -> Any:
        """Note that Accelerate steps a schedule once per batch of one process."""
        self._by_samples = True
        return original(scheduler, *args, **options)

    def _create(
        self, original: Any, scheduler: Any, *args: Any, **options: Any
    ) -> None:
        """Count the calls of a new scheduler's class."""
        # The class is changed, because a scheduler's attributes go to its checkpoints.
        for owner in type(scheduler).__mro__:
            if "step" in vars(owner):
                if owner not in self._watched_classes:
                    self._watched_classes.add(owner)
                    replace(owner, "step", self._step)
                break
        self.newest = scheduler
        original(scheduler, *args, **options)
        self._num_calls = 0  # a new scheduler steps once

    def _step(self, original: Any, *args: Any, **options: Any) -> Any:
        self._num_calls += 1
        return original(*args, **options)
