"""The learning rate of each update: a pure function of its number.

The trainer and its verification use the same function.
"""

import dataclasses
import math
from typing import Any

from rnn_scaling.config.run_config import RunConfig
from rnn_scaling.config.run_options import TrainingOptions


@dataclasses.dataclass(frozen=True)
class LearningRate:
    """A schedule times a factor that rises linearly from 1 to `factor`.

    Sources: Goyal et al., "Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour",
    2017, section 2.2, for the factor; Vaswani et al., "Attention Is All You Need",
    2017, section 5.3, for inverse_sqrt.
    """

    first: float  # --learning_rate
    factor: float = 1.0
    # Updates over which the factor rises. With inverse_sqrt, the factor is constant,
    # and these are the updates until the rate is `last`.
    ramp_updates: int = 0
    schedule: str = "constant"
    # Schedule piecewise: first update and rate of each piece after the first.
    steps: tuple[tuple[int, float], ...] = ()

    @property
    def last(self) -> float:
        """The rate after the ramp, without later pieces."""
        return self.first * self.factor

    @property
    def is_constant(self) -> bool:
        """Whether every update has the same rate."""
        has_ramp = self.ramp_updates and self.factor != 1
        return self.schedule == "constant" and not has_ramp

    def compute(self, update: Any, ops: Any) -> Any:
        """Return the rate of an update.

        Args:
          update: The number of the update, a float64 of `ops`; 0 for the first.
          ops: numpy or tensorflow.
        """
        if self.schedule == "inverse_sqrt":
            progress = (update + 1.0) / self.ramp_updates
            return self.last * ops.minimum(progress, 1.0 / ops.sqrt(progress))
        rate = self.first + 0.0 * update
        for first_update, step_rate in self.steps:
            rate = ops.where(update >= first_update, step_rate + 0.0 * update, rate)
        ramp = 1.0
        if self.ramp_updates:
            ramp = ops.minimum(update / self.ramp_updates, 1.0)
        return rate * (1.0 + (self.factor - 1.0) * ramp)


def from_config(config: RunConfig) -> LearningRate:
    """Return the learning rate of a run.

    With --lr_scaling=linear, the factor is the number by which the batch of an update
    is larger than --batch_size: all towers times their micro-batches.
    """
    training = config.training
    factor = 1
    if training.lr_scaling == "linear":
        factor = config.num_towers * training.gradient_accumulation_steps
    is_piecewise = training.lr_schedule == "piecewise"
    return LearningRate(
        training.learning_rate,
        factor=factor,
        ramp_updates=training.lr_warmup_batches,
        schedule=training.lr_schedule,
        steps=parse_steps(training) if is_piecewise else (),
    )


def parse_steps(training: TrainingOptions) -> tuple[tuple[int, float], ...]:
    """Return the steps of a piecewise schedule.

    Returns:
      First update and rate of each step; () if --lr_steps is not a valid schedule.
    """
    try:
        pairs = [step.split(":") for step in training.lr_steps.split(",")]
        steps = tuple((int(update), float(rate)) for update, rate in pairs)
    except ValueError:
        return ()
    updates = [update for update, _ in steps]
    is_rising = updates[0] > 0 and updates == sorted(set(updates))
    has_valid_rates = all(0 < rate < math.inf for _, rate in steps)
    return steps if is_rising and has_valid_rates else ()
