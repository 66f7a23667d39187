"""Count the steps of the learning rate schedules of a watched script.

`observer` asks once per optimizer step. Needs only torch.
"""

from collections.abc import Callable
from typing import Any

import torch

Replace = Callable[[Any, str, Callable[..., Any]], None]


class Schedules:
    """The schedules of a script.

    Attributes:
      newest: The schedule that was made last; None if there is none.
      num_calls: Steps of schedules in this optimizer step.
      by_samples: Whether Accelerate steps a schedule once per batch of one process.
    """

    def __init__(self, replace: Replace) -> None:
        """Watch nothing yet.

        Args:
          replace: Replaces a method; the replacement gets the original first.
        """
        self._replace = replace
        self._watched_classes: set[type] = set()
        self.newest: Any = None
        self.start_step()

    def install(self) -> None:
        """Watch each schedule that the script makes from now on."""
        scheduler = torch.optim.lr_scheduler.LRScheduler
        self._replace(scheduler, "__init__", self._create)

    def start_step(self) -> None:
        """Forget the calls of the optimizer step that has ended."""
        self.num_calls = 0
        self.by_samples = False

    def step_by_samples(
        self, original: Any, scheduler: Any, *args: Any, **options: Any
    ) -> Any:
        """Note that Accelerate steps a schedule once per batch of one process."""
        self.by_samples = True
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
                    self._replace(owner, "step", self._step)
                break
        self.newest = scheduler
        original(scheduler, *args, **options)
        self.num_calls = 0  # a new scheduler steps once

    def _step(self, original: Any, *args: Any, **options: Any) -> Any:
        self.num_calls += 1
        return original(*args, **options)
