"""--lr_scaling: the learning rate of each update, the same function for the trainer and for who checks it. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from rnn_scaling.settings.config import RunConfig


@dataclasses.dataclass(frozen=True)
class LearningRate:
    """It rises evenly from `first` to `last` over so many updates, and stays there.

    Source: Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour", 2017, section 2.2.
    """

    first: float
    last: float
    ramp_updates: int = 0

    @property
    def is_constant(self) -> bool:
        """Whether every update has the same."""
        return not self.ramp_updates or self.first == self.last

    def at(self, update: Any, minimum: Callable[[Any, Any], Any] = min) -> Any:
        """The rate of update number `update`, 0 for the first; of a tensor, with its own `minimum`, a tensor."""
        if self.is_constant:
            return self.last
        return self.first + (self.last - self.first) * minimum(update / self.ramp_updates, 1.0)


def constant(rate: float) -> LearningRate:
    """The same rate for all updates."""
    return LearningRate(rate, rate)


def of(config: RunConfig) -> LearningRate:
    """That of a run; linear: times the towers, by which the global batch is larger than --batch_size."""
    training = config.training
    factor = config.num_towers if training.lr_scaling == "linear" else 1
    return LearningRate(training.learning_rate, training.learning_rate * factor, training.lr_warmup_batches)
